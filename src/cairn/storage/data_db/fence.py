"""What the writer of `data.db` may do just now."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from cairn.model.sharding.spans import Ranges

Incoming = tuple[int, int, int]  # a move and its buckets, first and last
_LAST = 1 << 62


class Fence(msgspec.Struct, frozen=True):
    """What the writer may do, as of a Raft position; it changes in the writer's own queue."""

    epoch: int = 0
    is_master: bool = False
    is_sync: bool = False
    master: str = ""
    ranges: Ranges = ()  # buckets this replicaset may read and write: owned and not frozen
    owned: Ranges = ()  # the same with frozen ones
    incoming: tuple[Incoming, ...] = ()  # what it may copy
    frozen: tuple[tuple[int, int], ...] = ()  # (move, which freeze) of what it gives away
    giving: tuple[int, ...] = ()  # moves that are not handed over yet
    last_move: int = 0  # the newest move that is known here

    def owns(self, bucket: int) -> bool:
        at = bisect_right(self.ranges, (bucket, _LAST)) - 1
        return at >= 0 and bucket <= self.ranges[at][1]

    def owns_all(self, ranges: Iterable[tuple[int, int]]) -> bool:
        return all(self._has(low, high) for low, high in ranges)

    def _has(self, low: int, high: int) -> bool:
        at = bisect_right(self.ranges, (low, _LAST)) - 1
        return at >= 0 and high <= self.ranges[at][1]

    def touches(self, low: int, high: int) -> bool:
        """Whether any of these buckets is ours, frozen or not."""
        at = bisect_right(self.owned, (high, _LAST)) - 1
        return at >= 0 and self.owned[at][1] >= low

    def has_given(self, move: int) -> bool:
        """Whether the hand-over is known here, also when the buckets came back since."""
        return move <= self.last_move and move not in self.giving

    def takes(self, move: int) -> bool:
        return any(each[0] == move for each in self.incoming)
