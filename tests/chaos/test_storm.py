"""Masters are killed, paused, cut off and sent away under load, and every answer is judged.

A few blows are part of `make test`; `make chaos` has many, `python -m tests.chaos` any number.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cairn.client import OutcomeUnknown
from cairn.model.errors import NotSent
from tests.chaos import wide
from tests.chaos.registers import HalfDone, contents, outcome_of
from tests.chaos.staged import PARTS, ROWS, why_wrong
from tests.chaos.storm import Storm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "20"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1_000_000)
PLANNED = ("stop", "switch")
HARD = ("kill", "pause", "isolate", "cut from one", "not heard")


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Callable[..., Storm]]:
    made: list[Storm] = []

    def make(mode: str, **shape: Any) -> Storm:
        print(f"CHAOS_SEED={SEED} CHAOS_ROUNDS={ROUNDS} {mode} {shape}")
        made.append(Storm(tmp_path, mode, SEED, **shape))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.slow
def test_two_blows_against_sync_masters_lose_nothing(storm: Callable[..., Storm]) -> None:
    storm("sync").run(2, kinds=HARD)


def test_a_planned_switch_under_load_loses_nothing_in_async_mode(
    storm: Callable[..., Storm],
) -> None:
    storm("async").run(1, kinds=PLANNED)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5])
def test_sync_rows_outlive_many_blows(storm: Callable[..., Storm], size: int) -> None:
    storm("sync", size=size, factor=size).run(ROUNDS)


@pytest.mark.slow
def test_two_sync_replicasets_outlive_many_blows(storm: Callable[..., Storm]) -> None:
    storm("sync", size=6, factor=3).run(ROUNDS)


@pytest.mark.slow
def test_async_replicas_are_equal_after_many_blows(storm: Callable[..., Storm]) -> None:
    storm("async").run(ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_many_planned_switches_lose_nothing(storm: Callable[..., Storm], mode: str) -> None:
    storm(mode).run(max(ROUNDS // 2, 1), kinds=PLANNED)


def test_a_client_knows_what_an_error_says_of_its_statement() -> None:
    def told(code: str) -> psycopg.Error:
        problem = psycopg.Error()
        problem.sqlstate = code
        return problem

    assert outcome_of(told("40001")) == outcome_of(told("57014")) == "refused"
    assert outcome_of(told("40003")) == outcome_of(told("57P01")) == "unknown"
    assert outcome_of(told("58000")) == "unknown"
    assert outcome_of(NotSent("nobody listens")) == "refused"
    assert outcome_of(psycopg.OperationalError("the connection is lost")) == "unknown"
    assert outcome_of(OutcomeUnknown("nobody answered")) == "unknown"
    with pytest.raises(HalfDone):
        outcome_of(told("PC006"))


def test_rows_that_are_missing_show_in_the_content_of_a_group() -> None:
    assert contents([(7, 2, "1.1+2.3"), (7, 0, "1.1")]) == {7: ("1.1", None, "1.1+2.3")}


def test_a_judge_of_statements_of_all_rows_knows_half_of_one_and_a_lost_one() -> None:
    assert wide.why_wrong([(3, wide.ROWS)], {2, 3}, set(), 2) is None
    assert wide.why_wrong([(2, wide.ROWS)], {2, 3}, {2}, 3) is None
    for rows, known, last in (
        ([(3, wide.ROWS - 1)], {3}, 0),
        ([(2, 1), (3, wide.ROWS - 1)], {2, 3}, 0),
        ([(4, wide.ROWS)], {2, 3}, 0),
        ([(2, wide.ROWS)], {2, 3}, 3),
        ([], {2}, 0),
    ):
        assert wide.why_wrong(rows, known, set(), last) is not None


def test_a_judge_of_staged_writes_knows_what_is_missing() -> None:
    whole, ended = PARTS * ROWS, {1: True, 2: False, 3: True, 6: True}
    assert why_wrong(ended, [("w1", whole)], [("w6", whole)]) is None
    assert why_wrong(ended, [("w1", whole), ("w2", whole)], [("w6", whole)]) is None
    for added, replaced in (
        ([("w1", whole - 1)], [("w6", whole)]),
        ([("w1", whole), ("w2", 7)], [("w6", whole)]),
        ([("w2", whole)], [("w6", whole)]),
        ([("w1", whole), ("w4", whole)], [("w6", whole)]),
        ([("w1", whole)], [("w3", whole)]),
        ([("w1", whole)], [("w3", whole), ("w6", whole)]),
        ([("w1", whole)], []),
    ):
        assert why_wrong(ended, added, replaced) is not None
