"""Enums on a cluster: drivers, COPY, catalogues, and what other instances know."""

from __future__ import annotations

import asyncio
import enum
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.enum import EnumInfo, register_enum

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
TABLES = ("en_copy", "en_people", "en_global")
LABELS = ["sad", "ok", "happy"]


def connect(cluster: Cluster, name: str, user: str = "admin") -> Connection:
    dsn = f"postgresql://{user}:{PASSWORD}@127.0.0.1:{cluster[name].pg_port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    def clear() -> None:
        connection.execute("DROP VIEW IF EXISTS en_view")
        for name in TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute("DROP TYPE IF EXISTS en_mood")

    with connect(cluster, "i1") as connection:
        clear()
        connection.execute("CREATE TYPE en_mood AS ENUM ('sad', 'ok', 'happy')")
        connection.execute("CREATE TABLE en_people (id INT PRIMARY KEY, m en_mood)")
        connection.execute(
            "INSERT INTO en_people SELECT k, (CASE k % 3 WHEN 0 THEN 'sad' WHEN 1 THEN 'ok' "
            "ELSE 'happy' END)::en_mood FROM generate_series(1, 300) k"
        )
        yield connection
        clear()


def rows(connection: Connection, text: str, *values: Any) -> list[Any]:
    return connection.execute(text, values).fetchall()


def state_of(call: Any) -> str:
    with pytest.raises(psycopg.Error) as problem:
        call()
    return str(problem.value.sqlstate)


def test_labels_sort_as_declared_at_the_owners_and_at_the_asker(
    cluster: Cluster, sql: Connection
) -> None:
    for name in ("i1", "i2"):
        with connect(cluster, name) as other:
            grouped = rows(other, "SELECT m, count(*) FROM en_people GROUP BY m ORDER BY m")
            assert grouped == [(label, 100) for label in LABELS]
            assert rows(other, "SELECT min(m), max(m) FROM en_people") == [("sad", "happy")]
            first = rows(other, "SELECT m FROM en_people ORDER BY m DESC, id LIMIT 1")
            assert first == [("happy",)]
            assert rows(other, "SELECT count(*) FROM en_people WHERE m > %s", "sad") == [(200,)]
    with connect(cluster, "i2") as other:  # a plan of before the change is not used after it
        ordered = "SELECT DISTINCT m FROM en_people ORDER BY m"
        assert rows(other, ordered) == [(label,) for label in LABELS]
        sql.execute("ALTER TYPE en_mood ADD VALUE 'furious' BEFORE 'sad'")
        other.execute("INSERT INTO en_people VALUES (1000, 'furious')")
        assert rows(other, ordered) == [("furious",), *((label,) for label in LABELS)]
    notices: list[str] = []
    sql.add_notice_handler(lambda told: notices.append(str(told.message_primary)))
    sql.execute("ALTER TYPE en_mood ADD VALUE IF NOT EXISTS 'furious'")
    assert notices == ['enum label "furious" already exists, skipping']


def test_what_is_no_label_comes_in_by_no_door(cluster: Cluster, sql: Connection) -> None:
    def bad_copy(text: str, line: str) -> str:
        def call() -> None:
            with sql.cursor().copy(text) as copy:
                copy.write(line)

        return state_of(call)

    insert = "INSERT INTO en_people VALUES (%s, %s)"
    assert state_of(lambda: sql.execute(insert, (5000, "angry"))) == "22P02"
    for _ in range(6):  # the compiled way of a prepared INSERT
        assert state_of(lambda: sql.execute(insert, (5000, "angry"), prepare=True)) == "22P02"
        sql.execute(insert + " ON CONFLICT (id) DO NOTHING", (5000, "ok"), prepare=True)
    assert bad_copy("COPY en_people FROM STDIN", "5001\tangry\n") == "22P02"
    assert bad_copy("COPY en_people FROM STDIN (FORMAT csv)", "5001,angry\n") == "22P02"
    update = "UPDATE en_people SET m = %s WHERE id = 1"
    assert state_of(lambda: sql.execute(update, ("angry",))) == "22P02"
    select = "SELECT 1 FROM en_people WHERE id < 0 AND m = %s"  # no row meets it
    written = "DELETE FROM en_people WHERE id < 0 AND m < 'angry'"
    assert state_of(lambda: sql.execute(written)) == "22P02"
    assert state_of(lambda: sql.execute(select, ("angry",))) == "22P02"
    assert rows(sql, "SELECT count(*) FROM en_people WHERE id > 5000") == [(0,)]
    with sql.cursor().copy("COPY en_people FROM STDIN") as copy:
        copy.write("5001\thappy\n5002\t\\N\n")
    assert rows(sql, "SELECT m FROM en_people WHERE id > 5000 ORDER BY id") == [("happy",), (None,)]
    with sql.cursor().copy("COPY en_people TO STDOUT") as out:
        assert sorted(out.rows())[-1][0] is not None
    arrow = pytest.importorskip("pyarrow")
    stream = arrow.BufferOutputStream()
    batch = arrow.table({"id": [6001], "m": ["angry"]})
    with arrow.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_table(batch)

    def arrow_copy() -> None:
        with sql.cursor().copy("COPY en_people (id, m) FROM STDIN (FORMAT arrow)") as copy:
            copy.write(stream.getvalue().to_pybytes())

    assert state_of(arrow_copy) == "22P02"


