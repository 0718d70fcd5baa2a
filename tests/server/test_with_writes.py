"""WITH whose parts write, as in PostgreSQL: all or nothing, and none sees what another changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

Connection = psycopg.Connection[tuple[Any, ...]]
COLUMNS = "(g INT, id INT, n INT, s TEXT, PRIMARY KEY (g, id))"
TABLES = ("job", "done")
ROWS = "INSERT INTO job SELECT 1, k, k * 10, 's' || k::text FROM generate_series(1, 6) k"
QUERIES = """
WITH d AS (DELETE FROM job WHERE g = 1 AND id < 3 RETURNING *) INSERT INTO done SELECT * FROM d
WITH d AS (DELETE FROM job WHERE g = 1 AND id = 3 RETURNING *) INSERT INTO done SELECT g, id, n, s FROM d RETURNING id, s
WITH i AS (INSERT INTO job VALUES (1, 20, 5, 'new') ON CONFLICT DO NOTHING RETURNING id, s) SELECT id, s, 'made' FROM i UNION ALL SELECT id, s, 'was' FROM job WHERE g = 1 AND id = 20
WITH i AS (INSERT INTO job VALUES (1, 20, 5, 'no') ON CONFLICT DO NOTHING RETURNING id, s) SELECT id, s, 'made' FROM i UNION ALL SELECT id, s, 'was' FROM job WHERE g = 1 AND id = 20
WITH u AS (UPDATE job SET n = n + 1 WHERE g = 1 AND id > 3 RETURNING id, n) SELECT count(*), sum(n), max(id) FROM u
WITH u AS (UPDATE job SET n = n + 1 WHERE g = 1 AND id > 3 RETURNING id, n) SELECT u.id, u.n, j.n FROM u JOIN job j ON j.id = u.id AND j.g = 1
WITH u AS (UPDATE job SET n = n + 1 WHERE g = 1 AND id > 3 RETURNING id, n) SELECT j.id FROM job j WHERE j.g = 1 AND j.id NOT IN (SELECT id FROM u)
WITH u AS (UPDATE job SET s = s || '!' WHERE g = 1 AND id = 4 RETURNING s) SELECT s, (SELECT s FROM job WHERE g = 1 AND id = 4) FROM u
WITH u AS (UPDATE job SET s = s || '!' WHERE g = 1 AND id = 4 RETURNING s) SELECT s FROM job WHERE g = 1 AND id = 4
WITH p AS (INSERT INTO job VALUES (1, 30, 0, 'p') RETURNING id, g) INSERT INTO done VALUES (1, (SELECT id FROM p), 1, 'child') RETURNING *
WITH p(a, b) AS (INSERT INTO job VALUES (1, 31, 0, 'p'), (1, 32, 0, 'q') RETURNING id, s) SELECT a, b FROM p ORDER BY a DESC
WITH i AS (INSERT INTO job VALUES (1, 33, 0, 'silent')) SELECT 1
WITH big AS (SELECT id FROM job WHERE g = 1 AND n > 40), d AS (DELETE FROM done WHERE g = 1 AND id = 1 RETURNING id) SELECT big.id, d.id FROM big, d
WITH big AS (SELECT 5 AS id), d AS (UPDATE done SET n = big.id FROM big WHERE g = 1 AND done.id = 2 RETURNING done.id, n) SELECT * FROM d
WITH d AS (DELETE FROM job WHERE g = 1 AND id = 5 RETURNING id, n), s AS (SELECT sum(n) AS total FROM d) SELECT d.id, s.total FROM d CROSS JOIN s
WITH a AS (DELETE FROM job WHERE g = 1 AND id = 30 RETURNING id), b AS (INSERT INTO done VALUES (1, 99, 9, 'b') RETURNING id) SELECT a.id, b.id FROM a, b
WITH a AS (DELETE FROM job WHERE g = 1 AND id = 31 RETURNING id), b AS (INSERT INTO done SELECT 1, id + 500, 1, 'of a' FROM a RETURNING id) SELECT id FROM b
WITH d AS (DELETE FROM job WHERE g = 1 AND id = 32 RETURNING id) UPDATE done SET s = 'met' FROM d WHERE done.g = 1 AND done.id = d.id - 30
WITH d AS (DELETE FROM job WHERE g = 1 AND id = 33 RETURNING id) DELETE FROM done WHERE g = 1 AND id IN (SELECT id - 30 FROM d) RETURNING id
WITH d AS (DELETE FROM job WHERE g = 1 AND id = 1000 RETURNING *) INSERT INTO done SELECT * FROM d
WITH d AS (DELETE FROM job WHERE g = 1 AND id = 1000 RETURNING *) SELECT count(*), max(s) FROM d
WITH u AS (INSERT INTO job VALUES (1, 4, 7, 'up') ON CONFLICT (g, id) DO UPDATE SET n = job.n + EXCLUDED.n RETURNING id, n) SELECT * FROM u
WITH RECURSIVE d AS (DELETE FROM job WHERE g = 1 AND id = 20 RETURNING id), r AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT d.id, r.k FROM d, r
WITH d AS (DELETE FROM job WHERE g = 1 RETURNING id, n) SELECT id, rank() OVER (ORDER BY n) FROM d
"""  # noqa: E501
WRONG = """
WITH i AS (INSERT INTO job VALUES (1, 50, 0, 'x')) SELECT * FROM i
WITH i AS (INSERT INTO job VALUES (1, 51, 0, 'x') RETURNING id) SELECT 1 / (id - 51) FROM i
WITH i AS (INSERT INTO job VALUES (1, 52, 0, 'x') RETURNING id), j AS (INSERT INTO done VALUES (1, NULL, 0, 'x') RETURNING id) SELECT i.id FROM i, j
WITH i AS (INSERT INTO job VALUES (1, 53, 0, 'x') RETURNING nothing) SELECT * FROM i
WITH i AS (INSERT INTO job VALUES (1, 54, 0, 'x') RETURNING id), i AS (SELECT 1) SELECT * FROM i
WITH i(a, b, c) AS (INSERT INTO job VALUES (1, 55, 0, 'x') RETURNING id) SELECT * FROM i
SELECT * FROM (WITH i AS (INSERT INTO job VALUES (1, 56, 0, 'x') RETURNING id) SELECT * FROM i) s
WITH i AS (SELECT id FROM j), j AS (INSERT INTO job VALUES (1, 57, 0, 'x') RETURNING id) SELECT * FROM i
WITH i AS (INSERT INTO job VALUES (1, 58, 0, 'x') RETURNING id) SELECT * FROM i, nowhere
"""  # noqa: E501


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name in TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
            connection.execute(f"CREATE TABLE {name} {COLUMNS} DISTRIBUTED BY (g)")
        connection.execute(ROWS)
        yield connection
        connection.execute("DROP TABLE job, done")


@pytest.fixture
def theirs(postgres: Any) -> Connection:  # noqa: F811
    for name in TABLES:
        postgres.execute(f"DROP TABLE IF EXISTS {name}")
        postgres.execute(f"CREATE TABLE {name} {COLUMNS.replace('INT', 'BIGINT')}")
    postgres.execute(ROWS)
    return postgres  # type: ignore[no-any-return]


def told(connection: Connection, text: str) -> Any:
    """The tag, the rows, and what all tables have afterwards; or the error's code."""
    try:
        cursor = connection.execute(text.encode())
        answer: Any = cursor.statusmessage, sorted(cursor.fetchall() if cursor.description else [])
    except psycopg.Error as problem:
        answer = problem.sqlstate
    left = [sorted(connection.execute(f"TABLE {name}".encode()).fetchall()) for name in TABLES]
    return answer, left


