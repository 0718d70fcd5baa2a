"""Who is master of what, after a restart and after a failover that was called off."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from cairn.model.errors import NotInPrerequisiteState
from cairn.model.log import ops
from cairn.model.log.ranges import one_key
from cairn.model.members.topology import Replicaset
from cairn.model.rpc import ExpelRequest, ExpelResponse, PromiseRequest
from cairn.model.tables import rows
from cairn.model.tables.system_tables import PICO_REPLICASET
from cairn.node.boot import first_entries
from cairn.node.boot.steps import Boot
from cairn.node.instance import Instance
from cairn.sim.cluster.loads.registers import why_unequal
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, hold, inside, played
from tests.sim_cluster.test_data_rules import in_process


def replicaset_of(scene: Triple) -> Replicaset:
    [found] = inside(scene.leader).state.cluster.replicasets.values()
    return found


async def wished(scene: Triple, master: SimNode) -> None:
    """An administrator asks for a master."""
    new = msgspec.structs.replace(replicaset_of(scene), target_master_name=master.name)
    change = ops.Batch((ops.Replace(PICO_REPLICASET.id, rows.replicaset_row(new)),))
    proposer = inside(scene.leader).proposer
    key = one_key(PICO_REPLICASET.id, (new.name,))
    await in_process(scene.leader, lambda: proposer.cas(change, proposer.predicate((key,))))


async def equal(scene: Triple) -> None:
    await scene.world.until(lambda: why_unequal(scene.world) is None, "equal replicas", 30.0)


def loses_its_last_records(node: SimNode, commits: int) -> None:
    """A power cut, and a disk that had said too early that it was done."""
    assert node.runtime is not None
    [disk] = [each for each in node.runtime.disks if each.path.name == "data.db"]
    disk.forget(commits)
    node.crash(power=True)


def test_a_master_that_lost_its_last_records_gives_their_numbers_to_no_others() -> None:
    async def script(scene: Triple) -> None:
        for key in range(2, 12):
            await scene.write(key)
        await equal(scene)
        before = replicaset_of(scene).epoch
        loses_its_last_records(scene.master, 5)
        scene.master.start()
        await scene.world.until(
            lambda: replicaset_of(scene).epoch > before and bool(scene.load.masters()),
            "a master that is named anew",
            30.0,
        )
        for key in range(100, 105):
            await scene.write(key, scene.load.masters()[0])
        await scene.calm()
        await equal(scene)

    played("async", script)


def test_a_master_that_was_started_again_writes_nothing_before_it_is_named_anew() -> None:
    async def script(scene: Triple) -> None:
        before = replicaset_of(scene).epoch
        master = scene.master
        master.crash()
        master.start()
        epochs: set[int] = set()

        def is_named() -> bool:
            instance: Any = master.instance
            if instance is not None and instance.lease.is_held(instance.data.fence.epoch):
                epochs.add(instance.data.fence.epoch)
            return bool(epochs)

        await scene.world.until(is_named, "a lease", 30.0)
        assert epochs == {before + 1}
        await scene.calm()

    played("async", script)


def test_a_failover_that_is_called_off_leaves_nobody_waiting_for_a_naming() -> None:
    async def script(scene: Triple) -> None:
        releases = [hold(node) for node in (scene.master, scene.third)]  # nothing is written there
        await wished(scene, scene.leader)

        def has_promised() -> bool:
            return inside(scene.leader).data.store.promised > replicaset_of(scene).epoch

        await scene.world.until(has_promised, "a promise of one, where two are needed", 30.0)
        with suppress(NotInPrerequisiteState):  # then it is not called off, which is as good
            await wished(scene, scene.master)
        for release in releases:
            release()
        await scene.calm()
        writing = asyncio.ensure_future(scene.write(2, scene.load.masters()[0]))
        await scene.world.until(writing.done, "a write", 30.0)
        await equal(scene)

    played("sync", script)


def test_a_lease_is_not_asked_for_by_what_an_earlier_life_was() -> None:
    """Its tables still say that it is the master, and so do the leader's, until it has woken up."""

    async def script(scene: Triple) -> None:
        master = scene.master
        master.crash()

        class Sleepy(Boot):
            async def activate(self, instance: Instance, reason: str) -> None:
                await asyncio.sleep(1.5)
                await super().activate(instance, reason)

        master.boot_class = Sleepy
        master.start()
        await scene.world.until(lambda: master.instance is not None, "its start", 10.0)
        for _ in range(100):
            await asyncio.sleep(0.01)
            instance = inside(master)
            assert not instance.lease.is_held(instance.data.fence.epoch)
        await scene.calm()

    played("async", script)


