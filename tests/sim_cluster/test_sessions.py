"""Clients that speak SQL over real sessions, while masters go and buckets move; planted bugs of the
shorter ways that sessions have for a row by its key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cairn.node.statements.at_once import AtOnce
from cairn.sim.cluster.loads.wire_registers import check_ways
from cairn.sim.cluster.session_trials import LANE_KINDS, LaneTrial
from tests.sim_cluster.test_registers import silence  # noqa: F401

Patch = pytest.MonkeyPatch
#: Blows, and a seed of few rounds.
BLOWS = {"readers": 2, "moves": 2}


def failure(kind: str, mode: str = "async", seed: int | None = None) -> str | None:
    return LaneTrial(seed or BLOWS[kind], kind, mode).run().failure


@pytest.mark.parametrize("kind", sorted(BLOWS))
def test_rows_by_their_keys_are_told_right_over_sessions(kind: str) -> None:
    trial = LaneTrial(BLOWS[kind], kind, "async")
    assert trial.run().failure is None
    check_ways(trial.registers, replicasets=trial.kind.replicasets)


@pytest.mark.slow
def test_so_they_are_where_a_majority_has_to_have_them() -> None:
    assert failure("readers", "sync") is None


@pytest.mark.slow
def test_a_table_is_empty_for_everybody_once_a_session_is_told_so() -> None:
    assert LaneTrial(1, "truncates").run().failure is None


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", LANE_KINDS)
def test_every_kind_of_blow_against_sessions(kind: str) -> None:
    for seed in range(100, 110):
        found = LaneTrial(seed, kind).run()
        assert found.failure is None, f"lanes-{kind} {seed}: {found.failure}"


def test_executions_that_come_together_end_well_where_nothing_happens() -> None:
    """Others delete the same rows between the look at all replicasets and the change."""
    trial = LaneTrial(1, "calm-alone")
    assert trial.run().failure is None
    assert trial.registers.ways["written together"] > 20


# --- bugs -----------------------------------------------------------------------------------------


def a_lane_that(skips: str) -> Callable[..., Any]:
    """`AtOnce.answer` with a guard of its own, which forgets one question."""

    def answer(self: AtOnce, statement: Any, context: Any, bucket: int, read: Any) -> Any:
        reads = self._execution.reads
        fence = reads.data.fence
        is_right = {
            "lease": reads._lease.is_held(fence.epoch),
            "owner": fence.owns(bucket),
            "master": fence.is_master and not fence.is_sync,
        }
        if not all(is_right[each] for each in is_right if each != skips):
            return None
        found = reads.reader.answer(read)
        self._owners.compiled += found is not None
        return found

    return answer


@pytest.mark.parametrize(("skips", "kind"), [("lease", "readers"), ("owner", "moves")])
def test_a_lane_that_skips_a_question_is_found(monkeypatch: Patch, skips: str, kind: str) -> None:
    monkeypatch.setattr(AtOnce, "answer", a_lane_that(skips))
    seeds = range(BLOWS[kind], BLOWS[kind] + 6)  # most of them find it
    found = next((why for seed in seeds if (why := failure(kind, seed=seed))), None)
    assert found is not None and "no order explains it" in found


@pytest.mark.slow
def test_a_lane_that_asks_all_of_them_is_fine(monkeypatch: Patch) -> None:
    monkeypatch.setattr(AtOnce, "answer", a_lane_that("nothing"))
    assert failure("readers") is None
