"""Which buckets have to move so that every replicaset has its share by weight: as few as possible.

Moves that are under way count as done. Nothing moves while everybody is close to its share, so that
small changes of weight do not make buckets travel back and forth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import msgspec

from cairn.model.members.topology import BucketRange, BucketState

NEAR = 0.01  # of its share: who is not further from it is left alone
PIECE = 100  # buckets of one move at most: pieces are handed over, and can be given up, one by one


class Wanted(msgspec.Struct, frozen=True):
    """A move that should be begun."""

    start: int
    end: int
    source: str
    target: str


def shares(weights: dict[str, float], total: int) -> dict[str, int]:
    """Whole buckets by weight: the sum is exact, and what is left goes to the largest rests."""
    whole = sum(weights.values())
    if whole <= 0:
        return dict.fromkeys(weights, 0)
    exact = {name: weight / whole * total for name, weight in weights.items()}
    found = {name: int(share) for name, share in exact.items()}
    rests = sorted(exact, key=lambda name: (found[name] - exact[name], name))
    for name in rests[: total - sum(found.values())]:
        found[name] += 1
    return found


def held(rows: Iterable[BucketRange]) -> dict[str, int]:
    """Buckets by who will have them once everything under way has ended."""
    found: dict[str, int] = {}
    for row in rows:
        name = row.current_replicaset
        if row.state in (BucketState.COPYING, BucketState.COPIED) and row.target_replicaset:
            name = row.target_replicaset
        found[name] = found.get(name, 0) + row.end - row.start + 1
    return found


def is_near(have: int, share: int) -> bool:
    return abs(have - share) <= max(1, int(share * NEAR))


def plan(rows: Sequence[BucketRange], weights: dict[str, float]) -> list[Wanted]:
    """All moves that are still wanted, in the order in which they should begin.

    Who leaves has no weight. Without anybody to give to, nothing is planned.
    """
    total = sum(row.end - row.start + 1 for row in rows)
    share = shares(weights, total)
    if not any(share.values()):
        return []
    have = held(rows)
    names = sorted({*have, *share})
    over = {name: have.get(name, 0) - share.get(name, 0) for name in names}
    if all(
        is_near(have.get(name, 0), share.get(name, 0)) and share.get(name, 0) for name in have
    ) and all(is_near(have.get(name, 0), want) for name, want in share.items()):
        return []
    givers = sorted((name for name in names if over[name] > 0), key=lambda n: (-over[n], n))
    takers = sorted((name for name in names if over[name] < 0), key=lambda n: (over[n], n))
    owned: dict[str, list[BucketRange]] = {name: [] for name in names}
    for row in rows:
        owned[row.current_replicaset].append(row)
    resting = {name: _Resting(owned[name]) for name in givers}
    found: list[Wanted] = []
    for taker in takers:
        after = {row.end + 1 for row in owned[taker]}
        before = {row.start - 1 for row in owned[taker]}
        for giver in givers:
            given = resting[giver]
            if over[taker] >= 0 or over[giver] <= 0 or not given:
                continue
            given.look_for(after, before)
            while over[taker] < 0 and over[giver] > 0 and given:
                size = min(-over[taker], over[giver], PIECE)
                start, end = given.take(size)
                found.append(Wanted(start, end, giver, taker))
                over[giver] -= end - start + 1
                over[taker] += end - start + 1
    return found


class _Resting:
    """What a giver has that does not move. Pieces that touch what the taker has go first: they
    merge with it later. Else the last ones go.

    A map may have as many ranges as buckets: a piece costs the same however many there are.
    """

    def __init__(self, rows: list[BucketRange]) -> None:
        still = [row for row in rows if row.state is BucketState.ACTIVE and row.move_id is None]
        self._rows = {at: (row.start, row.end) for at, row in enumerate(still)}
        self._at = {row.start: at for at, row in enumerate(still)}
        self._last = len(still) - 1
        self._touching: list[int] = []  # a heap of places
        self._after: set[int] = set()
        self._before: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._rows)

    def look_for(self, after: set[int], before: set[int]) -> None:
        """`after`: buckets just behind a range of the taker; `before`: just in front of one."""
        self._after, self._before = after, before
        self._touching = [at for at in self._rows if self._touches(at)]  # sorted, so a heap

    def _touches(self, at: int) -> bool:
        start, end = self._rows[at]
        return start in self._after or end in self._before

    def take(self, size: int) -> tuple[int, int]:
        at = self._next()
        first, last = self._rows[at]
        size = min(size, last - first + 1)
        del self._at[first]
        if first in self._after:
            start, end = first, first + size - 1
            left = (end + 1, last)
            self._after.discard(first)
            self._after.add(end + 1)
        else:
            start, end = last - size + 1, last
            left = (first, start - 1)
        if left[0] <= left[1]:
            self._rows[at] = left  # in its place: they stay sorted
            self._at[left[0]] = at
        else:
            del self._rows[at]
        for each in (at, self._at.get(end + 1, at)):
            if each in self._rows and self._touches(each):
                heappush(self._touching, each)
        return start, end

    def _next(self) -> int:
        while self._touching:
            at = heappop(self._touching)
            if at in self._rows and self._touches(at):
                return at
        while self._last not in self._rows:
            self._last -= 1
        return self._last
