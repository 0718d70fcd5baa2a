"""When this instance last answered a leader.

A lease is granted after a round of answers. So once a quorum has answered nobody of an earlier term
for the length of a lease, no lease of an earlier leader is alive.
"""

from __future__ import annotations

from collections.abc import Callable

from cairn.model.errors import NotLeader


class LastWords:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # A life before this one may have answered up to its end.
        self._term, self._at, self._before = 0, clock(), clock()

    def answered(self, term: int) -> None:
        if term > self._term:
            self._term, self._before = term, self._at
        self._at = self._clock()

    def ago_s(self, term: int) -> float:
        """How long ago the last answer to a leader of an earlier term than `term` was given."""
        if self._term > term:
            raise NotLeader("there is a newer term")
        return self._clock() - (self._before if self._term == term else self._at)