@pytest.mark.clients
def test_rows_tags_and_tables_are_those_of_postgresql(sql: Connection, theirs: Connection) -> None:
    for text in QUERIES.strip().splitlines():
        assert told(sql, text) == told(theirs, text), text


@pytest.mark.clients
def test_what_fails_fails_with_the_same_code_and_leaves_nothing(
    sql: Connection, theirs: Connection
) -> None:
    for text in WRONG.strip().splitlines():
        ours, expected = told(sql, text), told(theirs, text)
        assert ours == expected, text
        assert isinstance(ours[0], str)


@pytest.mark.parametrize(
    ("text", "words", "position"),
    [
        (
            "WITH a AS (UPDATE job SET n = 1 WHERE g = 1 RETURNING id), "
            "b AS (DELETE FROM job WHERE g = 1) SELECT 1",
            "cannot change the same table",
            12,
        ),
        (
            "WITH a AS (UPDATE job SET n = 1 WHERE g = 1 RETURNING id) "
            "INSERT INTO done SELECT g, id, n, s FROM job WHERE g = 1",
            "nor one read what another changes",
            59,
        ),
    ],
)
def test_what_would_see_changes_of_its_own_statement_is_refused(
    sql: Connection, text: str, words: str, position: int
) -> None:
    with pytest.raises(psycopg.Error, match=words) as found:
        sql.execute(text.encode())
    assert found.value.sqlstate == "0A000"
    assert found.value.diag.statement_position == str(position)
    assert sql.execute("SELECT sum(n) FROM job").fetchone() == (210,)


