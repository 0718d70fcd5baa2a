"""Errors inside of a block: an error that comes from what does not hold any more is 40001."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster.harness import Cluster

from .test_blocks import Connection, other, rows, sql

__all__ = ["other", "sql"]
NEXT = "UPDATE account SET n = n + 1 WHERE id = 7 RETURNING n"


@pytest.fixture
def numbered(cluster: Cluster, other: Connection) -> Iterator[Connection]:
    """Lines that are numbered by what their account says."""
    other.execute(
        "CREATE TABLE line (account INT, no INT, what TEXT, PRIMARY KEY (account, no))"
        " DISTRIBUTED BY (account)"
    )
    yield other
    other.execute("DROP TABLE line")


def test_a_number_that_somebody_else_was_faster_with_is_a_conflict_and_no_duplicate(
    sql: Connection, numbered: Connection
) -> None:
    [(mine,)] = rows(sql, NEXT)
    with numbered.transaction():
        [(theirs,)] = rows(numbered, NEXT)
        numbered.execute("INSERT INTO line VALUES (7, %s, 'theirs')", [theirs])
    assert mine == theirs  # nothing is locked
    with pytest.raises(psycopg.errors.SerializationFailure):
        sql.execute("INSERT INTO line VALUES (7, %s, 'mine')", [mine])
    sql.rollback()
    [(again,)] = rows(sql, NEXT)
    sql.execute("INSERT INTO line VALUES (7, %s, 'mine')", [again])
    sql.commit()
    assert rows(numbered, "SELECT no, what FROM line ORDER BY no") == [
        (mine, "theirs"),
        (again, "mine"),
    ]


def test_a_duplicate_is_told_as_one_where_all_that_was_told_holds(
    sql: Connection, numbered: Connection
) -> None:
    numbered.execute("INSERT INTO line VALUES (7, 101, 'before')")
    [(mine,)] = rows(sql, NEXT)
    assert mine == 101
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("INSERT INTO line VALUES (7, %s, 'mine')", [mine])


@pytest.mark.parametrize("then", ["COMMIT", "UPDATE line SET what = 'x' WHERE account = 7"])
def test_a_key_that_somebody_else_was_faster_with_is_a_conflict_too(
    sql: Connection, numbered: Connection, then: str
) -> None:
    """The INSERT was told to be done. Who begins again is told of the duplicate there."""
    sql.execute("INSERT INTO line VALUES (7, 1, 'mine')")
    numbered.execute("INSERT INTO line VALUES (7, 1, 'theirs')")
    with pytest.raises(psycopg.errors.SerializationFailure) as told:
        sql.execute(then)
    assert "Duplicate key" in str(told.value.diag.message_detail)
    sql.rollback()
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("INSERT INTO line VALUES (7, 1, 'mine')")
