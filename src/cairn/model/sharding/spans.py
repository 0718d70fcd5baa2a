"""Sets of buckets as ranges: sorted, both ends included, no two of them neighbours."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Ranges = tuple[tuple[int, int], ...]


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Neighbours and overlaps as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and found[-1][1] + 1 >= start:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def of_buckets(buckets: Iterable[int]) -> Ranges:
    return merged((bucket, bucket) for bucket in buckets)


def without(ranges: Iterable[tuple[int, int]], start: int, end: int) -> Ranges:
    """What is left when buckets `start`…`end` are taken out."""
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        if low < start:
            found.append((low, min(high, start - 1)))
        if high > end:
            found.append((max(low, end + 1), high))
    return tuple(found)


def spliced(
    ranges: Ranges, out: Sequence[tuple[int, int]], into: Sequence[tuple[int, int]]
) -> Ranges:
    """Without the spans `out`, then with those of `into`. Only what is near them is looked at."""
    if not out and not into:
        return ranges
    first = min(start for start, _ in (*out, *into))
    last = max(end for _, end in (*out, *into))
    low = bisect_left(ranges, first - 1, key=lambda each: each[1])
    high = bisect_right(ranges, last + 1, key=lambda each: each[0])
    before = near = ranges[low:high]
    for start, end in out:
        near = without(near, start, end)
    near = merged((*near, *into))
    return ranges if near == before else (*ranges[:low], *near, *ranges[high:])


def subtract(ranges: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> Ranges:
    """What `ranges` have and `others` have not."""
    left = merged(ranges)
    for start, end in others:
        left = without(left, start, end)
    return left


def intersection(ranges: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> Ranges:
    """What both have."""
    limits = list(others)
    return merged(
        (max(low, start), min(high, end))
        for low, high in ranges
        for start, end in limits
        if low <= end and high >= start
    )


def contains(ranges: Iterable[tuple[int, int]], bucket: int) -> bool:
    return any(start <= bucket <= end for start, end in ranges)
