"""Mastership that goes back and forth: every epoch keeps its place, its records and its waiters."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError, NoMaster
from cairn.model.log import ops
from cairn.model.log.ranges import one_key, whole_table
from cairn.model.members import topology
from cairn.model.rpc import VclockResponse, WriteRequest
from cairn.model.tables import rows
from cairn.model.tables.system_tables import PICO_DB_CONFIG, PICO_REPLICASET
from cairn.node.rows.copies import CopyPiece, CopyRequest
from cairn.node.rows.mesh import Mesh
from cairn.replication.relay import Subscribe
from cairn.sim.cluster.loads.load import INSERT, TABLE
from cairn.sim.cluster.node import SimNode
from cairn.storage.data_db.row_log import COPIED_EPOCHS
from tests.sim_cluster.scenes import Triple, copies_asked_of, hold, inside, played
from tests.sim_cluster.test_data_rules import READ, answer_of, in_process
from tests.sim_cluster.test_namings import equal
from tests.sim_cluster.test_sync_answers import follow_nobody

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
            await in_process(node, lambda: execution.writes.write(request))
        except CairnError:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError(f"{node} takes no writes")


def brought_up(scene: Triple, node: SimNode) -> int:
    """How often it is Online by now, as the leader sees it."""
    leader = scene.world.leader()
    row = None if leader is None else inside(leader).state.cluster.instances.get(node.name)
    if row is None or row.current_state.grade is not topology.Grade.ONLINE:
        return 0
    return row.current_state.incarnation


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


def follows_late(node: SimNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes rows from nobody before it has heard of the third epoch."""
    upstreams = Mesh.upstreams

    def late(self: Mesh) -> Any:
        is_early = self._place.name == node.name and self._place.history.epoch < 3
        return [] if is_early else upstreams(self)

    monkeypatch.setattr(Mesh, "upstreams", late)


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
        follows_late(away, monkeypatch)
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


def test_whoever_waits_for_a_majority_is_not_answered_by_a_record_of_another_epoch() -> None:
    """The write and the read that saw it belong to epoch 1. Epoch 2 leaves the row out; epoch 3,
    again at the same master and before anybody has lost patience, uses its lsn for another row.
    """

    async def script(scene: Triple) -> None:
        master = scene.master
        execution = scene.load.execution(master)
        scene.cut(master, scene.leader)
        scene.cut(master, scene.third)
        lost = scene.load.write(master, 2)
        await scene.world.until(lambda: 2 in scene.load.rows_of(master), "the row", 0.5)
        seen = asyncio.ensure_future(answer_of(master, lambda: execution.reads.read(READ)))
        await scene.renamed()
        assert not lost.done() and not seen.done()
        scene.world.wire.heal()
        await scene.world.until(
            lambda: 2 not in scene.load.rows_of(master), "the tail to be undone", 10.0
        )
        # Brought up once more: the governor gives nothing to one that it is about to set Offline.
        await scene.world.until(lambda: brought_up(scene, master) == 2, "a again", 10.0)
        await switch(scene, master)
        await scene.write(3, master)
        await lost
        assert (2 in scene.load.acked, 2 in scene.load.unknown) == (False, True)
        assert await seen == NoMaster.sqlstate
        await scene.calm()

    played("sync", script)


def test_a_read_that_began_in_another_epoch_is_no_answer() -> None:
    """It is master again when the rows have been read, but what it read may have been undone."""

    async def script(scene: Triple) -> None:
        master = scene.master
        execution: Any = scene.load.execution(master)
        quick, scan = execution.reader.quick, execution.reads.scan

        async def slow(*arguments: Any) -> Any:
            rows = await scan(*arguments)
            await switch(scene, scene.leader)
            await switch(scene, master)
            lease, fence = inside(master).lease, inside(master).data.fence
            await scene.world.until(lambda: lease.is_held(fence.epoch), "a lease", 5.0)
            return rows

        execution.reader.quick, execution.reads.scan = lambda *_: None, slow
        assert await answer_of(master, lambda: execution.reads.read(READ)) == NoMaster.sqlstate
        execution.reader.quick, execution.reads.scan = quick, scan
        assert await answer_of(master, lambda: execution.reads.read(READ)) == [(1,)]

    played("async", script)


