"""How far moves have come, for people: what the log says, and what their targets told."""

from __future__ import annotations

from collections import deque

from cairn.model.members.moves import TAKES, Move, MoveReport, MoveSeen
from cairn.moves.shares import Wanted

RATE_S = 5.0  # a rate is that of the last seconds


class Rate:
    """Rows per second, from how many there were at each look."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def at(self, now: float, rows: int) -> float:
        if self._looks and rows < self._looks[-1][1]:
            self._looks.clear()  # it began anew
        self._looks.append((now, rows))
        while len(self._looks) > 2 and self._looks[1][0] <= now - RATE_S:
            self._looks.popleft()
        since, before = self._looks[0]
        return (rows - before) / (now - since) if now > since else 0.0


def under_way(move: Move, report: MoveReport | None, waits_for: str = "") -> MoveSeen:
    """`report` is the last word of its target; None: there was none yet."""
    found = report or MoveReport(move.id, "")
    takes = move.phase in TAKES
    to_do: tuple[int, int] | None = (0, 0)
    if takes:
        total = found.total
        to_do = total and (max(total[0] - found.rows, 0), max(total[1] - found.bytes, 0))
    rate = found.rows_per_s if takes else 0.0
    return MoveSeen(
        tier=move.tier,
        start=move.start,
        end=move.end,
        source=move.source,
        target=move.target,
        phase=move.phase.value,
        id=move.id,
        started=move.started,
        attempt=found.attempt,
        rows=found.rows,
        rows_to_do=None if to_do is None else to_do[0],
        bytes=found.bytes,
        bytes_to_do=None if to_do is None else to_do[1],
        rows_per_s=round(rate, 1),
        eta_s=round(to_do[0] / rate, 1) if to_do is not None and rate else None,
        records_behind=found.lag if report is not None else None,
        thaws=move.thaws,
        waits_for=waits_for,
    )


def planned(tier: str, wanted: Wanted) -> MoveSeen:
    return MoveSeen(
        tier,
        wanted.start,
        wanted.end,
        wanted.source,
        wanted.target,
        "planned",
        waits_for="its turn",
    )
