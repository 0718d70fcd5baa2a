"""Members of a sync replicaset go one at a time, and not before the others have what they had."""

from __future__ import annotations

import asyncio

from cairn.sim.cluster.loads.load import Load
from tests.sim_cluster.scenes import founded, inside, world_of
from tests.sim_cluster.test_data_rules import in_process
from tests.sim_cluster.test_joining import expel
from tests.sim_cluster.test_sync_answers import follow_nobody


def test_who_has_a_row_is_expelled_when_enough_of_the_others_have_it() -> None:
    """A row of three of five; two of them leave, the third is the master and dies: two are left."""
    world = world_of("a", "b", "c", "d", "e", factor=5, mode="sync")
    load = Load(world)

    async def script() -> None:
        await founded(world)
        await load.create_table()
        [master] = load.masters()
        others = [node for node in world.nodes.values() if node is not master]
        behind = others[2:]
        again = [follow_nobody(node) for node in behind]
        await asyncio.sleep(1.0)  # pulls that were on their way are over
        await load.write(master, 1)
        assert set(load.acked) == {1}
        await expel(world, others[0].name)
        await expel(world, others[1].name)

        def members() -> int:
            [replicaset] = inside(master).state.cluster.replicasets.values()
            return len(replicaset.members)

        await world.until(lambda: members() == 4, "one of them to go", 30.0)
        await asyncio.sleep(10.0)
        assert members() == 4
        for follow_again in again:
            follow_again()
        await world.until(lambda: members() == 3, "the other to go", 90.0)
        master.crash()
        await world.until(
            lambda: any(node in behind for node in load.masters()), "another master", 30.0
        )
        await world.until(lambda: all(1 in load.rows_of(node) for node in behind), "the row", 10.0)

    world.run(script)


def test_who_is_alone_in_sync_mode_is_confirmed_by_its_own_disk() -> None:
    """A read had seen a commit that was not told yet: nobody released it, or those behind it."""
    world = world_of("a", mode="sync")
    load = Load(world)

    async def script() -> None:
        await founded(world)
        await load.create_table()
        [master] = load.masters()
        await load.write(master, 1)
        instance, began = inside(master), world.loop.time()
        acks, epoch = instance.replication.acks, instance.data.fence.epoch
        seen = instance.data.vclock[instance.identity.instance_uuid] + 1
        read = in_process(master, lambda: acks.wait_readable(seen, epoch))
        await asyncio.sleep(0.1)
        assert not read.done()
        for key in range(2, 6):
            await load.write(master, key)
        await read
        assert (set(load.acked), load.unknown) == ({1, 2, 3, 4, 5}, set())
        assert world.loop.time() - began < 1.0

    world.run(script)
