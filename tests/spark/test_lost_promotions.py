"""What was acknowledged and then lost in a failover: staged writes notice, and are whole or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from cairn.model.errors import CairnError
from cairn.spark import cluster as pools
from cairn.spark import tables
from cairn.spark.writes import staging
from cairn.spark.writes.splitting import Splitter, to_stream
from cairn.storage.files.sqlite import open_reader
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually

# Slow: where the driver happens to ask the replica that stands still, it takes seconds to leave it.
pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ROWS = 500


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, "test", "--init-replication-factor", "2")
    found.start("i1", "i2", "i3")
    yield found
    pools.close_all()
    found.close()


def dsn_of(cluster: Cluster) -> str:
    hosts = ",".join(f"127.0.0.1:{node.pg_port}" for node in cluster.nodes.values())
    return f"postgresql://admin:{PASSWORD}@{hosts}/cairn"


def owner_and_replica(cluster: Cluster) -> tuple[Node, Node]:
    """Of the replicaset that has the buckets: two instances; the third is a voter beside them."""
    via = next(iter(cluster.nodes.values()))
    [(name, master)] = via.sql(
        "SELECT name, current_master_name FROM _pico_replicaset WHERE weight > 0"
    )
    sql = "SELECT name FROM _pico_instance WHERE replicaset_name = %s AND name <> %s"
    [(replica,)] = via.sql(sql, (name, master))
    return cluster[master], cluster[replica]


def vclock(node: Node) -> dict[str, int]:
    connection = open_reader(node.dir / "data.db")
    try:
        return dict(connection.execute("SELECT origin, lsn FROM vclock"))
    finally:
        connection.close()


def stand_still(master: Node, replica: Node) -> None:
    """The replica gets nothing any more: what it had asked for is answered by another row."""
    replica.pause()
    master.sql("INSERT INTO other_rows VALUES (1)")


def kill_before_it_is_missed(master: Node, replica: Node) -> None:
    """One that was found Offline lacks rows for certain: no cluster makes it a master."""
    states = dict(master.sql("SELECT name, current_state FROM _pico_instance"))
    if states[replica.name][0] != "Online":
        pytest.skip("the machine was too slow: the replica that stood still was missed")
    master.kill()


def staged(dsn: str, write_id: str, before: Callable[[], None] = lambda: None) -> staging.Manifest:
    """`before` comes when only the master is asked any more: who stands still keeps nobody up."""
    info = tables.describe(dsn, "t")
    assert info.tier is not None
    owners = pools.owners(dsn, info.tier)
    slots = staging.slots(owners, info)
    task = staging.Task(dsn, write_id, 0)
    batch = pa.record_batch({"id": pa.array(range(ROWS), pa.int64())})
    before()
    chunks = [
        task.keep(slots[at], to_stream(piece, "zstd"), piece.num_rows)
        for at, piece in Splitter(info, owners).chunks(batch, staging.CHUNK_ROWS)
    ]
    return staging.Manifest("t", ("id",), "error", False, tuple(chunks))


def test_rows_whose_promotion_was_lost_in_a_failover_are_there_when_it_is_done(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = dsn_of(cluster)
    master, replica = owner_and_replica(cluster)
    master.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    master.sql("CREATE TABLE other_rows (id INT PRIMARY KEY)")
    staging.create(dsn)
    manifest = staged(dsn, "w")
    promote, is_over = staging._promote, False

    def promoted_and_lost(*arguments: Any) -> None:
        nonlocal is_over
        if is_over:
            promote(*arguments)
            return
        is_over = True
        eventually(lambda: vclock(replica) == vclock(master), "the decision at the replica")
        stand_still(master, replica)
        promote(*arguments)
        kill_before_it_is_missed(master, replica)
        replica.resume()

    monkeypatch.setattr(staging, "_promote", promoted_and_lost)
    staging.commit(dsn, "w", manifest)
    other = next(node for node in cluster.nodes.values() if node not in (master, replica))
    found = eventually(lambda: other.sql("SELECT count(*) FROM t"), "an answer")
    assert found == [(ROWS,)]
    assert other.sql(f"SELECT state FROM {staging.COMMIT}") == [("done",)]


def test_a_staged_write_goes_on_while_its_master_stands_still(cluster: Cluster) -> None:
    """It waited 30 s for one answer, and then had no time left to ask another."""
    dsn = dsn_of(cluster)
    master, replica = owner_and_replica(cluster)
    master.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    staging.create(dsn)
    pools.pool(dsn).execute("INSERT INTO t VALUES ($1)", -1)  # its connection is open
    eventually(lambda: vclock(replica) == vclock(master), "the row at the replica")
    manifest = staged(dsn, "w", master.pause)
    staging.commit(dsn, "w", manifest)
    assert replica.sql("SELECT count(*) FROM t") == [(ROWS + 1,)]
    master.resume()


def lose_what_the_replica_has_not(master: Node, replica: Node) -> None:
    """The replica, which stood still, becomes the master."""
    kill_before_it_is_missed(master, replica)
    replica.resume()


def test_a_write_whose_chunks_were_lost_in_a_failover_is_refused_whole(cluster: Cluster) -> None:
    dsn = dsn_of(cluster)
    master, replica = owner_and_replica(cluster)
    other = next(node for node in cluster.nodes.values() if node not in (master, replica))
    master.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    master.sql("CREATE TABLE other_rows (id INT PRIMARY KEY)")
    master.sql("INSERT INTO t VALUES (1000000)")
    staging.create(dsn)
    eventually(lambda: vclock(replica) == vclock(master), "the row at the replica")
    manifest = staged(dsn, "w", lambda: stand_still(master, replica))
    lose_what_the_replica_has_not(master, replica)
    with pytest.raises(CairnError, match="chunk"):
        staging.commit(dsn, "w", manifest)
    assert other.sql("SELECT id FROM t") == [(1000000,)]
    assert other.sql(f"SELECT count(*) FROM {staging.COMMIT}") == [(0,)]


def test_a_write_that_was_checked_can_be_carried_out_by_the_next_master(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks are at the replicas before anything is decided, with `overwrite` too."""
    dsn = dsn_of(cluster)
    master, replica = owner_and_replica(cluster)
    other = next(node for node in cluster.nodes.values() if node not in (master, replica))
    master.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    master.sql("CREATE TABLE other_rows (id INT PRIMARY KEY)")
    staging.create(dsn)
    eventually(lambda: vclock(replica) == vclock(master), "the tables at the replica")
    check, settled = staging._check, staging._settled

    def checked_and_killed(*arguments: Any) -> None:
        check(*arguments)
        kill_before_it_is_missed(master, replica)

    def resumed_and_settled(dsn: str) -> dict[str, int]:
        replica.resume()
        return settled(dsn)

    manifest = staged(dsn, "w", lambda: stand_still(master, replica))
    manifest = msgspec.structs.replace(manifest, overwrite=True)
    monkeypatch.setattr(staging, "_check", checked_and_killed)
    monkeypatch.setattr(staging, "_settled", resumed_and_settled)
    staging.commit(dsn, "w", manifest)
    assert other.sql("SELECT count(*) FROM t") == [(ROWS,)]