def test_an_acknowledgement_in_a_new_epoch_is_never_of_a_tail() -> None:
    """The epoch begins while the third asks for a ballot; its writer has not undone the tail."""

    async def script(scene: Triple) -> None:
        first, heir, third = inside(scene.master), inside(scene.leader), inside(scene.third)
        follow_again = follow_nobody(scene.leader)
        await asyncio.sleep(1.0)  # pulls that were under way
        await scene.write(2)
        tail = dict(first.data.vclock)
        await scene.world.until(lambda: third.data.vclock == tail, "the tail at the third", 5.0)

        async def nothing(*_: Any) -> VclockResponse:
            return VclockResponse(0, {})

        third.peers.handlers["promise"] = nothing  # so that the leader is named, without the tail
        replication: Any = third.replication
        ask = replication.ballots.ask

        async def slow(row: Any, *others: Any) -> None:
            await ask(row, *others)
            while row.name == heir.name and replication.place.history.epoch == 1:
                await asyncio.sleep(0.001)

        replication.ballots.ask = slow
        replication.follower._lost(
            heir.identity.instance_uuid
        )  # its next pull begins with a ballot
        scene.master.crash()
        acknowledged: list[Any] = []
        count = heir.replication.acks.take

        def noticed(request: Subscribe) -> None:
            acknowledged.append((request.epoch, request.vclock))
            count(request)

        heir.replication.acks.take = noticed  # type: ignore[method-assign]
        assert await scene.renamed() is scene.leader
        follow_again()
        release = hold(scene.third)
        await asyncio.sleep(2.0)
        release()
        await scene.world.until(
            lambda: any(epoch == 2 for epoch, _ in acknowledged), "an acknowledgement", 10.0
        )
        assert (2, tail) not in acknowledged

    played("async", script)


def test_who_has_lost_records_of_its_own_takes_a_full_copy() -> None:
    """Nobody sends an instance its own records: without them it would wait for ever."""

    async def script(scene: Triple) -> None:
        first, third = scene.master, scene.third
        files = ("data.db", "data.db-wal")
        third.crash()
        before = {name: (third.dir / name).read_bytes() for name in files}
        third.start()
        await scene.world.settled()
        await switch(scene, third)
        await done(scene, third, inserting(2, "by the third"))
        await switch(scene, first)
        await scene.world.settled()
        third.crash()
        for name in files:
            (third.dir / name).write_bytes(before[name])
        third.start()
        await done(scene, first, inserting(3, "by the first"))
        await scene.world.until(
            lambda: scene.load.rows_of(third) == scene.load.rows_of(first), "the rows", 20.0
        )
        assert scene.load.rows_of(third).keys() == {1, 2, 3}

    played("async", script)


DELETE = f"DELETE FROM {TABLE.physical_name} WHERE bucket_id = ? AND c0 = ?"


def deleting(key: int) -> WriteRequest:
    return WriteRequest(TABLE.id, 1, DELETE, ((bucket_of(key), key),), (bucket_of(key),))


def copies_slowly(node: SimNode, held: str = "") -> asyncio.Event:
    """It has begun a full copy, and has not ended it, until the event is set; one of `held` is not
    even begun before a second is over."""
    copies: Any = inside(node).replication.copies
    piece, may_end = copies._piece, asyncio.Event()

    async def slow(master: Any, request: CopyRequest) -> CopyPiece:
        if request.copy_id or master.name == held:
            await may_end.wait()
        if master.name == held:
            await asyncio.sleep(1.0)
        return await piece(master, request)  # type: ignore[no-any-return]

    copies._piece = slow
    inside(node).replication.place.must_copy = True
    return may_end


def test_who_takes_a_copy_takes_no_records_of_others_meanwhile() -> None:
    """The first master's log, from its beginning, brought back a row that the second had deleted:
    where logs are short, whoever is no master now gave its records to a file that was being filled.
    """

    async def script(scene: Triple) -> None:
        first, second, third = scene.master, scene.leader, scene.third
        await done(scene, first, inserting(50, "to be deleted"))
        await switch(scene, second)
        for key in (1, 50):  # all that the first has: no row comes twice
            await done(scene, second, deleting(key))
        await equal(scene)
        may_end = copies_slowly(third)
        await asyncio.sleep(3.0)
        may_end.set()
        place = inside(third).replication.place
        await scene.world.until(lambda: not place.must_copy, "the copy", 30.0)
        await equal(scene)

    played("async", script)


