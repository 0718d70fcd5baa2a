"""INSERT … SELECT of so many rows that they are packed as COPY's: all of them, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster

Connection = psycopg.Connection[Any]
COUNT = 3_000
MADE = """
CREATE TABLE many (
    id INT PRIMARY KEY, two SMALLINT CHECK (two >= 0), s VARCHAR(9) NOT NULL,
    n NUMERIC(8, 2) DEFAULT 7
)
"""


@pytest.fixture(params=["i1", "i2"])
def sql(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    with cluster[request.param].connect() as connection:
        connection.execute(MADE)
        yield connection
        connection.execute("DROP TABLE many")


def put(connection: Connection, two: str = "g % 100", s: str = "'s' || g", id_: str = "g") -> int:
    rows = f"SELECT {id_}, {two}, {s} FROM generate_series(1, {COUNT}) g"
    return connection.execute(f"INSERT INTO many (id, two, s) {rows}".encode()).rowcount


def test_all_rows_are_there_with_their_defaults(sql: Connection) -> None:
    assert put(sql) == COUNT
    assert sql.execute(
        "SELECT count(*), sum(id), sum(two), count(DISTINCT s), sum(n) FROM many"
    ).fetchone() == (COUNT, COUNT * (COUNT + 1) // 2, 30 * 4950, COUNT, 7 * COUNT)
    assert sql.execute("SELECT two, s FROM many WHERE id = 2999").fetchone() == (99, "s2999")


@pytest.mark.parametrize(
    ("values", "sqlstate"),
    [
        ({"id_": "CASE g WHEN 2999 THEN 1 ELSE g END"}, "23505"),
        ({"s": "CASE WHEN g <> 2500 THEN 's' END"}, "23502"),
        ({"s": "CASE g WHEN 2500 THEN repeat('s', 10) ELSE 's' END"}, "22001"),
        ({"two": "CASE g WHEN 2500 THEN 40000 ELSE 1 END"}, "22003"),
        ({"two": "CASE g WHEN 2500 THEN -1 ELSE 1 END"}, "23514"),
    ],
)
def test_one_bad_row_refuses_all_of_them(
    sql: Connection, values: dict[str, str], sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as told:
        put(sql, **values)
    assert told.value.sqlstate == sqlstate
    assert sql.execute("SELECT count(*) FROM many").fetchone() == (0,)
