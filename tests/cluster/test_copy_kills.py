"""A master is killed in the middle of a COPY: of each chunk all rows are there, or none."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import psycopg
import pytest

from cairn.server.chunk_size import SMALL_ROWS
from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster

PIECE = 20_000
MOST = 4_000_000  # rows that are sent if nobody is killed


def lines(first: int, end: int) -> str:
    return "".join(f"{n}\trow {n}\n" for n in range(first, end))


def copy_until_it_breaks(cluster: Cluster, name: str) -> None:
    with (
        contextlib.suppress(psycopg.Error),
        cluster[name].connect() as connection,
        connection.cursor().copy("COPY loaded FROM STDIN") as copy,
    ):
        for first in range(0, MOST, PIECE):
            copy.write(lines(first, first + PIECE))


def test_a_killed_master_has_whole_chunks_and_the_copy_goes_on_behind_them(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, "kills", "--init-replication-factor", "2").start("i1", "i2")
    try:
        create = "CREATE TABLE loaded (id INT PRIMARY KEY, s TEXT) DISTRIBUTED BY (id)"
        cluster["i1"].sql(create)
        masters = "SELECT current_master_name FROM _pico_replicaset"
        [(master,)] = cluster["i1"].sql(masters)
        other = "i2" if master == "i1" else "i1"
        sender = threading.Thread(target=copy_until_it_breaks, args=(cluster, master), daemon=True)
        sender.start()
        count = "SELECT count(*) FROM loaded"
        eventually(lambda: cluster[master].sql(count)[0][0] > SMALL_ROWS, "a larger chunk")
        seen = cluster[master].sql(count)[0][0]
        cluster[master].kill()
        sender.join(30)
        cluster[master].start()
        cluster.wait_online("i1", "i2", via=other)

        def stored() -> tuple[int, int, int]:
            found: tuple[int, int, int] = cluster[master].sql(
                "SELECT count(*), min(id), max(id) FROM loaded"
            )[0]
            return found

        rows, first, last = eventually(stored, "rows after the restart")
        assert rows >= seen, "what was committed is lost"
        assert (first, last) == (0, rows - 1), "part of a chunk is missing"
        with (
            cluster[master].connect() as connection,
            connection.cursor().copy("COPY loaded FROM STDIN") as copy,
        ):
            copy.write(lines(rows, rows + 10))

        def same_on_the_replica() -> bool:
            with cluster[other].connect() as connection:
                connection.execute("SET read_preference = 'any'")
                found = connection.execute("SELECT count(*), max(id) FROM loaded").fetchall()
            assert found == [(rows + 10, rows + 9)], found
            return True

        eventually(same_on_the_replica, "the replica has the same rows")
    finally:
        cluster.close()
