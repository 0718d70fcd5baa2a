"""What a request for one row by its key looks like, for `point_bind.c`."""

from __future__ import annotations

import ctypes
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cairn.native.library import POINT_PARTS, Point, at_once

TEXT_WHOLE, BINARY_WHOLE, TEXTS, BINARY_REAL, BINARY_TRUTH, BINARY_TIME = range(6)  # parameters
BUCKET = 0  # among bindings: the row's bucket instead of a parameter


class Asked(NamedTuple):
    """The parameters of a Bind, and where they go."""

    parameters: Sequence[tuple[int, int]]  # kind, and bytes of a whole number
    bindings: Sequence[int]  # numbers of parameters, or BUCKET
    key: Sequence[int]  # likewise; none: rows are everywhere
    bucket_count: int
    formats: bytes  # the end of a Bind


def described(asked: Asked) -> tuple[Point, Any]:
    """For C, and what has to be kept as long as it is used. ValueError: it is left to Python."""
    most = max(len(asked.parameters), len(asked.bindings), len(asked.key))
    if at_once() is None or most > POINT_PARTS:
        raise ValueError("it is left to Python")
    numbers = [array("i", each) for each in (flat(asked.parameters), asked.bindings, asked.key)]
    made = Point(
        *(each.buffer_info()[0] for each in numbers),
        *(asked.formats, len(asked.formats)),
        *(len(asked.parameters), len(asked.bindings), len(asked.key)),
        asked.bucket_count if asked.key else 0,
    )
    return made, (numbers, asked)


def flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [value for pair in pairs for value in pair]


class GivenUp:
    """Statements that nobody needs any more. They may be forgotten on any thread, but SQLite's lock
    must not be waited for there while Python's is held: their connection's own thread ends them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()

    def add(self, end: Callable[[Any], None], plan: ctypes.Structure) -> None:
        self._waiting.append((end, plan))

    def free(self) -> None:
        while self._waiting:
            end, plan = self._waiting.popleft()
            end(plan)
