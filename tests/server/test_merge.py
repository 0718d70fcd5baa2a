"""MERGE as PostgreSQL 15 has it, where all rows have one owner: same rows, counts and refusals."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster
from tests.server.together import Connection, clear, rows_together
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

TABLES = ("mg_note", "mg_stock", "mg_came", "mg_sharded")

SCRIPT = """
CREATE TABLE mg_stock (id INT PRIMARY KEY, n INT DEFAULT 7, name TEXT, at DATE, price NUMERIC(8, 2))
CREATE TABLE mg_came (id INT PRIMARY KEY, n INT, name TEXT)
INSERT INTO mg_stock VALUES (1, 10, 'one', NULL, 1), (2, 20, 'two', NULL, 2), (3, 30, 'three')
INSERT INTO mg_came VALUES (2, 5, 'zwei'), (3, -30, 'drei'), (4, 4, 'vier'), (5, NULL, 'fünf')
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id
    WHEN MATCHED AND t.n + s.n <= 0 THEN DELETE
    WHEN MATCHED THEN UPDATE SET n = t.n + s.n, name = s.name
    WHEN NOT MATCHED AND s.n IS NULL THEN DO NOTHING
    WHEN NOT MATCHED THEN INSERT (id, n, name) VALUES (s.id, s.n, upper(s.name))
SELECT * FROM mg_stock ORDER BY id
MERGE INTO mg_stock USING mg_came ON mg_stock.id = mg_came.id WHEN MATCHED THEN DO NOTHING
MERGE INTO mg_stock AS t USING (SELECT id + 100 AS id, name FROM mg_came WHERE n > 0) AS s
    ON s.id = t.id WHEN NOT MATCHED THEN INSERT VALUES (id, DEFAULT, name, '2024-05-06', 1.239)
SELECT * FROM mg_stock ORDER BY id
MERGE INTO mg_stock t USING (VALUES (1, 'eins'), (9, 'neun')) AS s (id, name) ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET (n, name) = (CASE WHEN t.n > 5 THEN 1 ELSE 2 END, s.name)
    WHEN NOT MATCHED THEN INSERT (name, id) VALUES (s.name, s.id)
SELECT * FROM mg_stock ORDER BY id
MERGE INTO mg_stock t USING (VALUES (1), (1)) AS s (id) ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET n = 0
MERGE INTO mg_stock t USING (VALUES (1), (1)) AS s (id) ON t.id = s.id WHEN MATCHED THEN DELETE
MERGE INTO mg_stock t USING (VALUES (77), (77)) AS s (id) ON t.id = s.id
    WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id AND s.n > 4
    WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id + 200)
    WHEN MATCHED AND t.n > 1000 THEN DELETE
    WHEN MATCHED THEN UPDATE SET n = DEFAULT, at = '2020-01-01', price = NULL
SELECT * FROM mg_stock ORDER BY id
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = t.id + 1000
SELECT id FROM mg_stock ORDER BY id
MERGE INTO mg_stock t USING mg_came s ON false WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
SELECT id FROM mg_stock ORDER BY id
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED AND t.n IS NULL THEN DELETE
MERGE INTO nobody t USING mg_came s ON t.id = s.id WHEN MATCHED THEN DELETE
MERGE INTO mg_stock t USING nobody s ON t.id = s.id WHEN MATCHED THEN DELETE
MERGE INTO mg_stock t USING mg_came s ON t.id = s.nothing WHEN MATCHED THEN DELETE
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nothing = 1
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED THEN INSERT (id) VALUES (1)
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN NOT MATCHED THEN DELETE
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED THEN DELETE
    WHEN MATCHED THEN DO NOTHING
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 1, n = 2
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id
    WHEN NOT MATCHED THEN INSERT (id, n) VALUES (1)
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 1 / 0
BEGIN
MERGE INTO mg_stock t USING mg_came s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'block'
SELECT id, name FROM mg_stock WHERE name = 'block' ORDER BY id
ROLLBACK
SELECT count(*) FROM mg_stock WHERE name = 'block'
CREATE TABLE mg_note (id INT PRIMARY KEY, s INT REFERENCES mg_stock ON DELETE CASCADE)
INSERT INTO mg_note VALUES (1, 1), (2, 4)
MERGE INTO mg_note t USING (VALUES (3, 99)) v (id, s) ON t.id = v.id
    WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.s)
