"""Whether memory levels off: the slope of what an instance has, after its caches are full."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

Point = tuple[float, float]  # minutes, megabytes
ALLOWED_MB = 0.1  # a minute: 144 MB a day, of which fragmentation and chance may be all
PART = 0.5  # of a run that counts: before it caches fill


def slope(points: Sequence[Point]) -> float:
    """Megabytes a minute: the middle of the slopes of all pairs, which single peaks do not move."""
    found = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 > x1]
    return median(found) if found else 0.0


def settled(points: Sequence[Point]) -> list[Point]:
    """The points after the caches are full."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    return [each for each in points if each[0] >= first + (last - first) * PART]


def verdict(points: Sequence[Point], allowed: float = ALLOWED_MB) -> tuple[bool, float]:
    """Whether it levels off, and by how much it grew a minute at the end."""
    found = slope(settled(points))
    return found <= allowed, found
