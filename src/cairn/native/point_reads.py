"""One row by its key, from the bytes of a request to those of its answer, by `point_read.c`."""

from __future__ import annotations

import ctypes
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cairn.native.library import POINT_PARTS, PointPlan, at_once, library

TEXT_WHOLE, BINARY_WHOLE, TEXTS = range(3)  # parameters
WHOLE, REAL, OUT_TEXTS, TRUTH = range(4)  # columns
BUCKET = 0  # among bindings: the row's bucket instead of a parameter


class Layout(NamedTuple):
    """What a request looks like, and what its answer."""

    parameters: Sequence[tuple[int, int]]  # kind, and bytes of a number
    bindings: Sequence[int]  # numbers of parameters, or BUCKET
    key: Sequence[int]  # likewise; none: rows are everywhere
    bucket_count: int
    columns: Sequence[tuple[int, int]]  # kind, and whether it is told in binary
    formats: bytes  # the end of a Bind
    bound: bytes  # told before the rows
    described: bytes  # the same when Describe is asked


class PointRead:
    """A statement that is prepared on one connection. Two calls in one turn of the event loop:
    `bucket`, then `answer`."""

    def __init__(self, connection: Any, sql: str, layout: Layout, given_up: deque[Any]) -> None:
        """ValueError: it is not for here. `given_up` has what `free` ends: this may be forgotten on
        any thread, and SQLite's lock must not be waited for there while Python's is held."""
        library_ = at_once()
        most = max(len(layout.parameters), len(layout.bindings), len(layout.key))
        if library_ is None or most > POINT_PARTS:
            raise ValueError("it is left to Python")
        self._given_up = given_up
        self.is_keyed = bool(layout.key)  # else its rows are everywhere
        text = sql.encode()
        numbers = [
            array("i", values)
            for values in (
                _flat(layout.parameters),
                layout.bindings,
                layout.key,
                _flat(layout.columns),
            )
        ]
        self._kept = (numbers, layout)  # C looks at them
        self._plan = PointPlan(
            *(each.buffer_info()[0] for each in numbers),
            *(layout.formats, layout.bound, layout.described),
            *(len(layout.formats), len(layout.bound), len(layout.described)),
            *(len(layout.parameters), len(layout.bindings), len(layout.key)),
            *(len(layout.columns), layout.bucket_count if layout.key else 0),
        )
        pointer = connection.sqlite3_pointer()
        if library_.point_prepare(self._plan, pointer, text, len(text)):
            raise ValueError("SQLite does not know it")
        self.address = ctypes.addressof(self._plan)

    def close(self) -> None:
        """Before its connection is closed."""
        at_once().point_free(self._plan)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._given_up.append(self._plan)


def free(given_up: deque[Any]) -> None:
    """On the thread of their connection."""
    while given_up:
        at_once().point_free(given_up.popleft())


class Answers:
    """Asks point reads of one connection. There is one answer at a time."""

    def __init__(self) -> None:
        self._room = library().batch_new()
        if not self._room:
            raise MemoryError
        self._found, self._at = self._room.contents, ctypes.addressof(self._room.contents)
        self._answer, self._free = at_once().point_answer, library().batch_free
        self.bind = at_once().point_bind

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            self._free(self._room)

    def bucket(self, read: PointRead, data: bytes, at: int) -> int:
        """Of the row that is asked for, whose parameters begin at `at`; 0: ask Python."""
        found: int = self.bind(read.address, data, len(data), at)
        return found

    def answer(self, read: PointRead) -> tuple[bytes, int] | None:
        """The whole answer, and how many rows it has; None: ask Python."""
        rows = self._answer(read.address, self._at)
        if rows < 0:
            return None
        return ctypes.string_at(self._found.data, self._found.size), rows


def _flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [value for pair in pairs for value in pair]
