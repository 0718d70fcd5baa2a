"""Temporary tables: a session's own, which nobody else ever sees."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster

Connection = psycopg.Connection[Any]


@pytest.fixture
def one(cluster: Cluster) -> Iterator[Connection]:
    with cluster["i1"].connect() as connection:
        yield connection


@pytest.fixture
def other(cluster: Cluster) -> Iterator[Connection]:
    with cluster["i1"].connect() as connection:
        yield connection


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    """Of a table that everybody sees, with three rows."""
    made = f"t{uuid.uuid4().hex[:10]}"
    cluster["i1"].sql(f"CREATE TABLE {made} (id int PRIMARY KEY, v text)")
    cluster["i1"].sql(f"INSERT INTO {made} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield made
    cluster["i1"].sql(f"DROP TABLE {made}")


def rows(connection: Connection, text: str, *params: Any, **more: Any) -> list[Any]:
    found = connection.execute(text, params or None, **more)
    return found.fetchall() if found.description else [found.rowcount]


def refused(connection: Connection, text: str) -> str:
    with pytest.raises(psycopg.Error) as found:
        connection.execute(text)
    return str(found.value.sqlstate)


def test_two_sessions_have_tables_of_the_same_name(one: Connection, other: Connection) -> None:
    for at, session in enumerate((one, other)):
        session.execute("CREATE TEMP TABLE mine (id int PRIMARY KEY, v text DEFAULT 'none')")
        session.execute(f"INSERT INTO mine (id) SELECT g + {100 * at} FROM generate_series(1, 3) g")
    question = "SELECT id, v FROM mine WHERE id > %s ORDER BY id"
    for _ in range(4):  # prepared from the second time on
        assert rows(one, question, 1, prepare=True) == [(2, "none"), (3, "none")]
        assert rows(other, question, 102, prepare=True) == [(103, "none")]
    other.execute("DROP TABLE mine")
    assert refused(other, "SELECT * FROM mine") == "42P01"
    assert rows(one, "SELECT count(*) FROM mine") == [(3,)]


def test_it_hides_a_table_of_the_same_name(one: Connection, other: Connection, name: str) -> None:
    one.execute(f"CREATE VIEW {name}_v AS SELECT count(*) AS n FROM {name}")
    question = f"SELECT v FROM {name} WHERE id = %s"
    assert rows(one, question, 1, prepare=True) == [("a",)]
    one.execute(f"CREATE TEMP TABLE {name} (id int PRIMARY KEY, v text)")
    try:
        assert rows(one, question, 1, prepare=True) == []
        one.execute(f"INSERT INTO {name} VALUES (1, 'mine')")
        assert rows(one, question, 1, prepare=True) == [("mine",)]
        assert rows(one, f"SELECT v FROM public.{name} WHERE id = 1") == [("a",)]
        assert rows(one, f"SELECT v FROM pg_temp.{name}") == [("mine",)]
        assert rows(one, f"SELECT n FROM {name}_v") == [(3,)]  # a view keeps its table
        assert rows(other, f"SELECT count(*) FROM {name}") == [(3,)]
        one.execute(f"UPDATE public.{name} SET v = 'x' WHERE id = 3")
        one.execute(f"DELETE FROM {name}")
        assert rows(other, f"SELECT v FROM {name} ORDER BY id") == [("a",), ("b",), ("x",)]
        one.execute(f"DROP TABLE {name}")
        assert rows(one, question, 1, prepare=True) == [("a",)]
        assert rows(one, f"CREATE TEMP TABLE {name} AS SELECT id + 100 AS id, v FROM {name}") == [3]
        assert rows(one, f"SELECT id FROM {name} ORDER BY id") == [(101,), (102,), (103,)]
        assert refused(one, f"CREATE TEMP TABLE {name} AS SELECT 1 AS id") == "42P07"
    finally:
        one.execute(f"DROP VIEW {name}_v")


def test_it_meets_other_tables(one: Connection, name: str) -> None:
    one.execute("CREATE TEMP TABLE few (id int, w numeric(6, 2))")
    one.execute("INSERT INTO few VALUES (1, 1.5), (3, 2.5), (9, 3.5)")
    joined = f"SELECT t.v, f.w FROM {name} t JOIN few f ON f.id = t.id ORDER BY 1"
    assert [(v, float(w)) for v, w in rows(one, joined)] == [("a", 1.5), ("c", 2.5)]
    assert rows(one, f"INSERT INTO {name} SELECT id, 'new' FROM few WHERE id > 3") == [1]
    changed = (
        f"UPDATE {name} SET v = f.w::text FROM few f WHERE f.id = {name}.id RETURNING {name}.id"
    )
    assert sorted(rows(one, changed)) == [(1,), (3,), (9,)]
    assert rows(one, f"DELETE FROM few USING {name} t WHERE t.id = few.id AND t.v = '1.50'") == [1]
    assert rows(one, f"DELETE FROM {name} WHERE id IN (SELECT id FROM few)") == [2]
    assert rows(one, f"CREATE TEMP TABLE kept AS SELECT * FROM {name}") == [2]
    assert rows(one, "SELECT id FROM kept ORDER BY id") == [(1,), (2,)]
    roles = "SELECT count(*) FROM few CROSS JOIN _pico_tier WHERE few.id > 3"
    assert rows(one, roles) == [(1,)]


def test_a_block_is_undone_with_its_temporary_rows(one: Connection) -> None:
    one.execute("CREATE TEMP TABLE p (id int PRIMARY KEY)")
    one.execute("INSERT INTO p VALUES (1)")
    one.execute("BEGIN")
    one.execute("INSERT INTO p VALUES (2)")
    one.execute("CREATE TEMP TABLE q AS SELECT * FROM p")
    one.execute("SAVEPOINT s")
    one.execute("DROP TABLE p")
    assert rows(one, "SELECT count(*) FROM q") == [(2,)]
    one.execute("ROLLBACK TO s")
    assert rows(one, "SELECT id FROM p ORDER BY id") == [(1,), (2,)]
    one.execute("ROLLBACK")
    assert rows(one, "SELECT id FROM p") == [(1,)]
    assert refused(one, "SELECT * FROM q") == "42P01"
    one.execute("BEGIN")
    one.execute("INSERT INTO p VALUES (3)")
    assert refused(one, "INSERT INTO p VALUES (1)") == "23505"
    assert refused(one, "SELECT 1") == "25P02"
    one.execute("COMMIT")
    assert rows(one, "SELECT id FROM p") == [(1,)]


def test_a_commit_that_is_refused_leaves_nothing_in_temporary_tables(
    one: Connection, other: Connection, name: str
) -> None:
    """The client repeats its block: what it does to its own rows must not be done twice."""
    one.execute("CREATE TEMP TABLE p (id int PRIMARY KEY)")
    one.execute("BEGIN")
    one.execute("INSERT INTO p VALUES (1)")
    assert rows(one, f"UPDATE {name} SET v = v || 'x' WHERE id = 1 RETURNING v") == [("ax",)]
    other.execute(f"UPDATE {name} SET v = 'b' WHERE id = 1")
    assert refused(one, "COMMIT") == "40001"
    assert rows(one, "SELECT id FROM p") == []


def test_what_a_commit_does(one: Connection) -> None:
    one.execute("CREATE TEMP TABLE gone (id int) ON COMMIT DROP")
    assert refused(one, "SELECT * FROM gone") == "42P01"
    one.execute("CREATE TEMP TABLE emptied (id int) ON COMMIT DELETE ROWS")
    one.execute("BEGIN")
    one.execute("CREATE TEMP TABLE gone (id int) ON COMMIT DROP")
    one.execute("INSERT INTO gone VALUES (1)")
    one.execute("INSERT INTO emptied SELECT * FROM gone")
    assert rows(one, "SELECT count(*) FROM emptied") == [(1,)]
    one.execute("COMMIT")
    assert rows(one, "SELECT count(*) FROM emptied") == [(0,)]
    assert refused(one, "SELECT * FROM gone") == "42P01"


def test_rows_come_by_copy_all_or_none(one: Connection) -> None:
    one.execute("CREATE TEMP TABLE c (id int PRIMARY KEY, at timestamp, n serial)")
    with one.cursor() as cursor:
        with cursor.copy("COPY c (id, at) FROM STDIN") as copy:
            for at in range(5000):
                copy.write_row((at, "2024-01-01 00:00:00"))
        with pytest.raises(psycopg.Error) as found, cursor.copy("COPY c (id) FROM STDIN") as copy:
            copy.write("7000\n7000\n")
        assert found.value.sqlstate == "23505"
        with cursor.copy(
            "COPY (SELECT id, n FROM c WHERE id >= 4998 ORDER BY id) TO STDOUT"
        ) as out:
            assert list(out.rows()) == [("4998", "4999"), ("4999", "5000")]
    assert rows(one, "SELECT count(*), max(id) FROM c") == [(5000, 4999)]


def test_a_cursor_tells_what_was_there_when_it_was_declared(one: Connection) -> None:
    one.execute(
        "CREATE TEMP TABLE big AS SELECT g, repeat('x', 500) AS v FROM generate_series(1, 9000) g"
    )
    one.execute("BEGIN")
    one.execute("DECLARE c CURSOR FOR SELECT g FROM big ORDER BY g")
    assert rows(one, "FETCH 2 FROM c") == [(1,), (2,)]
    one.execute("DELETE FROM big")
    assert len(rows(one, "FETCH ALL FROM c")) == 8998
    one.execute("ROLLBACK")
    assert rows(one, "SELECT count(*) FROM big") == [(9000,)]


def test_a_read_only_session_may_change_its_own(one: Connection, name: str) -> None:
    one.execute("CREATE TEMP TABLE w (id int)")
    one.execute("BEGIN READ ONLY")
    assert rows(one, f"INSERT INTO w SELECT id FROM {name}") == [3]
    assert refused(one, f"INSERT INTO {name} SELECT id + 10, '' FROM w") == "25006"
    one.execute("ROLLBACK")


def test_everybody_may_have_some(cluster: Cluster, name: str) -> None:
    user = f"u{uuid.uuid4().hex[:10]}"
    cluster["i1"].sql(f"CREATE USER {user} WITH PASSWORD 'Passw0rd!'")
    try:
        with cluster["i1"].connect(user=user, password="Passw0rd!") as session:
            session.execute("CREATE TEMP TABLE x AS SELECT 1 AS a")
            assert rows(session, "SELECT a FROM x") == [(1,)]
            assert refused(session, "CREATE TABLE public_one (a int primary key)") == "42501"
            for text in (  # the right to what it is joined with, filled from or put into
                f"SELECT * FROM x JOIN {name} t ON t.id = x.a",
                f"CREATE TEMP TABLE y AS SELECT * FROM {name}",
                f"INSERT INTO x SELECT id FROM {name}",
                f"INSERT INTO {name} SELECT a, '' FROM x",
                f"DELETE FROM {name} USING x WHERE x.a = {name}.id",
                f"WITH d AS (DELETE FROM x RETURNING a) SELECT 1 FROM d JOIN {name} t ON id = a",
                f"COPY (SELECT * FROM x JOIN {name} t ON t.id = x.a) TO STDOUT",
                f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}",
            ):
                assert refused(session, text) == "42501", text
            session.execute("BEGIN")
            assert refused(session, f"INSERT INTO {name} SELECT a, '' FROM x") == "42501"
            session.execute("ROLLBACK")
    finally:
        cluster["i1"].sql(f"DROP USER {user}")


def test_discarded_and_ended_sessions_leave_nothing(
    cluster: Cluster, one: Connection, other: Connection
) -> None:
    one.execute("CREATE TEMP TABLE d (id int)")
    one.execute("DISCARD TEMP")
    assert refused(one, "SELECT * FROM d") == "42P01"
    one.execute("CREATE TEMP TABLE d (id int)")
    one.execute("DISCARD ALL")
    assert refused(one, "SELECT * FROM d") == "42P01"
    directory = cluster["i1"].dir
    other.execute(
        "CREATE TEMP TABLE e AS SELECT g, repeat('x', 900) FROM generate_series(1, 9000) g"
    )
    assert rows(one, "SELECT pg_terminate_backend(%s)", other.info.backend_pid) == [(True,)]
    eventually(lambda: _ended(other), "the session ends")
    assert [each.name for each in directory.glob("spill-*")] == []
    assert rows(one, "SELECT count(*) FROM pg_class WHERE relpersistence = 't'") == [(0,)]


def _ended(session: Connection) -> bool:
    try:
        session.execute("SELECT 1 FROM e")
    except psycopg.Error:
        return session.broken
    return False


def test_a_cancelled_statement_leaves_its_session_as_it_was(one: Connection) -> None:
    one.execute("CREATE TEMP TABLE n AS SELECT g FROM generate_series(1, 3000) g")
    for text in (
        "SELECT count(*) FROM n a, n b, n c WHERE a.g + b.g + c.g = 0",
        "INSERT INTO n SELECT a.g FROM n a, n b, n c",
        "DELETE FROM n WHERE g = (SELECT count(*) FROM n a, n b, n c WHERE a.g + b.g = n.g)",
    ):
        one.execute("SET statement_timeout = 200")
        assert refused(one, text) == "57014"
        one.execute("SET statement_timeout = 0")
        assert rows(one, "SELECT count(*), sum(g) FROM n") == [(3000, 4501500)]
    one.execute("BEGIN")
    one.execute("DELETE FROM n WHERE g < 10")
    one.execute("SAVEPOINT s")
    one.execute("SET statement_timeout = 200")
    assert refused(one, "UPDATE n SET g = (SELECT count(*) FROM n a, n b, n c)") == "57014"
    one.execute("ROLLBACK TO s")
    assert refused(one, "SELECT count(*) FROM n") in ("40000", "57014")
    one.execute("ROLLBACK")
    one.execute("SET statement_timeout = 0")
    assert rows(one, "SELECT count(*) FROM n") == [(3000,)]
    one.execute("DROP TABLE n")


def test_its_files_have_a_limit(cluster: Cluster, one: Connection) -> None:
    cluster["i1"].sql("ALTER SYSTEM SET temp_tables_max_bytes = 2000000")
    try:
        one.execute("CREATE TEMP TABLE l (g int, v text)")
        text = "INSERT INTO l SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g"
        assert refused(one, text) == "53400"
        assert rows(one, "SELECT count(*) FROM l") == [(0,)]
        one.execute("INSERT INTO l VALUES (1, 'fits')")
    finally:
        cluster["i1"].sql("ALTER SYSTEM RESET temp_tables_max_bytes")


def test_catalogues_show_it_to_its_session(one: Connection, other: Connection) -> None:
    one.execute("CREATE TEMP TABLE shown (id int PRIMARY KEY, v text UNIQUE)")
    query = (
        "SELECT c.relname, c.relpersistence, n.nspname FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'shown'"
    )
    [(told, kind, schema)] = rows(one, query)
    assert (told, kind) == ("shown", "t") and schema.startswith("pg_temp_")
    assert rows(other, query) == []
    assert rows(one, "SELECT 'shown'::regclass::text") == [("shown",)]
    columns = (
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'shown' ORDER BY 1"
    )
    assert rows(one, columns) == [("id",), ("v",)]


def test_what_it_cannot_have_is_refused(one: Connection, name: str) -> None:
    assert refused(one, f"CREATE TEMP TABLE f (id int REFERENCES {name})") == "0A000"
    assert refused(one, "CREATE TEMP TABLE f (id int) DISTRIBUTED GLOBALLY") == "0A000"
    assert refused(one, "CREATE TEMP SEQUENCE f") == "0A000"
    assert refused(one, "CREATE TEMP VIEW f AS SELECT 1") == "0A000"
    one.execute("CREATE TEMP TABLE f (id int PRIMARY KEY)")
    assert refused(one, "CREATE TEMP TABLE f (id int)") == "42P07"
    assert refused(one, "CREATE VIEW fv AS SELECT * FROM f") == "0A000"
    one.execute("BEGIN")
    one.execute(f"INSERT INTO {name} VALUES (7, 'x')")
    assert refused(one, f"INSERT INTO f SELECT id FROM {name}") == "0A000"
    one.execute("ROLLBACK")


def test_it_can_be_altered_and_indexed(one: Connection) -> None:
    one.execute("CREATE TEMP TABLE a (id int PRIMARY KEY, v text)")
    one.execute("INSERT INTO a VALUES (1, 'x'), (2, 'y')")
    one.execute("CREATE UNIQUE INDEX a_v ON a (v)")
    assert refused(one, "INSERT INTO a VALUES (3, 'x')") == "23505"
    one.execute("ALTER TABLE a ADD COLUMN n int DEFAULT 7")
    one.execute("ALTER TABLE a RENAME COLUMN v TO w")
    one.execute("ALTER TABLE a RENAME TO b")
    assert rows(one, "SELECT id, w, n FROM b ORDER BY id") == [(1, "x", 7), (2, "y", 7)]
    one.execute("DROP INDEX a_v")
    one.execute("INSERT INTO b VALUES (3, 'x', 1) ON CONFLICT (id) DO NOTHING")
    one.execute("TRUNCATE b")
    assert rows(one, "SELECT count(*) FROM b") == [(0,)]


def test_a_type_may_change_under_it(one: Connection, other: Connection) -> None:
    kind = f"k{uuid.uuid4().hex[:10]}"
    other.execute(f"CREATE TYPE {kind} AS ENUM ('a', 'c')")
    one.execute(f"CREATE TEMP TABLE typed (id int, k {kind})")
    one.execute("INSERT INTO typed VALUES (1, 'c')")
    other.execute(f"ALTER TYPE {kind} ADD VALUE 'b' BEFORE 'c'")
    one.execute("INSERT INTO typed VALUES (2, 'b')")
    assert rows(one, "SELECT k FROM typed ORDER BY k") == [("b",), ("c",)]
    assert refused(one, "INSERT INTO typed VALUES (3, 'd')") == "22P02"
    other.execute(f"DROP TYPE {kind}")  # nobody knows of the tables of other sessions
    assert rows(one, "SELECT k FROM typed ORDER BY id") == [("c",), ("b",)]


def test_statements_of_several_parts_stay_among_them(one: Connection, name: str) -> None:
    one.execute("CREATE TEMP TABLE m (id int PRIMARY KEY, v text)")
    one.execute("CREATE TEMP TABLE s (id int, v text)")
    one.execute("INSERT INTO s VALUES (1, 'one'), (2, 'two')")
    text = (
        "MERGE INTO m USING s ON m.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)"
    )
    assert rows(one, text) == [2]
    moved = "WITH gone AS (DELETE FROM s RETURNING *) INSERT INTO m SELECT id + 10, v FROM gone"
    assert rows(one, moved) == [2]
    assert rows(one, "SELECT id FROM m ORDER BY id") == [(1,), (2,), (11,), (12,)]
    mixed = f"WITH gone AS (DELETE FROM m RETURNING *) INSERT INTO {name} SELECT id, v FROM gone"
    assert refused(one, mixed) == "0A000"
    assert rows(one, "SELECT count(*) FROM m") == [(4,)]


def test_explain_says_where_its_rows_are(one: Connection, name: str) -> None:
    one.execute("CREATE TEMP TABLE x (id int PRIMARY KEY)")
    told = "\n".join(row[0] for row in rows(one, f"EXPLAIN SELECT * FROM x JOIN {name} USING (id)"))
    assert "this session" in told
    told = "\n".join(row[0] for row in rows(one, "EXPLAIN ANALYZE INSERT INTO x VALUES (1)"))
    assert rows(one, "SELECT id FROM x") == [(1,)]
    assert "Execution Time" in told


def test_rows_that_were_copied_in_are_put_into_a_table_in_one_block(
    one: Connection, other: Connection, cluster: Cluster
) -> None:
    """What loads of rows by applications look like."""
    name = f"u{uuid.uuid4().hex[:10]}"
    one.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text) DISTRIBUTED BY ()")
    try:
        one.execute(f"INSERT INTO {name} VALUES (1, 'old')")
        one.execute("BEGIN")
        one.execute("CREATE TEMP TABLE load (id int, v text) ON COMMIT DROP")
        with one.cursor() as cursor, cursor.copy("COPY load FROM STDIN") as copy:
            for at in range(1, 4):
                copy.write_row((at, f"new {at}"))
        put = (
            f"INSERT INTO {name} SELECT id, v || %s FROM load ON CONFLICT (id) DO UPDATE "
            f"SET v = excluded.v || ', was ' || {name}.v RETURNING id, v"
        )
        told = [(1, "new 1!, was old"), (2, "new 2!"), (3, "new 3!")]
        assert sorted(rows(one, put, "!")) == told
        assert sorted(rows(one, f"SELECT id, v FROM {name}")) == told
        assert rows(other, f"SELECT v FROM {name}") == [("old",)]
        both = f"INSERT INTO {name} SELECT t.id + 9, t.v FROM {name} t JOIN load USING (id)"
        assert rows(one, both) == [3]
        changed = f"UPDATE {name} AS t SET v = l.v || t.id FROM load l WHERE l.id = t.id"
        assert rows(one, f"{changed} RETURNING t.v") == [("new 11",), ("new 22",), ("new 33",)]
        gone = f"DELETE FROM {name} WHERE id IN (SELECT id + %s FROM load) RETURNING id"
        assert sorted(rows(one, gone, 9)) == [(10,), (11,), (12,)]
        met = f"SELECT count(*), max(load.v) FROM {name} t, pg_temp.load WHERE load.id = t.id"
        assert rows(one, met) == [(3, "new 3")]
        one.execute("ROLLBACK")
        assert rows(one, f"SELECT v FROM {name}") == [("old",)]
        one.execute("BEGIN")
        one.execute("CREATE TEMP TABLE load (id int, v text) ON COMMIT DROP")
        one.execute("INSERT INTO load VALUES (5, 'five')")
        assert rows(one, f"INSERT INTO {name} (v, id) SELECT v, id FROM load") == [1]
        one.execute("COMMIT")
        assert rows(other, f"SELECT id, v FROM {name} ORDER BY id") == [(1, "old"), (5, "five")]
    finally:
        cluster["i1"].sql(f"DROP TABLE {name}")


def test_beside_a_temporary_table_rights_are_those_of_always(
    cluster: Cluster, one: Connection, name: str
) -> None:
    """Everybody may make one; that gives no right to what it is joined with or filled from."""
    one.execute("CREATE USER tt_guest WITH PASSWORD 'Very-l0ng-word'")
    port = cluster["i1"].pg_port
    dsn = f"postgresql://tt_guest:Very-l0ng-word@127.0.0.1:{port}/cairn"
    try:
        with psycopg.connect(dsn, autocommit=True) as guest:
            guest.execute("CREATE TEMP TABLE mine (id int PRIMARY KEY, v text)")
            guest.execute("INSERT INTO mine VALUES (1, 'x'), (2, 'y')")
            for text in (
                f"SELECT * FROM mine JOIN {name} USING (id)",
                f"SELECT id FROM mine WHERE EXISTS (SELECT 1 FROM {name} t WHERE t.id = mine.id)",
                f"INSERT INTO mine SELECT id + 10, v FROM {name}",
                f"INSERT INTO {name} SELECT id + 10, v FROM mine",
                f"UPDATE mine SET v = t.v FROM {name} t WHERE t.id = mine.id",
                f"DELETE FROM mine USING {name} t WHERE t.id = mine.id",
                f"CREATE TEMP TABLE more AS SELECT * FROM {name}",
                f"MERGE INTO mine USING {name} t ON t.id = mine.id WHEN MATCHED THEN DELETE",
            ):
                assert refused(guest, text) == "42501", text
            one.execute(f"GRANT SELECT ON {name} TO tt_guest")
            assert len(rows(guest, f"SELECT * FROM mine JOIN {name} USING (id)")) == 2
            assert rows(guest, "SELECT * FROM mine ORDER BY id") == [(1, "x"), (2, "y")]
            guest.execute(f"CREATE TEMP TABLE {name} (id int PRIMARY KEY)")  # hides the other one
            assert rows(guest, f"SELECT * FROM {name}") == []
            assert refused(guest, f"INSERT INTO public.{name} VALUES (9, 'z')") == "42501"
    finally:
        one.execute("DROP USER tt_guest")


def test_a_foreign_key_is_refused_also_when_it_is_added_later(one: Connection) -> None:
    """ALTER TABLE took it, and nobody looked whether the rows were there."""
    one.execute("CREATE TEMP TABLE mother (id INT PRIMARY KEY)")
    one.execute("CREATE TEMP TABLE child (id INT PRIMARY KEY, mother_id INT)")
    for action in (
        "ADD FOREIGN KEY (mother_id) REFERENCES mother",
        "ADD CONSTRAINT of_one FOREIGN KEY (mother_id) REFERENCES mother (id)",
        "ADD COLUMN other INT REFERENCES mother",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="temporary tables"):
            one.execute(f"ALTER TABLE child {action}".encode())
