"""What upstreams say before the first SUBSCRIBE, and one that is too old to say anything."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cairn.node.rows.ballots import BALLOT_S, Ballot, BallotRequest
from cairn.replication.applier import LogRefused, OtherReplicaset
from cairn.replication.relay import Rows, Subscribe
from tests.sim_cluster.scenes import Triple, answer_anew, inside, played


def test_a_ballot_tells_who_it_is_what_it_has_and_what_it_reaches() -> None:
    async def script(scene: Triple) -> None:
        master, third, leader = map(inside, (scene.master, scene.third, scene.leader))
        row = third.row
        assert row is not None
        mine = third.state.cluster.replicasets[row.replicaset_name]
        request = BallotRequest(third.identity.instance_uuid, mine.uuid)
        others = {third.identity.instance_uuid, leader.identity.instance_uuid}
        assert await master.replication.ballots.answer(request) == Ballot(
            master.identity.instance_uuid, master.data.vclock, tuple(sorted(others))
        )
        with pytest.raises(OtherReplicaset):
            await master.replication.ballots.answer(
                msgspec.structs.replace(request, replicaset="x")
            )
        assert third.replication.ballots.known.keys() == {
            master.identity.instance_uuid,
            leader.identity.instance_uuid,
        }

    played("async", script)


def test_an_upstream_that_is_somebody_else_is_not_followed() -> None:
    async def script(scene: Triple) -> None:
        master, third = inside(scene.master), inside(scene.third)
        row, mine = master.row, master.state.cluster.replicasets
        assert row is not None

        async def lie(request: BallotRequest) -> Ballot:
            return Ballot("somebody else")

        master.replication.ballots.answer = lie  # type: ignore[method-assign]
        answer_anew(master)
        link = third.replication.follower.links[row.uuid]
        with pytest.raises(LogRefused, match="says that it is somebody else"):
            await third.replication.ballots.ask(row, mine[row.replicaset_name], link)

    played("async", script)


def test_an_older_upstream_sends_everything_and_each_row_is_taken_once() -> None:
    """It knows no lists of origins: it is asked with an empty one, and the applier filters."""

    async def script(scene: Triple) -> None:
        world = scene.world
        old, third, leader = map(inside, (scene.leader, scene.third, scene.master))
        handle = old.replication.relay.subscribe
        asked: list[tuple[str, ...]] = []

        async def deaf(request: Subscribe) -> Rows:
            asked.append(request.origins)
            return await handle(msgspec.structs.replace(request, origins=()))

        old.replication.relay.subscribe = deaf  # type: ignore[method-assign]
        answer_anew(old)
        del old.peers.handlers["ballot"]
        uuid = old.identity.instance_uuid
        for member in (third, leader):
            member.replication.follower._lost(uuid)  # as after a break: the next pull begins anew
        await asyncio.sleep(2 * BALLOT_S)
        asked.clear()
        for key in range(2, 12):
            await scene.write(key)
        await world.until(
            lambda: scene.load.rows_of(scene.third).keys() == set(range(1, 12)), "all rows", 10.0
        )
        link = third.replication.follower.links[uuid]
        assert (link.state, link.knows_lists, set(asked)) == ("follow", False, {()})
        assert link.twice == 0  # what the master gives was dropped before it was looked at
        await scene.load.check()

    played("async", script)
