"""Where the rows of a planned statement are, as far as its values tell before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cairn.sql import plans

Params = Sequence[Any]


@dataclass(frozen=True)
class Place:
    """Buckets of a tier. `buckets` None: all of them; `is_known` False: told when it runs."""

    tier: str
    buckets: frozenset[int] | None = None
    is_known: bool = True


class NotYet(Exception):
    """A value that only running brings was asked for."""


class _Known(list[Any]):
    """Values of which some are not there yet."""

    def __init__(self, values: Iterable[Any], missing: frozenset[int]) -> None:
        super().__init__(values)
        self._missing = missing

    def __getitem__(self, at: Any) -> Any:
        if at in self._missing or at >= len(self):
            raise NotYet
        return super().__getitem__(at)


def places(plan: plans.Plan, values: Params) -> list[Place]:
    """What of sharded tables it touches."""
    return list(_places(plan, _Known(values, frozenset()), frozenset()))


def known(values: Params, missing: frozenset[int]) -> Params:
    """Values of which asking for a missing one is `NotYet`."""
    return _Known(values, missing)


def _places(plan: Any, values: _Known, missing: frozenset[int]) -> Iterator[Place]:
    match plan:
        case plans.Returning(write=write):
            yield from _places(write, values, missing)
        case plans.PointRead(bucket=bucket, tier=tier) | plans.PointWrite(bucket=bucket, tier=tier):
            if bucket is not None:
                yield _place(str(tier), lambda: frozenset((bucket(values),)))
        case plans.ScatterRead(steps=steps, fragments=fragments):
            yield from _of_fragments(steps, fragments, values, missing)
        case plans.ScatterWrite(steps=steps, fragment=fragment):
            yield from _of_fragments(steps, (fragment,), values, missing)
        case plans.ShardedInsert(rows=rows, tier=tier):
            yield _place(tier, lambda: frozenset(bucket for bucket, _ in rows(values)))
        case plans.InsertSelect(read=read, tier=tier) | plans.KeyedWrite(read=read, tier=tier):
            yield from _places(read, values, missing)
            yield Place(tier, is_known=False)
        case plans.BlockPlan(steps=steps):
            yield from _of_block(plan, steps, values, missing)


def _of_fragments(
    steps: Sequence[plans.Step],
    fragments: Sequence[plans.Fragment],
    values: _Known,
    missing: frozenset[int],
) -> Iterator[Place]:
    later = missing | {step.number - 1 for step in steps}
    for step in steps:
        yield from _places(step.plan, _Known(values, later), later)
    for fragment in fragments:
        yield _place(fragment.tier, partial(fragment.bucket_set, _Known(values, later)))


def _of_block(
    block: plans.BlockPlan,
    steps: Sequence[plans.BlockStep],
    values: _Known,
    missing: frozenset[int],
) -> Iterator[Place]:
    given = list(values)[: block.params]
    for step in steps:
        prepared = step.prepared
        room = len(prepared.param_types) + prepared.hidden
        inner = missing | frozenset(range(block.params, room))
        whole = [*given, *[None] * (room - len(given))]
        yield from _places(prepared.plan, _Known(whole, inner), inner)
        yield from _of_block(block, step.body, values, missing)


def _place(tier: str, buckets: Callable[[], frozenset[int] | None]) -> Place:
    try:
        return Place(tier, buckets())
    except NotYet:
        return Place(tier, is_known=False)
