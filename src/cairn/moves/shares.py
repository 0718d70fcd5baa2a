"""Which buckets have to move so that every replicaset has its share by weight: as few as possible.

Moves that are under way count as done. Nothing moves while everybody is close to its share, so that
small changes of weight do not make buckets travel back and forth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def plan(
    rows: Sequence[BucketRange],
    weights: dict[str, float],
    *,
    drained: frozenset[str] = frozenset(),
    piece: int | None = None,
) -> list[Wanted]:
    """All moves that are still wanted, in the order in which they should begin.

    `drained` replicasets must have nothing at the end, however near they are to it. Without
    anybody to give to, nothing is planned.
    """
    total = sum(row.end - row.start + 1 for row in rows)
    share = shares({name: 0.0 if name in drained else w for name, w in weights.items()}, total)
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
    resting = {
        name: [
            row
            for row in rows
            if row.current_replicaset == name
            and row.state is BucketState.ACTIVE
            and row.move_id is None
        ]
        for name in givers
    }
    found: list[Wanted] = []
    for taker in takers:
        edges = _edges(rows, taker)
        for giver in givers:
            while over[taker] < 0 and over[giver] > 0 and resting[giver]:
                size = min(-over[taker], over[giver], piece or PIECE)
                start, end = _taken(resting[giver], size, edges)
                found.append(Wanted(start, end, giver, taker))
                over[giver] -= end - start + 1
                over[taker] += end - start + 1
    return found


def _edges(rows: Sequence[BucketRange], owner: str) -> tuple[set[int], set[int]]:
    """Where ranges of `owner` end and begin: a piece that touches one merges with it later."""
    mine = [row for row in rows if row.current_replicaset == owner]
    return {row.end + 1 for row in mine}, {row.start - 1 for row in mine}


def _taken(
    resting: list[BucketRange], size: int, edges: tuple[set[int], set[int]]
) -> tuple[int, int]:
    """Take up to `size` neighbouring buckets out of what a giver has; `resting` shrinks."""
    after, before = edges
    at = next(
        (n for n, row in enumerate(resting) if row.start in after or row.end in before),
        len(resting) - 1,
    )
    row = resting[at]
    size = min(size, row.end - row.start + 1)
    if row.start in after:
        start, end = row.start, row.start + size - 1
        left = (end + 1, row.end)
        after.discard(row.start)
        after.add(end + 1)
    else:
        start, end = row.end - size + 1, row.end
        left = (row.start, start - 1)
    if left[0] <= left[1]:
        resting[at] = msgspec.structs.replace(row, start=left[0], end=left[1])
    else:
        del resting[at]
    return start, end
