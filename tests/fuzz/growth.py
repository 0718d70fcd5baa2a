"""What grows over many rounds: the size of an instance after each slice of a kind, and a verdict.

The watch of a single slice allows what one hostile statement may cost for a moment. What stays
after the slices, round after round, is seen only here; and which kind left it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MB = 1024 * 1024
FIRST = 3  # rounds in which caches fill
STAYS_MB = 150  # that later rounds may leave: caches have bounds, and these are most of them


class Growth:
    """Told the size after each slice; says which kinds it came with."""

    def __init__(self, first_mb: float) -> None:
        self._last = first_mb
        self.rounds: list[float] = []
        self.by_kind: dict[str, float] = {}

    def after(self, kind: str, now_mb: float) -> None:
        self.by_kind[kind] = self.by_kind.get(kind, 0.0) + now_mb - self._last
        self._last = now_mb

    def round_is_over(self) -> None:
        self.rounds.append(self._last)

    def verdict(self) -> str | None:
        return verdict(self.rounds, self.by_kind)

    def __str__(self) -> str:
        kinds = ", ".join(
            f"{kind} {mb:+.0f}" for kind, mb in sorted(self.by_kind.items(), key=lambda x: -x[1])
        )
        return f"MB after each round: {' '.join(f'{mb:.0f}' for mb in self.rounds)}; by {kinds}"


def verdict(rounds: Sequence[float], by_kind: dict[str, float]) -> str | None:
    """What stays, not what one round needed: the least of the last three is compared."""
    if len(rounds) < FIRST + 3:
        return None
    grown = min(rounds[-3:]) - max(rounds[:FIRST])
    if grown <= STAYS_MB:
        return None
    most = max(by_kind, key=lambda kind: by_kind[kind])
    return f"{grown:.0f} MB stay after {len(rounds)} rounds, most of them since {most}"


def line(found: dict[str, Any]) -> str:
    """A sample of `tests/soak/inside`, for people."""
    malloc = found["malloc"]
    return (
        f"{found['resident'] / MB:.0f} MB; malloc in use "
        f"{(malloc['uordblks'] + malloc['hblkhd']) / MB:.0f}, free {malloc['fordblks'] / MB:.0f}; "
        f"SQLite {found['sqlite'] / MB:.0f}; blocks {found['blocks']}; objects {found['objects']}"
    )
