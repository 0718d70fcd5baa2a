"""Who said that a session only reads can rely on it, in a block and outside of one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

WRITES = (
    "INSERT INTO read_kept VALUES (1)",
    "INSERT INTO read_kept VALUES (1), (2), (3)",
    "INSERT INTO read_kept VALUES (1) RETURNING id",
    "INSERT INTO read_kept SELECT 1",
    "UPDATE read_kept SET id = 2 WHERE id = 1",
    "DELETE FROM read_kept",
    "EXPLAIN ANALYZE DELETE FROM read_kept",
    "TRUNCATE read_kept",
    "SELECT setval('read_numbered_id_seq', 42)",
    "COPY read_kept FROM STDIN",
    "DO $$ BEGIN DELETE FROM read_kept WHERE id = 1; END $$",
    "WITH x AS (DELETE FROM read_kept WHERE id = 1 RETURNING id) SELECT * FROM x",
    "EXECUTE put (1)",
    "CREATE TABLE other (id INT PRIMARY KEY)",
    "DROP TABLE read_kept",
    "CREATE USER newcomer WITH PASSWORD 'Passw0rd1'",
    "GRANT READ ON TABLE read_kept TO public",
    "ALTER SYSTEM SET sql_motion_row_max = 5000",
)
READS = (
    "SELECT count(*) FROM read_kept",
    "EXPLAIN DELETE FROM read_kept",
    "COPY read_kept TO STDOUT",
    "SHOW transaction_read_only",
    "SELECT count(*) FROM pg_class",
    "CALL cairn_status()",
    "DEALLOCATE put",
)
PUT = "PREPARE put AS INSERT INTO read_kept VALUES ($1)"


@pytest.fixture
def dsn(cluster: Cluster) -> Iterator[str]:
    node = cluster["i1"]
    node.sql("CREATE TABLE read_kept (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    node.sql("CREATE TABLE read_numbered (id SERIAL PRIMARY KEY)")
    yield f"postgresql://admin:{PASSWORD}@127.0.0.1:{node.pg_port}/cairn"
    assert node.sql("SELECT * FROM read_kept") == []
    node.sql("DROP TABLE read_kept, read_numbered")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-c default_transaction_read_only=on", ()),
        ("", ("SET default_transaction_read_only = on",)),
        ("", ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",)),
        ("", ("BEGIN READ ONLY",)),
        ("", ("SET atomic_blocks = off", "BEGIN READ ONLY")),
        ("", ("BEGIN", "SET transaction_read_only = on")),
        ("", ("SET default_transaction_read_only = 'true'", "BEGIN")),
    ],
    ids=["at the start", "set", "characteristics", "block", "plain block", "in a block", "default"],
)
def test_a_session_that_only_reads_writes_by_no_way(
    dsn: str, options: str, said: tuple[str, ...]
) -> None:
    """Outside of a block the setting was shown, and nothing was refused."""
    with psycopg.connect(dsn, options=options, autocommit=True) as sql:
        is_in_block = any("BEGIN" in each for each in said)
        for text in (PUT, *said):
            sql.execute(text)
        if is_in_block:
            sql.execute("SAVEPOINT here")
        for text in WRITES:
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                sql.execute(text)
            if is_in_block:
                sql.execute("ROLLBACK TO SAVEPOINT here")
        for text in READS:
            if "COPY" in text:
                with sql.cursor().copy(text) as copy:
                    assert list(copy) == []
            else:
                sql.execute(text)
        assert sql.execute("SHOW transaction_read_only").fetchone() == ("on",)
        if is_in_block:
            sql.execute("ROLLBACK")


def test_what_was_read_only_may_write_again(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as sql:
        sql.execute("BEGIN READ ONLY")
        sql.execute("COMMIT")
        sql.execute("SET transaction_read_only = on")  # of a block that is over at once
        sql.execute("SET default_transaction_read_only = on")
        sql.execute("BEGIN READ WRITE")
        sql.execute("INSERT INTO read_kept VALUES (1)")
        sql.execute("COMMIT")
        sql.execute("SET default_transaction_read_only = off")
        sql.execute("DELETE FROM read_kept")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            sql.execute("SET default_transaction_read_only = perhaps")


def test_a_block_that_has_read_stays_read_only(cluster: Cluster) -> None:
    """As in PostgreSQL: consoles run what people write inside of BEGIN READ ONLY."""
    with cluster["i1"].connect() as sql:
        for text in ("SET TRANSACTION READ WRITE", "SET transaction_read_only = off"):
            sql.execute("BEGIN READ ONLY")
            sql.execute("SELECT 1")
            with pytest.raises(psycopg.errors.ActiveSqlTransaction):
                sql.execute(text)
            sql.execute("ROLLBACK")
        sql.execute("BEGIN READ ONLY")
        sql.execute("SAVEPOINT one")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            sql.execute("SET TRANSACTION READ WRITE")
        sql.execute("ROLLBACK")
        sql.execute("BEGIN READ ONLY")
        sql.execute("SET TRANSACTION READ WRITE")
        assert sql.execute("SHOW transaction_read_only").fetchone() == ("off",)
        sql.execute("SAVEPOINT one")
        sql.execute("SET TRANSACTION READ ONLY")
        assert sql.execute("SHOW transaction_read_only").fetchone() == ("on",)
        sql.execute("ROLLBACK TO one")
        assert sql.execute("SHOW transaction_read_only").fetchone() == ("off",)
        sql.execute("ROLLBACK")


def test_isolation_is_chosen_before_the_first_query(cluster: Cluster) -> None:
    with cluster["i1"].connect() as sql:
        sql.execute("BEGIN")
        sql.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        sql.execute("SELECT 1")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="before any query"):
            sql.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        sql.execute("ROLLBACK")
