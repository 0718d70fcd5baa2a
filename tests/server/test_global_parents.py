"""Foreign keys towards global tables: rows of every replicaset name rows that all instances have.

A script runs line by line on a cluster and on PostgreSQL; rows, SQLSTATEs and texts are compared.
"""

# ruff: noqa: E501 (a statement to a line)

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster
from tests.server.test_foreign_keys import _asked, _state, arrow_stream, copied
from tests.server.together import Connection, clear, connect
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

TABLES = ("gp_order", "gp_line", "gp_sub", "gp_status", "gp_kind")
GLOBAL = " DISTRIBUTED GLOBALLY"
MADE = (
    ("CREATE TABLE gp_kind (id INT PRIMARY KEY)", GLOBAL),
    (
        "CREATE TABLE gp_status (id INT PRIMARY KEY, code TEXT UNIQUE, a INT, b INT, k INT "
        "REFERENCES gp_kind, UNIQUE (a, b))",
        GLOBAL,
    ),
    (
        "CREATE TABLE gp_order (id INT PRIMARY KEY, status INT REFERENCES gp_status, code TEXT "
        "REFERENCES gp_status (code), a INT, b INT, CONSTRAINT pair FOREIGN KEY (b, a) "
        "REFERENCES gp_status (b, a))",
        "",
    ),
    (
        "CREATE TABLE gp_line (id INT, no INT, status INT REFERENCES gp_status DEFERRABLE "
        "INITIALLY DEFERRED, PRIMARY KEY (id, no))",
        " DISTRIBUTED BY (id)",
    ),
)
SCRIPT = """
INSERT INTO gp_status VALUES (1, 'a', 1, 1, 1)
INSERT INTO gp_kind VALUES (1), (2)
INSERT INTO gp_status VALUES (1, 'a', 1, 1, 1), (2, 'b', 1, 2, NULL), (3, 'c', 2, 1, 2), (4, NULL, 4, 4, NULL)
INSERT INTO gp_status VALUES (5, 'e', 5, 5, 3)
UPDATE gp_status SET k = 9 WHERE id = 4
UPDATE gp_status SET k = 2 WHERE id = 4
DELETE FROM gp_kind WHERE id = 1
INSERT INTO gp_order VALUES (1, 1, 'a', 1, 1), (2, 2, NULL, NULL, 7), (3, NULL, 'c', 2, 1)
INSERT INTO gp_order VALUES (4, 9)
INSERT INTO gp_order VALUES (4, 1, 'zz')
INSERT INTO gp_order VALUES (4, 1, 'a', 2, 2)
INSERT INTO gp_order VALUES (4, 1), (5, 1), (6, 1), (7, 1), (8, 44), (9, 1)
INSERT INTO gp_order SELECT k, k % 3 + 1 FROM generate_series(10, 40) k
INSERT INTO gp_order SELECT k, k % 5 + 1 FROM generate_series(50, 60) k
UPDATE gp_order SET status = 3 WHERE id = 1
UPDATE gp_order SET status = 8 WHERE id < 20
UPDATE gp_order SET id = 100 WHERE id = 40
UPDATE gp_order SET status = NULL WHERE id = 3
INSERT INTO gp_order VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET status = 77
INSERT INTO gp_order VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET status = 2
SELECT id, status, code FROM gp_order ORDER BY id
DELETE FROM gp_status WHERE id = 1
DELETE FROM gp_status WHERE id = 4
DELETE FROM gp_status
UPDATE gp_status SET code = 'cc' WHERE id = 3
UPDATE gp_status SET code = 'bb' WHERE id = 2
UPDATE gp_status SET a = 6 WHERE id = 3
UPDATE gp_status SET k = 2
DELETE FROM gp_order WHERE code = 'c'
DELETE FROM gp_status WHERE id = 3 RETURNING code
DELETE FROM gp_order WHERE status = 3
DELETE FROM gp_status WHERE id = 3 RETURNING code
DELETE FROM gp_status WHERE id = 3
SELECT * FROM gp_status ORDER BY id
BEGIN
INSERT INTO gp_line VALUES (1, 1, 55)
COMMIT
BEGIN
INSERT INTO gp_line VALUES (1, 1, 55)
UPDATE gp_line SET status = 1 WHERE id = 1
COMMIT
SELECT * FROM gp_line
BEGIN
INSERT INTO gp_order VALUES (200, 1)
INSERT INTO gp_order VALUES (200, 3)
ROLLBACK
WITH made AS (INSERT INTO gp_order VALUES (300, 3) RETURNING id) SELECT * FROM made
ALTER TABLE gp_order DROP CONSTRAINT gp_order_status_fkey
INSERT INTO gp_order VALUES (400, 99)
ALTER TABLE gp_order ADD CONSTRAINT again FOREIGN KEY (status) REFERENCES gp_status
DELETE FROM gp_order WHERE id = 400
ALTER TABLE gp_order ADD CONSTRAINT again FOREIGN KEY (status) REFERENCES gp_status
INSERT INTO gp_order VALUES (400, 99)
DELETE FROM gp_status WHERE id = 1
DROP TABLE gp_status
ALTER TABLE gp_status DROP COLUMN code
ALTER TABLE gp_status RENAME COLUMN id TO sid
ALTER TABLE gp_status RENAME TO gp_sub
INSERT INTO gp_order VALUES (400, 99)
DELETE FROM gp_sub WHERE sid = 1
SELECT conname, confrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f' AND conrelid = 'gp_order'::regclass ORDER BY 1
DROP TABLE gp_sub CASCADE
INSERT INTO gp_order VALUES (400, 99)
"""


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    with connect(cluster, "i1") as connection:
        clear(connection, TABLES)
        for text, where in MADE:
            connection.execute(text + where)
        yield connection
        clear(connection, TABLES)


