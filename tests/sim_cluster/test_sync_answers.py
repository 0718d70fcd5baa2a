"""Sync mode tells nothing that a failover could still take away."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from cairn.model.errors import CairnError, UniqueViolation
from cairn.model.rpc import WriteRequest
from cairn.sim.cluster.loads.load import INSERT, TABLE
from cairn.sim.cluster.loads.registers import Registers
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, hold, inside, played
from tests.sim_cluster.test_data_rules import READ, in_process

ROW = WriteRequest(TABLE.id, 1, INSERT, ((3, 2, "row 2"),), (3,))
DONE_ONCE = msgspec.structs.replace(ROW, operation="an operation")


def writing(scene: Triple, request: WriteRequest) -> asyncio.Task[Any]:
    execution = scene.load.execution(scene.master)

    async def verdict() -> Any:
        try:
            return (await execution.writes.write(request)).row_count
        except CairnError as problem:
            return type(problem)

    return in_process(scene.master, verdict)


def follow_nobody(node: SimNode) -> Any:
    """Rows no longer come to it, everything else does; how to let them come again."""
    follower: Any = inside(node).replication.follower

    async def stuck(*_: Any) -> None:
        await asyncio.sleep(0.1)

    follower._pull = stuck
    return lambda: vars(follower).pop("_pull")


def test_a_read_at_a_new_master_waits_until_a_majority_has_what_the_old_one_left() -> None:
    async def script(scene: Triple) -> None:
        follow_again = follow_nobody(scene.third)
        await scene.write(2)  # the master and the leader have it
        scene.master.crash()
        heir = await scene.renamed()
        assert heir is scene.leader
        execution = scene.load.execution(heir)
        await scene.world.until(
            lambda: inside(heir).lease.is_held(inside(heir).data.fence.epoch), "a lease", 5.0
        )
        reading = in_process(heir, lambda: execution.reads.read(READ))
        await asyncio.sleep(1.0)
        assert not reading.done()
        assert inside(heir).status().waits_for == (scene.master.name, scene.third.name)
        follow_again()
        assert await asyncio.wait_for(reading, 2.0) == [(2,)]

    played("sync", script)


def test_a_read_tells_no_row_of_a_commit_that_only_the_disk_knows_of() -> None:
    """The commit is in the file, the event loop has not heard of it, and no replica has it."""

    async def script(scene: Triple) -> None:
        master, load = scene.master, scene.load
        for replica in (scene.leader, scene.third):
            follow_nobody(replica)
        data: Any = inside(master).data
        before = data.vclock[data.store.origin]
        data._disk._tell = lambda: None
        writing(scene, ROW)
        await scene.world.until(lambda: 2 in load.rows_of(master), "the commit", 5.0)
        assert data.vclock[data.store.origin] == before
        reading = in_process(master, lambda: load.execution(master).reads.read(READ))
        await asyncio.sleep(1.0)
        assert not reading.done()
        master.crash()
        heir = await scene.renamed()
        assert 2 not in load.rows_of(heir)
        await scene.calm()

    played("sync", script)


def test_what_a_read_has_told_is_there_after_any_failover() -> None:
    """The same with a read that would be answered at once, and the new master lost as well."""

    async def script(scene: Triple) -> None:
        follow_again = follow_nobody(scene.third)
        await scene.write(2)
        scene.master.crash()
        heir = await scene.renamed()
        for _ in range(40):
            scene.load.read(heir)
            await asyncio.sleep(0.05)
        assert scene.load.told == 0
        follow_again()
        await scene.calm()

    played("sync", script)


def test_an_operation_that_was_done_before_is_acknowledged_when_a_majority_has_it() -> None:
    async def script(scene: Triple) -> None:
        release = [hold(scene.leader), hold(scene.third)]
        first = writing(scene, DONE_ONCE)
        await scene.world.until(lambda: 2 in scene.load.rows_of(scene.master), "the row", 2.0)
        again = writing(scene, DONE_ONCE)
        await asyncio.sleep(1.0)
        assert (first.done(), again.done()) == (False, False)
        for go_on in release:
            go_on()
        assert await asyncio.gather(first, again) == [1, 1]

    played("sync", script)


def test_a_row_that_is_in_the_way_is_told_when_it_is_there_to_stay() -> None:
    """Clients whose write had an unknown end try it again to learn whether it happened."""

    async def script(scene: Triple) -> None:
        release = [hold(scene.leader), hold(scene.third)]
        first = writing(scene, ROW)
        await scene.world.until(lambda: 2 in scene.load.rows_of(scene.master), "the row", 2.0)
        again = writing(scene, ROW)
        await asyncio.sleep(1.0)
        assert (first.done(), again.done()) == (False, False)
        for go_on in release:
            go_on()
        assert await asyncio.gather(first, again) == [1, UniqueViolation]

    played("sync", script)


def test_streams_are_told_only_what_a_majority_has() -> None:
    async def script(scene: Triple) -> None:
        master = inside(scene.master)
        before = dict(master.data.vclock)
        await scene.world.until(
            lambda: master.replication.acks.tellable(before) == before, "all is told", 2.0
        )
        release = [hold(scene.leader), hold(scene.third)]
        write = writing(scene, ROW)
        await asyncio.sleep(1.0)
        now = dict(master.data.vclock)
        assert now != before
        assert master.replication.acks.tellable(now) == before
        for go_on in release:
            go_on()
        assert await write == 1
        assert master.replication.acks.tellable(now) == now

    played("sync", script)


def test_a_reader_at_a_master_that_was_cut_off_is_told_nothing_that_is_over() -> None:
    """Nobody writes through it, so no write that waits for a majority holds its reads up."""

    async def script(scene: Triple) -> None:
        registers = Registers(scene.load, random.Random(1), groups=1)
        [group], master = registers.groups, scene.master
        assert await registers._write(master, group, "1.1") == "done"
        assert await registers.read(master, group)
        scene.cut(master, scene.leader)
        scene.cut(master, scene.third)
        heir = await scene.renamed()
        while await registers._write(heir, group, "2.1") != "done":
            await asyncio.sleep(0.1)
        assert not await registers.read(master, group)
        registers.judge()
        await scene.calm()

    played("sync", script)
