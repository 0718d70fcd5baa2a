"""Every history of a small move, and what the same search finds when a rule is missing."""

from __future__ import annotations

import msgspec
import pytest

from cairn.moves import delta, steps
from tests.moves import model
from tests.moves.model import LARGE, NOTHING, SMALL, Left, Model, Rules, Violation

#: As many as were found when the bounds were set: fewer would mean that less is tried.
FOUND = {
    "a master dies": 6_000,
    "another master of the source": 14_000,
    "another master of the target": 28_000,
    "given up": 3_500,
    "another leader": 2_700,
    "a freeze that takes too long": 3_700,
}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Decisions are remembered between explorations; a planted bug must not be."""
    model.decided.cache_clear()


@pytest.mark.parametrize("name", SMALL)
def test_no_history_of_a_move_loses_a_write_or_has_two_owners(name: str) -> None:
    count = Model(SMALL[name]).explore()
    print(f"{name}: {count} states")
    assert count >= FOUND[name]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LARGE)
def test_nor_does_any_of_many_more(name: str) -> None:
    print(f"{name}: {Model(LARGE[name]).explore()} states")


DIES = NOTHING._replace(crashes=1)
SOURCE = NOTHING._replace(masters=1, sides="s")
TARGET = NOTHING._replace(masters=1, sides="t")


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        (("lease_has_index",), DIES),
        (("writer_looks_at_the_newest",), DIES),
        # Each of two guards is enough here; without both a write is lost.
        (("final_behind_fence", "writer_looks_at_the_newest"), NOTHING),
        pytest.param(("replica_counts",), TARGET, marks=pytest.mark.slow),
        (("begins_empty",), NOTHING),
        pytest.param(("drop_is_replicated",), SOURCE, marks=pytest.mark.slow),
    ],
)
def test_a_missing_rule_is_found(missing: tuple[str, ...], left: Left) -> None:
    rules = msgspec.structs.replace(Rules(), **dict.fromkeys(missing, False))
    with pytest.raises(Violation):
        Model(left, rules).explore()


@pytest.mark.slow
def test_a_hand_over_without_looking_at_epochs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "is_handed_over", lambda cluster, move, report: report.final)
    with pytest.raises(Violation):
        Model(TARGET).explore()


def test_a_delta_that_is_taken_wherever_the_target_stands_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta, "fits", lambda *args: True)
    with pytest.raises(Violation):
        Model(NOTHING._replace(repeats=1)).explore()


def test_a_late_delta_after_a_move_was_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "fits", lambda *args: True)
    with pytest.raises(Violation, match="t1 cleans"):
        Model(NOTHING._replace(aborts=1), Rules(writer_checks_move=False)).explore()