def test_they_are_kept_as_in_postgresql(sql: Connection, postgres: Any) -> None:  # noqa: F811
    for name in TABLES:
        postgres.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
    for text, _ in MADE:
        postgres.execute(text)
    problems = []
    for line in SCRIPT.strip().splitlines():
        theirs, ours = _asked(postgres, line), _asked(sql, line)
        if line.startswith(("ALTER", "DROP", "BEGIN", "COMMIT", "ROLLBACK")):
            theirs, ours = theirs[:1], ours[:1]
        if theirs != ours:
            problems.append(f"{line}\n    ours: {ours}\n    PostgreSQL: {theirs}")
    assert not problems, "\n".join(problems)
    assert sql.execute("SELECT * FROM _cairn_closing").fetchall() == []


def test_no_door_leads_round_them(cluster: Cluster, sql: Connection) -> None:
    sql.execute("INSERT INTO gp_status SELECT k FROM generate_series(1, 20) k")
    copy = "COPY gp_order (id, status) FROM STDIN"
    lines = "".join(f"{k}\t{k}\n" for k in range(1, 20))
    assert _state(copied(sql, copy, (lines + "99\t99\n").encode())) == "23503"
    sql.execute("DELETE FROM gp_order")  # rows of another replicaset than the wrong one's
    arrows = "COPY gp_order (id, status) FROM STDIN (FORMAT arrow)"
    assert _state(copied(sql, arrows, arrow_stream(id=[50], status=[99]))) == "23503"
    insert = "INSERT INTO gp_order (id, status) VALUES (%s, %s)"
    for k in range(60, 74):  # at both owners; the third is compiled
        assert _state(partial(sql.execute, insert, (k, 99), prepare=True)) == "23503"
    wrong = "INSERT INTO gp_order (id, status) VALUES (70, 99);"
    assert _state(lambda: sql.execute(f"DO $$ BEGIN {wrong} END $$")) == "23503"
    assert sql.execute("SELECT count(*) FROM gp_order").fetchall() == [(0,)]
    copied(sql, copy, lines.encode())()
    copied(sql, arrows, arrow_stream(id=[50], status=[20]))()
    doors = (
        "DELETE FROM gp_status WHERE id = 5",
        "DELETE FROM gp_status USING gp_order WHERE gp_status.id = gp_order.status",
        "UPDATE gp_status SET id = id + 100",
        "WITH gone AS (DELETE FROM gp_status WHERE id = 5 RETURNING id) SELECT * FROM gone",
        "MERGE INTO gp_status s USING (VALUES (5)) v (x) ON s.id = v.x WHEN MATCHED THEN DELETE",
        "TRUNCATE gp_status",
        "TRUNCATE gp_status, gp_order, gp_line",
        "TRUNCATE gp_status CASCADE",
        "DROP TABLE gp_status",
    )
    with connect(cluster, "i2") as other:
        for text in doors:
            for connection in (sql, other):
                state = _state(partial(connection.execute, text))
                assert state in ("23503", "0A000", "2BP01"), text
    assert sql.execute("SELECT count(*) FROM gp_status").fetchall() == [(20,)]
    staged = "CALL cairn_check('gp_order', '[\"id\"]', 'table', 'stage', 'w', '[]')"
    assert _state(lambda: sql.execute(staged)) == "0A000"  # half of it could be left
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="NO ACTION"):
        sql.execute("CREATE TABLE gp_sub (id INT REFERENCES gp_status ON DELETE CASCADE)")


def test_writers_at_the_same_time_leave_no_orphans(cluster: Cluster, sql: Connection) -> None:
    sql.execute("INSERT INTO gp_status SELECT k FROM generate_series(1, 5) k")
    problems: list[BaseException] = []

    def work(name: str, texts: list[str]) -> None:
        try:
            with connect(cluster, name) as connection:
                for text in texts:
                    try:
                        connection.execute(text)
                    except psycopg.Error as error:
                        if error.sqlstate not in ("23503", "23505", "40001", "PC006"):
                            raise
        except BaseException as problem:
            problems.append(problem)

    inserts = [f"INSERT INTO gp_order (id, status) VALUES ({k}, {k % 5 + 1})" for k in range(200)]
    deletes = [f"DELETE FROM gp_status WHERE id = {k % 5 + 1}" for k in range(30)]
    backs = [f"INSERT INTO gp_status VALUES ({k % 5 + 1})" for k in range(30)]
    cleared = [f"DELETE FROM gp_order WHERE status = {k % 5 + 1}" for k in range(60)]
    workers = [
        threading.Thread(target=work, args=(name, texts))
        for name, texts in (
            *(("i1", inserts), ("i2", inserts), ("i1", deletes), ("i2", deletes)),
            *(("i1", backs), ("i2", backs), ("i1", cleared)),
        )
    ]
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    assert not problems
    orphans = (
        "SELECT c.id FROM gp_order c LEFT JOIN gp_status p ON p.id = c.status WHERE p.id IS NULL"
    )
    assert sql.execute(orphans).fetchall() == []
    assert sql.execute("SELECT * FROM _cairn_closing").fetchall() == []
