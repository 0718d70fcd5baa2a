"""What `governor_status` shows of an instance that does not lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cairn.node.governor_runner import GovernorRunner


def test_after_a_restart_the_row_of_an_earlier_life_is_replaced_at_once() -> None:
    steps: Any = SimpleNamespace(timestamp=lambda: "now")
    runner = GovernorRunner(steps)
    told: list[tuple[str, str]] = []
    runner.on_status = lambda status: told.append((status.step, status.since))
    runner._show("not a leader", "")
    runner._show("not a leader", "")
    assert told == [("not a leader", "now")]
