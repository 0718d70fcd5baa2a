"""Foreign keys between tables whose rows lie together: kept as in PostgreSQL, at every door.

A script runs line by line on a cluster and on PostgreSQL; rows, SQLSTATEs and texts are compared.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster
from tests.server.together import Connection, connect, rows_together
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

TABLES = ("fk_leaf", "fk_deep", "fk_child", "fk_other", "fk_tree", "fk_parent", "fk_kind")

SCRIPT = """
CREATE TABLE fk_kind (id INT PRIMARY KEY)
CREATE TABLE fk_parent (id INT PRIMARY KEY, code TEXT UNIQUE, a INT, b INT, UNIQUE (a, b))
CREATE TABLE fk_child (id INT PRIMARY KEY, p INT REFERENCES fk_parent ON DELETE CASCADE, note
    TEXT)
CREATE TABLE fk_leaf (id INT PRIMARY KEY, c INT NOT NULL REFERENCES fk_child (id) ON DELETE
    CASCADE)
CREATE TABLE fk_other (id INT PRIMARY KEY, code TEXT REFERENCES fk_parent (code) ON DELETE SET
    NULL ON UPDATE CASCADE, a INT, b INT, CONSTRAINT pair FOREIGN KEY (a, b) REFERENCES
    fk_parent (a, b))
CREATE TABLE fk_tree (id INT PRIMARY KEY, up INT REFERENCES fk_tree)
CREATE INDEX fk_like ON fk_parent (code text_pattern_ops)
CREATE TABLE fk_wrong (id INT PRIMARY KEY, p INT REFERENCES nobody)
CREATE TABLE fk_wrong (id INT PRIMARY KEY, p INT REFERENCES fk_parent (nothing))
CREATE TABLE fk_wrong (id INT PRIMARY KEY, p INT REFERENCES fk_parent (a))
CREATE TABLE fk_wrong (id INT PRIMARY KEY, p TEXT REFERENCES fk_parent (id))
CREATE TABLE fk_wrong (id INT PRIMARY KEY, p INT, FOREIGN KEY (p, id) REFERENCES fk_parent
    (id))
INSERT INTO fk_child VALUES (1, 1, 'x')
INSERT INTO fk_parent VALUES (1, 'a', 1, 1), (2, 'b', 2, 2), (3, 'c', 3, 3), (4, 'd', NULL, 4)
INSERT INTO fk_child VALUES (1, 1, 'x'), (2, 2, 'y'), (3, NULL, 'z')
INSERT INTO fk_child VALUES (4, 1, 'x'), (5, 9, 'y')
INSERT INTO fk_leaf VALUES (1, 1), (2, 1), (3, 2)
INSERT INTO fk_other VALUES (1, 'a', 1, 1), (2, 'b', NULL, 7), (3, NULL, 3, 3)
INSERT INTO fk_other VALUES (4, 'zz', NULL, NULL)
INSERT INTO fk_other VALUES (4, NULL, 1, 2)
INSERT INTO fk_other SELECT 10, 'q', 1, 1
UPDATE fk_child SET p = 5 WHERE id = 1
UPDATE fk_child SET p = 3 WHERE id = 3
UPDATE fk_child SET note = 'still' WHERE id = 1
DELETE FROM fk_parent WHERE id = 1
UPDATE fk_parent SET a = 7 WHERE id = 1
UPDATE fk_parent SET id = 11 WHERE id = 2
UPDATE fk_parent SET id = 14 WHERE id = 4
UPDATE fk_parent SET code = 'aa' WHERE id = 1
SELECT * FROM fk_other ORDER BY id
UPDATE fk_parent SET code = NULL WHERE id = 2
DELETE FROM fk_other WHERE id = 1
DELETE FROM fk_parent WHERE id = 1 RETURNING id
SELECT * FROM fk_child ORDER BY id
SELECT * FROM fk_leaf ORDER BY id
SELECT * FROM fk_other ORDER BY id
DELETE FROM fk_parent WHERE id IN (2, 3)
DELETE FROM fk_other WHERE id = 3
DELETE FROM fk_parent
SELECT (SELECT count(*) FROM fk_parent), (SELECT count(*) FROM fk_child), (SELECT count(*) FROM
    fk_leaf)
