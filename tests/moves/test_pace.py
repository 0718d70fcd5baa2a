"""How fast rows may move: what the limit says, in pieces behind which nobody waits long."""

from __future__ import annotations

from cairn.node.rows.moves.pace import Pace


def test_with_a_limit_pieces_are_small_and_pauses_make_the_rate() -> None:
    limited = Pace(20_000)
    assert (limited.delta_bytes, limited.drop_rows) == (16 * 1024, 250)
    assert limited.after_copying(200, 0.004) == 0.006
    assert limited.after_copying(200, 0.5) == 0.0  # it took longer than it may: no debt is kept
    # 40,000 rows are dropped in a second.
    assert limited.after_dropping(400, 0.0) == 0.01


def test_without_a_limit_nobody_waits() -> None:
    free = Pace(0)
    assert (free.after_copying(4_000, 0.0), free.after_dropping(4_000, 0.0)) == (0.0, 0.0)
    assert (free.delta_bytes, free.drop_rows) == (1024 * 1024, 4_000)