def test_psycopg_knows_the_type_and_loads_members(sql: Connection) -> None:
    class Mood(enum.Enum):
        sad = "sad"
        ok = "ok"
        happy = "happy"

    info = EnumInfo.fetch(sql, "en_mood")
    assert info is not None and list(info.labels) == LABELS
    register_enum(info, sql, Mood, mapping={each: each.value for each in Mood})
    assert rows(sql, "SELECT m FROM en_people WHERE id = 2") == [(Mood.happy,)]
    sql.execute("UPDATE en_people SET m = %s WHERE id = 2", (Mood.sad,))
    assert rows(sql, "SELECT id FROM en_people WHERE id = 2 AND m = %s", Mood.sad) == [(2,)]
    cursor = sql.cursor(binary=True)
    assert cursor.execute("SELECT m FROM en_people WHERE id = 1").fetchall() == [(Mood.ok,)]


def test_asyncpg_reads_and_writes_labels(cluster: Cluster, sql: Connection) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def work() -> list[Any]:
        connection = await asyncpg.connect(
            host="127.0.0.1",
            port=cluster["i2"].pg_port,
            user="admin",
            password=PASSWORD,
            database="cairn",
        )
        try:
            await connection.execute("INSERT INTO en_people VALUES ($1, $2)", 7000, "happy")
            found = await connection.fetch("SELECT id, m FROM en_people WHERE m = $1", "happy")
            one = await connection.fetchval("SELECT $1::en_mood", "ok")
            return [one, {row["m"] for row in found}, len(found)]
        finally:
            await connection.close()

    assert asyncio.run(work()) == ["ok", {"happy"}, 101]


def test_sqlalchemy_makes_and_reflects_enums(cluster: Cluster, sql: Connection) -> None:
    alchemy = pytest.importorskip("sqlalchemy")

    class Mood(enum.Enum):
        sad = 1
        ok = 2

    port = cluster["i1"].pg_port
    engine = alchemy.create_engine(
        f"postgresql+psycopg://admin:{PASSWORD}@127.0.0.1:{port}/cairn",
        isolation_level="AUTOCOMMIT",
    )
    meta = alchemy.MetaData()
    table = alchemy.Table(
        "en_copy",
        meta,
        alchemy.Column("id", alchemy.Integer, primary_key=True),
        alchemy.Column("m", alchemy.Enum(Mood, name="en_alchemy")),
    )
    with engine.connect() as connection:
        connection.execute(alchemy.text("DROP TYPE IF EXISTS en_alchemy"))
    try:
        meta.create_all(engine)
        with engine.connect() as connection:
            connection.execute(table.insert(), [{"id": 1, "m": Mood.ok}, {"id": 2, "m": Mood.sad}])
            found = connection.execute(alchemy.select(table.c.m).order_by(table.c.m)).fetchall()
            assert found == [(Mood.sad,), (Mood.ok,)]
            some = table.c.m.in_([Mood.ok])
            assert connection.execute(alchemy.select(table.c.id).where(some)).fetchall() == [(1,)]
        seen = alchemy.inspect(engine)
        [column] = [each for each in seen.get_columns("en_copy") if each["name"] == "m"]
        assert column["type"].enums == ["sad", "ok"]
        assert {each["name"] for each in seen.get_enums()} >= {"en_mood", "en_alchemy"}
    finally:
        meta.drop_all(engine)
        engine.dispose()