SELECT * FROM fk_other ORDER BY id
INSERT INTO fk_tree VALUES (1, NULL), (2, 1), (3, 2)
INSERT INTO fk_tree VALUES (5, 6), (6, 5)
INSERT INTO fk_tree VALUES (7, 8)
DELETE FROM fk_tree WHERE id = 2
DELETE FROM fk_tree WHERE id IN (2, 3)
UPDATE fk_tree SET up = id
DELETE FROM fk_tree
SELECT count(*) FROM fk_tree
INSERT INTO fk_parent VALUES (1, 'a', 1, 1), (2, 'b', 2, 2)
INSERT INTO fk_child VALUES (1, 1, 'x') ON CONFLICT (id) DO UPDATE SET p = 3
INSERT INTO fk_child VALUES (1, 1, 'x') ON CONFLICT (id) DO UPDATE SET p = 3
INSERT INTO fk_child VALUES (1, 1, 'x') ON CONFLICT (id) DO UPDATE SET p = 2
TRUNCATE fk_parent
TRUNCATE fk_kind
TRUNCATE fk_parent, fk_child, fk_leaf, fk_other
INSERT INTO fk_parent VALUES (1, 'a', 1, 1)
INSERT INTO fk_child VALUES (1, 1, 'x')
TRUNCATE fk_parent CASCADE
SELECT (SELECT count(*) FROM fk_parent), (SELECT count(*) FROM fk_child)
DROP TABLE fk_parent
ALTER TABLE fk_parent DROP COLUMN code
ALTER TABLE fk_parent DROP CONSTRAINT fk_parent_code_key
ALTER TABLE fk_child DROP CONSTRAINT fk_child_p_fkey
ALTER TABLE fk_child DROP CONSTRAINT fk_child_p_fkey
INSERT INTO fk_child VALUES (1, 77, 'free')
ALTER TABLE fk_child ADD CONSTRAINT again FOREIGN KEY (p) REFERENCES fk_parent ON DELETE
    RESTRICT
DELETE FROM fk_child
ALTER TABLE fk_child ADD CONSTRAINT again FOREIGN KEY (p) REFERENCES fk_parent ON DELETE
    RESTRICT
ALTER TABLE fk_child ADD CONSTRAINT again FOREIGN KEY (p) REFERENCES fk_parent
INSERT INTO fk_child VALUES (1, 77, 'free')
INSERT INTO fk_parent VALUES (1, 'a', 1, 1)
INSERT INTO fk_child VALUES (1, 1, 'bound')
DELETE FROM fk_parent WHERE id = 1
ALTER TABLE fk_child ADD COLUMN more INT REFERENCES fk_parent
UPDATE fk_child SET more = 5
UPDATE fk_child SET more = 1
ALTER TABLE fk_parent RENAME COLUMN id TO pid
ALTER TABLE fk_child RENAME COLUMN p TO parent
INSERT INTO fk_child VALUES (2, 5, 'renamed', NULL)
ALTER TABLE fk_child DROP COLUMN parent
DELETE FROM fk_parent WHERE pid = 1
SELECT conname, contype, confdeltype, confupdtype, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE contype = 'f' AND conname IN ('pair', 'fk_other_code_fkey', 'fk_tree_up_fkey',
    'fk_child_more_fkey') ORDER BY conname
SELECT constraint_name, update_rule, delete_rule FROM
    information_schema.referential_constraints WHERE constraint_name IN ('pair',
    'fk_other_code_fkey') ORDER BY 1
SELECT column_name, ordinal_position, position_in_unique_constraint FROM
    information_schema.key_column_usage WHERE constraint_name = 'pair' ORDER BY 2
