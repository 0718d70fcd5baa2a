"""What replicas have confirmed, told by themselves and passed on by others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.model.log.records import Vclock
from cairn.model.members.topology import Grade
from cairn.node.rows.acknowledgements import LOOK_S, PART_S, SYNC_S, Acknowledgements
from cairn.replication.relay import Subscribe
from cairn.sim.cluster.loop import VirtualLoop


def master_a() -> Acknowledgements:
    """The master of a, b and c, in epoch 2, which began where a had written 5 records."""
    online = SimpleNamespace(grade=Grade.ONLINE)
    rows = {name: SimpleNamespace(uuid=name, raft_id=7, current_state=online) for name in "abcde"}
    place: Any = SimpleNamespace(
        name="a",
        uuid="a",
        members=lambda: ["a", "b", "c"],
        history=SimpleNamespace(epoch=2, cut={"a": 5}, limit=lambda origin, epoch: 5),
        state=SimpleNamespace(cluster=SimpleNamespace(instances=rows)),
    )
    data: Any = SimpleNamespace(vclock={"a": 9}, fence=SimpleNamespace(is_sync=True))
    return Acknowledgements(place, data)


def asks(who: str, vclock: Vclock, held: Vclock | None = None, **passed_on: Vclock) -> Subscribe:
    return Subscribe(who, "r", vclock, acks=passed_on, epoch=2, held=held or {})


def test_what_others_pass_on_takes_nothing_back() -> None:
    acks = master_a()
    acks.take(asks("b", {"a": 8}))
    assert (acks.safe_lsn(), acks.tellable({"a": 9})) == (8, {"a": 8})
    acks.take(asks("c", {"a": 6}, b={"a": 7}))  # c has heard of b a moment ago
    assert (acks.safe_lsn(), acks.tellable({"a": 9})) == (8, {"a": 8})
    acks.take(asks("c", {"a": 6}, b={"a": 9}))
    assert acks.safe_lsn() == 9


def test_who_says_itself_that_it_has_less_is_believed() -> None:
    acks = master_a()
    acks.take(asks("b", {"a": 8}))
    acks.take(asks("b", {"a": 6}))  # its disk has lost records
    assert acks.safe_lsn() == 6


def test_what_was_confirmed_in_an_earlier_epoch_confirms_nothing_in_the_next() -> None:
    """Of five, one had records that the next epoch left out: their numbers are given again."""
    acks = master_a()
    acks.take(asks("b", {"a": 9}))
    assert acks.safe_lsn() == 9
    acks._place.history = SimpleNamespace(epoch=3, cut={"a": 5}, limit=lambda origin, epoch: 5)  # type: ignore[assignment]
    acks.begin_anew()
    assert acks.safe_lsn() == -1


def test_a_group_of_writes_is_answered_as_it_is_confirmed() -> None:
    told: list[tuple[int, CairnError | None]] = []

    async def scene() -> Acknowledgements:
        acks = master_a()
        for lsn in (7, 8, 9, 6):  # the last is a reader's, who has seen less
            acks.when_safe(lsn, 2, lambda problem, lsn=lsn: told.append((lsn, problem)))  # type: ignore[misc]
        assert (told, acks.outstanding()) == ([], 4)
        acks.take(asks("b", {"a": 8}))
        assert (told, acks.outstanding(), acks.answered) == (
            [(7, None), (8, None), (6, None)],
            1,
            3,
        )
        acks.when_safe(8, 2, lambda problem: told.append((8, problem)))  # safe when asked for
        acks.take(asks("c", {"a": 9}))
        return acks

    acks = asyncio.run(scene())
    assert told == [(7, None), (8, None), (6, None), (8, None), (9, None)]
    assert acks.outstanding() == 0


# --- long statements ------------------------------------------------------------------------------


def waits_s(script: Callable[[Acknowledgements], Awaitable[None]], lsn: int = 9) -> float:
    """How long somebody waits for `lsn`, until it is known or nobody knows (less than 0)."""
    told: list[float] = []

    async def scene() -> None:
        acks, loop = master_a(), asyncio.get_running_loop()
        acks.take(asks("b", {"a": 5}))
        acks.take(asks("c", {"a": 5}))
        begun = loop.time()

        def tell(problem: CairnError | None) -> None:
            told.append((loop.time() - begun) * (1 if problem is None else -1))

        acks.when_safe(lsn, 2, tell)
        await script(acks)
        await asyncio.sleep(10 * SYNC_S)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scene())
    [found] = told
    return found


def test_who_has_parts_of_a_long_statement_is_waited_for_while_it_applies_them() -> None:
    async def script(acks: Acknowledgements) -> None:
        acks.take(asks("b", {"a": 5}, held={"a": 8}))
        await asyncio.sleep(SYNC_S + 3 * PART_S)
        acks.take(asks("b", {"a": 9}))

    assert waits_s(script) == SYNC_S + 3 * PART_S


def test_who_says_nothing_any_more_is_waited_for_as_long_as_the_statement_is() -> None:
    async def script(acks: Acknowledgements) -> None:
        await asyncio.sleep(1.0)
        acks.take(asks("b", {"a": 5}, held={"a": 8}))

    assert -waits_s(script) == pytest.approx(1.0 + SYNC_S + 4 * PART_S, abs=LOOK_S)


def test_who_begins_anew_again_and_again_is_not_waited_for_again() -> None:
    async def script(acks: Acknowledgements) -> None:
        for _ in range(20):
            acks.take(asks("b", {"a": 5}, held={"a": 6}))
            acks.take(asks("b", {"a": 5}, held={"a": 8}))
            await asyncio.sleep(1.0)
            acks.take(asks("b", {"a": 5}))

    assert -waits_s(script) == pytest.approx(SYNC_S + 4 * PART_S, abs=LOOK_S)


@pytest.mark.parametrize("grade", [Grade.OFFLINE, Grade.EXPELLED])
def test_who_is_known_to_be_away_is_not_waited_for(grade: Grade) -> None:
    async def script(acks: Acknowledgements) -> None:
        acks.take(asks("b", {"a": 5}, held={"a": 8}))
        row: Any = acks._place.state.cluster.instances["b"]
        row.current_state = SimpleNamespace(grade=grade)

    assert waits_s(script) == -SYNC_S


def test_whose_link_is_gone_is_not_waited_for() -> None:
    async def script(acks: Acknowledgements) -> None:
        acks.take(asks("b", {"a": 5}, held={"a": 8}))
        acks._is_linked = lambda raft_id: False

    assert waits_s(script) == -SYNC_S


def test_a_minority_that_has_parts_makes_nobody_wait() -> None:
    async def script(acks: Acknowledgements) -> None:
        acks._place.members = lambda: ["a", "b", "c", "d", "e"]  # type: ignore[method-assign]
        acks.take(asks("b", {"a": 5}, held={"a": 8}))

    assert waits_s(script) == -SYNC_S


def test_a_short_statement_makes_nobody_wait_longer() -> None:
    async def script(acks: Acknowledgements) -> None:
        acks.take(asks("b", {"a": 8}))

    assert waits_s(script) == -SYNC_S
