"""Options of a read hold in the extended protocol too, whichever way a point read goes."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster.harness import Cluster

KEYS = range(1, 9)  # some on each replicaset


@pytest.fixture
def rows(cluster: Cluster) -> Iterator[Cluster]:
    node = cluster["i1"]
    node.sql("CREATE TABLE points (id INT PRIMARY KEY, v INT) DISTRIBUTED BY (id)")
    for key in KEYS:
        node.sql(f"INSERT INTO points VALUES ({key}, {key})")
    yield cluster
    node.sql("DROP TABLE points")


@pytest.mark.parametrize("key", KEYS)
def test_a_limit_of_steps_holds_for_a_point_read(rows: Cluster, key: int) -> None:
    point = "SELECT v FROM points WHERE id = %s"
    with rows["i1"].connect() as connection:
        assert connection.execute(point, (key,), prepare=True).fetchone() == (key,)
        for text in (
            point + " OPTION (sql_vdbe_opcode_max = 1)",
            "SET sql_vdbe_opcode_max = 1",
        ):
            connection.execute("RESET ALL")
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                if text.startswith("SET"):
                    connection.execute(text)
                    connection.execute(point, (key,), prepare=True)
                else:
                    connection.execute(text, (key,), prepare=True)
        connection.execute("RESET ALL")
        assert connection.execute(point, (key,), prepare=True).fetchone() == (key,)


@pytest.mark.parametrize("key", KEYS)
def test_a_preference_holds_for_a_point_read(rows: Cluster, key: int) -> None:
    """With one instance to a replicaset there is no replica to be asked: so it says."""
    text = "SELECT v FROM points WHERE id = %s OPTION (read_preference = replica)"
    with rows["i1"].connect() as connection:
        with pytest.raises(psycopg.Error, match="has no instance to read from"):
            connection.execute(text, (key,), prepare=True)
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    "text", ["SELECT v FROM points", "UPDATE points SET v = v", "INSERT INTO points VALUES (1, 1)"]
)
def test_a_limit_below_zero_is_refused_for_every_statement(rows: Cluster, text: str) -> None:
    with rows["i1"].connect() as connection:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="non-negative"):
            connection.execute(f"{text} OPTION (sql_vdbe_opcode_max = -1)".encode())
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="non-negative"):
            connection.execute(f"{text} OPTION (sql_vdbe_opcode_max = %s)".encode(), (-1,))
