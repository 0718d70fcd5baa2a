"""ALTER TABLE on a cluster: rows of before and after, whichever way they come and are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(params=["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
def sql(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """The table `a` with twenty rows, sharded or global."""
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP VIEW IF EXISTS seen")
        connection.execute("DROP TABLE IF EXISTS a")
        connection.execute(
            f"CREATE TABLE a (id INT PRIMARY KEY, s TEXT NOT NULL, n INT) {request.param}"
        )
        rows = ", ".join(f"({at}, 's{at}', {at})" for at in range(20))
        connection.execute(f"INSERT INTO a VALUES {rows}")
        yield connection
        connection.execute("DROP VIEW IF EXISTS seen")
        connection.execute("DROP TABLE a")


def rows(connection: Connection, text: str) -> list[Any]:
    return connection.execute(text).fetchall()


def refusal(connection: Connection, text: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(text)
    return caught.value


def test_rows_of_before_have_the_default_of_a_column_that_is_added(sql: Connection) -> None:
    sql.execute("ALTER TABLE a ADD c NUMERIC(4, 2) NOT NULL DEFAULT 1.50, ADD d TEXT DEFAULT 'é'")
    with sql.cursor().copy("COPY a (id, s) FROM STDIN") as copy:
        copy.write_row((20, "copied"))
    sql.execute("INSERT INTO a VALUES (21, 'given', 1, 2, 'x')")
    assert rows(sql, "SELECT count(*), sum(c), count(d) FROM a") == [(22, 33.5, 22)]
    with sql.cursor().copy(
        "COPY (SELECT id, c, d FROM a WHERE id IN (3, 20, 21)) TO STDOUT"
    ) as out:
        assert sorted(out.rows()) == [
            ("20", "1.50", "é"),
            ("21", "2.00", "x"),
            ("3", "1.50", "é"),
        ]
    sql.execute("UPDATE a SET d = d || '!' WHERE id = 3")
    assert rows(sql, "SELECT d FROM a WHERE id = 3") == [("é!",)]
    assert refusal(sql, "INSERT INTO a (id, s, c) VALUES (30, 's', NULL)").sqlstate == "23502"
    with (
        pytest.raises(psycopg.errors.NotNullViolation),
        sql.cursor().copy("COPY a FROM STDIN") as c,
    ):
        c.write_row((31, "s", 1, None, None))


def test_not_null_is_set_only_when_all_rows_on_all_owners_have_a_value(sql: Connection) -> None:
    sql.execute("UPDATE a SET n = NULL WHERE id = 7")
    problem = refusal(sql, "ALTER TABLE a ADD COLUMN c INT DEFAULT 1, ALTER COLUMN n SET NOT NULL")
    assert problem.sqlstate == "23502"
    assert "UPDATE" in str(problem.diag.message_hint)
    assert rows(sql, "SELECT * FROM a WHERE id = 7") == [(7, "s7", None)]
    sql.execute("INSERT INTO a VALUES (20, 's', NULL)")
    sql.execute("UPDATE a SET n = 0 WHERE n IS NULL")
    sql.execute("ALTER TABLE a ALTER COLUMN n SET NOT NULL")
    for text in (
        "INSERT INTO a VALUES (30, 's', NULL)",
        "INSERT INTO a (id, s) VALUES (30, 's'), (31, 's')",
        "UPDATE a SET n = NULL WHERE id = 3",
        "UPDATE a SET n = nullif(n, 5)",
        "INSERT INTO a SELECT id + 100, s, nullif(n, 5) FROM a",
    ):
        problem = refusal(sql, text)
        assert (problem.sqlstate, text) == ("23502", text)
        assert '"n"' in str(problem.diag.message_primary)
    assert rows(sql, "SELECT count(*), count(n) FROM a") == [(21, 21)]
    sql.execute("ALTER TABLE a ALTER n DROP NOT NULL, ALTER s DROP NOT NULL")
    sql.execute("INSERT INTO a (id) VALUES (40)")
    assert rows(sql, "SELECT * FROM a WHERE id = 40") == [(40, None, None)]


def test_a_column_that_is_dropped_is_gone_for_everybody(sql: Connection) -> None:
    sql.execute("ALTER TABLE a DROP COLUMN s")
    assert rows(sql, "SELECT * FROM a WHERE id = 3") == [(3, 3)]
    with sql.cursor().copy("COPY a FROM STDIN") as copy:
        copy.write_row((20, 20))
    with sql.cursor().copy("COPY a TO STDOUT") as out:
        assert ("20", "20") in list(out.rows())
    sql.execute("INSERT INTO a VALUES (21, 21)")
    assert refusal(sql, "SELECT s FROM a").sqlstate == "42703"
    assert refusal(sql, 'SELECT "........dropped.1........" FROM a').sqlstate == "42703"
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'a' ORDER BY 1"
    assert rows(sql, columns) == [("id",), ("n",)]
    named = "SELECT attname FROM pg_attribute WHERE attrelid = 'a'::regclass AND attnum > 0"
    assert {name for (name,) in rows(sql, named)} == {"id", "n"}
    sql.execute("ALTER TABLE a ADD COLUMN s INT DEFAULT 5")
    assert rows(sql, "SELECT * FROM a WHERE id IN (3, 21) ORDER BY id") == [(3, 3, 5), (21, 21, 5)]


def test_a_view_keeps_a_column_and_indexes_and_checks_go_with_it(sql: Connection) -> None:
    sql.execute("CREATE INDEX a_by_n ON a (n)")
    sql.execute("ALTER TABLE a ADD CONSTRAINT small CHECK (n < 1000)")
    sql.execute("CREATE VIEW seen AS SELECT * FROM a")
    problem = refusal(sql, "ALTER TABLE a DROP COLUMN n CASCADE")
    assert problem.sqlstate == "2BP01" and "view seen" in str(problem.diag.message_detail)
    sql.execute("DROP VIEW seen")
    sql.execute("ALTER TABLE a DROP COLUMN n")
    sql.execute("CREATE INDEX a_by_n ON a (s)")
    assert rows(sql, "SELECT id FROM a INDEXED BY a_by_n WHERE s = 's4'") == [(4,)]


def test_unique_of_a_new_table_is_an_index(sql: Connection) -> None:
    sql.execute("DROP TABLE IF EXISTS u")
    sql.execute("CREATE TABLE u (id INT PRIMARY KEY, k INT, v INT, UNIQUE (k, id))")
    sql.execute("INSERT INTO u VALUES (1, 1, 1)")
    sql.execute("INSERT INTO u VALUES (1, 1, 2) ON CONFLICT (k, id) DO UPDATE SET v = EXCLUDED.v")
    assert rows(sql, "SELECT * FROM u") == [(1, 1, 2)]
    named = "SELECT indexname FROM pg_indexes WHERE tablename = 'u' ORDER BY 1"
    assert rows(sql, named) == [("u_k_id_key",), ("u_pkey",)]
    sql.execute("DROP TABLE u")
    problem = refusal(sql, "CREATE TABLE u (id INT PRIMARY KEY, k INT UNIQUE)")
    assert problem.sqlstate == "42P16" and "begin it with id" in str(problem.diag.message_hint)
    sql.execute("CREATE TABLE u (id INT PRIMARY KEY, k INT UNIQUE) DISTRIBUTED GLOBALLY")
    sql.execute("INSERT INTO u VALUES (1, 1)")
    assert refusal(sql, "INSERT INTO u VALUES (2, 1)").sqlstate == "23505"
    sql.execute("ALTER TABLE u DROP CONSTRAINT u_k_key")
    sql.execute("INSERT INTO u VALUES (2, 1)")
    sql.execute("DROP TABLE u")


def test_the_last_column_stays(sql: Connection) -> None:
    """A table without columns could not be read: an internal error."""
    sql.execute("DROP TABLE IF EXISTS bare")
    sql.execute("CREATE TABLE bare (n INT, m INT) DISTRIBUTED BY ()")
    sql.execute("INSERT INTO bare VALUES (1, 2)")
    sql.execute("ALTER TABLE bare DROP COLUMN n")
    assert refusal(sql, "ALTER TABLE bare DROP COLUMN m").sqlstate == "0A000"
    assert rows(sql, "SELECT * FROM bare") == [(2,)]
    sql.execute("DROP TABLE bare")


def test_a_key_that_was_added_keeps_its_columns_from_null(sql: Connection) -> None:
    sql.execute("DROP TABLE IF EXISTS bare")
    sql.execute("CREATE TABLE bare (n INT NOT NULL, m INT NOT NULL)")
    sql.execute("ALTER TABLE bare ADD PRIMARY KEY (n)")
    assert refusal(sql, "ALTER TABLE bare ALTER COLUMN n DROP NOT NULL").sqlstate == "42P16"
    sql.execute("ALTER TABLE bare ALTER COLUMN m DROP NOT NULL")
    sql.execute("DROP TABLE bare")
