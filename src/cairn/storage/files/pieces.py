"""Rows of a cursor, about so many bytes at a time: what is held of an answer stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from cairn.model.errors import MotionLimit
from cairn.model.settings import limits

Row = tuple[Any, ...]
PIECE_BYTES = limits.PIECE_BYTES
_BATCH_ROWS = 32  # read between two looks at their size
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode


class Encoded:
    """Rows that are the client's DataRow messages already: to be handed on as they are."""

    __slots__ = ("_count", "data")

    def __init__(self, count: int, data: bytes) -> None:
        self._count, self.data = count, data

    def __len__(self) -> int:
        return self._count


class Packed:
    """Rows as MessagePack has them, behind each other: for whoever need not look at them."""

    __slots__ = ("_count", "parts")

    def __init__(self, count: int, parts: list[bytes]) -> None:
        self._count, self.parts = count, parts

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))

    def unpacked(self) -> list[Row]:
        return _decode(b"".join((_head(self._count), *self.parts)))


Rows = list[Row] | Encoded | Packed
Encode = Callable[[list[Row]], bytes]


class Piece(NamedTuple):
    rows: Rows
    data: bytes  # rows that are not encoded: as a list in MessagePack, as it travels
    is_last: bool


def plain(rows: Rows) -> list[Row]:
    """For whoever has not asked for encoded ones."""
    assert not isinstance(rows, Encoded)
    return rows.unpacked() if isinstance(rows, Packed) else rows


def told(rows: Rows) -> list[Row] | Packed:
    """For whoever has not asked for encoded ones, and takes packed ones."""
    assert not isinstance(rows, Encoded)
    return rows


def joined(some: Rows, more: Rows) -> Rows:
    """Packed as long as all of them are."""
    if isinstance(some, Packed) and isinstance(more, Packed):
        return Packed(len(some) + len(more), [*some.parts, *more.parts])
    return more if not len(some) else plain(some) + plain(more)


def _head(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


class Pieces:
    """A row is never cut: one that is larger than a piece is a piece of its own."""

    def __init__(self, rows: Iterator[Row], row_max: int = 0) -> None:
        self._rows, self._row_max = rows, row_max
        self._count = 0
        self._step = _BATCH_ROWS
        self._ahead: list[Row] | None = None  # read, and not part of a piece yet

    def take(self, most: int, encode: Encode = _encode) -> Piece:
        """With an `encode` of its own they are told as the client wants them."""
        is_packed = encode is _encode
        found: list[Row] = []
        parts: list[bytes] = []
        size = 0
        while size < most and (batch := self._batch()):
            data = encode(batch)
            if len(batch) > 1 and len(data) > most:
                self._ahead, self._step = batch + (self._ahead or []), 1
                continue
            if found and size + len(data) > 2 * most:
                self._ahead = batch + (self._ahead or [])
                break
            self._step = _BATCH_ROWS if len(data) * _BATCH_ROWS < most * len(batch) else 1
            found += batch
            size += len(data)
            parts.append(data if not is_packed else data[1:] if len(batch) < 16 else data[3:])
        if self._ahead is None:
            self._ahead = self.read(self._step)
        if not is_packed:
            return Piece(Encoded(len(found), b"".join(parts)), b"", not self._ahead)
        return Piece(found, _head(len(found)) + b"".join(parts), not self._ahead)

    def _batch(self) -> list[Row]:
        if self._ahead is None:
            return self.read(self._step)
        batch, step = self._ahead, self._step
        self._ahead = batch[step:] or None
        return batch[:step]

    def read(self, count: int) -> list[Row]:
        batch = list(islice(self._rows, count))
        self._count += len(batch)
        if 0 < self._row_max < self._count:
            raise too_many(self._row_max)
        return batch


class PackedPieces:
    """The same for a cursor of `packed_pieces`: each of its rows is some rows, and how many."""

    def __init__(self, parts: Iterator[tuple[bytes, int]], row_max: int = 0) -> None:
        self._parts, self._row_max = parts, row_max
        self._count = 0
        self._ahead: tuple[bytes, int] | None = None

    def take(self, most: int) -> Piece:
        found: list[bytes] = []
        size = count = 0
        part = self._ahead or next(self._parts, None)
        while part is not None and size < most:
            found.append(part[0])
            size += len(part[0])
            count += part[1]
            self._count += part[1]
            if 0 < self._row_max < self._count:
                raise too_many(self._row_max)
            part = next(self._parts, None)
        self._ahead = part
        return Piece(Packed(count, found), b"", part is None)


def too_many(row_max: int) -> MotionLimit:
    return MotionLimit(
        f"Exceeded maximum number of rows ({row_max}) in virtual table: {row_max + 1}",
        hint="narrow the query, or allow more rows to be gathered: SET sql_motion_row_max = 0 "
        "(no limit; ALTER SYSTEM SET … for everybody); whole tables leave by COPY or through Spark",
    )
