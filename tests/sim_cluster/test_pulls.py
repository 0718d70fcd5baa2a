"""How often rows are pulled: by those who take them, and not for each row of a busy master."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable

import msgspec
import pytest

from cairn.model.errors import NoMaster
from cairn.net.link import Later
from cairn.node.rows import relay
from cairn.node.rows.copies import CopyPiece, CopyRequest
from cairn.node.rows.follower import PULL_S
from cairn.replication.relay import Rows, Subscribe
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, answer_anew, inside, played
from tests.sim_cluster.test_data_rules import in_process

LINGER_S = 0.1  # longer than everything else that a simulated write waits for


@pytest.fixture(autouse=True)
def _long_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "LINGER_S", LINGER_S)


def answers_of(node: SimNode, to: SimNode) -> list[int]:
    """From now on, how many records each answer to that subscriber has."""
    its_relay, subscriber = inside(node).replication.relay, inside(to).identity.instance_uuid
    handle, found = its_relay.subscribe, list[int]()

    async def counted(request: Subscribe) -> Rows:
        answer = await handle(request)
        if request.subscriber == subscriber:
            found.append(len(answer.records))
        return answer

    its_relay.subscribe = counted  # type: ignore[method-assign]
    answer_anew(inside(node))
    return found


def test_a_row_wakes_only_the_pulls_of_those_who_take_it_here() -> None:
    async def script(scene: Triple) -> None:
        useful = answers_of(scene.master, scene.third)
        useless = [
            answers_of(scene.third, scene.master),  # its own rows
            answers_of(scene.third, scene.leader),  # which takes them from the master
        ]
        await asyncio.sleep(1.0)  # pulls that were held before are over
        for key in range(2, 42):
            await scene.write(key)
            await asyncio.sleep(0.05)
        assert sum(useful) == 40
        for each in useless:
            assert sum(each) == 0
            assert len(each) < 20  # heartbeats of some seconds

    played("async", script)


def test_records_that_follow_each_other_closely_travel_together_in_async_mode() -> None:
    async def script(scene: Triple) -> None:
        answers = answers_of(scene.master, scene.third)
        await asyncio.sleep(1.0)
        await scene.load.write(scene.master, 2)
        await scene.world.until(
            lambda: 2 in scene.load.rows_of(scene.third), "the first at once", LINGER_S
        )
        answers.clear()
        began = scene.world.loop.time()
        for key in range(3, 53):
            await scene.load.write(scene.master, key)
        took = scene.world.loop.time() - began
        await scene.world.until(
            lambda: scene.load.rows_of(scene.third).keys() == set(range(1, 53)), "all", 1.0
        )
        assert sum(answers) == 50
        assert sum(each > 0 for each in answers) <= took / LINGER_S + 2

    played("async", script)


def test_sync_mode_does_not_wait_for_more() -> None:
    async def script(scene: Triple) -> None:
        began = scene.world.loop.time()
        for key in range(2, 22):
            await scene.load.write(scene.master, key)
        assert (len(scene.load.acked), scene.load.unknown) == (21, set())
        took = scene.world.loop.time() - began
        assert took < 3 * LINGER_S

    played("sync", script)


def test_a_piece_of_a_copy_goes_to_whom_the_copy_is_for() -> None:
    """Numbers of copies begin anew with each life: who asked for one of the life before took pieces
    of somebody else's, and both lacked rows."""

    async def script(scene: Triple) -> None:
        giver = inside(scene.master)
        uuids = [inside(node).identity.instance_uuid for node in (scene.leader, scene.third)]
        replicaset = next(iter(giver.state.cluster.replicasets.values())).uuid

        async def asked(number: int, taker: str) -> CopyPiece:
            request = CopyRequest(number, taker, replicaset)
            return await in_process(scene.master, lambda: giver.replication.copies.give(request))

        begun = await asked(0, uuids[0])
        with pytest.raises(NoMaster, match="begin anew"):
            await asked(begun.copy_id, uuids[1])
        assert not (await asked(begun.copy_id, uuids[0])).is_last

    played("async", script)


def test_who_was_woken_for_nothing_is_woken_again() -> None:
    async def script(scene: Triple) -> None:
        data = inside(scene.master).data
        began = scene.world.loop.time()
        for key in range(2, 12):
            scene.master.process.context.run(data.announce)  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
            await scene.load.write(scene.master, key)
        assert len(scene.load.acked) == 11
        assert scene.world.loop.time() - began < PULL_S

    played("sync", script)


def test_a_pull_that_was_held_is_answered_in_a_new_epoch_once_that_is_entered() -> None:
    """Before that it would be told of records that the epoch has left out."""

    async def script(scene: Triple) -> None:
        replication = inside(scene.master).replication
        its_relay, place = replication.relay, replication.place
        asked: list[Subscribe] = []
        handle = its_relay.answer

        def seen(request: Subscribe) -> object:
            asked.append(request)
            return handle(request)

        its_relay.answer = seen  # type: ignore[method-assign,assignment]
        answer_anew(inside(scene.master))
        await scene.world.until(lambda: asked != [], "a pull", 2.0)
        said: list[object] = []

        async def hold() -> None:
            later = handle(msgspec.structs.replace(asked[-1], wait_s=60.0))
            assert isinstance(later, Later)
            later.goes_by(said.append)
            await asyncio.sleep(0.1)
            assert said == []
            place.entered.clear()
            place.history = copy.copy(place.history)
            inside(scene.master).data.announce()
            early = handle(msgspec.structs.replace(asked[-1], wait_s=0.0))
            assert isinstance(early, Awaitable)
            soon = asyncio.ensure_future(early)
            await asyncio.sleep(0.1)
            assert said == [] and not soon.done()
            place.entered.set()
            await asyncio.sleep(0.01)
            [answer] = said
            assert isinstance(answer, Rows) and answer.records == []
            assert (await soon).records == []

        await in_process(scene.master, hold)

    played("sync", script)
