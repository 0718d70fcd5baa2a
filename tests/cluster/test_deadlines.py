"""`statement_timeout` ends a statement wherever it waits: at its owner, for Raft, for its rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
LIMIT_MS = 700
#: A frozen instance is declared Offline after some seconds, and only then gave statements up.
PATIENCE_S = 2.0


@pytest.fixture(scope="module")
def half_frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psycopg.Connection[object]]:
    """A session at one of two replicasets; the instance of the other one stands still."""
    directory: Path = tmp_path_factory.mktemp("deadlines")
    cluster = Cluster(directory, "deadlines").start("i1", "i2")
    try:
        buckets = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
        eventually(lambda: len(cluster["i1"].sql(buckets)) == 2, "buckets on both instances")
        cluster["i1"].sql("CREATE TABLE t (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (a)")
        cluster["i1"].sql("CREATE TABLE g (a INT PRIMARY KEY, b INT) DISTRIBUTED GLOBALLY")
        eventually(lambda: cluster["i2"].sql("SELECT count(*) FROM t") == [(0,)], "the table")
        for key in range(20):
            cluster["i1"].sql(f"INSERT INTO t VALUES ({key}, 0)")
        with cluster["i1"].connect() as connection:
            connection.execute(f"SET statement_timeout = {LIMIT_MS}")
            cluster["i2"].pause()
            yield connection
    finally:
        cluster["i2"].resume()
        cluster.close()


#: It depends on the moment: 40003, a leader took it; 57014 or PC002, there was none any more.
THROUGH_RAFT = {"40003", "57014", "PC002"}
#: What each kind of statement must say. 40003: it may have happened; the others: it did not.
ENDS = {
    "a scan": ("SELECT count(*) FROM t", {"57014"}),
    "a write of rows at both": ("UPDATE t SET b = b + 1", {"57014"}),
    "a write of global rows": ("INSERT INTO g VALUES (1, 1)", THROUGH_RAFT),
    "a schema change": ("CREATE TABLE u (a INT PRIMARY KEY)", THROUGH_RAFT),
    "a new user": ("CREATE USER somebody WITH PASSWORD 'Passw0rdPassw0rd'", THROUGH_RAFT),
}


def ends_with(connection: psycopg.Connection[object], text: str) -> str:
    """The SQLSTATE with which it ends; in time."""
    began = time.monotonic()
    with pytest.raises(psycopg.Error) as refusal:
        connection.execute(text)
    took_s = time.monotonic() - began
    assert took_s < PATIENCE_S, f"{text} took {took_s:.1f} s: {refusal.value}"
    return str(refusal.value.sqlstate)


def test_a_row_that_its_owner_may_have_written_has_an_unknown_outcome(
    half_frozen: psycopg.Connection[object],
) -> None:
    """Whichever rows are here are written; those of the frozen owner end with the statement."""
    outcomes = set()
    for key in range(100, 110):
        began = time.monotonic()
        try:
            half_frozen.execute(f"INSERT INTO t VALUES ({key}, 0)")
            outcomes.add("written")
            continue
        except psycopg.Error as refusal:
            outcomes.add(str(refusal.sqlstate))
        assert time.monotonic() - began < PATIENCE_S
        break
    assert "40003" in outcomes and outcomes <= {"written", "40003"}


@pytest.mark.parametrize("what", ENDS)
def test_a_statement_ends_at_its_deadline(
    half_frozen: psycopg.Connection[object], what: str
) -> None:
    text, expected = ENDS[what]
    assert ends_with(half_frozen, text) in expected
