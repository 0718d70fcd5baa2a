"""Errors of rows name the table, the column and the constraint, for drivers that ask for these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
MADE = """
CREATE TABLE person (
    id INT PRIMARY KEY, mail TEXT NOT NULL, pay NUMERIC(9, 2), CONSTRAINT enough CHECK (pay > 0)
) {}
"""


@pytest.fixture(params=["i1", "i2"])
def sql(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """At either instance: one of them has to ask the other one for any row."""
    port = cluster[request.param].pg_port
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection
        for name in ("child", "person"):
            connection.execute(f"DROP TABLE IF EXISTS {name}")


def told(connection: Connection, text: str, *values: Any) -> tuple[str | None, ...]:
    with pytest.raises(psycopg.errors.IntegrityError) as problem:
        connection.execute(text, values)
    said = problem.value.diag
    return (
        *(said.sqlstate, said.schema_name, said.table_name),
        *(said.column_name, said.constraint_name),
    )


@pytest.mark.parametrize("where", ["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
def test_rows_that_a_rule_refuses_name_it(sql: Connection, where: str) -> None:
    sql.execute(MADE.format(where))
    columns = "mail" if "GLOBALLY" in where else "id, mail"
    sql.execute(f"CREATE UNIQUE INDEX one_mail ON person ({columns})")
    sql.execute("INSERT INTO person VALUES (1, 'ann', 5)")
    of = ("public", "person")
    for _ in range(3):  # later by quicker ways
        again = told(sql, "INSERT INTO person VALUES (%s, %s, %s)", 1, "bob", 5)
        assert again == ("23505", *of, None, "person_pkey")
        empty = told(sql, "INSERT INTO person VALUES (%s, %s, %s)", 2, None, 5)
        assert empty == ("23502", *of, "mail", None)
    empty = told(sql, "UPDATE person SET mail = NULL WHERE id = 1")
    assert empty == ("23502", *of, "mail", None)
    assert told(sql, "UPDATE person SET pay = -1") == ("23514", *of, None, "enough")
    with (
        pytest.raises(psycopg.errors.NotNullViolation) as problem,
        sql.cursor().copy("COPY person FROM STDIN") as copy,
    ):
        copy.write("7\t\\N\t5\n")
    assert (problem.value.diag.table_name, problem.value.diag.column_name) == ("person", "mail")
    if "GLOBALLY" in where:
        again = told(sql, "INSERT INTO person VALUES (2, 'ann', 5)")
        assert again == ("23505", *of, None, "one_mail")


def test_foreign_keys_are_named_by_both_sides(sql: Connection) -> None:
    sql.execute(MADE.format("DISTRIBUTED BY ()"))
    sql.execute(
        "CREATE TABLE child (id INT PRIMARY KEY, who INT, CONSTRAINT of_person FOREIGN KEY (who) "
        "REFERENCES person) DISTRIBUTED BY ()"
    )
    sql.execute("INSERT INTO person VALUES (1, 'ann', 5)")
    sql.execute("INSERT INTO child VALUES (1, 1)")
    named = ("23503", "public", "child", None, "of_person")
    assert told(sql, "INSERT INTO child VALUES (2, 9)") == named
    assert told(sql, "DELETE FROM person WHERE id = 1") == named


def test_errors_of_statements_name_nothing(sql: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as problem:
        sql.execute("SELECT * FROM nowhere")
    said = problem.value.diag
    assert (said.schema_name, said.table_name, said.constraint_name) == (None, None, None)
