"""A write of several replicasets whose buckets move between its check and its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cairn.model.errors import CairnError, NotOwner, OutcomeUnknown, PartialWrite, PlanOutdated
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.model.sharding.spans import Ranges, intersection
from cairn.node.statements.asker.dispatch import Dispatch
from cairn.node.statements.asker.owners import Owners
from cairn.node.statements.changes.under_way import UnderWay
from cairn.node.statements.context import Context


class Pictures(Owners):
    """Of a cluster whose next picture is always there."""

    def __init__(self) -> None:
        self.under_way = UnderWay()

    async def moved(self) -> None:
        await asyncio.sleep(0)


class TwoOwners(Dispatch):
    """Two replicasets that do what they are told, and note it; `map` is who owns what."""

    def __init__(self, answer: Callable[[str, WriteRequest], CairnError | None]) -> None:
        super().__init__(Pictures(), Context())
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
