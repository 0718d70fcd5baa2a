"""Operations that are asked for again and again, while buckets move: each is done once."""

from __future__ import annotations

import pytest

from cairn.sim.cluster.loads.operations import Row
from cairn.sim.cluster.session_trials import ONCE_KINDS, OnceTrial
from cairn.storage.data_db.data_store import DataStore
from tests.sim_cluster.test_registers import silence  # noqa: F401


def test_an_operation_is_done_once_whatever_moves() -> None:
    trial = OnceTrial(2, "moves")
    assert trial.run().failure is None
    assert trial.registers.done > 50 and trial.registers.ways["put unknown"]


def test_one_that_is_done_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataStore, "operation", lambda self, operation: None)
    found = OnceTrial(2, "moves").run().failure
    assert found is not None and "and not w" in found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ONCE_KINDS)
def test_every_kind_of_blow_against_operations(kind: str) -> None:
    for seed in range(100, 110):
        found = OnceTrial(seed, kind).run()
        assert found.failure is None, f"once-{kind} {seed}: {found.failure}"


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("w+a+b", True),
        ("w+a+u+b", True),  # its end was unknown
        ("w", False),
        ("w+a", False),
        ("w+b+a", False),
        ("w+a+b+b", False),
        ("v+a+b", False),
        ("w+a+b+x", False),
        (None, False),
    ],
)
def test_what_a_row_may_be(text: str | None, is_right: bool) -> None:
    row = Row(1, 1)
    row.base, row.added, row.unknown = "w", ["a", "b"], {"u"}
    assert (row.why_wrong(text) is None) is is_right
