"""Pages of an SQLite file as they stood at one commit, read in bulk and without SQLite.

The formats of the file, of its log and of the log's index are documented and fixed for good. An
open read transaction keeps what it could see: nobody overwrites those pages or frames meanwhile.
For scan workers only, as numpy is needed: SQLite hands out rows one value at a time, and that is
most of what reading millions of them costs.
"""

from __future__ import annotations

import os
import struct
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cairn.model.errors import StorageDamaged
from cairn.storage.files.checksums import CHECKSUM_BYTES
from cairn.storage.files.sqlite import damaged, open_reader

SLACK = 16  # readable bytes after the last page, for values that are loaded eight bytes wide
WAL_HEAD, FRAME_HEAD = 32, 24
_INDEX = struct.Struct("=III BBH II 8s 8s 8s")  # the head of the log's index, in memory's own order
_WORDS = struct.Struct("=10I")
_TRIES = 100


class UnknownFile(Exception):
    """Not a file as this module knows them; SQLite itself has to read it."""


class Pages:
    """A snapshot of one file. Close it on the thread that made it.

    Closing any descriptor of a file gives up all locks the process has on it: hence SQLite's
    connection is closed before ours, and one process must not do both this and write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._room = np.zeros(0, np.uint8)
        self._files: list[int] = []
        self._index = -1
        self._backfilled = 0  # frames of the log that are in the file as well
        self.connection = open_reader(path)
        try:
            self._begin()
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.connection.close()
        for file in self._files:
            os.close(file)
        self._files.clear()

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        self._file = self._descriptor("")
        head = os.pread(self._file, 100, 0)
        self.size = int.from_bytes(head[16:18], "big")
        if head[:16] != b"SQLite format 3\x00" or self.size < 512:
            raise UnknownFile("no database, or with pages of an unusual size")
        if head[20] not in (0, CHECKSUM_BYTES):
            raise UnknownFile("bytes are kept free for something else than checksums")
        self.usable = self.size - head[20]
        self._factors = _factors(self.usable // 4) if head[20] else None
        self._log, self._frames = self._find_frames()
        head = self.page(1)[:100].tobytes()  # as it was at the commit that is read
        if head[18:20] != b"\x02\x02" or head[56:60] != b"\x00\x00\x00\x01":
            raise UnknownFile("no write-ahead log, or not UTF-8")
        if int.from_bytes(head[40:44], "big") != self._schema_version:
            raise UnknownFile("the tables changed this very moment")

    def _begin(self) -> None:
        """A read transaction, and the log's index as of the same commit.

        SQLite does not say which commit it sees. If the index was the same before the transaction
        began and after, nobody has committed in between.
        """
        before: bytes | None = b"none yet"
        for _ in range(_TRIES):
            self.connection.execute("BEGIN")
            self._schema_version = self.connection.pragma("schema_version")
            self._head = self._log_head()
            if self._head == before:
                return
            before = self._head
            self.connection.execute("ROLLBACK")
        raise UnknownFile("the log's index does not hold still")

    def _descriptor(self, suffix: str) -> int:
        file = os.open(f"{self._path}{suffix}", os.O_RDONLY | os.O_CLOEXEC)
        self._files.append(file)
        return file

    # --- the log --------------------------------------------------------------------------------

    def _find_frames(self) -> tuple[int, dict[int, int]]:
        """The log, and which of its frames holds a page's newest state."""
        if self._head is None:
            return -1, {}
        fields = _INDEX.unpack(self._head)
        newest, salt = fields[6], fields[9]
        try:
            log = self._descriptor("-wal")
        except FileNotFoundError:
            return -1, {}
        if newest <= self._backfilled:  # all of it is in the file already
            return log, {}
        step = FRAME_HEAD + self.size
        if os.fstat(log).st_size < WAL_HEAD + newest * step:
            raise UnknownFile("the log is shorter than its index says")
        frames: dict[int, int] = {}  # the last of each page stays
        for frame in range(newest):
            head = os.pread(log, 16, WAL_HEAD + frame * step)
            if head[8:] != salt:
                raise UnknownFile("a frame of an earlier log")
            frames[int.from_bytes(head[:4], "big")] = frame
        return log, frames

    def _log_head(self) -> bytes | None:
        """The head of the log's index, read in one piece; None when there is no log."""
        if self._index < 0:
            try:
                self._index = self._descriptor("-shm")
            except FileNotFoundError:
                return None
        for _ in range(_TRIES):
            before = os.pread(self._index, 100, 0)
            head = before[:48]
            if len(before) == 100 and head == before[48:96] == os.pread(self._index, 48, 0):
                fields = _INDEX.unpack(head)
                version, is_ready, check = fields[0], fields[3], fields[10]
                if version == 3_007_000 and is_ready and check == _checksum(head[:40]):
                    self._backfilled = int.from_bytes(before[96:100], sys.byteorder)
                    return head
        raise UnknownFile("the log's index does not hold still")

    # --- reading --------------------------------------------------------------------------------

    def read(self, numbers: Any) -> Any:
        """The pages, one after the other, and a few bytes that may be read and mean nothing.

        Good until the next ones are read: fresh memory costs more than what is copied into it.
        """
        size, count = self.size, len(numbers)
        buffer = self._room[: count * size + SLACK]
        if len(buffer) < count * size + SLACK:
            buffer = self._room = np.zeros(count * size + SLACK, np.uint8)
        room: Any = memoryview(buffer)  # type: ignore[arg-type]
        starts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), count]
        listed = numbers.tolist()
        for start, end in pairwise(starts):
            got = os.preadv(
                self._file, [room[start * size : end * size]], (listed[start] - 1) * size
            )
            missing = listed[start + got // size : end]  # pages the file does not have yet
            if any(number not in self._frames for number in missing):
                raise self.damage(f"page {missing[0]} is not there")
        if self._factors is not None:
            self._verify(listed, buffer, *self._factors)
        if self._frames:
            self._overlay(listed, room)
        return buffer

    def _verify(self, numbers: list[int], buffer: Any, first: Any, second: Any) -> None:
        """SQLite compares each page with its checksum, and so must whoever reads without it.

        What is in the log gets its checksum when it is moved to the file.
        """
        words = buffer[: len(numbers) * self.size].view("<u4").reshape(len(numbers), -1)
        bad = np.einsum("ij,j->i", words[:, :-2], first) != words[:, -2]
        bad |= np.einsum("ij,j->i", words[:, :-2], second) != words[:, -1]
        for at in np.flatnonzero(bad).tolist() if self._frames and bad.any() else ():
            bad[at] = numbers[at] not in self._frames
        if bad.any():
            raise self.damage(f"the checksum of page {numbers[int(bad.argmax())]} is wrong")

    def page(self, number: int) -> Any:
        """One page, which stays good."""
        return self.read(np.array([number])).copy()

    def _overlay(self, numbers: list[int], room: memoryview) -> None:
        size, get = self.size, self._frames.get
        for at, number in enumerate(numbers):
            frame = get(number)
            if frame is not None:
                where = WAL_HEAD + frame * (FRAME_HEAD + size) + FRAME_HEAD
                if os.preadv(self._log, [room[at * size : (at + 1) * size]], where) != size:
                    raise self.damage(f"frame {frame} of the log is cut off")

    def damage(self, why: str) -> StorageDamaged:
        return damaged(self._path, why)


@cache
def _factors(count: int) -> tuple[Any, Any]:
    """What each word of a page counts in the two halves of its checksum, modulo 2³².

    SQLite adds words two by two: a += word + b, then b += word + a. Both sums are linear in the
    words, so that many pages are done in one product each.
    """
    found = np.zeros((2, count), np.uint32)
    a, b, c, d = 1, 0, 0, 1  # how much the sums so far count in the end: a·first + b·second, …
    for at in range(count - 2, -1, -2):
        found[:, at] = (a + b) % 2**32, (c + d) % 2**32
        found[:, at + 1] = b, d
        a, b, c, d = (a + b) % 2**32, (a + 2 * b) % 2**32, (c + d) % 2**32, (c + 2 * d) % 2**32
    return found[0], found[1]


def _checksum(data: bytes) -> bytes:
    words = _WORDS.unpack(data)
    first = second = 0
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return struct.pack("=II", first, second)
