"""What is acknowledged while sync mode is certainly in force is judged as sync."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.sim.cluster.loads.sync_times import SyncTimes
from cairn.sim.cluster.trial import run_trial


class Scene:
    """Instances that know of one mode or the other, and the time."""

    def __init__(self, mode: str) -> None:
        self.now, self.known = 0.0, {"a": mode, "b": mode}
        self.checks: Any = SimpleNamespace(modes=[])
        self.loop: Any = SimpleNamespace(time=lambda: self.now)
        self.times = SyncTimes(self, mode)  # type: ignore[arg-type]

    def running(self) -> list[Any]:
        return [
            SimpleNamespace(
                instance=SimpleNamespace(
                    state=SimpleNamespace(
                        cluster=SimpleNamespace(
                            tiers={"default": SimpleNamespace(replication_mode=mode)}
                        )
                    )
                )
            )
            for mode in self.known.values()
        ]

    def at(self, now: float, mode: str, *who: str) -> None:
        """At `now`, `who` applied the change to `mode`, the first of all if nobody knew it."""
        self.now = now
        if mode not in self.known.values():
            self.checks.modes.append((now, mode))
        self.known |= dict.fromkeys(who, mode)
        self.times.look()


def test_a_naming_loses_nothing_while_everybody_knows_of_sync_mode() -> None:
    scene = Scene("sync")
    assert scene.times.losing([1.0, 2.0]) == []
    scene.at(3.0, "async", "a")
    assert scene.times.losing([1.0, 2.0, 3.5]) == [3.5]
    scene.at(4.0, "async", "b")
    scene.at(5.0, "sync", "b")
    assert scene.times.losing([1.0, 3.5, 5.5]) == [3.5, 5.5]  # a may still acknowledge as async
    scene.at(6.0, "sync", "a")
    assert scene.times.losing([1.0, 3.5, 5.5, 7.0]) == [3.5, 5.5, 6.0]
    scene.at(8.0, "async", "b")
    assert scene.times.losing([7.0, 9.0]) == [6.0, 9.0]


def test_without_sync_mode_every_naming_may_lose_rows() -> None:
    assert Scene("async").times.losing([1.0, 2.0]) == [1.0, 2.0]


@pytest.mark.slow
def test_a_write_that_does_not_wait_for_its_majority_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_trial("modes-three")(3).failure is None
    monkeypatch.setattr(Acknowledgements, "safe_lsn", lambda self: 10**9)
    assert "no order explains it" in str(run_trial("modes-three")(3).failure)
