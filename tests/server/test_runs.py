"""Executions of one statement that come together, as `executemany` and batches send them.

They are written as one statement, and nobody can tell but by the time that it takes: what is told
of each of them, and what is in the table, is as if each had been run by itself, up to an error.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import asyncpg
import psycopg
import pytest

from cairn.model.errors import StatementInvalidated
from cairn.pgwire.server.extended import Signature
from cairn.pgwire.server.requests import Bind, Describe, Execute, Sync
from cairn.server.session.shortcuts.runs import MOST, Runs, together
from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
EXECUTE, DESCRIBE = Execute(b"", 0), Describe("P", b"")
INSERT = "INSERT INTO ran VALUES (%s, %s, %s)"
UPSERT = f"{INSERT} ON CONFLICT (id) DO NOTHING"
UPDATE = "UPDATE ran SET n = n + %s WHERE id = %s"
DELETE = "DELETE FROM ran WHERE id = %s"


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    with cluster["i1"].connect() as connection:
        connection.execute(
            "CREATE TABLE ran (id INT PRIMARY KEY, n SMALLINT, s VARCHAR(3) NOT NULL)"
        )
        yield connection
        connection.execute("DROP TABLE ran")


def piped(connection: Connection, text: str, all_values: list[tuple[Any, ...]]) -> list[Any]:
    """What is told of each: its tag, a SQLSTATE, or None if it was not executed."""
    cursors = [connection.cursor() for _ in all_values]
    state = None
    try:
        with connection.pipeline():
            for cursor, values in zip(cursors, all_values, strict=True):
                cursor.execute(text, values, prepare=True)
    except psycopg.Error as problem:
        state = problem.sqlstate
    told = [cursor.statusmessage for cursor in cursors]
    if state is not None:
        told[told.index(None)] = state
    return told


def one_by_one(connection: Connection, text: str, all_values: list[tuple[Any, ...]]) -> list[Any]:
    told: list[Any] = [None] * len(all_values)
    for at, values in enumerate(all_values):
        try:
            told[at] = connection.execute(text, values).statusmessage
        except psycopg.Error as problem:
            told[at] = problem.sqlstate
            break
    return told


def content(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT * FROM ran ORDER BY id").fetchall()


def test_many_rows_are_told_one_by_one(sql: Connection) -> None:
    count = 2 * MOST + 7
    rows = [(n, n % 100, f"{n % 7}") for n in range(count)]
    assert piped(sql, INSERT, rows) == ["INSERT 0 1"] * count
    assert content(sql) == rows
    assert piped(sql, UPDATE, [(1, n) for n in range(count)]) == ["UPDATE 1"] * count
    assert piped(sql, DELETE, [(n,) for n in range(0, count, 2)]) == ["DELETE 1"] * (MOST + 4)
    assert content(sql) == [(n, n % 100 + 1, f"{n % 7}") for n in range(1, count, 2)]


def test_the_first_that_is_wrong_is_told_and_those_behind_it_are_not_executed(
    sql: Connection,
) -> None:
    rows: list[tuple[Any, ...]] = [(n, 1, "a") for n in range(40)]
    rows[25] = (3, 1, "a")
    assert piped(sql, INSERT, rows) == [*["INSERT 0 1"] * 25, "23505", *[None] * 14]
    assert content(sql) == rows[:25]
    assert sql.execute("SELECT 1").fetchone() == (1,)


def test_a_row_may_be_changed_more_than_once(sql: Connection) -> None:
    sql.execute("INSERT INTO ran VALUES (1, 0, 'a')")
    assert piped(sql, UPDATE, [(n, 1) for n in range(10)]) == ["UPDATE 1"] * 10
    assert content(sql) == [(1, 45, "a")]


def any_values(chance: random.Random, text: str) -> tuple[Any, ...]:
    key = chance.randrange(60)
    if text is UPDATE:
        return (chance.choice((1, 1, 1, 2, 40_000 if chance.random() < 0.05 else 3)), key)
    if text is DELETE:
        return (key,)
    text = chance.choices(("s", "long", None), (96, 2, 2))[0]
    return (key, chance.choice((1, 2, None)), text)


@pytest.mark.parametrize("seed", range(3))
def test_they_end_as_if_each_had_been_run_by_itself(sql: Connection, seed: int) -> None:
    chance = random.Random(seed)
    for step in range(20):
        text = chance.choice((INSERT, UPSERT, UPSERT, UPDATE, DELETE))
        before = content(sql)
        values = [any_values(chance, text) for _ in range(chance.choice((3, 5, 20, 60)))]
        if chance.random() < 0.4:  # one that can be done as a whole
            values = list(
                {each[-1] if text is UPDATE else each[0]: each for each in values}.values()
            )
        told = piped(sql, text, values)
        found = content(sql)
        sql.execute("DELETE FROM ran")
        for row in before:
            sql.execute(INSERT, row)
        assert told == one_by_one(sql, text, values), f"seed {seed}, step {step}: {text}"
        assert found == content(sql), f"seed {seed}, step {step}: {text}"


def test_drivers_that_describe_nothing(cluster: Cluster, sql: Connection) -> None:
    async def put() -> None:
        port = cluster["i1"].pg_port
        dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{port}/cairn"
        connection = await asyncpg.connect(dsn)
        rows = [(n, n % 9, "b") for n in range(700)]
        await connection.executemany("INSERT INTO ran VALUES ($1, $2, $3)", rows)
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.executemany("INSERT INTO ran VALUES ($1, $2, $3)", rows)
        await connection.close()

    asyncio.run(put())
    assert content(sql) == [(n, n % 9, "b") for n in range(700)]


def test_numbers_are_given_in_their_order(sql: Connection) -> None:
    sql.execute("CREATE TABLE counted (id INT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, n INT)")
    try:
        told = piped(sql, "INSERT INTO counted (n) VALUES (%s)", [(n,) for n in range(300)])
        assert told == ["INSERT 0 1"] * 300
        found = sql.execute("SELECT n FROM counted ORDER BY id").fetchall()
        assert found == [(n,) for n in range(300)]
        last = sql.execute("SELECT lastval(), max(id) FROM counted").fetchall()
        assert last[0][0] == last[0][1]
    finally:
        sql.execute("DROP TABLE counted")


def test_who_may_not_write_is_told_at_the_first(cluster: Cluster, sql: Connection) -> None:
    sql.execute("CREATE USER reader WITH PASSWORD 'T0psecret1'")
    try:
        sql.execute("GRANT SELECT ON TABLE ran TO reader")
        dsn = f"postgresql://reader:T0psecret1@127.0.0.1:{cluster['i1'].pg_port}/cairn"
        with psycopg.connect(dsn, autocommit=True) as reader:
            told = piped(reader, INSERT, [(n, 1, "a") for n in range(20)])
        assert told == ["42501", *[None] * 19]
        assert content(sql) == []
    finally:
        sql.execute("DROP USER reader")


class _Line:
    """What a run asks of its session: all is done, and nothing of it may be checked afterwards."""

    def __init__(self) -> None:
        self.pg = self.running = self
        self.told: list[str] = []
        self.checked = self.counted = 0

    def check(self, cached: Any) -> None:
        self.checked += 1
        if self.checked > 1:
            raise StatementInvalidated(prepared_version=1, current_version=2)

    def count(self, cached: Any) -> None:
        self.counted += 1

    async def run_many(self, cached: Any, params: list[Any]) -> list[bool]:
        return [True] * len(params)

    def raw(self, data: bytes) -> None:
        pass

    def command_complete(self, tag: str) -> None:
        self.told.append(tag)

    def finished(self, rows: int) -> None:
        pass


def test_what_is_done_is_told_so_also_where_its_table_has_changed_meanwhile() -> None:
    line: Any = _Line()
    signature = Signature((20,), None)
    prepared = SimpleNamespace(complete="INSERT 0 {}".format)
    statement: Any = SimpleNamespace(plan=SimpleNamespace(prepared=prepared), signature=signature)
    asyncio.run(Runs(line)._run(statement, [bind(b"1"), bind(b"2"), bind(b"3")], False))
    assert (line.told, line.checked, line.counted) == (["INSERT 0 1"] * 3, 1, 3)


# --- which of them are taken together -------------------------------------------------------------


def bind(value: bytes = b"1", statement: bytes = b"s", portal: bytes = b"") -> Bind:
    return Bind(portal, statement, (), [value], ())


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ([EXECUTE, bind(b"2"), EXECUTE, bind(b"3"), EXECUTE, Sync()], 3),
        ([DESCRIBE, EXECUTE, bind(b"2"), DESCRIBE, EXECUTE, Sync()], 2),
        ([DESCRIBE, EXECUTE, bind(b"2"), EXECUTE, Sync()], 1),
        ([EXECUTE, bind(b"2", b"other"), EXECUTE], 1),
        ([EXECUTE, bind(b"2", b"s", b"named"), EXECUTE], 1),
        ([EXECUTE, EXECUTE, bind(b"2"), EXECUTE], 1),
        ([EXECUTE, Sync(), bind(b"2"), EXECUTE], 1),
        ([Execute(b"", 1), bind(b"2"), Execute(b"", 1)], 2),  # as JDBC does
        ([EXECUTE, bind(b"2"), Execute(b"named", 0)], 1),
        ([EXECUTE, bind(b"2")], 1),
        ([EXECUTE, bind(b"x" * 300_000), EXECUTE], 1),
        ([Sync()], 0),
        ([], 0),
    ],
    ids=str,
)
def test_only_what_is_alike_is_taken_together(line: list[Any], taken: int) -> None:
    found, is_described = together(bind(), line)
    assert (len(found), is_described) == (taken, taken > 0 and line[0] is DESCRIBE)