def test_catalogues_and_psql_show_the_type(cluster: Cluster, sql: Connection) -> None:
    labels = (
        "SELECT enumlabel FROM pg_enum WHERE enumtypid = 'en_mood'::regtype ORDER BY enumsortorder"
    )
    assert rows(sql, labels) == [(label,) for label in LABELS]
    kind = "SELECT typtype, typcategory FROM pg_type WHERE typname = 'en_mood'"
    assert rows(sql, kind) == [("e", "E")]
    column = (
        "SELECT data_type, udt_name FROM information_schema.columns "
        "WHERE table_name = 'en_people' AND column_name = 'm'"
    )
    assert rows(sql, column) == [("USER-DEFINED", "en_mood")]
    shown = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'm'"
    assert ("en_mood",) in rows(sql, shown)
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed")
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i2'].pg_port}/cairn"

    def said(command: str) -> str:
        return subprocess.run(
            [psql, dsn, "-X", "-c", command], capture_output=True, text=True, check=True
        ).stdout

    told = said("\\dT+ en_mood")
    assert "en_mood" in told and all(label in told for label in LABELS)
    assert "en_mood" in said("\\dT") and "en_mood" in said("\\d en_people")


def test_a_type_in_use_stays(cluster: Cluster, sql: Connection) -> None:
    assert state_of(lambda: sql.execute("DROP TYPE en_mood")) == "2BP01"
    sql.execute("CREATE VIEW en_view AS SELECT 'ok'::en_mood AS m")
    sql.execute("DROP TABLE en_people")
    assert state_of(lambda: sql.execute("DROP TYPE en_mood")) == "2BP01"
    assert rows(sql, "SELECT m FROM en_view") == [("ok",)]
    rename = "ALTER TYPE en_mood RENAME TO en_other"
    assert state_of(lambda: sql.execute(rename)) == "2BP01"  # the view is kept as a text
    sql.execute("DROP VIEW en_view")
    sql.execute("CREATE TABLE en_global (m en_mood PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY")
    sql.execute("INSERT INTO en_global VALUES ('ok', 1), ('sad', 2)")
    assert state_of(lambda: sql.execute("INSERT INTO en_global VALUES ('mad', 1)")) == "22P02"
    assert rows(sql, "SELECT m FROM en_global ORDER BY m") == [("sad",), ("ok",)]
    sql.execute("CREATE TABLE en_copy AS SELECT m, n FROM en_global")
    assert rows(sql, "SELECT m FROM en_copy WHERE m < 'ok'") == [("sad",)]
    sql.execute("DROP TABLE en_global")
    sql.execute("DROP TABLE en_copy")
    assert sql.execute("DROP TYPE en_mood").statusmessage == "DROP TYPE"
    assert state_of(lambda: sql.execute("SELECT 'ok'::en_mood")) == "42704"


def test_whose_type_it_is(cluster: Cluster, sql: Connection) -> None:
    sql.execute("DROP USER IF EXISTS en_bob")
    sql.execute(f"CREATE USER en_bob WITH PASSWORD '{PASSWORD}'")
    try:
        with connect(cluster, "i1", "en_bob") as bob:
            assert state_of(lambda: bob.execute("CREATE TYPE mine AS ENUM ('a')")) == "42501"
            assert state_of(lambda: bob.execute("DROP TYPE en_mood")) == "42501"
            add = "ALTER TYPE en_mood ADD VALUE 'x'"
            assert state_of(lambda: bob.execute(add)) == "42501"
            assert rows(bob, "SELECT 'sad'::en_mood < 'ok'") == [(True,)]
            write = "INSERT INTO _cairn_type VALUES (1, 'x', '[]', 1, 1)"
            assert state_of(lambda: bob.execute(write)) == "42501"
    finally:
        sql.execute("DROP USER en_bob")
