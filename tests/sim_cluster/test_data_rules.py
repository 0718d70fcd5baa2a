"""Rules of the data plane in a simulated replicaset: what is refused, held back or never judged.

`tests/replication/run_mutants.py` takes each rule out of the code and sees its test fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError, NoMaster
from cairn.model.log import ops
from cairn.model.members.topology import Grade, Tier
from cairn.model.rpc import LeaseRequest, ReadRequest, WriteRequest
from cairn.model.tables import rows
from cairn.model.tables.system_tables import PICO_TIER
from cairn.node.instance import Instance
from cairn.node.rows import acknowledgements, replication
from cairn.node.rows.copies import COPY_IDLE_S, CopyRequest
from cairn.replication.relay import Subscribe
from cairn.sim.cluster.loads.load import COUNT, INSERT, TABLE
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World
from tests.sim_cluster.scenes import Triple, founded, hold, inside, played

READ = ReadRequest(COUNT, (), {TABLE.id: 1}, ranges=((1, 30),))


def in_process(node: SimNode, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
    """As if the instance's own loop had called it."""
    assert node.process is not None

    async def run() -> Any:
        return await work()

    return node.world.loop.create_task(run(), context=node.process.context)


async def answer_of(node: SimNode, work: Callable[[], Awaitable[Any]]) -> Any:
    """The value, or the SQLSTATE of the refusal."""
    try:
        return await in_process(node, work)
    except CairnError as problem:
        return problem.sqlstate


# --- the writer decides ---------------------------------------------------------------------------


def test_a_write_that_was_queued_before_the_demotion_is_refused_after_it() -> None:
    async def script(scene: Triple) -> None:
        master = scene.master
        release = hold(master)
        writing = scene.load.write(master, 2)
        master.stop()
        data = inside(master).data
        asked = asyncio.Event()
        run = data.run

        def noticed(work: Any, **how: Any) -> Any:
            if work == data.store.position:
                asked.set()
            return run(work, **how)

        data.run = noticed  # type: ignore[method-assign]
        await asyncio.wait_for(asked.wait(), 0.8)  # for its last lsn, while its lease still holds
        assert not data.fence.is_master
        release()
        await writing
        assert (scene.load.refused, set(scene.load.acked)) == ({2}, {1})
        await scene.calm()

    played("async", script)


def test_a_long_statement_stops_neither_raft_nor_the_instances_state() -> None:
    async def script(scene: Triple) -> None:
        master = scene.master
        release = hold(master)
        leader = inside(scene.leader)
        [tier] = leader.state.cluster.tiers.values()
        same = ops.Batch((ops.Replace(PICO_TIER.id, rows.tier_row(tier)),))
        for _ in range(5):
            await asyncio.sleep(1.0)
            await in_process(
                scene.leader, lambda: leader.proposer.cas(same, leader.proposer.predicate(()))
            )
            index = leader.runner.applied_index
            await scene.world.until(
                lambda at=index: inside(master).runner.applied_index >= at,  # type: ignore[misc]
                "the entry to be applied",
                0.5,
            )
        assert master.grade is Grade.ONLINE
        release()
        await scene.calm()

    played("async", script)


# --- leases ---------------------------------------------------------------------------------------


def alone(scene: Triple) -> Instance:
    """The master hears nobody and its lease is over."""
    scene.cut(scene.master, scene.leader)
    scene.cut(scene.master, scene.third)
    inside(scene.master).lease.drop()
    return inside(scene.master)


def test_a_write_without_a_lease_is_not_executed() -> None:
    async def script(scene: Triple) -> None:
        alone(scene)
        await scene.load.write(scene.master, 2)
        assert scene.load.refused == {2}
        assert scene.load.rows_of(scene.master).keys() == {1}

    played("async", script)


