"""What is done again and again leaves nothing behind, and the judge sees it if it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.__main__ import begin, more
from tests.soak.judge import slope, verdict
from tests.soak.kinds import KINDS, Load
from tests.soak.looking import PAGES_KIB, SMALL, Inside

QUICK = ("connects", "texts", "writes", "blocks", "global", "ddl", "mistakes")
PLANTED = "cairn.node.statements.owner.write_kinds.NOTED"


class Looked:
    """One instance with tiny caches, its load, and what is inside."""

    def __init__(self, load: Load, inside: Inside) -> None:
        self.load, self.inside = load, inside

    def bound(self, caches: int, planted: int = 0) -> None:
        values = dict.fromkeys(SMALL, caches) | {PLANTED: planted or caches}
        self.inside.ask("bound", values=values, pages_kib=PAGES_KIB)

    def grown(self, kinds: tuple[str, ...], steps: int) -> dict[str, int]:
        """Objects of our types that so many steps of each kind have left."""
        before = self.inside.ask("types")
        self.work(kinds, steps)
        found = more(before, self.inside.ask("types"), steps * 3 // 4)
        return {kind: count for kind, count in found.items() if kind.startswith("cairn.")}

    def work(self, kinds: tuple[str, ...], steps: int) -> None:
        for _ in range(steps):
            for kind in kinds:
                self.load.step(kind)


@pytest.fixture
def looked(tmp_path: Path) -> Iterator[Looked]:
    cluster = begin(tmp_path, 1, 1)
    load = Load(cluster["i1"], tables=3)
    try:
        cluster["i1"].sql("ALTER SYSTEM SET raft_wal_count_max = 20")
        yield Looked(load, Inside(tmp_path / "inside", cluster["i1"].child_pid))
    finally:
        load.close()
        cluster.close()


@pytest.mark.cluster
def test_work_leaves_no_objects_of_ours(looked: Looked) -> None:
    looked.bound(10)
    looked.work(QUICK, 20)  # caches are full
    assert looked.grown(QUICK, 24) == {}
    looked.bound(10, planted=1_000_000)  # as if nothing of it were ever forgotten
    assert PLANTED.replace("NOTED", "WriteKind") in looked.grown(("writes",), 24)


@pytest.mark.slow
@pytest.mark.cluster
def test_no_kind_of_work_leaves_objects_of_ours(looked: Looked) -> None:
    looked.bound(50)
    looked.work(KINDS, 150)
    assert looked.grown(KINDS, 300) == {}


def test_the_slope_is_that_of_the_end_and_peaks_do_not_count() -> None:
    filling = [(at / 2, 100 - 80 / (at + 1)) for at in range(40)]
    level = [(20 + at / 2, 98.0 + (30 if at % 7 == 3 else 0)) for at in range(40)]
    assert verdict(filling + level) == (True, pytest.approx(0, abs=0.02))
    growing = [(minute, size + 1.4 * minute) for minute, size in filling + level]
    assert verdict(growing) == (False, pytest.approx(1.4, abs=0.02))
    assert (slope([]), slope([(1, 5)])) == (0, 0)
