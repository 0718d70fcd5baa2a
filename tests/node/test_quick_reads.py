"""A read of the event loop is answered by a master that has all its buckets, and by nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from cairn.node.statements.owner.reads import OwnerReads
from cairn.storage.data_db.fence import Fence
from cairn.storage.readers import RowReader

MASTER = Fence(epoch=3, is_master=True, ranges=((1, 10), (21, 30)), owned=((1, 30),))
WHERE = ((2, 4), (25, 30))


class Place:
    """One instance: who it is, and whether it has a lease."""

    def __init__(self, directory: Path) -> None:
        self.data: Any = SimpleNamespace(
            fence=MASTER, versions={7: 1}, store=SimpleNamespace(path=directory / "data.db")
        )
        self.leases = [True, True]  # before and after it is read
        for name in ("data.db", "raft.db"):
            apsw.Connection(str(directory / name)).close()
        raft = directory / "raft.db"
        reader = RowReader(directory / "data.db", raft, lambda _: None)
        lease: Any = SimpleNamespace(is_held=lambda epoch: self.leases.pop(0))
        nobody: Any = None
        self.reads = OwnerReads(self.data, lease, nobody, nobody, reader, raft, lambda _: None)

    def read(self, where: Any = WHERE, version: int = 1) -> str | None:
        return self.reads.quick_read(where, {7: version}, lambda: "rows")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.reads.close()


@pytest.mark.parametrize("where", [5, 30, WHERE, ((1, 10),)], ids=str)
def test_the_master_of_all_buckets_answers(place: Place, where: Any) -> None:
    assert place.read(where) == "rows"


@pytest.mark.parametrize("where", [11, 31, ((2, 11),), ((2, 4), (20, 21)), ((15, 16),)], ids=str)
def test_nobody_reads_buckets_that_are_frozen_or_of_others(place: Place, where: Any) -> None:
    """Of 11 to 20 another replicaset may be the owner by now, and be written to."""
    assert place.read(where) is None


def test_without_a_lease_before_or_after_nothing_is_told(place: Place) -> None:
    place.leases = [False, True]
    assert place.read() is None
    place.leases = [True, False]
    assert place.read() is None


@pytest.mark.parametrize("change", [{"is_master": False}, {"is_sync": True}], ids=str)
def test_others_than_an_asynchronous_master_go_the_long_way(place: Place, change: Any) -> None:
    place.data.fence = Fence(**{"epoch": 3, "is_master": True, "ranges": ((1, 30),), **change})
    assert place.read() is None


def test_a_table_of_another_shape_is_not_read(place: Place) -> None:
    assert place.read(version=2) is None


def test_what_was_read_while_buckets_moved_is_not_told(place: Place) -> None:
    def moved() -> str:
        place.data.fence = Fence(epoch=3, is_master=True, ranges=((1, 30),))
        return "rows"

    assert place.reads.quick_read(WHERE, {7: 1}, moved) is None