MERGE INTO mg_stock t USING (VALUES (4)) v (id) ON t.id = v.id WHEN MATCHED THEN DELETE
SELECT * FROM mg_note
"""


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    with rows_together(cluster, "i2", TABLES) as connection:
        yield connection


def _asked(connection: Connection, text: str) -> tuple[Any, ...]:
    try:
        cursor = connection.execute(text.encode(), prepare=False)
    except psycopg.Error as error:
        return (str(error.sqlstate),)
    told = cursor.statusmessage if text.startswith("MERGE") else ""
    return ("", told, cursor.fetchall() if cursor.description else [])


def test_merge_does_what_postgresql_does(sql: Connection, postgres: Any) -> None:  # noqa: F811
    clear(postgres, TABLES)
    problems = []
    for line in SCRIPT.strip().replace("\n    ", " ").splitlines():
        theirs, ours = _asked(postgres, line), _asked(sql, line)
        if theirs != ours:
            problems.append(f"{line}\n    ours: {ours}\n    PostgreSQL: {theirs}")
    assert not problems, "\n".join(problems)


def test_parameters_and_rows_of_several_owners(sql: Connection) -> None:
    sql.execute("CREATE TABLE mg_stock (id INT PRIMARY KEY, n INT)")
    merge = (
        "MERGE INTO mg_stock t USING (VALUES (%s::int, %s::int)) AS s (id, n) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = t.n + s.n WHEN NOT MATCHED THEN INSERT VALUES (id, n)"
    )
    for n in range(5):
        assert sql.execute(merge, (1, n)).statusmessage == "MERGE 1"
    assert sql.execute("SELECT * FROM mg_stock").fetchall() == [(1, 10)]
    sql.execute("CREATE TABLE mg_sharded (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)")
    sql.execute("INSERT INTO mg_sharded SELECT k, k FROM generate_series(1, 50) k")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        sql.execute(
            "MERGE INTO mg_sharded t USING mg_stock s ON t.n = s.n WHEN MATCHED THEN DELETE"
        )
    assert sql.execute("SELECT count(*) FROM mg_sharded").fetchall() == [(50,)]


def test_merge_is_prepared_explained_and_comes_after_with(cluster: Cluster) -> None:
    name = f"m{uuid.uuid4().hex[:10]}"
    with cluster["i1"].connect() as session:
        session.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text) DISTRIBUTED BY ()")
        try:
            text = (
                f"WITH s AS (SELECT g AS id, 'n' || g AS v FROM generate_series(1, 3) g) "
                f"MERGE INTO {name} t USING s ON t.id = s.id "
                "WHEN MATCHED AND t.v <> (SELECT max(v) FROM s) THEN UPDATE SET v = t.v || s.v "
                "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)"
            )
            assert session.execute(text).statusmessage == "MERGE 3"
            assert session.execute(text).statusmessage == "MERGE 2"
            session.execute(
                f"PREPARE one (int, text) AS MERGE INTO {name} t USING (SELECT $1 AS id) s "
                "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = $2"
            )
            assert session.execute("EXECUTE one (2, 'mine')").statusmessage == "MERGE 1"
            found = session.execute(f"SELECT v FROM {name} ORDER BY id").fetchall()
            assert found == [("n1n1",), ("mine",), ("n3",)]
            told = [row[0] for row in session.execute(f"EXPLAIN {text}").fetchall()]
            assert told[0] == "read for WHEN 1:" and "change for WHEN 2:" in told
            assert any("insert into" in line for line in told)
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                session.execute(f"EXPLAIN ANALYZE {text}")
        finally:
            session.execute(f"DROP TABLE {name}")
