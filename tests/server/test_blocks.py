"""BEGIN … COMMIT from ordinary drivers, on two replicasets: all or nothing, and ROLLBACK undoes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

from .raw import Raw

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(port: int, *, autocommit: bool = False) -> Connection:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{port}/cairn"
    return psycopg.connect(dsn, autocommit=autocommit)


@pytest.fixture
def other(cluster: Cluster) -> Iterator[Connection]:
    """Somebody else, who sees what is committed."""
    first = cluster["i1"]
    for name in ("account", "entry", "rate"):
        first.sql(f"DROP TABLE IF EXISTS {name}")
    first.sql("CREATE TABLE account (id INT PRIMARY KEY, n INT NOT NULL)")
    first.sql(
        "CREATE TABLE entry (account INT, no INT GENERATED ALWAYS AS IDENTITY, what TEXT, "
        "at DATETIME, x DOUBLE, PRIMARY KEY (account, no)) DISTRIBUTED BY (account)"
    )
    first.sql("CREATE TABLE rate (name TEXT PRIMARY KEY, x INT) DISTRIBUTED GLOBALLY")
    with connect(first.pg_port, autocommit=True) as connection:
        connection.execute("INSERT INTO account SELECT k, 100 FROM generate_series(1, 40) k")
        yield connection
    for name in ("account", "entry", "rate"):
        first.sql(f"DROP TABLE {name}")


@pytest.fixture(params=["i1", "i2"])
def sql(
    request: pytest.FixtureRequest, cluster: Cluster, other: Connection
) -> Iterator[Connection]:
    """A driver as it is by itself: the first statement begins a block."""
    with connect(cluster[request.param].pg_port) as connection:
        yield connection
        connection.rollback()


def rows(connection: Connection, text: str, *values: Any) -> list[Any]:
    return connection.execute(text, values).fetchall()


def two_owners(connection: Connection) -> tuple[int, int]:
    found = rows(
        connection,
        "SELECT min(a.id) FROM account a JOIN _pico_bucket b ON a.bucket_id BETWEEN "
        "b.bucket_id_start AND b.bucket_id_end GROUP BY b.current_replicaset_name ORDER BY 1",
    )
    (first,), (second,) = found
    return first, second


def test_a_block_is_seen_by_others_when_it_is_committed(sql: Connection, other: Connection) -> None:
    for account in two_owners(other):
        read = f"SELECT n FROM account WHERE id = {account}"
        entries = f"SELECT what FROM entry WHERE account = {account}"
        assert sql.execute("UPDATE account SET n = n - 1 WHERE id = %s", [account]).rowcount == 1
        sql.execute("INSERT INTO entry (account, what) VALUES (%s, 'out')", [account])
        assert rows(sql, read) == [(99,)]
        assert rows(sql, entries) == [("out",)]
        assert (rows(other, read), rows(other, entries)) == ([(100,)], [])
        sql.commit()
        assert (rows(other, read), rows(other, entries)) == ([(99,)], [("out",)])


def test_rollback_undoes(sql: Connection, other: Connection) -> None:
    account = two_owners(other)[1]
    sql.execute("DELETE FROM account WHERE id = %s", [account])
    assert rows(sql, "SELECT n FROM account WHERE id = %s", account) == []
    sql.rollback()
    assert rows(sql, "SELECT n FROM account WHERE id = %s", account) == [(100,)]


def test_an_exception_leaves_nothing(cluster: Cluster, other: Connection) -> None:
    with pytest.raises(ZeroDivisionError), connect(cluster["i1"].pg_port) as sql:
        sql.execute("UPDATE account SET n = 0 WHERE id = 1")
        raise ZeroDivisionError
    sql = connect(cluster["i1"].pg_port)
    sql.execute("UPDATE account SET n = 0 WHERE id = 1")
    sql.close()  # gone in the middle
    assert rows(other, "SELECT n FROM account WHERE id = 1") == [(100,)]


def test_an_error_fails_the_block_until_its_end(sql: Connection, other: Connection) -> None:
    sql.execute("UPDATE account SET n = 0 WHERE id = 1")
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("INSERT INTO account VALUES (1, 1)")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        sql.execute("SELECT 1")
    sql.rollback()
    assert rows(other, "SELECT n FROM account WHERE id = 1") == [(100,)]


def test_an_error_sees_what_the_block_has_written(sql: Connection, other: Connection) -> None:
    sql.execute("INSERT INTO account VALUES (1000, 1)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("INSERT INTO account VALUES (1000, 2)")
    sql.rollback()
    assert rows(other, "SELECT n FROM account WHERE id = 1000") == []


def test_savepoints(sql: Connection, other: Connection) -> None:
    account = two_owners(other)[0]
    add = f"UPDATE account SET n = n + %s WHERE id = {account} RETURNING n"
    assert rows(sql, add, 1) == [(101,)]
    sql.execute("SAVEPOINT a")
    assert rows(sql, add, 10) == [(111,)]
    sql.execute("ROLLBACK TO a")
    assert rows(sql, add, 100) == [(201,)]
    with pytest.raises(ValueError), sql.transaction():
        sql.execute(f"DELETE FROM account WHERE id = {account}")
        raise ValueError
    with pytest.raises(psycopg.errors.UniqueViolation), sql.transaction():
        sql.execute(f"INSERT INTO account VALUES ({account}, 1)")
    with sql.transaction():
        assert rows(sql, add, 1000) == [(1201,)]
    sql.commit()
    assert rows(other, f"SELECT n FROM account WHERE id = {account}") == [(1201,)]


def test_what_was_read_must_still_be_so_at_commit(sql: Connection, other: Connection) -> None:
    account = two_owners(other)[1]
    had = rows(sql, "SELECT n FROM account WHERE id = %s", account)[0][0]
    other.execute("UPDATE account SET n = n + 5 WHERE id = %s", [account])
    sql.execute("UPDATE account SET n = %s WHERE id = %s", [had + 1, account])
    with pytest.raises(psycopg.errors.SerializationFailure) as told:
        sql.commit()
    assert "repeat the block" in (told.value.diag.message_hint or "")
    assert sql.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert rows(other, "SELECT n FROM account WHERE id = %s", account) == [(105,)]


def test_writes_that_tell_nothing_of_what_was_there_do_not_conflict(
    sql: Connection, other: Connection
) -> None:
    account = two_owners(other)[1]
    sql.execute("UPDATE account SET n = n + 1 WHERE id = %s", [account])
    other.execute("UPDATE account SET n = n + 5 WHERE id = %s", [account])
    sql.execute("UPDATE account SET n = n + 1 WHERE id = %s", [account])
    sql.commit()
    assert rows(other, "SELECT n FROM account WHERE id = %s", account) == [(107,)]


def test_a_block_stays_inside_one_replicaset(sql: Connection, other: Connection) -> None:
    first, second = two_owners(other)
    sql.execute("UPDATE account SET n = 0 WHERE id = %s", [first])
    for text in (
        f"UPDATE account SET n = 0 WHERE id = {second}",
        f"INSERT INTO entry (account, what) VALUES ({second}, 'x')",
        "DELETE FROM account",
    ):
        sql.execute("SAVEPOINT a")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="one replicaset"):
            sql.execute(text)
        sql.execute("ROLLBACK TO a")
    sql.commit()
    wanted = [(0,)], [(100,)]
    assert tuple(
        rows(other, "SELECT n FROM account WHERE id = %s", n) for n in (first, second)
    ) == (wanted)


def test_a_wide_read_sees_what_the_block_has_written(sql: Connection, other: Connection) -> None:
    first, second = two_owners(other)
    sql.execute("UPDATE account SET n = n + 5 WHERE id = %s", [first])
    sql.execute("INSERT INTO entry (account, what) VALUES (%s, 'mine')", [first])
    other.execute("UPDATE account SET n = n + 7 WHERE id = %s", [second])
    assert rows(sql, "SELECT n FROM account WHERE id = %s", second) == [(107,)]
    for _ in range(2):
        assert rows(sql, "SELECT count(*), sum(n) FROM account") == [(40, 4012)]
        joined = "SELECT a.id, e.what FROM account a JOIN entry e ON e.account = a.id"
        assert rows(sql, joined) == [(first, "mine")]
        changed = "SELECT id FROM account WHERE n <> 100 ORDER BY n"
        assert rows(sql, changed) == [(first,), (second,)]
    assert rows(other, "SELECT count(*), sum(n) FROM account") == [(40, 4007)]
    sql.commit()
    assert rows(other, "SELECT count(*), sum(n) FROM account") == [(40, 4012)]


def test_what_cannot_be_undone_is_taken_only_as_the_one_write(
    sql: Connection, other: Connection
) -> None:
    notices: list[str] = []
    sql.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    alone = ("INSERT INTO rate VALUES ('a', 1)", "UPDATE account SET n = n + 1")
    for text in alone:
        sql.execute("UPDATE account SET n = 7 WHERE id = 1")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            sql.execute(text)
        sql.rollback()
        sql.execute(text)
        assert "ROLLBACK will not undo it" in notices.pop()
        for second in ("UPDATE account SET n = 7 WHERE id = 1", "INSERT INTO rate VALUES ('b', 1)"):
            sql.execute("SAVEPOINT a")
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="could not be undone"):
                sql.execute(second)
            sql.execute("ROLLBACK TO a")
        sql.commit()
    assert rows(other, "SELECT DISTINCT n FROM account") == [(101,)]
    assert rows(other, "SELECT name FROM rate") == [("a",)]


@pytest.mark.parametrize(
    "first", ["SELECT n FROM account WHERE id = 1", "UPDATE account SET n = 1 WHERE id = 1"]
)
def test_a_table_that_changes_between_two_statements_of_a_block_is_told_at_once(
    sql: Connection, other: Connection, first: str
) -> None:
    """COMMIT waited half a minute for the end of a change that was over."""
    sql.execute("SET statement_timeout = '10s'")
    sql.commit()
    sql.execute(first.encode())
    other.execute("ALTER TABLE account ADD COLUMN more INT")
    with pytest.raises(psycopg.errors.SerializationFailure, match="was changed or dropped"):
        sql.execute("UPDATE account SET n = 2 WHERE id = 1")
        sql.commit()
    sql.rollback()
    assert other.execute("SELECT n FROM account WHERE id = 1").fetchall() == [(100,)]


def test_the_schema_is_changed_before_rows_are_and_stays(
    sql: Connection, other: Connection
) -> None:
    notices: list[str] = []
    sql.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    sql.execute("CREATE TABLE made (a INT PRIMARY KEY)")
    sql.execute("CREATE INDEX made_a ON made (a)")
    assert ["ROLLBACK will not undo it" in notice for notice in notices] == [True, True]
    sql.execute("INSERT INTO made VALUES (1)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="could not be undone"):
        sql.execute("DROP TABLE made")
    sql.execute("ROLLBACK")
    assert notices[-1].startswith("ROLLBACK does not undo 2 CREATE statement(s)")
    assert rows(other, "SELECT count(*) FROM made") == [(0,)]
    other.execute("DROP TABLE made")


def test_copy_is_taken_as_the_one_write(sql: Connection, other: Connection) -> None:
    sql.execute("DELETE FROM account WHERE id = 1")
    with (
        pytest.raises(psycopg.errors.FeatureNotSupported, match="COPY would commit by itself"),
        sql.cursor().copy("COPY account FROM STDIN") as copy,
    ):
        copy.write_row((1000, 1))
    sql.rollback()
    with sql.cursor().copy("COPY account FROM STDIN") as copy:
        copy.write_row((1000, 1))
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="could not be undone"):
        sql.execute("DELETE FROM account WHERE id = 1")
    with pytest.raises(psycopg.Error, match="stay committed"):
        sql.rollback()
    assert rows(other, "SELECT count(*) FROM account") == [(41,)]


def test_a_write_all_over_that_meets_no_row_is_no_write(sql: Connection, other: Connection) -> None:
    none = "INSERT INTO account SELECT id + 1000, n FROM account WHERE n = -77"
    assert sql.execute(none).rowcount == 0
    assert sql.execute("UPDATE rate SET x = 1 WHERE name = 'nobody'").rowcount == 0
    assert sql.execute("UPDATE account SET n = 5 WHERE id = 1").rowcount == 1
    sql.rollback()
    assert rows(other, "SELECT count(*) FROM account WHERE n = 5") == [(0,)]


def test_rollback_says_what_it_cannot_undo(sql: Connection) -> None:
    sql.execute("INSERT INTO rate VALUES ('a', 1)")
    with pytest.raises(psycopg.Error) as told:
        sql.execute("ROLLBACK")
    assert told.value.sqlstate == "25000"


@pytest.mark.parametrize("atomic", ["on", "off"])
def test_rollback_tells_of_things_that_were_made_and_goes_on(
    sql: Connection, other: Connection, atomic: str
) -> None:
    """Tools make a table and roll back to learn whether it stays. What takes away is an error."""
    told: list[str] = []
    sql.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
    name = f"b{uuid.uuid4().hex[:10]}"
    sql.execute(f"SET atomic_blocks = {atomic}".encode())
    sql.commit()
    sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)".encode())
    sql.execute(f"CREATE INDEX ON {name} (id)".encode())
    told.clear()
    sql.rollback()
    stays = "ROLLBACK does not undo 2 CREATE statement(s) of this block: what they made stays"
    assert told == [stays]
    assert rows(other, f"SELECT count(*) FROM {name}") == [(0,)]
    sql.execute("SAVEPOINT one")
    sql.execute(f"CREATE VIEW v{name} AS SELECT id FROM {name}".encode())
    sql.execute("ROLLBACK TO one")
    assert told[-1].startswith("ROLLBACK TO SAVEPOINT does not undo 1 CREATE")
    sql.execute(f"DROP VIEW v{name}".encode())
    with pytest.raises(psycopg.Error, match="2 statement"):
        sql.rollback()
    for text in (f"TRUNCATE {name}", f"ALTER TABLE {name} ADD COLUMN x int", f"DROP TABLE {name}"):
        sql.execute(text.encode())
        with pytest.raises(psycopg.Error, match="1 statement"):
            sql.rollback()


def test_each_statement_commits_by_itself_where_that_is_asked_for(
    sql: Connection, other: Connection
) -> None:
    sql.execute("SET atomic_blocks = off")
    sql.commit()
    for account in two_owners(other):
        sql.execute("UPDATE account SET n = 0 WHERE id = %s", [account])
        assert rows(other, "SELECT n FROM account WHERE id = %s", account) == [(0,)]
    with pytest.raises(psycopg.Error) as told:
        sql.execute("ROLLBACK")
    assert told.value.sqlstate == "25000"


def test_time_chance_and_keys_stay_as_they_were_told(sql: Connection, other: Connection) -> None:
    account = two_owners(other)[1]
    insert = (
        "INSERT INTO entry (account, what, at, x) VALUES (%s, %s, now(), random()) "
        "RETURNING no, at, x"
    )
    told = [rows(sql, insert, account, what)[0] for what in ("a", "b")]
    (number, at, x), (other_number, other_at, other_x) = told
    assert (at, x != other_x, number != other_number) == (other_at, True, True)
    changed = rows(sql, "UPDATE entry SET x = random() WHERE account = %s RETURNING x", account)
    sql.commit()
    found = rows(other, "SELECT no, at FROM entry WHERE account = %s ORDER BY what", account)
    assert found == [(number, at), (other_number, at)]
    assert rows(other, "SELECT x FROM entry WHERE account = %s ORDER BY no", account) == changed


def test_serializable_refuses_what_it_cannot_check(sql: Connection, other: Connection) -> None:
    first, second = two_owners(other)
    sql.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    assert rows(sql, "SHOW transaction_isolation") == [("serializable",)]
    assert rows(sql, "SELECT n FROM account WHERE id = %s", first) == [(100,)]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="not serializable"):
        sql.execute("SELECT n FROM account WHERE id = %s", [second])
    sql.rollback()
    assert rows(sql, "SELECT n FROM account WHERE id = %s", first) == [(100,)]
    other.execute("UPDATE account SET n = 1 WHERE id = %s", [first])
    assert rows(sql, "SELECT n FROM account WHERE id = %s", first) == [(1,)]
    with pytest.raises(psycopg.errors.SerializationFailure):
        sql.commit()


def test_a_block_that_only_reads_refuses_to_write(sql: Connection) -> None:
    sql.read_only = True
    assert rows(sql, "SELECT count(*) FROM account") == [(40,)]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        sql.execute("UPDATE account SET n = 0 WHERE id = 1")
    sql.rollback()


def test_ready_for_query_tells_the_state_of_the_block(cluster: Cluster, other: Connection) -> None:
    def status(raw: Raw, text: str) -> bytes:
        return [body for kind, body in raw.query(text) if kind == b"Z"][-1]

    with Raw(cluster["i1"].pg_port) as raw:
        raw.log_in()
        seen = [
            status(raw, text)
            for text in (
                "BEGIN",
                "UPDATE account SET n = 1 WHERE id = 1",
                "SELECT nothing",
                "COMMIT",
                "BEGIN; UPDATE account SET n = 2 WHERE id = 1; SELECT n FROM account WHERE id = 1",
                "COMMIT",
            )
        ]
    assert seen == [b"T", b"T", b"E", b"I", b"T", b"I"]
    assert rows(other, "SELECT n FROM account WHERE id = 1") == [(2,)]


def test_many_inserts_in_one_block(sql: Connection, other: Connection) -> None:
    first, _ = two_owners(other)
    with sql.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO entry (account, what) VALUES (%s, %s)",
            [(first, f"number {n}") for n in range(300)],
        )
    sql.execute("DELETE FROM entry WHERE account = %s AND what = 'number 7'", [first])
    assert rows(sql, "SELECT count(*) FROM entry WHERE account = %s", first) == [(299,)]
    assert rows(other, "SELECT count(*) FROM entry") == [(0,)]
    sql.commit()
    assert rows(other, "SELECT count(*) FROM entry") == [(299,)]


def test_asyncpg_s_transactions(cluster: Cluster, other: Connection) -> None:
    account = two_owners(other)[1]

    async def run() -> Any:
        sql = await asyncpg.connect(
            host="127.0.0.1", port=cluster["i1"].pg_port, user="admin", password=PASSWORD
        )
        try:
            async with sql.transaction(isolation="serializable"):
                had = await sql.fetchval("SELECT n FROM account WHERE id = $1", account)
                await sql.execute("UPDATE account SET n = $1 WHERE id = $2", had + 1, account)
                try:
                    async with sql.transaction():
                        await sql.execute("DELETE FROM account WHERE id = $1", account)
                        raise ValueError
                except ValueError:
                    pass
                return await sql.fetchval("SELECT n FROM account WHERE id = $1", account)
        finally:
            await sql.close()

    assert asyncio.run(run()) == 101
    assert rows(other, "SELECT n FROM account WHERE id = %s", account) == [(101,)]


def test_a_do_block_is_a_statement_of_a_block(sql: Connection, other: Connection) -> None:
    account = two_owners(other)[1]
    sql.execute("UPDATE account SET n = 50 WHERE id = %s", [account])
    text = (
        f"DO $$ BEGIN LET had = (SELECT n FROM account WHERE id = {account}); "
        f"UPDATE account SET n = had + 1 WHERE id = {account}; "
        f"RETURN QUERY SELECT n FROM account WHERE id = {account}; END $$"
    )
    assert rows(sql, text) == [(51,)]
    assert rows(sql, text) == [(52,)]
    sql.commit()
    assert rows(other, "SELECT n FROM account WHERE id = %s", account) == [(52,)]


def test_show_tells_the_modes_of_the_block(sql: Connection) -> None:
    def shown() -> tuple[str, str]:
        names = ("transaction_isolation", "transaction_read_only")
        level, access = (rows(sql, f"SHOW {name}")[0][0] for name in names)
        return level, access

    assert shown() == ("read committed", "off")
    sql.rollback()
    sql.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY")
    assert shown() == ("serializable", "on")
    sql.rollback()
    sql.execute(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
    )
    sql.commit()
    assert shown() == ("repeatable read", "on")
    sql.rollback()
    sql.autocommit = True
    assert shown() == ("repeatable read", "on")


def test_a_lost_block_holds_nobody_up(cluster: Cluster, other: Connection) -> None:
    """There are no locks: a client that sleeps in its block is nobody's trouble."""
    with connect(cluster["i1"].pg_port) as sleeper:
        sleeper.execute("UPDATE account SET n = 0 WHERE id = 1")
        other.execute("UPDATE account SET n = n + 1 WHERE id = 1")
        assert rows(other, "SELECT n FROM account WHERE id = 1") == [(101,)]
        sleeper.rollback()


