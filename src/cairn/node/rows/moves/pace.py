"""How fast rows may move, so that those who work there hardly feel it."""

from __future__ import annotations

from typing import NamedTuple

from cairn.node.consensus.global_state import GlobalState

ROWS_PER_S = 20_000  # of one move, unless `rebalance_rows_per_s` says otherwise; 0: no limit
GENTLE_BYTES, DELTA_BYTES = 16 * 1024, 1024 * 1024
GENTLE_DROP, DROP = 250, 4_000  # rows
DROPS = 2  # to drop a row costs half of what it costs to copy one


class Pace(NamedTuple):
    """Of one move, as it is set now. With a limit everything is done in pieces that are small:
    nobody waits long behind one."""

    rows_per_s: int  # 0: no limit

    @property
    def delta_bytes(self) -> int:
        return GENTLE_BYTES if self.rows_per_s else DELTA_BYTES

    @property
    def drop_rows(self) -> int:
        return GENTLE_DROP if self.rows_per_s else DROP

    def after_copying(self, rows: int, spent_s: float) -> float:
        """How long to wait before the next piece."""
        return max(rows / self.rows_per_s - spent_s, 0.0) if self.rows_per_s else 0.0

    def after_dropping(self, rows: int, spent_s: float) -> float:
        return self.after_copying(rows // DROPS, spent_s)


def pace(state: GlobalState) -> Pace:
    return Pace(int(state.setting("rebalance_rows_per_s", ROWS_PER_S)))
