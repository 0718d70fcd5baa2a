"""Is a history of reads, writes and compare-and-swaps of one register linearizable?

Wing and Gong's search with Lowe's memory of configurations seen: (operations placed, value).
Operations whose outcome is unknown may take effect at any time after their call, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

FOREVER = 1 << 62


class Timed(Protocol):
    """An operation that began and ended. `end` FOREVER: it may happen later, or never."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...


T = TypeVar("T", bound=Timed)
S = TypeVar("S", bound=Hashable)


@dataclass(slots=True, frozen=True)
class Operation:
    """`result` of a read is the value, of a cas whether it swapped. `end` FOREVER: unknown."""

    kind: Literal["read", "write", "cas"]
    start: int
    end: int
    value: int = 0  # written
    expected: int = 0  # of a cas
    result: int = 0


class Undecided(Exception):
    """The search grew too large: the test's set-up asks too much."""


def step(value: int, operation: Operation) -> int | None:
    """The register's value after `operation`, or None if it cannot have happened at `value`."""
    if operation.kind == "write":
        return operation.value
    if operation.kind == "read":
        return value if operation.result == value else None
    if operation.end >= FOREVER:
        return operation.value if value == operation.expected else None
    if operation.result:
        return operation.value if value == operation.expected else None
    return None if value == operation.expected else value


def is_linearizable(
    history: list[Operation], *, initial: int = 0, max_steps: int = 2_000_000
) -> bool:
    """Raises Undecided after `max_steps`."""
    operations = [op for op in history if op.kind != "read" or op.end < FOREVER]
    return has_order(operations, step, initial, max_steps)


def has_order(
    operations: Sequence[T],
    step: Callable[[S, T], S | None],
    initial: S,
    max_steps: int = 2_000_000,
) -> bool:
    """Is there an order that agrees with time and with `step`, which says None to what cannot be?

    Raises Undecided after `max_steps`.
    """
    events = _Events(operations)
    value, placed = initial, 0
    seen: set[tuple[int, S]] = set()
    trail: list[tuple[int, S]] = []  # (operation, value before it)
    at = events.first()
    for _ in range(max_steps):
        if at is None:
            return True
        index, is_call = events.what(at)
        operation = operations[index]
        if is_call:
            after = step(value, operation)
            if after is not None and (config := (placed | 1 << index, after)) not in seen:
                seen.add(config)
                trail.append((index, value))
                value, placed = after, config[0]
                events.lift(index)
                at = events.first()
            else:
                at = events.after(at)
            continue
        if operation.end >= FOREVER:
            return True  # only operations that may never happen are left
        if not trail:
            return False
        index, value = trail.pop()
        placed &= ~(1 << index)
        events.unlift(index)
        at = events.after(events.call_of(index))
    raise Undecided(f"{len(operations)} operations")


class _Events:
    """Calls and returns in order of time, as a list from which operations can be lifted."""

    def __init__(self, operations: Sequence[Timed]) -> None:
        marks: list[tuple[float, int, int]] = []
        for index, op in enumerate(operations):
            marks.append((op.start, 0, index))  # a call at the time of a return comes first
            marks.append((op.end, 1, index))
        marks.sort()
        self._what = [(index, mark == 0) for _, mark, index in marks]
        count = len(marks)
        self._calls = [0] * len(operations)
        self._returns = [0] * len(operations)
        for place, (index, is_call) in enumerate(self._what):
            (self._calls if is_call else self._returns)[index] = place
        self._next = [*range(1, count + 1), 0]  # the last place is the list's head
        self._previous = [count, *range(count)]
        self._head = count

    def first(self) -> int | None:
        return self.after(self._head)

    def after(self, place: int) -> int | None:
        following = self._next[place]
        return None if following == self._head else following

    def what(self, place: int) -> tuple[int, bool]:
        return self._what[place]

    def call_of(self, index: int) -> int:
        return self._calls[index]

    def lift(self, index: int) -> None:
        for place in (self._calls[index], self._returns[index]):
            before, after = self._previous[place], self._next[place]
            self._next[before], self._previous[after] = after, before

    def unlift(self, index: int) -> None:
        for place in (self._returns[index], self._calls[index]):
            before, after = self._previous[place], self._next[place]
            self._next[before], self._previous[after] = place, place