def lease_ends_with_commits(scene: Triple) -> None:
    def drop(node: SimNode, what: str) -> None:
        if node is scene.master and what == "after a synced group of the data writer":
            inside(scene.master).lease.drop()

    scene.world.on_step = drop


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_write_whose_lease_ends_during_the_commit_is_told_once_there_is_another(
    mode: str,
) -> None:
    """A pause of a second takes a lease, and mostly no master: its clients notice nothing."""

    async def script(scene: Triple) -> None:
        lease_ends_with_commits(scene)
        begun = scene.world.loop.time()
        for key in (2, 3):  # one of them by C
            await scene.load.write(scene.master, key)
        assert (set(scene.load.acked), scene.load.unknown) == ({1, 2, 3}, set())
        assert scene.world.loop.time() - begun < 0.5
        await scene.calm()

    played(mode, script)


def test_a_lease_of_another_epoch_says_nothing_of_a_write() -> None:
    async def script(scene: Triple) -> None:
        lease, epoch = inside(scene.master).lease, inside(scene.master).data.fence.epoch
        told: list[tuple[str, bool]] = []
        for name, of in (("before", epoch - 1), ("now", epoch), ("later", epoch + 1)):
            lease.when_clear(of, lambda is_held, name=name: told.append((name, is_held)))  # type: ignore[misc]
        await scene.world.until(lambda: len(told) == 3, "all to be told", 2.0)
        assert told == [("before", False), ("now", True), ("later", False)]

    played("async", script)


def test_a_write_whose_lease_ends_during_the_commit_is_told_as_unknown() -> None:
    async def script(scene: Triple) -> None:
        master = scene.master
        scene.cut(master, scene.leader)
        scene.cut(master, scene.third)
        lease_ends_with_commits(scene)
        await scene.load.write(master, 2)
        assert (scene.load.unknown, set(scene.load.acked)) == ({2}, {1})

    played("async", script)


def test_a_read_without_a_lease_is_refused_before_it_begins() -> None:
    async def script(scene: Triple) -> None:
        execution = scene.load.execution(scene.master)
        assert await answer_of(scene.master, lambda: execution.reads.read(READ)) == [(1,)]
        alone(scene)
        execution.reader.quick = lambda *question: pytest.fail("it was read")  # type: ignore
        assert (
            await answer_of(scene.master, lambda: execution.reads.read(READ)) == NoMaster.sqlstate
        )

    played("async", script)


def test_a_read_whose_lease_ends_while_it_runs_is_no_answer() -> None:
    async def script(scene: Triple) -> None:
        execution = scene.load.execution(scene.master)
        quick = execution.reader.quick

        def slow(*question: Any) -> Any:
            found = quick(*question)
            alone(scene)
            return found

        execution.reader.quick = slow  # type: ignore[method-assign]
        assert (
            await answer_of(scene.master, lambda: execution.reads.read(READ)) == NoMaster.sqlstate
        )

    played("async", script)


def test_a_lease_is_bound_to_uuid_incarnation_and_epoch() -> None:
    async def script(scene: Triple) -> None:
        giver, row = inside(scene.leader).lease_giver, inside(scene.master).row
        assert row is not None
        epoch = inside(scene.master).data.fence.epoch
        life = row.target_state.incarnation

        async def asked(*request: Any) -> bool:
            answer = await in_process(scene.leader, lambda: giver.grant(LeaseRequest(*request)))
            return bool(answer.granted)

        third = inside(scene.third).row
        assert third is not None
        assert await asked(row.name, life, epoch, row.uuid)
        assert not await asked(row.name, life, epoch, "another instance of this name")
        assert not await asked(row.name, life - 1, epoch, row.uuid)
        assert not await asked(row.name, life, epoch - 1, row.uuid)
        assert not await asked(third.name, life, epoch, third.uuid)

    played("async", script)


def test_a_leader_that_nobody_hears_grants_no_lease() -> None:
    async def script(scene: Triple) -> None:
        scene.cut(scene.leader, scene.third)
        scene.cut(scene.leader, scene.master)
        row, giver = inside(scene.master).row, inside(scene.leader).lease_giver
        assert row is not None
        epoch = inside(scene.master).data.fence.epoch
        request = LeaseRequest(row.name, row.target_state.incarnation, epoch, row.uuid)
        assert isinstance(await answer_of(scene.leader, lambda: giver.grant(request)), str)

    played("async", script)