def test_a_promise_after_a_start_tells_nothing_that_a_cut_has_left_out() -> None:
    """Its Raft file knows of the cut, its rows were not held against it yet, and nobody speaks."""

    async def script(scene: Triple) -> None:
        master, others = scene.master, (scene.leader, scene.third)
        await equal(scene)
        for other in others:
            scene.cut(master, other)
        tail = asyncio.ensure_future(scene.load.write(master, 2))  # known to the master alone
        await scene.renamed()
        await tail
        epoch = replicaset_of(scene).epoch
        cut = replicaset_of(scene).cut
        origin = inside(master).identity.instance_uuid
        assert inside(master).data.vclock[origin] > cut[origin]
        hold(master)
        for other in others:
            scene.mend(master, other)
        await scene.world.until(
            lambda: inside(master).state.cluster.replicasets["default_1"].epoch == epoch,
            "the naming at the old master",
            30.0,
        )
        for other in others:
            scene.cut(master, other)
        master.crash()
        master.start()
        await scene.world.until(lambda: master.instance is not None, "its start", 10.0)
        data = inside(master).data
        request = PromiseRequest("default_1", epoch + 1)
        answer = await in_process(master, lambda: data.promise(request))
        assert answer.vclock[origin] == cut[origin]
        await scene.calm(may_lose=True)
        await equal(scene)

    played("async", script)


async def dark_house(scene: Triple) -> None:
    """The power goes everywhere; all but the master come back, and ask to be Online at once."""
    for key in range(2, 6):
        await scene.write(key)
    for node in (scene.master, scene.leader, scene.third):
        node.crash(power=True)
    for node in (scene.leader, scene.third):
        node.start()


def test_a_majority_that_comes_up_without_its_master_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They waited for rows of a master that was gone, and nobody was an heir before it had them."""
    monkeypatch.setitem(first_entries.SETTINGS, "governor_auto_offline_timeout", 20.0)

    async def script(scene: Triple) -> None:
        await dark_house(scene)
        heir = await scene.renamed(90.0)
        await scene.write(6, heir)
        assert not scene.master.is_running
        await scene.calm()

    played("sync", script)


def test_where_a_master_may_have_had_more_its_replicas_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In async mode it may have been alone for long, and what it acknowledged is nowhere else."""
    monkeypatch.setitem(first_entries.SETTINGS, "governor_auto_offline_timeout", 20.0)

    async def script(scene: Triple) -> None:
        await dark_house(scene)
        await asyncio.sleep(60.0)
        leader = scene.world.leader()
        assert leader is not None and replicaset_of(scene).current_master_name == scene.master.name
        said = " ".join(inside(leader).governor.status.blocked_by)
        assert f"start {scene.master.name}" in said, said
        row = inside(leader).state.cluster.instances[scene.master.name]
        request = ExpelRequest(inside(leader).identity.cluster_uuid, row.uuid, force=True)
        ask = inside(leader).leader.ask
        await in_process(leader, lambda: ask("expel", request, ExpelResponse, 10.0))
        await scene.write(7, await scene.renamed(90.0))  # as it says: the rest goes on without it

    played("async", script)