def test_a_copy_that_was_begun_in_an_earlier_epoch_is_begun_anew() -> None:
    """Its end may lie past the cut of the new one, and nobody would look at it again."""

    async def script(scene: Triple) -> None:
        first, second, third = scene.master, scene.leader, scene.third
        await done(scene, first, inserting(50, "of the first epoch"))
        await equal(scene)
        may_end = copies_slowly(third, held=inside(second).name)
        store = inside(third).data.store
        await scene.world.until(lambda: not store.is_complete, "the copy to begin", 10.0)
        asked = copies_asked_of(second)
        await switch(scene, second)
        await done(scene, second, updating(50, NEWEST))
        may_end.set()
        await asyncio.sleep(0.5)  # no other copy is begun
        place = inside(third).replication.place
        assert place.must_copy and not store.is_complete
        await scene.world.until(lambda: not place.must_copy, "the copy", 30.0)
        assert [request.copy_id for request in asked][:1] == [0]
        await equal(scene)

    played("async", script)


def test_of_two_copies_at_once_only_the_later_one_counts() -> None:
    """Rows of the first came into the file of the second: they were deleted in between, and were
    there again."""

    async def script(scene: Triple) -> None:
        first, second, third = scene.master, scene.leader, scene.third
        await done(scene, first, inserting(50, "of the first epoch"))
        await equal(scene)
        may_end = copies_slowly(third)
        store = inside(third).data.store
        await scene.world.until(lambda: not store.is_complete, "the copy to begin", 10.0)
        for key in (1, 50):  # all of them: no row comes twice
            await done(scene, first, deleting(key))
        await scene.world.until(lambda: not scene.load.rows_of(second), "the deletes", 10.0)
        asked = copies_asked_of(second)
        await switch(scene, second)
        await scene.world.until(lambda: bool(asked), "the other copy to begin", 10.0)
        may_end.set()
        place = inside(third).replication.place
        await scene.world.until(lambda: not place.must_copy, "the copy", 30.0)
        await asyncio.sleep(2.0)
        assert scene.load.rows_of(third) == scene.load.rows_of(second) == {}

    played("async", script)


@pytest.mark.parametrize("is_asked", [False, True], ids=["nothing came", "the first piece came"])
def test_who_needed_a_copy_of_the_old_master_is_the_next_one(is_asked: bool) -> None:
    """Its rows are older ones and complete. It kept them to itself as it had none, for ever, or
    deleted them after it had been named, when the first piece of the copy came."""

    async def script(scene: Triple) -> None:
        third = scene.third
        await done(scene, scene.master, inserting(50, "of the first epoch"))
        await equal(scene)
        copies: Any = inside(third).replication.copies
        piece, goes_on, has_come = copies._piece, asyncio.Event(), asyncio.Event()

        async def late(master: Any, request: CopyRequest) -> CopyPiece:
            if not is_asked:
                raise NoMaster("it does not answer")
            answer = await piece(master, request)
            has_come.set()
            await goes_on.wait()
            return answer  # type: ignore[no-any-return]

        copies._piece = late
        inside(third).replication.place.must_copy = True
        if is_asked:
            await scene.world.until(has_come.is_set, "the first piece", 10.0)
        await switch(scene, third)
        goes_on.set()
        await done(scene, third, inserting(51, "of the second epoch"))
        await equal(scene)
        assert {1, 50, 51} <= scene.load.rows_of(third).keys()

    played("async", script)


def test_who_lacks_more_than_its_only_upstream_has_takes_a_copy_of_the_master() -> None:
    """Where rows go from one to the next, it asked the one before it for ever, and no copy was
    taken, as that one is no master."""

    async def script(scene: Triple) -> None:
        first, second, third = scene.master, scene.leader, scene.third
        await equal(scene)
        follow_again = follow_nobody(third)
        text = f"{first.name}>{second.name},{second.name}>{third.name}"
        chain = ("replication_graph", "", rows.to_json(text))
        proposer, table = inside(second).proposer, PICO_DB_CONFIG.id
        await in_process(
            second,
            lambda: proposer.cas(
                ops.Replace(table, chain), proposer.predicate((whole_table(table),))
            ),
        )
        for key in range(2, 9):
            await done(scene, first, inserting(key, "while the third was away"))
        data = inside(second).data
        [(origin, lsn)] = data.vclock.items()
        await scene.world.until(lambda: data.vclock == inside(first).data.vclock, "them", 10.0)
        await in_process(second, lambda: data.run(lambda: data.store.prune(origin, lsn - 1)))
        follow_again()
        place = inside(third).replication.place
        await scene.world.until(
            lambda: scene.load.rows_of(third) == scene.load.rows_of(first), "the rows", 30.0
        )
        assert not place.must_copy
        await done(scene, first, inserting(9, "after the copy"))
        await equal(scene)
        assert [row.name for row in inside(third).replication.mesh.upstreams()] == [second.name]

    played("async", script)
