"""Upserts, cascades and indexes of some rows, while masters go and buckets move."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.sim.cluster.loads.kin import Kin
from cairn.sim.cluster.session_trials import KIN_KINDS, KinTrial
from tests.sim_cluster.test_registers import silence  # noqa: F401


def test_what_one_statement_does_is_whole_while_masters_go_and_buckets_move() -> None:
    trial = KinTrial(5, "moves-strikes", "sync")
    assert trial.run().failure is None
    ways = trial.kin.ways
    assert all(ways[f"{each} done"] for each in ("tally", "merged", "begin", "end"))
    assert ways["intrude"] and trial.kin.reads


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KIN_KINDS)
def test_every_kind_of_blow_against_them(kind: str) -> None:
    for seed in range(100, 105):
        found = KinTrial(seed, kind).run()
        assert found.failure is None, f"kin-{kind} {seed}: {found.failure}"


@pytest.mark.slow
def test_blocks_that_wait_when_their_instance_ends_are_run_or_refused() -> None:
    """They were run with a connection that was closed already, an internal error."""
    assert KinTrial(1, "full-disks").run().failure is None


# --- the judge ------------------------------------------------------------------------------------


def books(**raised: str) -> Any:
    made = Kin.__new__(Kin)
    made._is_strict = True
    made._raised = {"tally": dict(raised)}  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(1, 2, " a b")], ""),
        ([(1, 3, " a b")], "tally 1 is 3, and was raised by ['a', 'b']"),
        ([(1, 3, " a b a")], "a raised tally 2 times"),
        ([(1, 2, " a c")], "c was refused, and raised tally"),
        ([(1, 1, " b")], "a raised tally, and that is lost"),
    ],
)
def test_tallies_are_judged(rows: list[Any], why: str) -> None:
    judge = books(a="done", b="unknown", c="undone")
    assert judge._why_wrong("tally", rows, at_the_end=True) == why


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(7, 3, 1, 1)], ""),
        ([], "family 7 is not there"),
        ([(7, 2, 1, 1)], "family 7 has [2, 1, 1] children, open ones, open ones by no index"),
        ([(7, 3, 0, 1)], "family 7 has [3, 0, 1] children, open ones, open ones by no index"),
        ([(7, 3, 1, 1), (8, 3, 1, 1)], "family 8 is there"),
    ],
)
def test_families_are_judged(rows: list[Any], why: str) -> None:
    known = {7: True, 8: False, 9: None}
    assert books()._why_not_whole(rows, known, {7, 8, 9}) == why