DROP TABLE fk_parent CASCADE
INSERT INTO fk_other VALUES (90, 'nobody', 5, 6)
INSERT INTO fk_leaf VALUES (90, 90)
BEGIN
INSERT INTO fk_child VALUES (1, 'in a block', NULL)
INSERT INTO fk_leaf VALUES (1, 1)
SELECT count(*) FROM fk_leaf
COMMIT
BEGIN
DELETE FROM fk_child
SELECT count(*) FROM fk_leaf
COMMIT
SELECT count(*) FROM fk_leaf
BEGIN
INSERT INTO fk_leaf VALUES (2, 2)
ROLLBACK
WITH made AS (INSERT INTO fk_child VALUES (5, 'with', NULL) RETURNING id) INSERT INTO fk_leaf
    SELECT 5, id FROM made
SELECT * FROM fk_leaf
CREATE TABLE fk_deep (id INT PRIMARY KEY, k INT REFERENCES fk_kind DEFERRABLE INITIALLY
    DEFERRED)
INSERT INTO fk_deep VALUES (1, 1)
BEGIN
INSERT INTO fk_deep VALUES (1, 1)
INSERT INTO fk_kind VALUES (1)
COMMIT
SELECT * FROM fk_deep
BEGIN
DELETE FROM fk_kind
INSERT INTO fk_kind VALUES (1)
COMMIT
BEGIN
DELETE FROM fk_kind
SELECT count(*) FROM fk_kind
COMMIT
SELECT count(*) FROM fk_kind
BEGIN
INSERT INTO fk_deep VALUES (7, 99)
UPDATE fk_deep SET id = 8 WHERE id = 7
COMMIT
SELECT * FROM fk_deep ORDER BY id
DROP TABLE fk_kind, fk_deep
"""


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    with rows_together(cluster, "i1", TABLES) as connection:
        yield connection


def _asked(connection: Connection, text: str) -> tuple[Any, ...]:
    try:
        cursor = connection.execute(text.encode(), prepare=False)
    except psycopg.Error as error:
        diag = error.diag
        words = ()
        if error.sqlstate == "23503":
            words = (diag.message_primary, diag.message_detail)
        return (str(error.sqlstate), *words)
    return ("", cursor.fetchall() if cursor.description else cursor.rowcount)


def test_they_are_kept_as_in_postgresql(sql: Connection, postgres: Any) -> None:  # noqa: F811
    for name in TABLES:
        postgres.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
    problems = []
    for line in SCRIPT.strip().replace("\n    ", " ").splitlines():
        theirs, ours = _asked(postgres, line), _asked(sql, line)
        if line.startswith(("CREATE", "ALTER", "DROP", "TRUNCATE", "BEGIN", "COMMIT", "ROLLBACK")):
            theirs, ours = theirs[:1], ours[:1]
        if theirs != ours:
            problems.append(f"{line}\n    ours: {ours}\n    PostgreSQL: {theirs}")
    assert not problems, "\n".join(problems)


def _two(sql: Connection, on_delete: str = "") -> None:
    sql.execute("CREATE TABLE fk_parent (id INT PRIMARY KEY)")
    sql.execute(
        f"CREATE TABLE fk_child (id INT PRIMARY KEY, p INT REFERENCES fk_parent {on_delete})"
    )
    sql.execute("INSERT INTO fk_parent SELECT k FROM generate_series(1, 20) k")


@pytest.mark.parametrize("late", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_rows_in_bulk_may_name_each_other_and_nobody(sql: Connection, late: str) -> None:
    """They are looked at together: those that are here, those that come with them, and NULLs."""
    sql.execute("CREATE TABLE fk_parent (a INT, b TEXT, PRIMARY KEY (a, b))")
    sql.execute("INSERT INTO fk_parent VALUES (1, 'x'), (2, 'x')")
    sql.execute(
        "CREATE TABLE fk_child (id INT PRIMARY KEY, up INT CONSTRAINT tree REFERENCES fk_child "
        f"{late}, b TEXT, a INT, FOREIGN KEY (a, b) REFERENCES fk_parent {late})"
    )

    def copied(lines: str) -> None:
        with sql.cursor().copy("COPY fk_child FROM STDIN (NULL '-')") as copy:
            copy.write(lines)

    copied("1\t2\tx\t1\n2\t1\t-\t7\n3\t-\tx\t2\n4\t4\t-\t-\n")
    for lines, constraint, detail in (
        ("5\t6\tx\t1\n7\t5\tx\t1\n", "tree", "Key (up)=(6) is not present"),
        ("5\t1\tx\t1\n6\t1\ty\t1\n", "fk_child_a_b_fkey", "Key (a, b)=(1, y) is not present"),
    ):
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match=constraint) as told:
            copied(lines)
        assert detail in str(told.value.diag.message_detail)
    assert sql.execute("SELECT id FROM fk_child ORDER BY 1").fetchall() == [(1,), (2,), (3,), (4,)]


def _state(call: Any) -> str:
    with pytest.raises(psycopg.Error) as problem:
        call()
    return str(problem.value.sqlstate)


def copied(connection: Connection, text: str, data: bytes) -> Callable[[], None]:
    def call() -> None:
        with connection.cursor().copy(text.encode()) as copy:
            copy.write(data)

    return call


def arrow_stream(**columns: list[int]) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    sink = arrow.BufferOutputStream()
    table = arrow.table(columns)
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def test_no_door_leads_round_them(cluster: Cluster, sql: Connection) -> None:
    _two(sql)
    lines = "".join(f"{k}\t{k}\n" for k in range(1, 20))
    copy = "COPY fk_child FROM STDIN"
    assert _state(copied(sql, copy, (lines + "99\t99\n").encode())) == "23503"
    arrows = "COPY fk_child (id, p) FROM STDIN (FORMAT arrow)"
    assert _state(copied(sql, arrows, arrow_stream(id=[50, 51], p=[1, 99]))) == "23503"
    insert = "INSERT INTO fk_child VALUES (%s, %s)"
    for _ in range(7):  # the third is compiled
        assert _state(lambda: sql.execute(insert, (60, 99), prepare=True)) == "23503"
    many = "INSERT INTO fk_child SELECT k, k FROM generate_series(1, 30) k"
    assert _state(lambda: sql.execute(many)) == "23503"
    two = "INSERT INTO fk_child VALUES (70, 1); INSERT INTO fk_child VALUES (71, 99);"
    assert _state(lambda: sql.execute(f"DO $$ BEGIN {two} END $$")) == "23503"
    assert sql.execute("SELECT count(*) FROM fk_child").fetchall() == [(0,)]
    copied(sql, copy, lines.encode())()
    copied(sql, arrows, arrow_stream(id=[50], p=[20]))()
    for k in range(60, 66):
        sql.execute(insert, (k, 20), prepare=True)
    assert sql.execute("SELECT count(*) FROM fk_child").fetchall() == [(26,)]
    doors = (
        "DELETE FROM fk_parent WHERE id = 5",
        "DELETE FROM fk_parent USING fk_child WHERE fk_parent.id = fk_child.p",
        "UPDATE fk_parent SET id = id + 100",
        "DO $$ BEGIN DELETE FROM fk_parent WHERE id = 5; END $$",
        "WITH gone AS (DELETE FROM fk_parent WHERE id = 5 RETURNING id) SELECT * FROM gone",
        "TRUNCATE fk_parent",
        "DROP TABLE fk_parent",
    )
    with connect(cluster, "i2") as other:
        for text in doors:
            for connection in (sql, other):
                state = _state(partial(connection.execute, text))
                assert state in ("23503", "0A000", "2BP01"), text
    assert sql.execute("SELECT count(*) FROM fk_parent").fetchall() == [(20,)]


def test_writers_at_the_same_time_leave_no_orphans(cluster: Cluster, sql: Connection) -> None:
    _two(sql)
    problems: list[BaseException] = []

    def work(name: str, texts: list[str]) -> None:
        try:
            with connect(cluster, name) as connection:
                for text in texts:
                    try:
                        connection.execute(text)
                    except psycopg.Error as error:
                        if error.sqlstate not in ("23503", "23505", "40001"):
                            raise
        except BaseException as problem:
            problems.append(problem)

    inserts = [f"INSERT INTO fk_child VALUES ({k}, {k % 20 + 1})" for k in range(200)]
    deletes = [f"DELETE FROM fk_parent WHERE id = {k % 20 + 1}" for k in range(60)]
    backs = [f"INSERT INTO fk_parent VALUES ({k % 20 + 1})" for k in range(60)]
    cleared = [f"DELETE FROM fk_child WHERE p = {k % 20 + 1}" for k in range(60)]
    workers = [
        threading.Thread(target=work, args=(name, texts))
        for name, texts in (("i1", inserts), ("i2", deletes), ("i1", backs), ("i2", cleared))
    ]
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    assert not problems
    orphans = "SELECT c.id FROM fk_child c LEFT JOIN fk_parent p ON p.id = c.p WHERE p.id IS NULL"
    assert sql.execute(orphans).fetchall() == []


def test_what_cannot_be_kept_is_refused_or_ignored_if_asked(sql: Connection) -> None:
    sql.execute("CREATE TABLE fk_parent (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    sql.execute("CREATE TABLE fk_kind (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    for parent, where in (("fk_parent", "BY ()"), ("fk_parent", "GLOBALLY")):
        text = f"CREATE TABLE fk_child (id INT PRIMARY KEY, p INT REFERENCES {parent})"
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            sql.execute(f"{text} DISTRIBUTED {where}")
        assert "DISTRIBUTED BY ()" in str(refused.value.diag.message_hint)
    notices: list[str] = []
    sql.add_notice_handler(lambda told: notices.append(str(told.message_primary)))
    sql.execute("ALTER SYSTEM SET foreign_keys = 'ignore'")
    try:
        sql.execute("CREATE TABLE fk_child (id INT PRIMARY KEY, p INT REFERENCES fk_parent)")
        assert any("is not kept" in each for each in notices)
        sql.execute("INSERT INTO fk_child VALUES (1, 99)")
    finally:
        sql.execute("ALTER SYSTEM RESET foreign_keys")


def test_a_change_tells_its_cascade_to_replicas_and_streams_as_one_record(sql: Connection) -> None:
    """One statement, one record: what a failover keeps of it is all or nothing."""
    _two(sql, "ON DELETE CASCADE")
    sql.execute("INSERT INTO fk_child SELECT k, k % 20 + 1 FROM generate_series(1, 100) k")
    done = sql.execute("DELETE FROM fk_parent WHERE id <= 10")
    assert done.rowcount == 10  # the client's own rows
    assert sql.execute("SELECT count(*) FROM fk_child").fetchall() == [(50,)]
    plan = sql.execute("EXPLAIN ALTER TABLE fk_child DROP CONSTRAINT fk_child_p_fkey").fetchall()
    assert any("drop foreign key" in line for (line,) in plan)


def test_keys_that_change_hands_and_actions_that_cannot_be(sql: Connection) -> None:
    sql.execute("CREATE TABLE fk_parent (id INT PRIMARY KEY)")
    sql.execute(
        "CREATE TABLE fk_child (id INT PRIMARY KEY, p INT NOT NULL REFERENCES fk_parent "
        "ON UPDATE CASCADE ON DELETE SET NULL)"
    )
    sql.execute("INSERT INTO fk_parent VALUES (1), (2), (3)")
    sql.execute("INSERT INTO fk_child VALUES (1, 1), (2, 2), (3, 3)")
    shifted = "UPDATE fk_parent SET id = id + 1"
    assert _state(lambda: sql.execute(shifted)) == "0A000"  # 2 was had by another one
    assert sql.execute("UPDATE fk_parent SET id = id + 10").rowcount == 3
    assert sql.execute("SELECT p FROM fk_child ORDER BY id").fetchall() == [(11,), (12,), (13,)]
    block = "DO $$ BEGIN {} END $$"
    for text in ("DELETE FROM fk_parent WHERE id = 11;", "DELETE FROM fk_parent;"):
        assert _state(partial(sql.execute, text)) == "23502"
        assert _state(partial(sql.execute, block.format(text))) == "23502"
    sql.execute("BEGIN")
    assert _state(lambda: sql.execute("DELETE FROM fk_parent WHERE id = 11")) == "23502"
    sql.execute("ROLLBACK")
    sql.execute(block.format("UPDATE fk_parent SET id = 21 WHERE id = 11;"))
    sql.execute("BEGIN")
    sql.execute("UPDATE fk_parent SET id = 31 WHERE id = 21")
    assert sql.execute("SELECT p FROM fk_child WHERE id = 1").fetchall() == [(31,)]
    sql.execute("COMMIT")
    assert sql.execute("SELECT p FROM fk_child WHERE id = 1").fetchall() == [(31,)]


def _cancelled_until(connection: Connection, over: threading.Event) -> None:
    """Again and again: a cancel that comes before its statement ends nothing."""
    for _ in range(300):
        if over.wait(0.2):
            return
        connection.cancel()


def test_what_follows_one_row_can_be_cancelled_from_everywhere(
    cluster: Cluster, sql: Connection
) -> None:
    """The statement names one row; how many follow it nobody knows before."""
    sql.execute(
        "CREATE TABLE fk_parent (id INT PRIMARY KEY, p INT REFERENCES fk_parent ON DELETE CASCADE)"
    )
    # Without an index on `p` each of them is a scan: it would take minutes.
    sql.execute("INSERT INTO fk_parent SELECT k, nullif(k - 1, 0) FROM generate_series(1, 20000) k")
    for name in ("i1", "i2"):
        for begin in ("", "BEGIN"):
            with connect(cluster, name) as connection:
                if begin:
                    connection.execute(begin)
                over = threading.Event()
                ending = threading.Thread(target=_cancelled_until, args=(connection, over))
                ending.start()
                try:
                    state = _state(partial(connection.execute, "DELETE FROM fk_parent WHERE id=1"))
                finally:
                    over.set()
                    ending.join()
                assert state == "57014", (name, begin)
    assert sql.execute("SELECT count(*) FROM fk_parent").fetchall() == [(20000,)]
    sql.execute("TRUNCATE fk_parent")


def test_tables_that_are_emptied_together_leave_no_orphans(
    cluster: Cluster, sql: Connection
) -> None:
    """Rows come in while one table after the other is emptied."""
    sql.execute("CREATE TABLE fk_parent (id INT PRIMARY KEY)")
    sql.execute("CREATE TABLE fk_child (id INT PRIMARY KEY, p INT REFERENCES fk_parent)")
    over = threading.Event()

    def write(number: int) -> None:
        with connect(cluster, ("i1", "i2")[number % 2]) as connection:
            for at in range(1_000_000):
                if over.is_set():
                    return
                with contextlib.suppress(psycopg.errors.ForeignKeyViolation):
                    parent = (number * 7 + at) % 20
                    if at % 3 == 0:
                        text = "INSERT INTO fk_parent VALUES (%s) ON CONFLICT DO NOTHING"
                        connection.execute(text, (parent,))
                    else:
                        key = number * 10_000_000 + at
                        connection.execute("INSERT INTO fk_child VALUES (%s, %s)", (key, parent))

    threads = [threading.Thread(target=write, args=(each,), daemon=True) for each in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            sql.execute("TRUNCATE fk_parent, fk_child")
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    orphans = "SELECT count(*) FROM fk_child WHERE p NOT IN (SELECT id FROM fk_parent)"
    assert sql.execute(orphans).fetchall() == [(0,)]