def test_what_was_read_for_update_must_still_be_so_at_commit(
    sql: Connection, other: Connection
) -> None:
    (one, _) = two_owners(other)
    assert rows(sql, "SELECT n FROM account WHERE id = %s FOR UPDATE", one) == [(100,)]
    other.execute("UPDATE account SET n = 7 WHERE id = %s", (one,))
    sql.execute("INSERT INTO entry (account, what) VALUES (%s, 'seen 100')", (one,))
    with pytest.raises(psycopg.errors.SerializationFailure):
        sql.commit()
    assert rows(sql, "SELECT n FROM account WHERE id = %s FOR UPDATE", one) == [(7,)]
    sql.execute("UPDATE account SET n = n + 1 WHERE id = %s", (one,))
    sql.commit()
    assert rows(other, "SELECT n FROM account WHERE id = %s", one) == [(8,)]
    assert rows(other, "SELECT count(*) FROM entry") == [(0,)]


def test_rollback_to_lets_go_of_what_was_read_for_update(
    sql: Connection, other: Connection
) -> None:
    """As Django's TestCase does it: a savepoint for each test, inside one block."""
    one, two = two_owners(other)
    for number in (1, 2):
        sql.execute("SAVEPOINT test")
        sql.execute("UPDATE account SET n = %s WHERE id = %s", (number, one))
        assert rows(sql, "SELECT n FROM account WHERE id = %s FOR UPDATE", one) == [(number,)]
        sql.execute("ROLLBACK TO test")
    assert rows(sql, "SELECT n FROM account WHERE id = %s", one) == [(100,)]
    assert rows(sql, "SELECT n FROM account WHERE id = %s", two) == [(100,)]
    other.execute("UPDATE account SET n = 7 WHERE id = %s", (two,))
    sql.execute("UPDATE account SET n = n + 1 WHERE id = %s", (one,))
    sql.commit()
    assert rows(other, "SELECT n FROM account WHERE id = %s", one) == [(101,)]


