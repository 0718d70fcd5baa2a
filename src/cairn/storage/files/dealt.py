"""Rows that were dealt out and wait to be fetched: a little in memory, the rest in a file.

The file has no name: whatever ends the process ends it too.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from pathlib import Path
from typing import IO

import msgspec

from cairn.model.errors import CairnError
from cairn.storage.files.pieces import PIECE_BYTES, Piece, Row
from cairn.storage.files.spill import PREFIX, Room, no_room, spilled_too_much

HELD_BYTES = 4 * 1024 * 1024  # of all parts together
_encode = msgspec.msgpack.Encoder().encode


class Dealt:
    """One queue for each part; used by one thread at a time, any one."""

    def __init__(
        self, directory: Path, parts: int, spill_max: int, room: Room | None = None
    ) -> None:
        self._directory, self._max = directory, spill_max
        self._room = room or Room(directory)
        self._queues: list[deque[tuple[int, bytes | tuple[int, int]]]] = [
            deque() for _ in range(parts)
        ]
        self.sizes = [0] * parts
        self._held = 0
        self._file: IO[bytes] | None = None
        self._end = 0  # of the file

    def add(self, part: int, rows: list[Row]) -> int:
        """Rows for one part, fewer than 65,536. How many bytes they are."""
        data = _encode(rows)
        if len(data) > PIECE_BYTES and len(rows) > 1:  # a piece is to fit into a frame
            half = len(rows) // 2
            return self.add(part, rows[:half]) + self.add(part, rows[half:])
        data = data[1:] if len(rows) < 16 else data[3:]  # without the head of the list
        self.sizes[part] += len(data)
        kept: bytes | tuple[int, int] = data
        if self._held + len(data) > HELD_BYTES:
            kept = self._written(data)
        else:
            self._held += len(data)
        self._queues[part].append((len(rows), kept))
        return len(data)

    def _written(self, data: bytes) -> tuple[int, int]:
        if self._max and self._end + len(data) > self._max:
            raise spilled_too_much(self._max)
        if self._room.is_short(len(data)):
            raise no_room()
        place = (self._end, len(data))
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix=PREFIX, dir=self._directory)  # noqa: SIM115
            self._file.write(data)
            self._file.flush()
        except OSError as problem:
            text = f"rows of the statement cannot be kept in a file: {problem.strerror}"
            raise CairnError(text, sqlstate="53100") from None
        self._end += len(data)
        return place

    def take(self, part: int, most: int, *, is_over: bool) -> Piece:
        """About so much of one part; the last piece of it when nothing more will be dealt out."""
        queue = self._queues[part]
        parts: list[bytes] = []
        count = size = 0
        while queue and size < most:
            rows, kept = queue[0]
            if count and size + (len(kept) if isinstance(kept, bytes) else kept[1]) > 2 * most:
                break
            queue.popleft()
            if isinstance(kept, bytes):
                self._held -= len(kept)
            else:
                assert self._file is not None
                kept = os.pread(self._file.fileno(), kept[1], kept[0])
            parts.append(kept)
            count, size = count + rows, size + len(kept)
        self.sizes[part] -= size
        data = b"\xdd" + count.to_bytes(4, "big") + b"".join(parts)
        return Piece([], data, is_over and not queue)

    def close(self) -> None:
        self._queues = [deque() for _ in self._queues]
        if self._file is not None:
            self._file.close()
            self._file = None
