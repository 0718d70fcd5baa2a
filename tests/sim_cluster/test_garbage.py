"""Entries that no check has seen, in a running cluster: nobody stops, and restarts go well."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from cairn.model.log import ops
from cairn.model.tables import system_tables as system
from cairn.raft.types import ProposalDropped
from cairn.sim.cluster.world import World
from tests.sim_cluster.scenes import founded, inside, world_of
from tests.sim_cluster.test_data_rules import in_process
from tests.storage.test_garbage_entries import data_of

#: Rows whose loss is meant when it is asked for: an instance without one was expelled.
SPARED = (system.PICO_INSTANCE.id, system.PICO_PROPERTY.id, system.PICO_REPLICASET.id)


def is_meant(data: bytes) -> bool:
    try:
        found = ops.dml_of(ops.decode(data).op)
    except msgspec.MsgspecError:
        return False
    return any(isinstance(each, ops.Delete) and each.table in SPARED for each in found)


@pytest.mark.parametrize("seed", range(3))
def test_garbage_in_the_log_stops_no_instance(seed: int) -> None:
    world = world_of("i1", "i2", "i3", factor=3, seed=seed + 1)
    chance = random.Random(seed)

    async def script() -> None:
        await founded(world)
        for _ in range(60):
            try:
                data = data_of(chance)
            except (msgspec.MsgspecError, OverflowError, TypeError):
                continue
            if not is_meant(data):
                await propose(world, data)
        await asyncio.sleep(3.0)
        check(world)
        for node in world.nodes.values():
            node.crash()
        for node in world.nodes.values():
            node.start()
        await asyncio.sleep(10.0)
        check(world)
        assert world.leader() is not None

    def check(world: World) -> None:
        stopped = [node.name for node in world.nodes.values() if not node.is_running]
        assert not stopped, f"seed {seed}: {stopped} stopped"

    world.run(script)


async def propose(world: World, data: bytes) -> None:
    """Straight into the log of whoever leads."""
    leader = world.leader()
    if leader is None:
        await asyncio.sleep(0.5)
        return

    async def put() -> None:
        try:
            inside(leader).runner.propose(data)
        except ProposalDropped:
            await asyncio.sleep(0.1)

    await in_process(leader, put)
    await asyncio.sleep(0.05)
