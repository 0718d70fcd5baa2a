"""psycopg, asyncpg, pg8000 and SQLAlchemy, unmodified."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pg8000.dbapi
import pg8000.native
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from tests.cluster.harness import PASSWORD, Cluster

pytestmark = pytest.mark.clients

MOMENT = datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=UTC)
KEY = UUID("12345678-1234-5678-1234-567812345678")
EVERY_TYPE = (
    "b BOOLEAN, i INTEGER PRIMARY KEY, u UNSIGNED, d DOUBLE, n DECIMAL, s TEXT, g UUID, "
    "t DATETIME, y DATE, m TIMESTAMP, v INTERVAL, h TIME, x BYTEA"
)
VALUES = (
    *(True, -7, 7, 2.5, Decimal("1.50"), "text ü", KEY, MOMENT),
    *(date(2024, 2, 29), MOMENT.replace(tzinfo=None), timedelta(days=3, seconds=5)),
    *(time(23, 59, 0, 500000), b"\x00\xff\\ab"),
)


@pytest.fixture
def every_type(cluster: Cluster, fresh: str) -> str:
    node = cluster["i1"]
    node.sql(f"DROP TABLE {fresh}")
    node.sql(f"CREATE TABLE {fresh} ({EVERY_TYPE}) DISTRIBUTED BY (i) WAIT APPLIED GLOBALLY")
    return fresh


# --- psycopg --------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_keeps_every_type(dsn: str, every_type: str, binary: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.cursor(binary=binary)
        marks = ", ".join(["%b" if binary else "%s"] * len(VALUES))
        cursor.execute(f"INSERT INTO {every_type} VALUES ({marks})", VALUES)
        assert cursor.execute(f"SELECT * FROM {every_type}").fetchall() == [VALUES]
        cursor.execute(f"INSERT INTO {every_type} (i) VALUES (%s)", (1,))
        assert cursor.execute(f"SELECT * FROM {every_type} WHERE i = 1").fetchone() == (
            (None, 1, *[None] * (len(VALUES) - 2))
        )


def test_psycopg_prepares_pipelines_and_copies(dsn: str, fresh: str, everywhere: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.cursor()
        insert = f"INSERT INTO {fresh} VALUES (%s, %s, %s)"
        cursor.executemany(insert, [(n, f"n{n}", Decimal(n)) for n in range(50)])
        assert cursor.rowcount == 50
        for n in range(12):  # after five it uses a named statement
            found = cursor.execute(f"SELECT name FROM {fresh} WHERE id = %s", (n,)).fetchone()
            assert found == (f"n{n}",)
        with connection.pipeline():
            first = connection.execute(f"SELECT count(*) FROM {fresh}")
            second = connection.execute(f"SELECT name FROM {fresh} WHERE id = 3")
            assert (first.fetchone(), second.fetchone()) == ((50,), ("n3",))
        with cursor.copy(f"COPY {everywhere} (id, name) FROM STDIN") as copy:
            for n in range(100, 120):
                copy.write_row((n, "copied\tand escaped"))
        assert cursor.rowcount == 20
        with cursor.copy(
            f"COPY (SELECT id, name FROM {everywhere} WHERE id = 110) TO STDOUT"
        ) as copy:
            assert list(copy.rows()) == [("110", "copied\tand escaped")]


def test_psycopg_goes_on_after_errors(dsn: str, fresh: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"INSERT INTO {fresh} VALUES (1, 'a', 1)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(f"INSERT INTO {fresh} VALUES (1, 'a', 1)")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute(f"SELECT * FROM {fresh} WHERE id = %s", ("abc",))
        with pytest.raises(psycopg.errors.SyntaxError) as caught:
            connection.execute("SELEC 1")
        assert caught.value.diag.statement_position == "1"
        with pytest.raises(psycopg.errors.UndefinedTable), connection.pipeline():
            connection.execute("SELECT 1")
            connection.execute("SELECT * FROM nowhere")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_psycopg_in_a_block_of_statements(dsn: str, fresh: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(f"INSERT INTO {fresh} VALUES (1, 'a', 1)")
        connection.execute(f"SELECT * FROM {fresh} WHERE id = 1")
        connection.commit()
        with connection.transaction():
            connection.execute(f"INSERT INTO {fresh} VALUES (2, 'b', 1)")
        connection.execute("SELECT 1")
        connection.rollback()
        connection.execute(f"INSERT INTO {fresh} VALUES (3, 'c', 1)")
        connection.rollback()
        assert connection.execute(f"SELECT count(*) FROM {fresh}").fetchone() == (2,)


def test_psycopg_async(dsn: str, fresh: str) -> None:
    async def session() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(f"INSERT INTO {fresh} VALUES (%s, %s, %s)", (1, "a", 1))
            cursor = await connection.execute(f"SELECT name FROM {fresh} WHERE id = %s", (1,))
            assert await cursor.fetchall() == [("a",)]
            async with cursor.copy(f"COPY {fresh} TO STDOUT") as copy:
                assert [row async for row in copy.rows()] == [("1", "a", "1")]
            async with connection.pipeline():
                found = [await connection.execute("SELECT %s::int", (n,)) for n in range(20)]
            assert [await each.fetchone() for each in found] == [(n,) for n in range(20)]

    asyncio.run(session())


def test_psycopg_reads_json_of_system_tables(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute("SELECT current_state FROM _pico_instance").fetchall()
        assert found == [(["Online", state[0][1]],) for state in found]


def test_psycopg_reads_by_a_server_side_cursor(dsn: str, fresh: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.autocommit = True
        rows = "(1, 'one'), (2, 'two'), (3, 'three')"
        connection.execute(f"INSERT INTO {fresh} (id, name) VALUES {rows}")
    with psycopg.connect(dsn) as connection, connection.cursor("named") as cursor:
        cursor.itersize = 2
        cursor.execute(f"SELECT id, name FROM {fresh} ORDER BY 1")
        assert list(cursor) == [(1, "one"), (2, "two"), (3, "three")]


# --- asyncpg --------------------------------------------------------------------------------------


def test_asyncpg_keeps_every_type(dsn: str, every_type: str) -> None:
    async def session() -> None:
        connection = await asyncpg.connect(dsn)
        marks = ", ".join(f"${at}" for at in range(1, len(VALUES) + 1))
        await connection.execute(f"INSERT INTO {every_type} VALUES ({marks})", *VALUES)
        assert tuple(await connection.fetchrow(f"SELECT * FROM {every_type}")) == VALUES
        await connection.close()

    asyncio.run(session())


def test_asyncpg_prepares_copies_and_pools(dsn: str, fresh: str, everywhere: str) -> None:
    async def session() -> None:
        async with asyncpg.create_pool(dsn, min_size=2, max_size=4) as pool:
            rows = [(n, f"n{n}", Decimal(n)) for n in range(40)]
            await pool.executemany(f"INSERT INTO {fresh} VALUES ($1, $2, $3)", rows)
            wanted = f"SELECT name FROM {fresh} WHERE id = $1"
            found = await asyncio.gather(*(pool.fetchval(wanted, n) for n in range(40)))
            assert found == [f"n{n}" for n in range(40)]
            async with pool.acquire() as connection:
                statement = await connection.prepare(wanted)
                assert [p.name for p in statement.get_parameters()] == ["int8"]
                assert [a.name for a in statement.get_attributes()] == ["name"]
                assert await statement.fetchval(7) == "n7"
                async with connection.transaction():
                    cursor = await connection.cursor(f"SELECT id FROM {fresh} ORDER BY id")
                    assert [row["id"] for row in await cursor.fetch(3)] == [0, 1, 2]
                    assert len(await cursor.fetch(100)) == 37
                await _copies(connection, everywhere)
        await asyncio.sleep(0)

    asyncio.run(session())


async def _copies(connection: Any, table: str) -> None:
    lines = b"".join(b"%d\tcopied\t1.5\n" % n for n in range(1000, 1020))

    async def source() -> Any:
        yield lines

    assert await connection.copy_to_table(table, source=source()) == "COPY 20"
    got: list[bytes] = []

    async def keep(data: bytes) -> None:
        got.append(data)

    query = f"SELECT id, name FROM {table} WHERE id = $1"
    text = f"SELECT id, name FROM {table} WHERE id = 1010"
    assert await connection.copy_from_query(text, output=keep) == "COPY 1"
    assert b"".join(got) == b"1010\tcopied\n"
    assert tuple(await connection.fetchrow(query, 1010)) == (1010, "copied")


def test_asyncpg_goes_on_after_errors(dsn: str, fresh: str) -> None:
    async def session() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(f"INSERT INTO {fresh} VALUES (1, 'a', 1)")
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute(f"INSERT INTO {fresh} VALUES ($1, 'a', 1)", 1)
        with pytest.raises(asyncpg.PostgresSyntaxError):
            await connection.fetch("SELEC 1")
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.fetchval("SELECT 1 / $1::int", 0)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()

    asyncio.run(session())


def test_asyncpg_notices_a_changed_table(dsn: str, cluster: Cluster, fresh: str) -> None:
    async def session() -> None:
        connection = await asyncpg.connect(dsn)
        text = f"SELECT * FROM {fresh} WHERE id = $1"
        assert await connection.fetch(text, 1) == []
        await connection.execute(f"ALTER TABLE {fresh} ADD COLUMN extra TEXT")
        for _ in range(2):
            try:
                row_names = (await connection.prepare(text)).get_attributes()
            except asyncpg.PostgresError:
                continue
        assert [each.name for each in row_names] == ["id", "name", "price", "extra"]
        await connection.close()

    asyncio.run(session())


# --- pg8000 ---------------------------------------------------------------------------------------


def test_pg8000_runs_a_session(cluster: Cluster, fresh: str) -> None:
    options: dict[str, Any] = {
        "user": "admin",
        "password": PASSWORD,
        "host": "127.0.0.1",
        "port": cluster["i2"].pg_port,
        "database": "cairn",
    }
    native = pg8000.native.Connection(**options)
    native.run(f"INSERT INTO {fresh} VALUES (:id, :name, :price)", id=1, name="ü", price=1.5)
    assert native.run(f"SELECT id, name FROM {fresh} WHERE id = :id", id=1) == [[1, "ü"]]
    with pytest.raises(pg8000.native.DatabaseError):
        native.run("SELEC 1")
    assert native.run("SELECT 1") == [[1]]
    native.close()
    with pg8000.dbapi.connect(**options) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(f"SELECT name, price FROM {fresh} WHERE id = %s", (1,))
        assert list(cursor.fetchall()) == [["ü", Decimal("1.5")]]


# --- SQLAlchemy -----------------------------------------------------------------------------------


def test_sqlalchemy_core_runs_a_session(dsn: str, cluster: Cluster) -> None:
    engine = sa.create_engine(
        dsn.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    meta = sa.MetaData()
    goods = sa.Table(
        "sa_goods",
        meta,
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("price", sa.Numeric),
        sa.Column("at", sa.DateTime(timezone=True)),
    )
    with engine.connect() as connection:
        meta.create_all(connection, checkfirst=False)
        rows = [{"id": n, "name": f"n{n}", "price": Decimal(n), "at": MOMENT} for n in range(20)]
        connection.execute(goods.insert(), rows)
        connection.execute(goods.insert().values(id=99, name="one"))
        query = sa.select(goods.c.name).where(goods.c.id < 3).order_by(goods.c.id)
        assert connection.scalars(query).all() == ["n0", "n1", "n2"]
        total = sa.select(sa.func.count(), sa.func.sum(goods.c.price)).select_from(goods)
        assert connection.execute(total).one() == (21, 190)
        connection.execute(goods.update().where(goods.c.id == 1).values(name="changed"))
        assert connection.scalar(sa.select(goods.c.name).where(goods.c.id == 1)) == "changed"
        connection.execute(goods.delete().where(goods.c.id.in_([1, 2])))
        other = goods.alias()
        joined = sa.select(sa.func.count()).select_from(goods.join(other, goods.c.id == other.c.id))
        assert connection.scalar(joined) == 19
        meta.drop_all(connection, checkfirst=False)
    engine.dispose()


def test_sqlalchemy_reads_the_schema_with_its_own_settings(dsn: str, cluster: Cluster) -> None:
    engine = sa.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        for text in (
            "CREATE TABLE sa_shape (a INT, b TEXT, n DECIMAL, CONSTRAINT sa_pk PRIMARY KEY (b, a)) "
            "DISTRIBUTED BY (b)",
            "CREATE UNIQUE INDEX sa_shape_bn ON sa_shape (b, n)",
            "CREATE INDEX sa_shape_n ON sa_shape (n)",
        ):
            connection.execute(sa.text(text))
    inspector = sa.inspect(engine)
    assert "sa_shape" in inspector.get_table_names()
    assert inspector.has_table("sa_shape") and not inspector.has_table("nowhere")
    columns = inspector.get_columns("sa_shape")
    assert [(each["name"], str(each["type"]), each["nullable"]) for each in columns] == [
        ("a", "BIGINT", False),
        ("b", "TEXT", False),
        ("n", "NUMERIC", True),
    ]
    key = inspector.get_pk_constraint("sa_shape")
    assert (key["name"], key["constrained_columns"]) == ("sa_pk", ["b", "a"])
    indexes = inspector.get_indexes("sa_shape")
    assert [(each["name"], each["unique"], each["column_names"]) for each in indexes] == [
        ("sa_shape_bn", True, ["b", "n"]),
        ("sa_shape_n", False, ["n"]),
    ]
    shape = sa.Table("sa_shape", sa.MetaData(), autoload_with=engine)
    with engine.begin() as connection:
        connection.execute(shape.insert().values(a=1, b="x", n=Decimal("1.5")))
        wanted = sa.select(shape).where(shape.c.b == "x")
        assert connection.execute(wanted).all() == [(1, "x", Decimal("1.5"))]
    shape.drop(engine)
    engine.dispose()


def test_sqlalchemys_orm_runs_a_session(dsn: str, cluster: Cluster) -> None:
    class Base(orm.DeclarativeBase):
        pass

    class Person(Base):
        __tablename__ = "sa_person"
        id: orm.Mapped[int] = orm.mapped_column(
            sa.BigInteger, primary_key=True, autoincrement=False
        )
        name: orm.Mapped[str]

    engine = sa.create_engine(
        dsn.replace("postgresql:", "postgresql+psycopg:"),
        connect_args={"options": "-c atomic_blocks=off"},  # its objects have rows everywhere
    )
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)  # they are there: nothing to do
    with orm.Session(engine) as session:
        session.add_all([Person(id=n, name=f"n{n}") for n in range(5)])
        session.commit()
        found = session.get(Person, 3)
        assert found is not None
        found.name = "changed"
        session.commit()
        wanted = sa.select(Person).where(Person.name == "changed")
        assert session.scalars(wanted).one().id == 3
        session.delete(found)
        session.commit()
        with pytest.raises(sa.exc.DataError), session.begin_nested():
            session.execute(sa.text("SELECT 1 / 0"))
        assert session.scalars(sa.select(Person.id).order_by(Person.id)).all() == [0, 1, 2, 4]
    Base.metadata.drop_all(engine)
    engine.dispose()
