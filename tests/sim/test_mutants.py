"""The proof that the proof works: planted bugs are caught. All of them in `make sim-mutants`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .directed import SCRIPTS
from .mutants import MUTANTS, Mutant, hunt

# Found within a few seeds, one of each kind; the whole list takes minutes.
SAMPLE = {
    "ack before fsync",
    "vote not persisted",
    "leader counts its entry before fsync",
    "truncation because a message is shorter",
    "old term committed by counting",
    "acks of learners counted",
    "vote without looking at the log",
    "read before commit in term",
    "snapshot keeps the old configuration",
    "joint configuration never left",
    "CaS ignores the uncommitted tail",
}
CHOSEN = [mutant for mutant in MUTANTS if mutant.script is not None or mutant.name in SAMPLE]
NAMES = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_healthy_core_passes_every_script(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    assert hunt(mutant, max_seeds=40).by


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_planted_bug_is_caught_within_its_budget(mutant: Mutant) -> None:
    assert hunt(mutant).by


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= 20
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) >= SAMPLE
