"""Statements that read first and write then: what others changed in between is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

from .test_blocks import Connection, rows

WORKERS, EACH = 5, 12
COUNTED = {
    "rows that others are joined with by another column": (
        "UPDATE tally SET n = tally.n + raise.by FROM raise WHERE raise.of = tally.id"
    ),
    "rows beside others of their table": (
        "UPDATE tally SET n = tally.n + 1 FROM tally t WHERE t.grp = tally.grp AND t.id = 3"
    ),
    "global rows by others": (
        "UPDATE shown SET n = shown.n + raise.by FROM raise WHERE raise.of = shown.id"
    ),
}


@pytest.fixture
def other(cluster: Cluster) -> Iterator[Connection]:
    with cluster["i2"].connect() as found:
        found.execute("CREATE TABLE tally (id INT PRIMARY KEY, grp INT, n INT)")
        found.execute("CREATE TABLE raise (id INT PRIMARY KEY, of INT, by INT)")
        found.execute("CREATE TABLE shown (id INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY")
        found.execute("INSERT INTO tally VALUES (1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 2, 0)")
        found.execute("INSERT INTO shown VALUES (1, 0), (2, 0)")
        found.execute("INSERT INTO raise VALUES (10, 1, 1), (11, 2, 1)")
        yield found
        found.execute("DROP TABLE IF EXISTS tally, raise, shown, job")


def at_once(cluster: Cluster, text: str) -> list[int]:
    """How many rows each of many statements has changed."""

    def work(number: int) -> list[int]:
        with cluster[f"i{number % 2 + 1}"].connect() as mine:
            return [mine.execute(text.encode()).rowcount for _ in range(EACH)]

    with ThreadPoolExecutor(WORKERS) as pool:
        return [count for part in pool.map(work, range(WORKERS)) for count in part]


@pytest.mark.parametrize("kind", COUNTED)
def test_every_change_that_was_told_is_there(
    cluster: Cluster, other: Connection, kind: str
) -> None:
    text = COUNTED[kind]
    told = sum(at_once(cluster, text))
    assert told >= WORKERS * EACH
    # The other instance hears of the last change of a global table a moment later.
    asked = f"SELECT sum(n) FROM {text.split()[1]}"
    eventually(lambda: rows(other, asked) == [(told,)], f"{told} changes")


def test_a_row_that_does_not_meet_the_condition_any_more_stays(
    cluster: Cluster, other: Connection
) -> None:
    """Each of them takes the least row away, and no two the same one."""
    other.execute("INSERT INTO tally SELECT i, 5, 0 FROM generate_series(100, 199) i")
    least = "(SELECT min(id) AS id FROM tally WHERE grp = 5) m WHERE tally.id = m.id"
    assert at_once(cluster, f"DELETE FROM tally USING {least}") == [1] * (WORKERS * EACH)
    assert rows(other, "SELECT count(*) FROM tally WHERE grp = 5") == [(100 - WORKERS * EACH,)]


CLAIMS = (
    "UPDATE job SET state = 'taken', n = n + 1 WHERE id = (SELECT id FROM job "
    "WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)",
    "WITH next AS (SELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP "
    "LOCKED) UPDATE job SET state = 'taken', n = n + 1 FROM next WHERE next.id = job.id",
    "DELETE FROM job WHERE id IN (SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)",
)
JOBS = "INSERT INTO job SELECT 'mail', i, 'ready', 0 FROM generate_series(1, 60) i"
JOB = "CREATE TABLE job (queue TEXT, id INT, state TEXT, n INT, PRIMARY KEY (queue, id))"


@pytest.mark.parametrize("text", CLAIMS)
def test_a_job_of_a_queue_is_taken_by_one_worker(
    cluster: Cluster, other: Connection, text: str
) -> None:
    other.execute(f"{JOB} DISTRIBUTED BY ()")
    other.execute(JOBS)
    assert at_once(cluster, text) == [1] * (WORKERS * EACH)
    assert rows(other, "SELECT count(*) FROM job WHERE n <> 1") == [(0,)]


def test_a_claim_that_two_workers_could_make_is_refused(other: Connection) -> None:
    other.execute("CREATE TABLE job (id INT PRIMARY KEY, state TEXT, n INT)")
    taken, by_rest, deleted = CLAIMS
    for text in (taken, by_rest):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="SKIP LOCKED") as told:
            other.execute(text)
        assert "DISTRIBUTED BY" in str(told.value.diag.message_hint)
    other.execute("INSERT INTO job VALUES (1, 'ready', 0)")
    assert other.execute(deleted).rowcount == 1  # nobody can delete what is not there any more