def test_a_new_leader_waits_one_lease_time_before_it_names_a_master() -> None:
    async def script(scene: Triple) -> None:
        replicaset = next(iter(inside(scene.third).state.cluster.replicasets))
        scene.cut(scene.master, scene.third)  # it cannot ask, and may have a lease of the old one
        await scene.lead(scene.third)
        assert inside(scene.third).lease_giver.wait_s(replicaset) > 0.5

    played("async", script)


def test_one_voter_that_heard_nothing_does_not_end_leases() -> None:
    async def script(scene: Triple) -> None:
        replicaset = next(iter(inside(scene.third).state.cluster.replicasets))
        scene.cut(scene.leader, scene.third)
        await asyncio.sleep(1.5)
        await scene.lead(scene.master)
        await asyncio.sleep(0.1)  # all have told it when they last answered
        assert inside(scene.master).lease_giver.wait_s(replicaset) > 0.5

    played("async", script)


# --- sync -----------------------------------------------------------------------------------------


def test_a_sync_write_is_acknowledged_when_a_majority_has_it_on_disk() -> None:
    async def script(scene: Triple) -> None:
        release = [hold(scene.leader), hold(scene.third)]
        writing = scene.load.write(scene.master, 2)
        await asyncio.sleep(2.0)
        assert not writing.done()  # it was sent to both, and is on the disk of neither
        release[0]()
        await asyncio.wait_for(writing, 2.0)
        assert set(scene.load.acked) == {1, 2}
        release[1]()

    played("sync", script)


def test_a_majority_is_one_of_the_recorded_members_not_of_the_living() -> None:
    async def script(scene: Triple) -> None:
        scene.third.crash()
        await scene.world.until(lambda: _is_offline(scene), "the third Offline", 20.0)
        release = hold(scene.leader)
        writing = scene.load.write(scene.master, 2)
        await asyncio.sleep(acknowledgements.SYNC_S - 0.5)
        assert not writing.done()
        missing = inside(scene.master).replication.acks.missing_members(
            inside(scene.master).data.vclock[inside(scene.master).identity.instance_uuid]
        )
        assert sorted(missing) == sorted([inside(scene.leader).name, scene.third.name])
        assert sorted(inside(scene.master).status().waits_for) == sorted(missing)
        await asyncio.wait_for(writing, 2.0)
        assert scene.load.unknown == {2}
        release()

    played("sync", script)


def _is_offline(scene: Triple) -> bool:
    row = inside(scene.leader).state.cluster.instances.get(scene.third.name)
    return row is not None and row.current_state.grade is Grade.OFFLINE


def test_an_acknowledgement_of_another_epoch_is_not_counted() -> None:
    """After a cut the same lsn is another row."""

    async def script(scene: Triple) -> None:
        release = [hold(scene.leader), hold(scene.third)]
        master, third = inside(scene.master), inside(scene.third)
        writing = scene.load.write(scene.master, 2)
        await asyncio.sleep(1.0)
        [replicaset] = master.state.cluster.replicasets.values()
        epoch = master.data.fence.epoch
        claim = Subscribe(
            third.identity.instance_uuid,
            replicaset.uuid,
            dict(master.data.vclock),
            wait_s=0.0,
            epoch=epoch - 1,
        )
        await in_process(scene.master, lambda: master.replication.relay.subscribe(claim))
        await asyncio.sleep(0.5)
        assert not writing.done()
        right = msgspec.structs.replace(claim, epoch=epoch)
        await in_process(scene.master, lambda: master.replication.relay.subscribe(right))
        await asyncio.wait_for(writing, 1.0)
        assert set(scene.load.acked) == {1, 2}
        for go_on in release:
            go_on()

    played("sync", script)


def test_a_read_is_held_until_what_it_saw_cannot_be_taken_away() -> None:
    async def script(scene: Triple) -> None:
        release = [hold(scene.leader), hold(scene.third)]
        writing = scene.load.write(scene.master, 2)
        execution = scene.load.execution(scene.master)
        await scene.world.until(lambda: 2 in scene.load.rows_of(scene.master), "the row", 2.0)
        reading = in_process(scene.master, lambda: execution.reads.read(READ))
        await asyncio.sleep(1.0)
        assert not reading.done()
        for go_on in release:
            go_on()
        assert await asyncio.wait_for(reading, 2.0) == [(2,)]
        await writing

    played("sync", script)


