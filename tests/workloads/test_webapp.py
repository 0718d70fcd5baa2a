"""What a web application asks, of a real cluster and of PostgreSQL: the same answers and rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import Cluster
from tests.sql.postgres import postgres

from .tpcc import Shop
from .webapp import INDEXES, READS, TABLES, WRITES, Rows

__all__ = ["postgres"]
pytestmark = pytest.mark.clients
psycopg = pytest.importorskip("psycopg")
USERS, ASKED = 60, 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two replicasets."""
    found = Cluster(Path(tmp_path_factory.mktemp("apps")))
    try:
        found.start("i1", "i2")
        found.wait_online("i1", "i2")
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def pair(postgres: Any, cluster: Cluster) -> Iterator[tuple[Any, Any]]:
    with cluster["i1"].connect() as ours:
        for connection in (ours, postgres):
            rows = Rows(USERS)
            for name, columns in TABLES.items():
                connection.execute(f"CREATE TABLE {name} ({columns})")
                with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                    copy.write("".join(rows.copied(name)))
            for statement in INDEXES:
                connection.execute(statement)
        yield ours, postgres


def asked(connection: Any, text: str, values: list[Any]) -> Any:
    found = psycopg.RawCursor(connection).execute(text.encode(), values)
    return found.fetchall() if found.description else found.rowcount


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_an_application_is_told_what_postgresql_tells(pair: tuple[Any, Any], name: str) -> None:
    text, params = (READS | WRITES)[name]
    dice, rows = random.Random(name), Rows(USERS)
    for _ in range(ASKED):
        values = params(dice, rows)
        ours, theirs = (asked(each, text, values) for each in pair)
        assert ours == theirs, values


def test_its_writes_have_left_the_same_rows(pair: tuple[Any, Any]) -> None:
    for name in TABLES:
        ours, theirs = (asked(each, f"SELECT * FROM {name} ORDER BY 1", []) for each in pair)
        assert ours == theirs


@pytest.mark.parametrize("place", ["BY WAREHOUSE", "BY ()"])
def test_orders_of_several_clerks_keep_the_books(cluster: Cluster, place: str) -> None:
    shop = Shop(cluster["i1"].connect, place)
    shop.fill(warehouses=2)
    done = shop.work(clients=3, each=25, seed=4)
    assert done > 0
    assert shop.problems() == []
    shop.drop()
