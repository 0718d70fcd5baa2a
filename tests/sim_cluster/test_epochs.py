"""Mastership that goes back and forth: every epoch keeps its place, its records and its waiters."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cairn.model import ops, rows, topology
from cairn.model.errors import CairnError
from cairn.model.ranges import one_key
from cairn.model.rpc import WriteRequest
from cairn.model.system_tables import PICO_REPLICASET
from cairn.sim.cluster.load import INSERT, TABLE
from cairn.sim.cluster.node import SimNode
from cairn.storage.row_log import COPIED_EPOCHS
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_data_rules import in_process

NEWEST = "by the second master"
UPDATE = f"UPDATE {TABLE.physical_name} SET c1 = ? WHERE bucket_id = ? AND c0 = ?"


def bucket_of(key: int) -> int:
    return key % 30 + 1


def inserting(key: int, text: str) -> WriteRequest:
    bucket = bucket_of(key)
    return WriteRequest(TABLE.id, 1, INSERT, ((bucket, key, text),), (bucket,))


def updating(key: int, text: str) -> WriteRequest:
    bucket = bucket_of(key)
    return WriteRequest(TABLE.id, 1, UPDATE, ((text, bucket, key),), (bucket,))


async def done(scene: Triple, node: SimNode, request: WriteRequest) -> None:
    """At a master that may still wait for its lease."""
    execution = scene.load.execution(node)
    scene.load.sent.update(row[1] for row in request.rows if request.sql is INSERT)
    for _ in range(100):
        try:
            await in_process(node, lambda: execution.write(request))
        except CairnError:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError(f"{node} takes no writes")


async def switch(scene: Triple, to: SimNode) -> None:
    """As a person does it: UPDATE _pico_replicaset SET target_master_name."""
    leader = scene.world.leader()
    assert leader is not None
    proposer = inside(leader).proposer
    [replicaset] = inside(leader).state.cluster.replicasets.values()
    row = rows.replicaset_row(msgspec.structs.replace(replicaset, target_master_name=to.name))
    op = ops.Batch((ops.Replace(PICO_REPLICASET.id, row),))
    where = (one_key(PICO_REPLICASET.id, (replicaset.name,)),)
    await in_process(leader, lambda: proposer.cas(op, proposer.predicate(where)))
    await scene.world.until(lambda: scene.load.masters() == [to], f"{to} to be master", 20.0)


@pytest.mark.parametrize("kept_cuts", [topology.KEPT_CUTS, 1])
def test_a_replica_that_missed_two_epochs_applies_them_in_their_order(
    kept_cuts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch 1 fills several pulls; epoch 2 is one record, which the other link brings at once.

    Where the cut of epoch 1 is forgotten meanwhile, the rows come as a full copy.
    """
    monkeypatch.setattr(topology, "KEPT_CUTS", kept_cuts)

    async def script(scene: Triple) -> None:
        first, second, away = scene.master, scene.leader, scene.third
        away.crash()
        for key in range(100, 140):
            await done(scene, first, inserting(key, "x" * 200_000))
        await done(scene, first, updating(1, "by the first master"))
        await switch(scene, second)
        await done(scene, second, updating(1, NEWEST))
        await switch(scene, first)
        away.start()
        await scene.world.settled()
        want = inside(first).data.vclock
        await scene.world.until(lambda: inside(away).data.vclock == want, "the rows", 20.0)
        assert [scene.load.rows_of(node)[1] for node in (first, second, away)] == [NEWEST] * 3
        was_copied = inside(away).data.store.get(COPIED_EPOCHS) is not None
        assert was_copied == (kept_cuts == 1)

    played("async", script)
