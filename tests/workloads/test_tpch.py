"""The 22 questions of TPC-H are answered as by PostgreSQL, however rows are distributed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.harness import Cluster
from tests.sql.postgres import difference, postgres, report

from .tpch import INDEXES, TABLES, Rows
from .tpch_queries import QUERIES

__all__ = ["postgres"]
pytestmark = pytest.mark.clients
psycopg = pytest.importorskip("psycopg")
SMALL = 0.0004  # 600 orders
PLACES = {
    "as its queries join": {name: f"DISTRIBUTED {place}" for name, (_, place) in TABLES.items()},
    "each by its key": dict.fromkeys(TABLES, ""),
    "some together": {
        name: "DISTRIBUTED BY ()" if name in ("part", "supplier", "customer") else ""
        for name in TABLES
    },
}


@pytest.fixture(scope="module")
def rows() -> Rows:
    return Rows(SMALL)


@pytest.fixture(scope="module")
def theirs(postgres: Any, rows: Rows) -> Any:
    for name, (columns, _) in TABLES.items():
        postgres.execute(f"CREATE TABLE {name} ({columns})")
        with postgres.cursor().copy(f"COPY {name} FROM STDIN") as copy:
            copy.write("".join(rows.copied(name)))
    for statement in INDEXES:
        postgres.execute(statement)
    postgres.execute("ANALYZE")
    return postgres


def filled(rows: Rows, places: dict[str, str]) -> Cluster:
    cluster = Cluster()
    for name, (columns, _) in TABLES.items():
        cluster.run(f"CREATE TABLE {name} ({columns}) {places[name]}")
        for at in range(0, len(rows.tables[name]), 500):
            values = (
                "(" + ", ".join(map(literal, row)) + ")" for row in rows.tables[name][at : at + 500]
            )
            cluster.run(f"INSERT INTO {name} VALUES {', '.join(values)}")
    for statement in INDEXES:
        cluster.run(statement)
    return cluster


def literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


def stripped(found: list[Any]) -> list[Any]:
    """CHAR(n) is not padded with blanks here."""
    return [
        tuple(each.rstrip() if isinstance(each, str) else each for each in row) for row in found
    ]


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(each, id=name, marks=() if name == "some together" else pytest.mark.slow)
        for name, each in PLACES.items()
    ],
)
def test_all_questions_are_answered_as_by_postgresql(
    theirs: Any, rows: Rows, places: dict[str, str]
) -> None:
    cluster = filled(rows, places)
    problems: list[str | None] = []
    for name, text in QUERIES.items():
        expected = stripped(theirs.execute(text.encode()).fetchall())
        ways = 0
        while cluster.way is None or cluster.way < ways:
            found = stripped(cluster.run(text))
            ways = cluster.ways
            differs = difference(found, expected, ordered=True)
            problems.append(differs and f"{name} [{cluster.way}]: {differs}")
            cluster.way = 0 if cluster.way is None else cluster.way + 1
        cluster.way = None
    report(problems)
