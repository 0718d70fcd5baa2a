"""Rows that wait to be fetched: each once, in order, little in memory, and no more than allowed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn.model.errors import CairnError
from cairn.storage.files import dealt
from cairn.storage.files.dealt import Dealt
from cairn.storage.files.spill import Room


def fetched(held: Dealt, part: int, most: int = 1_000) -> list[list[object]]:
    found: list[list[object]] = []
    while True:
        piece = held.take(part, most, is_over=True)
        found += msgspec.msgpack.decode(piece.data)
        if piece.is_last:
            return found


@pytest.mark.parametrize("held_bytes", [0, 5_000, 10**9])
def test_rows_of_each_part_come_in_order_from_memory_and_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    monkeypatch.setattr(dealt, "HELD_BYTES", held_bytes)
    held = Dealt(tmp_path, 3, 0)
    expected: list[list[list[object]]] = [[], [], []]
    for at in range(300):
        rows = [(at, n, b"x" * n, None, 1.5) for n in range(1 + at % 20)]
        held.add(at % 3, rows)
        expected[at % 3] += [list(row) for row in rows]
    assert [fetched(held, part) for part in range(3)] == expected
    assert held.sizes == [0, 0, 0]
    held.close()
    assert list(tmp_path.iterdir()) == []


def test_large_rows_are_told_in_pieces_that_fit_a_frame(tmp_path: Path) -> None:
    held = Dealt(tmp_path, 1, 0)
    held.add(0, [(at, b"x" * 3_000_000) for at in range(9)])
    sizes, last = [], False
    while not last:
        piece = held.take(0, 1_000_000, is_over=True)
        sizes.append(len(piece.data))
        last = piece.is_last
    assert len(sizes) == 9 and max(sizes) < 3_100_000


def test_the_last_space_of_a_disk_is_left_to_rows(tmp_path: Path) -> None:
    held = Dealt(tmp_path, 1, 0, Room(tmp_path, share=1.0, most=1 << 62))
    with pytest.raises(CairnError, match="no room for temporary files") as problem:
        for _ in range(100):
            held.add(0, [(b"x" * 100_000,)])
    assert problem.value.sqlstate == "53100"
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_no_name_and_a_limit(tmp_path: Path) -> None:
    held = Dealt(tmp_path, 1, 1_000_000)
    with pytest.raises(CairnError) as problem:
        for _ in range(100):
            held.add(0, [(b"x" * 100_000,)])
    assert problem.value.sqlstate == "53400"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_to_is_told_as_such(tmp_path: Path) -> None:
    held = Dealt(tmp_path / "nowhere", 1, 0)
    with pytest.raises(CairnError) as problem:
        for _ in range(100):
            held.add(0, [(b"x" * 100_000,)])
    assert problem.value.sqlstate == "53100"
