"""A stream of a table tells every change once and in order, whatever dies and moves meanwhile."""

from __future__ import annotations

import pytest

from cairn.sim.cluster.checks import Violation
from tests.sim_cluster.streams import STREAM_KINDS, StreamTrial, Told
from tests.sim_cluster.test_registers import silence  # noqa: F401


def change(key: int, old: str | None, new: str | None) -> tuple[str | None, ...]:
    def row(text: str | None) -> str | None:
        return None if text is None else f'{{"a": {key}, "b": "{text}"}}'

    op = "insert" if old is None else "delete" if new is None else "update"
    return (op, f'{{"a": {key}}}', "7", row(old), row(new))


def test_changes_that_follow_one_another_are_right() -> None:
    told = Told()
    told.take([[change(1, None, "x"), change(1, "x", "y")], [change(2, None, "z")]])
    told.take([[change(1, "y", None)], []])
    assert (told.rows(), told.changes) == ({2: "z"}, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        [[change(1, "x", "y"), change(1, "x", "y")]],
        [[change(1, "y", "z")]],
        [[change(1, None, "x")]],
        [[change(1, "x", "y")], [change(1, "y", "z")]],
    ],
    ids=["twice", "one is missing", "from the beginning", "in two partitions"],
)
def test_changes_that_do_not_are_found(wrong: list[list[tuple[str | None, ...]]]) -> None:
    told = Told()
    told.take([[change(1, None, "x")]])
    with pytest.raises(Violation):
        told.take(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("moves-strikes", 5), ("cuts", 3)])
def test_a_stream_is_whole_and_in_order(kind: str, seed: int) -> None:
    assert StreamTrial(seed, kind).run().failure is None


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", STREAM_KINDS)
def test_streams_under_every_kind_of_blow(kind: str) -> None:
    for seed in range(100, 106):
        found = StreamTrial(seed, kind).run()
        assert found.failure is None, f"streams {kind} {seed}: {found.failure}"
