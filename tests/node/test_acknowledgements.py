"""What replicas have confirmed, told by themselves and passed on by others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from cairn.model.errors import CairnError
from cairn.model.log.records import Vclock
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.replication.relay import Subscribe


def master_a() -> Acknowledgements:
    """The master of a, b and c, in epoch 2, which began where a had written 5 records."""
    rows = {name: SimpleNamespace(uuid=name) for name in "abc"}
    place: Any = SimpleNamespace(
        name="a",
        uuid="a",
        members=lambda: ["a", "b", "c"],
        history=SimpleNamespace(epoch=2, cut={"a": 5}, limit=lambda origin, epoch: 5),
        state=SimpleNamespace(cluster=SimpleNamespace(instances=rows)),
    )
    data: Any = SimpleNamespace(vclock={"a": 9}, fence=SimpleNamespace(is_sync=True))
    return Acknowledgements(place, data)


def asks(who: str, vclock: Vclock, **passed_on: Vclock) -> Subscribe:
    return Subscribe(who, "r", vclock, acks=passed_on, epoch=2)


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
