"""A write of several replicasets whose buckets move between its check and its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from cairn.model.errors import (
    CairnError,
    NoMaster,
    NotOwner,
    OutcomeUnknown,
    PartialWrite,
    PlanOutdated,
    QueryCanceled,
    TableUnderDdl,
)
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.model.sharding.spans import Ranges, intersection
from cairn.node.statements.asker.dispatch import Dispatch
from cairn.node.statements.asker.owners import Owners
from cairn.node.statements.changes.under_way import UnderWay
from cairn.node.statements.context import Context
from cairn.storage.readers import Cancelled


class Pictures(Owners):
    """Of a cluster whose next picture is always there."""

    def __init__(self) -> None:
        self.under_way = UnderWay()

    async def moved(self) -> None:
        await asyncio.sleep(0)


class TwoOwners(Dispatch):
    """Two replicasets that do what they are told, and note it; `map` is who owns what."""

    def __init__(
        self,
        answer: Callable[[str, WriteRequest], CairnError | None],
        context: Context | None = None,
    ) -> None:
        super().__init__(Pictures(), context or Context())
        self.map: dict[str, Ranges] = {"s": ((1, 5),), "t": ((6, 10),)}
        self.done: list[tuple[str, Ranges | None]] = []
        self.looks = 0
        self._answer = answer

    async def write_at(
        self, replicaset: str, request: WriteRequest, *, may_end: bool = True
    ) -> WriteResponse:
        if not request.check_only:
            if (problem := self._answer(replicaset, request)) is not None:
                raise problem
            self.done.append((replicaset, request.ranges))
        return WriteResponse(1, 1)

    def requests(self, only: Ranges | None) -> dict[str, WriteRequest]:
        self.looks += only is not None
        parts = {
            owner: ranges if only is None else intersection(ranges, only)
            for owner, ranges in self.map.items()
        }
        return {
            owner: WriteRequest(1, 1, "UPDATE", (), ranges=ranges)
            for owner, ranges in parts.items()
            if ranges
        }


class Late(Context, frozen=True):
    """A statement whose time is over when a test says so."""

    ended: Cancelled = msgspec.field(default_factory=Cancelled)

    def is_late(self) -> bool:
        return self.ended.is_set()


def test_only_what_was_not_executed_is_sent_to_the_new_owner() -> None:
    """T refuses its part, for buckets 6 and 7 went to S: what S has done is not done again."""

    def answer(owner: str, request: WriteRequest) -> CairnError | None:
        if request.ranges == ((6, 10),):
            owners.map = {"s": ((1, 7),), "t": ((8, 10),)}
            return NotOwner("not mine")
        return None

    owners = TwoOwners(answer)
    assert asyncio.run(owners.write_all(owners.requests)) == 3
    assert owners.done == [("s", ((1, 5),)), ("s", ((6, 7),)), ("t", ((8, 10),))]


@pytest.mark.parametrize("problem", [PlanOutdated("another schema"), CairnError("anything")])
def test_what_stops_the_rest_does_not_hide_what_was_done(problem: CairnError) -> None:
    """A statement that is planned again, or tried again, from the beginning would do it twice."""

    def answer(owner: str, request: WriteRequest) -> CairnError | None:
        return NotOwner("not mine") if owner == "t" else None

    owners = TwoOwners(answer)

    def requests(only: Ranges | None) -> dict[str, WriteRequest]:
        if only is not None:
            raise problem
        return owners.requests(only)

    with pytest.raises(PartialWrite) as told:
        asyncio.run(owners.write_all(requests))
    assert "s: done(1)" in str(told.value.detail)
    assert owners.done == [("s", ((1, 5),))]


def test_a_statement_of_which_nothing_was_done_may_be_planned_again() -> None:
    def requests(only: Ranges | None) -> dict[str, WriteRequest]:
        if only is not None:
            raise PlanOutdated("another schema")
        return owners.requests(only)

    owners = TwoOwners(lambda owner, request: NotOwner("not mine"))
    with pytest.raises(PlanOutdated):
        asyncio.run(owners.write_all(requests))


def test_a_part_whose_end_is_unknown_is_never_repeated() -> None:
    owners = TwoOwners(lambda owner, request: OutcomeUnknown("?") if owner == "t" else None)
    with pytest.raises(PartialWrite):
        asyncio.run(owners.write_all(owners.requests))
    assert (owners.done, owners.looks) == ([("s", ((1, 5),))], 0)


@pytest.mark.parametrize("problem", [TableUnderDdl("being changed"), NotOwner("not mine")])
def test_who_waits_for_a_table_or_an_owner_can_be_cancelled(problem: CairnError) -> None:
    context, tries = Context(), 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        assert tries < 10, "it goes on for nobody"
        if tries == 3:
            context.cancelled.set()
        raise problem

    with pytest.raises(QueryCanceled):
        asyncio.run(Pictures().following(attempt, context))
    assert tries == 3


def test_a_cancel_or_a_time_limit_between_its_parts_does_not_leave_a_write_half_done() -> None:
    """T refuses its part, and has no master for a moment; meanwhile nobody waits any more."""
    context = Late()
    looks = 0

    def answer(owner: str, request: WriteRequest) -> CairnError | None:
        context.cancelled.set()
        context.ended.set()
        return NotOwner("not mine") if owner == "t" and not looks else None

    def requests(only: Ranges | None) -> dict[str, WriteRequest]:
        nonlocal looks
        looks += only is not None
        if looks == 1:
            raise NoMaster("t has none at the moment")
        return owners.requests(only)

    owners = TwoOwners(answer, context)
    assert asyncio.run(owners.write_all(requests)) == 2
    assert owners.done == [("s", ((1, 5),)), ("t", ((6, 10),))]