# --- full copies ----------------------------------------------------------------------------------


def test_a_full_copy_that_nobody_goes_on_with_is_given_up() -> None:
    """Its read transaction would keep SQLite's log growing for ever."""

    async def script(scene: Triple) -> None:
        master, third = inside(scene.master), inside(scene.third)
        [replicaset] = master.state.cluster.replicasets.values()
        begin = CopyRequest(0, third.identity.instance_uuid, replicaset.uuid)
        piece = await in_process(scene.master, lambda: master.replication.copies.give(begin))
        await asyncio.sleep(COPY_IDLE_S / 2)
        assert list(master.replication.copies._given) == [piece.copy_id]
        await asyncio.sleep(COPY_IDLE_S)
        assert master.replication.copies._given == {}

    played("async", script)


# --- the judge ------------------------------------------------------------------------------------


def test_a_leader_that_stood_still_takes_nobody_for_dead() -> None:
    """It has the only vote, so nobody takes over: it wakes and has heard nothing for 20 s."""
    tiers = (Tier("default", 1, is_default=True), Tier("rows", 1, can_vote=False))
    world = World(1, tiers)
    world.add("a", ("a:3301",))
    world.add("b", ("a:3301",), tier="rows")

    async def script() -> None:
        await founded(world)
        leader = world.nodes["a"]
        before = dict(inside(leader).state.cluster.instances)
        leader.pause()
        await asyncio.sleep(20.0)
        leader.resume()
        for _ in range(100):
            await asyncio.sleep(0.05)
            assert inside(leader).state.cluster.instances == before

    world.run(script)


# --- routing news are no rows ---------------------------------------------------------------------


def test_routing_news_move_no_vclock() -> None:
    async def script(scene: Triple) -> None:
        nodes = (scene.master, scene.leader, scene.third)
        await scene.world.until(
            lambda: len({str(inside(node).data.vclock) for node in nodes}) == 1, "all equal", 10.0
        )
        before = inside(scene.master).data.vclock
        beats = [inside(node).replication.mesh.routing.own.beat for node in nodes]
        scene.third.crash()
        await asyncio.sleep(10.0)
        scene.third.start()
        await scene.world.settled()
        assert inside(scene.master).replication.mesh.routing.own.beat > beats[0] + 5
        assert [inside(node).data.vclock for node in nodes] == [before] * 3
        published = inside(scene.leader).replication.mesh.routing.own.counter
        assert published >= 3  # connected, lost, connected again

    played("async", script)


def test_operations_that_were_done_long_ago_are_forgotten_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def remembered(node: SimNode) -> list[Any]:
        query = "SELECT id FROM done_operation"
        return inside(node).replication._reader.connection.execute(query).fetchall()

    async def script(scene: Triple) -> None:
        execution, nodes = scene.load.execution(scene.master), scene.world.running()
        request = WriteRequest(TABLE.id, 1, INSERT, ((3, 2, "x"),), (3,), operation="once")
        for _ in range(2):
            response = await in_process(scene.master, lambda: execution.writes.write(request))
            assert response.row_count == 1
        await asyncio.sleep(3 * replication.MAINTAIN_S)
        assert [remembered(node) for node in nodes] == [[("once",)]] * 3
        for node in nodes:
            assert node.runtime is not None
            node.runtime.jump(400 * 86_400)  # a clock that is set right, or wrong
        await asyncio.sleep(3 * replication.MAINTAIN_S)
        assert [remembered(node) for node in nodes] == [[("once",)]] * 3
        monkeypatch.setattr(replication, "HOUR_S", 1.0)
        monkeypatch.setattr(replication, "OPERATIONS_HOURS", 3)
        await scene.world.until(
            lambda: [remembered(node) for node in nodes] == [[]] * 3, "all to forget", 60.0
        )

    played("async", script)
