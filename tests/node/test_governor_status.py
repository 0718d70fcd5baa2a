"""What `governor_status` shows of an instance that does not lead."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cairn.model.members.topology import Grade, State
from cairn.node.steering import governor_runner
from cairn.node.steering.governor_runner import GovernorRunner, cut_off
from tests.governor.builders import instance, replicaset


def test_after_a_restart_the_row_of_an_earlier_life_is_replaced_at_once() -> None:
    steps: Any = SimpleNamespace(timestamp=lambda: "now")
    told: list[tuple[str, str]] = []
    runner = GovernorRunner(steps, lambda status: told.append((status.step, status.since)))
    runner._show("not a leader", "")
    runner._show("not a leader", "")
    assert told == [("not a leader", "now")]


def test_a_path_through_a_dead_instance_is_named() -> None:
    pair = replicaset("r1", "i1", ("i1", "i2", "i3"))
    dead = State(Grade.OFFLINE, 1)
    chain = "i1>i2,i2>i3"
    people = [instance("i1", 1), instance("i2", 2), instance("i3", 3)]
    assert cut_off(chain, pair, people) == []
    people[1] = instance("i2", 2, dead)
    assert cut_off(chain, pair, people) == [
        "i3 gets no rows of i1: every path of replication_graph to it runs through i2; "
        "start it, or change replication_graph"
    ]
    assert cut_off("i1>i2", pair, people) == [
        "i3 gets no rows of i1: replication_graph has no path to it"
    ]


def test_a_governor_that_cannot_plan_says_so_and_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: Any = SimpleNamespace(
        timestamp=lambda: "now", runner=SimpleNamespace(committed_in_term=True)
    )
    runner = GovernorRunner(steps, lambda status: None)
    plans: list[int] = []

    def broken(view: Any) -> Any:
        plans.append(1)
        raise ZeroDivisionError("weights")

    monkeypatch.setattr(governor_runner, "plan", broken)
    monkeypatch.setattr(governor_runner, "IDLE_LOOK_S", 0.01)
    monkeypatch.setattr(GovernorRunner, "view", lambda self: None)

    async def live() -> None:
        task = asyncio.ensure_future(runner.run())
        while len(plans) < 3:
            await asyncio.sleep(0.005)
            assert not task.done()
        task.cancel()

    asyncio.run(asyncio.wait_for(live(), 10.0))
    assert runner.status.step == "cannot plan"
    assert "ZeroDivisionError: weights" in runner.status.blocked_by[0]