def test_rows_of_two_replicasets_are_refused_before_anything_is_done(sql: Connection) -> None:
    values = ", ".join(f"({g}, 1, 0, 'x')" for g in range(100, 140))
    text = f"WITH i AS (INSERT INTO job VALUES {values} RETURNING id) SELECT count(*) FROM i"
    with pytest.raises(psycopg.Error, match="one replicaset") as found:
        sql.execute(text.encode())
    assert found.value.sqlstate == "0A000"
    assert "distribution key" in str(found.value.diag.message_hint)
    assert sql.execute("SELECT count(*) FROM job").fetchone() == (6,)


def test_a_statement_of_very_many_parts_is_refused_in_a_moment(sql: Connection) -> None:
    part = "p{} AS (INSERT INTO job VALUES (1, {}, 0, 'x'))"
    parts = ", ".join(part.format(at, at + 100) for at in range(5_000))
    with pytest.raises(psycopg.Error) as found:
        sql.execute(f"WITH {parts} SELECT 1".encode())
    assert found.value.sqlstate == "54000"


def test_parameters_of_all_parts_are_those_of_the_statement(sql: Connection) -> None:
    text = (
        "WITH i AS (INSERT INTO job VALUES (%(g)s, %(id)s, %(n)s, %(s)s) RETURNING id, n) "
        "SELECT id, n + %(more)s FROM i"
    )
    values = {"g": 5, "id": 1, "n": 40, "s": "x", "more": 2}
    assert sql.execute(text, values).fetchall() == [(1, 42)]


def test_a_block_takes_back_what_its_with_wrote(sql: Connection) -> None:
    text = b"WITH d AS (DELETE FROM job WHERE g = 1 RETURNING id) SELECT count(*) FROM d"
    with sql.transaction(force_rollback=True):
        assert sql.execute(text).fetchone() == (6,)
        assert sql.execute("SELECT count(*) FROM job WHERE g = 1").fetchone() == (0,)
    assert sql.execute("SELECT count(*) FROM job WHERE g = 1").fetchone() == (6,)


def test_rights_of_every_part_are_asked(cluster: Cluster, sql: Connection) -> None:
    sql.execute("CREATE USER clerk WITH PASSWORD 'Passw0rdPassw0rd'")
    sql.execute("GRANT READ ON TABLE job TO clerk")
    try:
        dsn = f"postgresql://clerk:Passw0rdPassw0rd@127.0.0.1:{cluster['i1'].pg_port}/cairn"
        text = b"WITH d AS (DELETE FROM job WHERE g = 1 RETURNING id) SELECT count(*) FROM d"
        with psycopg.connect(dsn, autocommit=True) as clerk, pytest.raises(psycopg.Error) as found:
            clerk.execute(text)
        assert found.value.sqlstate == "42501"
    finally:
        sql.execute("DROP USER clerk")
    assert sql.execute("SELECT count(*) FROM job").fetchone() == (6,)


@pytest.mark.parametrize(
    "before", ["DECLARE c CURSOR WITH HOLD FOR ", "CREATE VIEW v AS ", "COPY (", "EXPLAIN "]
)
def test_what_writes_is_no_query_that_others_keep(sql: Connection, before: str) -> None:
    text = "WITH d AS (DELETE FROM job WHERE g = 1 RETURNING id) SELECT id FROM d"
    after = ") TO STDOUT" if before == "COPY (" else ""
    with pytest.raises(psycopg.Error) as found:
        sql.execute(f"{before}{text}{after}".encode())
    assert found.value.sqlstate in ("0A000", "42P11", "42601")
    assert sql.execute("SELECT count(*) FROM job").fetchone() == (6,)
