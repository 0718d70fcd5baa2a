"""DO blocks over the wire, on two replicasets: all or nothing, at the one owner of their rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(port: int) -> Connection:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    first = cluster["i1"]
    for name in ("account", "entry", "rate"):
        first.sql(f"DROP TABLE IF EXISTS {name}")
    first.sql("CREATE TABLE account (id INT PRIMARY KEY, n INT NOT NULL, d DECIMAL)")
    first.sql(
        "CREATE TABLE entry (account INT, no INT, what TEXT, PRIMARY KEY (account, no)) "
        "DISTRIBUTED BY (account)"
    )
    first.sql("CREATE TABLE rate (name TEXT PRIMARY KEY, x INT) DISTRIBUTED GLOBALLY")
    with connect(first.pg_port) as connection:
        connection.execute("INSERT INTO account SELECT k, 100, 1.5 FROM generate_series(1, 40) k")
        connection.execute("INSERT INTO rate VALUES ('a', 7)")
        yield connection
    for name in ("account", "entry", "rate"):
        first.sql(f"DROP TABLE {name}")


def rows(connection: Connection, text: str, *values: Any) -> list[Any]:
    return connection.execute(text, values).fetchall()


def two_owners(sql: Connection) -> tuple[int, int]:
    """Accounts of two replicasets."""
    found = rows(
        sql,
        "SELECT min(a.id) FROM account a JOIN _pico_bucket b ON a.bucket_id BETWEEN "
        "b.bucket_id_start AND b.bucket_id_end GROUP BY b.current_replicaset_name ORDER BY 1",
    )
    (first,), (second,) = found
    return first, second


BOTH = (
    "$$ BEGIN UPDATE account SET n = n - 10 WHERE id = {0}; "
    "INSERT INTO entry VALUES ({0}, 1, 'out'); END $$"
)


@pytest.mark.parametrize("at", [0, 1])
def test_a_block_is_done_at_its_owner_wherever_it_was_asked(sql: Connection, at: int) -> None:
    account = two_owners(sql)[at]
    done = sql.execute(f"DO {BOTH.format(account)}")
    assert done.statusmessage == "DO"
    assert rows(sql, f"SELECT n FROM account WHERE id = {account}") == [(90,)]
    assert rows(sql, "SELECT * FROM entry") == [(account, 1, "out")]


@pytest.mark.parametrize("at", [0, 1])
def test_an_error_undoes_the_whole_block(sql: Connection, at: int) -> None:
    account = two_owners(sql)[at]
    sql.execute(f"INSERT INTO entry VALUES ({account}, 1, 'before')")
    with pytest.raises(psycopg.errors.UniqueViolation) as told:
        sql.execute(f"DO {BOTH.format(account)}")
    assert f"(account, no)=({account}, 1)" in str(told.value)
    with pytest.raises(psycopg.errors.DivisionByZero):
        sql.execute(
            f"DO $$ BEGIN UPDATE account SET n = 0 WHERE id = {account}; "
            f"UPDATE account SET n = 1 / n WHERE id = {account}; END $$"
        )
    assert rows(sql, f"SELECT n FROM account WHERE id = {account}") == [(100,)]
    assert rows(sql, "SELECT what FROM entry") == [("before",)]


def test_rows_come_back_by_return_query_and_values_are_kept_by_let(sql: Connection) -> None:
    found = rows(
        sql,
        """DO $$ BEGIN ATOMIC
          LET had = (SELECT n FROM account WHERE id = 3);
          LET rate = (SELECT x FROM rate WHERE name = 'a');
          LET twice = had + had;
          RETURN QUERY SELECT id, n FROM account WHERE id = 3;
          IF had >= 100 AND CASE WHEN rate = 7 THEN true ELSE false END THEN
            UPDATE account SET n = n - rate, d = d + 1 WHERE id = 3;
            INSERT INTO entry VALUES (3, twice, 'paid');
          END IF;
          IF had < 100 THEN DELETE FROM account WHERE id = 3; END IF;
          RETURN QUERY SELECT id, n FROM account WHERE id = 3;
        END $$""",
    )
    assert found == [(3, 100), (3, 93)]
    assert rows(sql, "SELECT d FROM account WHERE id = 3") == [(Decimal("2.5"),)]
    assert rows(sql, "SELECT * FROM entry") == [(3, 200, "paid")]


def test_a_block_takes_parameters(cluster: Cluster, sql: Connection) -> None:
    text = """DO $$ BEGIN
      RETURN QUERY SELECT n, d + $2 FROM account WHERE id = $1;
      UPDATE account SET d = $2, n = n + length($3) WHERE id = $1;
      INSERT INTO entry (account, no, what) VALUES ($1, 5, $3);
    END $$"""

    async def run() -> list[Any]:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=cluster["i1"].pg_port, user="admin", password=PASSWORD
        )
        try:
            told = []
            for account in two_owners(sql):
                found = await connection.fetch(text, account, Decimal("2.25"), "four")
                told.append([tuple(row) for row in found])
            return told
        finally:
            await connection.close()

    assert asyncio.run(run()) == [[(100, Decimal("3.75"))]] * 2
    assert rows(sql, "SELECT n, d FROM account WHERE n <> 100") == [(104, Decimal("2.25"))] * 2
    assert rows(sql, "SELECT what FROM entry") == [("four",)] * 2


def test_a_block_over_two_replicasets_is_refused_before_anything_is_done(sql: Connection) -> None:
    first, second = two_owners(sql)
    for text in (
        f"DELETE FROM account WHERE id = {first}; DELETE FROM account WHERE id = {second};",
        f"UPDATE account SET n = 0 WHERE id = {first}; RETURN QUERY SELECT count(*) FROM account;",
        "DELETE FROM account;",
        # Known only when it runs:
        f"LET other = (SELECT {second}); UPDATE account SET n = 0 WHERE id = {first}; "
        "UPDATE account SET n = 1 WHERE id = other;",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="one replicaset") as told:
            sql.execute(f"DO $$ BEGIN {text} END $$")
        assert told.value.diag.message_hint
    assert rows(sql, "SELECT count(*), min(n), max(n) FROM account") == [(40, 100, 100)]


@pytest.mark.parametrize(
    ("body", "sqlstate"),
    [
        ("BEGIN UPDATE rate SET x = 1; END", "0A000"),
        ("BEGIN CREATE TABLE x (a INT PRIMARY KEY); END", "0A000"),
        ("BEGIN COMMIT; END", "0A000"),
        ("BEGIN SELECT 1; END", "42601"),
        ("BEGIN RETURN QUERY SELECT 1; RETURN QUERY SELECT 'a'; END", "42804"),
        ("BEGIN LET v = (SELECT 1, 2); END", "42601"),
        ("BEGIN LET v = (SELECT 1); LET v = (SELECT 'x'); END", "42804"),
        ("BEGIN LET n = (SELECT 1); RETURN QUERY SELECT n FROM account WHERE id = 1; END", "42702"),
        ("BEGIN IF true THEN IF true THEN DELETE FROM account; END IF; END IF; END", "0A000"),
        ("BEGIN IF 1 THEN DELETE FROM account WHERE id = 1; END IF; END", "42804"),
        ("BEGIN UPDATE account SET n = 1 WHERE id = 1", "42601"),
        ("BEGIN UPDATE account SET x = 1 WHERE id = 1; END", "42703"),
        ("BEGIN UPDATE nowhere SET x = 1 WHERE id = 1; END", "42P01"),
        ("DECLARE x INT; BEGIN END", "0A000"),
        ("UPDATE account SET n = 1 WHERE id = 1", "42601"),
    ],
)
def test_what_may_not_stand_in_a_block_is_refused(
    sql: Connection, body: str, sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as told:
        sql.execute(f"DO $$ {body} $$")
    assert told.value.sqlstate == sqlstate, told.value
    assert rows(sql, "SELECT count(*), min(n), max(n) FROM account") == [(40, 100, 100)]


def test_an_error_points_into_the_body(sql: Connection) -> None:
    text = "DO $$ BEGIN UPDATE account SET nn = 1 WHERE id = 1; END $$"
    with pytest.raises(psycopg.errors.UndefinedColumn) as told:
        sql.execute(text)
    assert told.value.diag.statement_position == str(text.index("nn") + 1)


def test_concurrent_blocks_of_one_row_lose_nothing(cluster: Cluster, sql: Connection) -> None:
    account = two_owners(sql)[1]
    text = (
        "DO $$ BEGIN LET had = (SELECT n FROM account WHERE id = $1); "
        "UPDATE account SET n = had + 1 WHERE id = $1; END $$"
    )

    async def work(port: int) -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=port, user="admin", password=PASSWORD
        )
        try:
            for _ in range(25):
                await connection.execute(text, account)
        finally:
            await connection.close()

    async def all_of_them() -> None:
        ports = [cluster[name].pg_port for name in ("i1", "i2")]
        await asyncio.gather(*(work(port) for port in ports * 2))

    asyncio.run(all_of_them())
    assert rows(sql, f"SELECT n FROM account WHERE id = {account}") == [(200,)]


def test_a_user_needs_the_rights_of_every_step(cluster: Cluster, sql: Connection) -> None:
    sql.execute("DROP USER IF EXISTS teller")
    sql.execute(f"CREATE USER teller WITH PASSWORD '{PASSWORD}'")
    sql.execute("GRANT SELECT ON TABLE account TO teller")
    try:
        dsn = f"postgresql://teller:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
        with psycopg.connect(dsn, autocommit=True) as teller:
            read = "DO $$ BEGIN RETURN QUERY SELECT n FROM account WHERE id = 1; END $$"
            assert teller.execute(read).fetchall() == [(100,)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                teller.execute(f"DO {BOTH.format(1)}")
    finally:
        sql.execute("DROP USER teller")
