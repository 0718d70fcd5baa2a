"""Whether a write-ahead log has lost commits that were on disk: its frames behind SQLite's end.

SQLite reads a log up to the first frame whose checksum is wrong, and takes what lies behind for the
torn end of a commit that nobody was told of. After a power cut that is right: what was not synced
may be there in any part and in any order. A byte that changed in an older frame looks the same to
it, and every acknowledged commit behind is gone without a word.

What tells them apart: a commit is synced before the next one is begun, but for `UNSYNCED_MAX` in a
row at most (`writer.WriterThread`). So one that is followed by that many others and the beginning
of one more was on disk before. If it is not whole, it was damaged later. The last few commits of a
log cannot be judged so.

A start leaves no log behind, so that nothing here is of an earlier life. What was rolled back may
still be there, but without the mark of a commit.
"""

from __future__ import annotations

import os
import struct
import sys
from itertools import islice
from pathlib import Path
from typing import Literal

UNSYNCED_MAX = 3  # commits in a row that do not wait for the disk
_HEAD = 32  # of the log: magic, version, page, checkpoints, two salts, checksum
_FRAME = 24  # head of a frame: page, size after a commit or 0, two salts, checksum
_MAGIC = (0x377F0682, 0x377F0683)  # sums over little or over big words


class _Frames:
    """The slots of a log. Each has a sum that goes on from the one before it."""

    def __init__(self, file: int, page: int) -> None:
        self._file, self._page, self._size = file, page, _FRAME + page
        head = os.pread(file, _HEAD, 0)
        magic = int.from_bytes(head[:4], "big")
        order: Literal["little", "big"] = "big" if magic & 1 else "little"
        is_whole = magic in _MAGIC and _sum(order, (0, 0), head[:24]) == _pair(head, 24)
        self._order = order if is_whole else sys.byteorder
        self._before = head[24:32] if is_whole else b""
        # A new generation begins at the first slot, with salts of its own.
        self._salts = head[16:24] if is_whole else self._head(1)[8:16]
        self.count = max(os.fstat(file).st_size - _HEAD, 0) // self._size

    def _head(self, slot: int) -> bytes:
        return os.pread(self._file, _FRAME, _HEAD + (slot - 1) * self._size)

    def is_commit(self, slot: int) -> bool:
        head = self._head(slot)
        return head[8:16] == self._salts and any(head[4:8]) and any(self._salts)

    def is_intact(self, slot: int) -> bool:
        """As it was written, if the sum of the slot before it is."""
        head = self._head(slot)
        before = self._before if slot == 1 else self._sum_of(slot - 1)
        if len(head) < _FRAME or head[8:16] != self._salts or not before:
            return False
        page = os.pread(self._file, self._page, _HEAD + (slot - 1) * self._size + _FRAME)
        if len(page) < self._page:
            return False
        return _sum(self._order, _pair(before, 0), head[:8] + page) == _pair(head, 16)

    def _sum_of(self, slot: int) -> bytes:
        head = self._head(slot)
        return head[16:24] if head[8:16] == self._salts else b""


def lost_commits(log: Path, page: int, end: int) -> bool:
    """`end`: how many frames SQLite takes from this log."""
    try:
        file = os.open(log, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return _lost(_Frames(file, page), end)
    finally:
        os.close(file)


def _lost(frames: _Frames, end: int) -> bool:
    slots = range(end + 1, frames.count + 1)
    commits = (slot for slot in slots if frames.is_commit(slot) and frames.is_intact(slot))
    later = islice(commits, UNSYNCED_MAX, None)
    return any(frames.is_intact(slot + 1) for slot in later)


def _pair(data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(">2I", data, at)
    return first, second


def _sum(order: str, seed: tuple[int, int], data: bytes) -> tuple[int, int]:
    """SQLite's, as its description of the format has it."""
    first, second = seed
    words = struct.iter_unpack("<2I" if order == "little" else ">2I", data)
    for one, other in words:
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
