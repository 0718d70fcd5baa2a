"""No order of changes, no typo and no name ends a cluster or loses rows without force."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError, CasConflict
from cairn.model.log import ops
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, State
from cairn.model.rpc import CasRequest, ExpelRequest, ExpelResponse
from cairn.model.settings import limits
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World
from tests.sim_cluster.scenes import founded, inside, world_of
from tests.sim_cluster.test_data_rules import in_process

INSTANCES = system.PICO_INSTANCE


class Pairs:
    """Replicasets of two; `master` and `replica` are one of them, the Raft leader is in another."""

    def __init__(self, *names: str) -> None:
        self.world: World = world_of(*names, factor=2)
        self.load = Load(self.world)

    async def ready(self) -> None:
        await founded(self.world)
        await self.load.create_table()
        leader = self.leader.name
        for replicaset in self.cluster.replicasets.values():
            members = [member.name for member in self.cluster.members(replicaset.name)]
            if leader not in members and len(members) == 2:
                self.name = replicaset.name
                self.master = self.world.nodes[replicaset.current_master_name]
                members.remove(self.master.name)
                self.replica = self.world.nodes[members[0]]
                return
        raise AssertionError("no replicaset without the leader")

    @property
    def leader(self) -> SimNode:
        found = self.world.leader()
        assert found is not None
        return found

    @property
    def cluster(self) -> Cluster:
        return inside(self.leader).state.cluster

    def expel(self, name: str, *, force: bool = False) -> asyncio.Task[Any]:
        """The answer, or the refusal."""
        leader = inside(self.leader)
        request = ExpelRequest(self.cluster.cluster_uuid, name, force)

        async def ask() -> Any:
            try:
                return await leader.leader.ask("expel", request, ExpelResponse)
            except CairnError as refused:
                return refused

        return in_process(self.leader, ask)

    async def update(self, name: str, column: str, value: Any) -> Any:
        """As SQL does it: planned anywhere, proposed as it is."""
        there = inside(self.replica)
        op = ops.Update(INSTANCES.id, (name,), ((INSTANCES.position(column), value),))

        async def propose() -> Any:
            try:
                return await there.proposer.cas(ops.Batch((op,)), there.proposer.predicate(()))
            except CairnError as refused:
                return refused

        return await in_process(self.replica, propose)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        await self.world.until(condition, what, 60.0)

    def blocked(self) -> str:
        return " | ".join(inside(self.leader).governor.status.blocked_by)


def played(script: Callable[[Pairs], Any], *names: str) -> None:
    scene = Pairs(*(names or "abcd"))

    async def run() -> None:
        await scene.ready()
        await script(scene)

    scene.world.run(run)


def test_of_two_expels_at_once_for_both_copies_one_is_refused() -> None:
    async def script(scene: Pairs) -> None:
        asked = [scene.expel(scene.master.name), scene.expel(scene.replica.name)]
        answers = await asyncio.gather(*asked)
        refused = [each for each in answers if isinstance(each, CairnError)]
        assert len(refused) == 1, answers
        assert "is the last instance that is known to have their rows" in refused[0].message
        assert "--force" in str(refused[0].hint)
        await scene.until(lambda: len(scene.cluster.instances) == 3, "one to be gone")
        assert len(scene.cluster.owned(scene.name)) == 1

    played(script)


def test_a_decision_counts_the_entries_on_their_way() -> None:
    """The first expel is in the log and not applied yet: nothing shows it but the log."""

    async def script(scene: Pairs) -> None:
        proposer = inside(scene.leader).proposer
        at = INSTANCES.position("target_state")

        def leave(name: str) -> CasRequest:
            gone = rows.state_json(State(Grade.EXPELLED, 1))
            change = ops.Update(INSTANCES.id, (name,), ((at, gone),))
            predicate = proposer.predicate(())
            return CasRequest(scene.cluster.cluster_uuid, f"expel {name}", predicate, change)

        async def both() -> None:
            proposer.check_and_append(leave(scene.master.name))
            proposer.check_and_append(leave(scene.replica.name))

        with pytest.raises(CasConflict):
            await in_process(scene.leader, both)

    played(script)


def test_sql_meets_the_same_guard_as_expel() -> None:
    async def script(scene: Pairs) -> None:
        gone = rows.state_json(State(Grade.EXPELLED, 1))
        assert await scene.expel(scene.master.name) == ExpelResponse()
        refused = await scene.update(scene.replica.name, "target_state", gone)
        assert refused.sqlstate == "55000"
        assert "is the last instance that is known to have their rows" in refused.message

    played(script)


def test_a_typo_is_refused_and_the_cluster_lives_on() -> None:
    async def script(scene: Pairs) -> None:
        refused = await scene.update(scene.master.name, "target_state", '["Onlin",1]')
        assert (refused.sqlstate, refused.message) == (
            "23514",
            "target_state of _pico_instance: '[\"Onlin\",1]' is not allowed",
        )
        assert all(node.is_running for node in scene.world.nodes.values())
        await scene.world.settled(60.0)

    played(script)


def test_an_entry_past_the_limit_is_refused_before_it_is_appended() -> None:
    async def script(scene: Pairs) -> None:
        big = "x" * limits.ENTRY_BYTES
        for node in (scene.leader, scene.replica):
            there = inside(node)
            last = inside(scene.leader).runner.view.last_index()
            op = ops.Insert(system.PICO_PROPERTY.id, ("big", f'"{big}"'))

            async def propose(there: Any = there, op: Any = op) -> Any:
                return await there.proposer.cas(op, there.proposer.predicate(()))

            with pytest.raises(CairnError) as caught:
                await in_process(node, propose)
            assert caught.value.sqlstate == "54000" and caught.value.hint
            assert inside(scene.leader).runner.view.last_index() == last

    played(script)


def test_an_heir_that_dies_after_the_yes_holds_the_expulsion_up_and_is_named() -> None:
    async def script(scene: Pairs) -> None:
        name = scene.master.name
        scene.replica.crash()  # nobody has noticed yet
        assert await scene.expel(name) == ExpelResponse()
        await scene.until(lambda: "cannot leave" in scene.blocked(), "the reason")
        assert f"{name} cannot leave: nobody else is known to have the rows" in scene.blocked()
        assert name in scene.cluster.instances
        scene.replica.start()
        await scene.until(lambda: name not in scene.cluster.instances, "the end of the expulsion")
        assert scene.cluster.replicasets[scene.name].current_master_name == scene.replica.name

    played(script)


def test_force_names_what_is_lost_and_gives_only_that_away() -> None:
    async def script(scene: Pairs) -> None:
        before = {each.start: each.owner for each in scene.cluster.buckets}
        lost = [f"{each.start}–{each.end}" for each in scene.cluster.owned(scene.name)]
        scene.master.crash()
        scene.replica.crash()
        both = f"start {scene.master.name}, {scene.replica.name}"
        await scene.until(lambda: both in scene.blocked(), "the reason, once both are missed")
        assert "has no master" in scene.blocked() and "--force" in scene.blocked()
        assert await scene.expel(scene.replica.name) == ExpelResponse()  # the master has its rows
        await scene.until(lambda: len(scene.cluster.instances) == 5, "the replica to be gone")
        refused = await scene.expel(scene.master.name)
        assert isinstance(refused, CairnError) and lost[0] in refused.message
        answer = await scene.expel(scene.master.name, force=True)
        assert answer == ExpelResponse(tuple(lost), ("t",))
        await scene.until(lambda: scene.name not in scene.cluster.replicasets, "it to be gone")
        after = {each.start: each.owner for each in scene.cluster.buckets}
        kept = {start: owner for start, owner in before.items() if owner != scene.name}
        assert kept.items() <= after.items()
        assert sum(each.end - each.start + 1 for each in scene.cluster.buckets) == 30

    played(script, *"abcdef")


def test_a_namesake_of_an_expelled_master_is_no_master() -> None:
    async def script(scene: Pairs) -> None:
        master, replica = scene.master, scene.replica
        replica.crash()
        await scene.until(
            lambda: scene.cluster.instances[replica.name].current_state.grade is Grade.OFFLINE,
            "the replica to be missed",
        )
        master.crash()
        shutil.rmtree(master.dir)
        refused = await scene.expel(master.name)
        assert isinstance(refused, CairnError) and replica.name in str(refused.hint)
        answer = await scene.expel(master.name, force=True)
        assert (answer.lost_tables, answer.kept_by) == (("t",), (replica.name,))
        await scene.until(lambda: master.name not in scene.cluster.instances, "it to be gone")
        master.config = msgspec.structs.replace(master.config, replicaset_name=scene.name)
        master.start()
        await scene.until(lambda: master.name in scene.cluster.instances, "the namesake")
        for _ in range(50):
            await asyncio.sleep(0.1)
            namesake = inside(master) if master.instance is not None else None
            if namesake is not None:
                assert not namesake.data.fence.is_master
                assert not namesake.lease.is_held(namesake.data.fence.epoch)
        assert scene.cluster.replicasets[scene.name].members == (replica.name,)
        replica.start()
        await scene.until(lambda: master.grade is Grade.ONLINE, "the namesake Online")
        row = scene.cluster.replicasets[scene.name]
        assert (row.current_master_name, set(row.members)) == (
            replica.name,
            {replica.name, master.name},
        )

    played(script, *"abcdef")


def test_the_row_of_a_replicaset_goes_with_its_last_instance() -> None:
    async def script(scene: Pairs) -> None:
        scene.master.crash()
        scene.replica.crash()
        await scene.until(lambda: "has no master" in scene.blocked(), "both to be missed")
        seen: list[tuple[bool, int]] = []

        def look() -> None:
            left = sum(
                each.replicaset_name == scene.name for each in scene.cluster.instances.values()
            )
            seen.append((scene.name in scene.cluster.replicasets, left))

        inside(scene.leader).news.on_applied.append(lambda done: look())
        for node in (scene.replica, scene.master):
            assert isinstance(await scene.expel(node.name, force=True), ExpelResponse)
        await scene.until(lambda: scene.name not in scene.cluster.replicasets, "the end")
        assert (False, 1) not in seen and (False, 2) not in seen
        assert seen[-1] == (False, 0)

    played(script, *"abcdef")