def test_what_was_read_before_for_update_may_be_of_anybody(
    sql: Connection, other: Connection
) -> None:
    one, two = two_owners(other)
    assert rows(sql, "SELECT n FROM account WHERE id = %s", two) == [(100,)]
    assert rows(sql, "SELECT n FROM account WHERE id = %s FOR UPDATE", one) == [(100,)]
    other.execute("UPDATE account SET n = 7 WHERE id = %s", (two,))
    sql.execute("UPDATE account SET n = 8 WHERE id = %s", (one,))
    sql.commit()
    assert rows(other, "SELECT n FROM account WHERE id = %s", one) == [(8,)]


def test_rows_of_two_replicasets_for_update_are_refused_not_half_guarded(
    sql: Connection, other: Connection
) -> None:
    one, two = two_owners(other)
    rows(sql, "SELECT n FROM account WHERE id = %s FOR UPDATE", one)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="not serializable"):
        rows(sql, "SELECT n FROM account WHERE id = %s FOR UPDATE", two)
    sql.rollback()
    with connect(sql.info.port) as loose:
        loose.execute("SET atomic_blocks = off")
        loose.commit()
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="FOR UPDATE"):
            rows(loose, "SELECT n FROM account WHERE id = %s FOR UPDATE", one)


def test_a_failed_block_does_not_look_at_what_comes_next(sql: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        sql.execute("SELECT 1 / 0")
    for text, state in (
        ("SELECT nothing FROM nobody", "25P02"),
        ("SELECT 'x'::int", "25P02"),
        ("INSERT INTO account (nothing) VALUES (1)", "25P02"),
        ("SELEC 1", "42601"),
        ("ROLLBACK TO nowhere", "3B001"),
    ):
        for prepare in (False, True):
            with pytest.raises(psycopg.Error) as told:
                sql.execute(text.encode(), prepare=prepare)
            assert told.value.sqlstate == state, text


def test_commit_of_a_failed_block_says_what_stays(cluster: Cluster) -> None:
    name = f"b{uuid.uuid4().hex[:10]}"
    with cluster["i1"].connect() as session:
        session.execute("BEGIN")
        session.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        with pytest.raises(psycopg.Error):
            session.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.Error) as found:
            session.execute("COMMIT")
        assert found.value.sqlstate == "25000" and "1 statement(s)" in str(found.value)
        assert session.execute("SELECT 1").fetchone() == (1,)
        session.execute(f"DROP TABLE {name}")
