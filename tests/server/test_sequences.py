"""Sequences: numbers by name, unique in the whole cluster, as applications ask for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node

pytestmark = pytest.mark.cluster


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    """Of a sequence that the test may make."""
    made = f"s{uuid.uuid4().hex[:10]}"
    yield made
    cluster["i1"].sql(f"DROP TABLE IF EXISTS {made}_t")
    cluster["i1"].sql(f"DROP SEQUENCE IF EXISTS {made}")


def numbers(node: Node, name: str, count: int = 1) -> list[int]:
    return [
        row[0] for row in node.sql(f"SELECT nextval('{name}') FROM generate_series(1, {count})")
    ]


def refused(node: Node, text: str) -> tuple[str, str]:
    with pytest.raises(psycopg.Error) as found:
        node.sql(text)
    return str(found.value.sqlstate), str(found.value).splitlines()[0]


def test_numbers_are_given_once_in_the_whole_cluster(cluster: Cluster, name: str) -> None:
    cluster["i1"].sql(f"CREATE SEQUENCE {name}")

    def take(node: str) -> list[int]:
        return [number for _ in range(20) for number in numbers(cluster[node], name, 30)]

    with ThreadPoolExecutor(4) as threads:
        found = [n for part in threads.map(take, ["i1", "i2"] * 2) for n in part]
    assert (len(found), len(set(found)), min(found)) == (2400, 2400, 1)


def test_the_first_ones_follow_each_other_from_where_it_begins(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE SEQUENCE IF NOT EXISTS {name} AS bigint START WITH 5 NO CYCLE CACHE 1")
    node.sql(f"CREATE SEQUENCE IF NOT EXISTS {name} START 99")
    assert node.sql(f"SELECT nextval('{name}'), nextval('public.{name}'::regclass)") == [(5, 6)]


def test_a_step_is_kept_by_every_instance(cluster: Cluster, name: str) -> None:
    cluster["i1"].sql(f"CREATE SEQUENCE {name} START WITH 1 INCREMENT BY 50")
    assert numbers(cluster["i1"], name, 3) == [1, 51, 101]
    assert [number % 50 for number in numbers(cluster["i2"], name, 3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("step", "said", "following"),
    [
        (1, "100", 101),
        (1, "100, false", 100),
        (50, "120", 151),
        (50, "101", 151),
        (50, "151, false", 151),
    ],
)
def test_setval_says_what_comes_next(
    cluster: Cluster, name: str, step: int, said: str, following: int
) -> None:
    cluster["i1"].sql(f"CREATE SEQUENCE {name} INCREMENT {step}")
    numbers(cluster["i2"], name)
    cluster["i2"].sql(f"SELECT setval('{name}', {said})")
    assert numbers(cluster["i1"], name) == [following]


def test_it_can_begin_anew(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE SEQUENCE {name} START 3")
    found = [numbers(node, name)]
    node.sql(f"ALTER SEQUENCE {name} RESTART")
    found.append(numbers(node, name))
    node.sql(f"ALTER SEQUENCE {name} RESTART WITH 70")
    assert [*found, numbers(node, name)] == [[3], [3], [70]]


def test_a_dump_of_postgresql_with_a_serial_column_is_taken(cluster: Cluster, name: str) -> None:
    node, table = cluster["i1"], f"{name}_t"
    for text in (
        f"CREATE TABLE public.{table} (id integer NOT NULL, v text)",
        f"CREATE SEQUENCE public.{name} AS integer START WITH 1 INCREMENT BY 1 "
        "NO MINVALUE NO MAXVALUE CACHE 1",
        f"ALTER SEQUENCE public.{name} OWNED BY public.{table}.id",
        f"ALTER TABLE ONLY public.{table} ALTER COLUMN id "
        f"SET DEFAULT nextval('public.{name}'::regclass)",
        f"INSERT INTO {table} VALUES (1, 'old'), (33, 'old')",
        f"SELECT pg_catalog.setval('public.{name}', 33, true)",
        f"ALTER TABLE ONLY public.{table} ADD CONSTRAINT {table}_pkey PRIMARY KEY (id)",
        f"INSERT INTO {table} (v) VALUES ('new')",
    ):
        node.sql(text)
    rows = node.sql(f"SELECT * FROM {table} ORDER BY id")
    assert rows[:2] == [(1, "old"), (33, "old")]
    assert (len(rows), rows[2][0] > 33, rows[2][1]) == (3, True, "new")


def test_a_default_keeps_its_sequence(cluster: Cluster, name: str) -> None:
    node, table = cluster["i1"], f"{name}_t"
    node.sql(f"CREATE SEQUENCE {name}")
    node.sql(f"CREATE TABLE {table} (id INT DEFAULT nextval('{name}') PRIMARY KEY, v TEXT)")
    with (
        node.connect() as connection,
        connection.cursor().copy(f"COPY {table} (v) FROM STDIN") as c,
    ):
        c.write("a\nb\n")
    node.sql(f"INSERT INTO {table} (v) VALUES ('c'), ('d')")
    found = node.sql(f"SELECT count(DISTINCT id), count(*) FROM {table}")
    assert found == [(4, 4)]
    assert refused(node, f"DROP SEQUENCE {name}")[0] == "2BP01"
    node.sql(f"ALTER TABLE {table} ALTER COLUMN id DROP DEFAULT")
    node.sql(f"DROP SEQUENCE {name}")
    assert refused(node, f"SELECT nextval('{name}')")[0] == "42P01"


def test_a_sequence_is_no_table_and_a_table_is_no_sequence(cluster: Cluster, name: str) -> None:
    node, table = cluster["i1"], f"{name}_t"
    node.sql(f"CREATE SEQUENCE {name}")
    node.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    words = (
        f"SELECT * FROM {name}", f"INSERT INTO {name} VALUES (1)", f"DELETE FROM {name}",
        f"DROP TABLE {name}", f"TRUNCATE {name}", f"ALTER TABLE {name} ADD COLUMN a INT",
        f"CREATE INDEX ON {name} (last_value)", f"COPY {name} TO STDOUT", f"DROP SEQUENCE {table}",
    )  # fmt: skip
    assert {refused(node, text)[0] for text in words} == {"42809"}
    assert refused(node, f"SELECT nextval('{table}')")[0] == "42P01"
    assert refused(node, f"CREATE TABLE {name} (a INT PRIMARY KEY)")[0] == "42P07"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("CYCLE", "0A000"),
        ("INCREMENT BY -1", "22023"),
        ("INCREMENT BY 0", "22023"),
        ("MINVALUE 5 START 3", "22023"),
        ("START 0 MINVALUE 0", "22023"),
        ("MAXVALUE 10", "0A000"),
        ("AS text", "22023"),
        ("START WITH 99999999999999999999", "22003"),
        ("START WITH 1.5", "42601"),
        ("SOMETHING", "42601"),
    ],
)
def test_what_cannot_be_is_refused(cluster: Cluster, name: str, options: str, code: str) -> None:
    assert refused(cluster["i1"], f"CREATE SEQUENCE {name} {options}")[0] == code


def test_numbers_take_a_right(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE SEQUENCE {name}")
    node.sql(f"CREATE USER {name}_u WITH PASSWORD 'Secret1234'")
    try:

        def asked(text: str) -> Any:
            dsn = f"host=127.0.0.1 port={node.pg_port} user={name}_u password=Secret1234"
            with psycopg.connect(dsn, dbname="cairn", autocommit=True) as connection:
                try:
                    return connection.execute(text.encode()).fetchall()
                except psycopg.Error as problem:
                    return problem.sqlstate

        take, put = f"SELECT nextval('{name}')", f"SELECT setval('{name}', 9)"
        assert (asked(take), asked(put)) == ("42501", "42501")
        node.sql(f"GRANT USAGE ON SEQUENCE {name} TO {name}_u")
        assert asked(take) == [(1,)]
        node.sql(f"REVOKE USAGE ON SEQUENCE {name} FROM {name}_u")
        assert asked(take) == "42501"
        assert refused(node, f"GRANT USAGE ON TABLE {name} TO {name}_u")[0] == "0LP01"
    finally:
        node.sql(f"DROP USER {name}_u")


def test_catalogues_show_it(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE SEQUENCE {name} START 5 INCREMENT 2")
    assert node.sql(
        "SELECT c.relkind, s.seqstart, s.seqincrement FROM pg_class c "
        f"JOIN pg_sequence s ON s.seqrelid = c.oid WHERE c.relname = '{name}'"
    ) == [("S", 5, 2)]
    assert node.sql(
        "SELECT start_value, increment FROM information_schema.sequences "
        f"WHERE sequence_name = '{name}'"
    ) == [("5", "2")]
    assert node.sql(f"SELECT tablename FROM pg_tables WHERE tablename = '{name}'") == []
    assert node.sql(
        f"SELECT table_name FROM information_schema.tables WHERE table_name = '{name}'"
    ) == []  # fmt: skip


def test_truncate_lets_numbers_begin_anew_on_every_instance(cluster: Cluster, name: str) -> None:
    table = f"{name}_t"
    cluster["i1"].sql(
        f"CREATE TABLE {table} (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v INT)"
    )
    insert = f"INSERT INTO {table} (v) VALUES (1), (2) RETURNING id"
    for node in ("i1", "i2"):
        cluster[node].sql(insert)
    cluster["i2"].sql(f"TRUNCATE {table}")
    [(going_on,), _] = cluster["i1"].sql(insert)
    cluster["i2"].sql(f"TRUNCATE {table} RESTART IDENTITY")
    found = sorted(number for node in ("i1", "i2") for (number,) in cluster[node].sql(insert))
    assert (going_on > 2, found[:2], len(set(found))) == (True, [1, 2], 4)


def test_a_view_keeps_its_sequence(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE SEQUENCE {name}")
    node.sql(f"CREATE VIEW {name}_v AS SELECT nextval('{name}') AS n")
    try:
        assert node.sql(f"SELECT n FROM {name}_v") == [(1,)]
        assert refused(node, f"DROP SEQUENCE {name}")[0] == "2BP01"
    finally:
        node.sql(f"DROP VIEW {name}_v")


def test_where_only_reading_is_allowed_no_number_is_taken(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE SEQUENCE {name}")
    with node.connect() as connection:
        connection.execute("BEGIN READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute(f"SELECT nextval('{name}')".encode())
        connection.execute("ROLLBACK")
        assert connection.execute(f"SELECT nextval('{name}')".encode()).fetchall() == [(1,)]


def test_a_session_is_told_its_last_numbers_again(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE SEQUENCE {name} START WITH 5")
    node.sql(f"CREATE TABLE {name}_t (id bigserial PRIMARY KEY, n int)")
    with node.connect() as one, node.connect() as other:

        def told(session: Any, text: str) -> Any:
            try:
                found = session.execute(text)
                return found.fetchone()[0] if found.description else None
            except psycopg.Error as problem:
                return problem.sqlstate

        assert told(one, "SELECT lastval()") == "55000"
        assert told(one, f"SELECT currval('{name}')") == "55000"
        assert told(one, "SELECT currval('nothing_of_that_name')") == "42P01"
        first = told(one, f"SELECT nextval('{name}')")
        assert told(other, f"SELECT nextval('{name}')") == first + 1
        assert told(one, f"SELECT currval('{name}'::regclass)") == first
        told(one, f"INSERT INTO {name}_t (n) VALUES (1), (2)")
        last = told(one, f"SELECT max(id) FROM {name}_t")
        assert (
            told(one, f"SELECT currval('{name}_t_id_seq')") == last == told(one, "SELECT lastval()")
        )
        assert told(other, f"SELECT currval('{name}_t_id_seq')") == "55000"
        assert told(one, f"SELECT currval(pg_get_serial_sequence('{name}_t', 'id'))") == last
        one.execute("BEGIN")
        parent = told(one, f"INSERT INTO {name}_t (n) VALUES (3) RETURNING id")
        assert told(one, f"SELECT currval('{name}_t_id_seq')") == parent
        child = f"INSERT INTO {name}_t (id, n) VALUES (-1, currval('{name}_t_id_seq')) RETURNING n"
        assert told(one, child) == parent
        one.execute("ROLLBACK")
        assert told(one, f"SELECT setval('{name}', 40)") == 40
        assert told(one, f"SELECT currval('{name}')") == 40
        assert told(one, f"SELECT setval('{name}', 50, false)") == 50
        assert told(one, f"SELECT currval('{name}')") == 40
        assert told(one, f"SELECT nextval('{name}')") == 50
        with one.cursor() as cursor, cursor.copy(f"COPY {name}_t (n) FROM STDIN") as copy:
            copy.write_row((7,))
        assert told(one, "SELECT lastval()") == told(one, f"SELECT id FROM {name}_t WHERE n = 7")
        one.execute("DISCARD SEQUENCES")
        assert told(one, "SELECT lastval()") == "55000"


def test_the_last_numbers_are_given_and_then_none(cluster: Cluster, name: str) -> None:
    node, last = cluster["i1"], 2**63 - 1
    node.sql(f"CREATE SEQUENCE {name}")
    node.sql(f"SELECT setval('{name}', {last - 3})")
    assert numbers(node, name, 2) == [last - 2, last - 1]
    assert numbers(node, name) == [last]
    words = f'nextval: reached maximum value of sequence "{name}" ({last})'
    assert refused(node, f"SELECT nextval('{name}')") == ("2200H", words)
    node.sql(f"SELECT setval('{name}', {last})")
    assert refused(node, f"SELECT nextval('{name}')") == ("2200H", words)
    node.sql(f"SELECT setval('{name}', 7)")
    assert numbers(node, name) == [8]


def test_it_is_told_as_a_sequence_and_not_as_a_table(cluster: Cluster, name: str) -> None:
    node = cluster["i1"]
    node.sql(f"CREATE USER {name}_u WITH PASSWORD 'Passw0rd!'")
    node.sql(f"GRANT CREATE TABLE TO {name}_u")
    dsn = f"postgresql://{name}_u:Passw0rd!@127.0.0.1:{node.pg_port}/cairn"
    try:
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute(f"CREATE SEQUENCE {name}")
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as found:
            node.sql(f"DROP USER {name}_u")
        assert found.value.diag.message_detail == f"owner of sequence {name}"
        stats = f"SELECT table_name FROM _cairn_table_stats WHERE table_name = '{name}'"
        assert node.sql(stats) == []
    finally:
        node.sql(f"DROP SEQUENCE IF EXISTS {name}")
        node.sql(f"DROP USER {name}_u")
