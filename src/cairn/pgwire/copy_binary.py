"""COPY in PostgreSQL's binary format: the stream to fields, and what stands around the rows."""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from cairn.model.errors import CairnError
from cairn.pgwire.copy import BadCopy
from cairn.pgwire.messages import message

Fields: TypeAlias = list[list[bytes | None]]  # of each column

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_FLAGS: Final = Struct("!II")  # flags, and the length of what extends the header
_COUNT: Final = Struct("!h")
_LENGTH: Final = Struct("!i")
_HEADER: Final = _SIGNATURE + bytes(8)
_TRAILER: Final = b"\xff\xff"
_WITH_OIDS: Final = 1 << 16
_CRITICAL: Final = 0xFFFF0000  # flags that say: who does not know me cannot read this
_MAX_ROW_BYTES: Final = 256 * 1024 * 1024
_LONG: Final = 128 * 1024


class BinaryParser:
    """Feed chunks in order, then call `finish_columns`. Rows come out as soon as they are whole."""

    def __init__(self, ncols: int) -> None:
        self.ncols = ncols
        self.line = 0  # of the last row given out, from 1
        self._rest = bytearray()
        self._enough = 0  # bytes that are worth another look
        self._is_begun = self._is_ended = False

    def feed_columns(self, chunk: bytes) -> Fields:
        self._rest += chunk
        return self._rows() if len(self._rest) >= self._enough else []

    def _rows(self) -> Fields:
        data = bytes(self._rest)
        at = 0 if self._is_begun else self._header(data)
        found: Fields = [[] for _ in range(self.ncols)]
        while self._is_begun and not self._is_ended:
            end = self._row(data, at, found)
            if end is None:
                break
            at = end
        if self._is_ended and at < len(data):
            raise BadCopy("received copy data after EOF marker")
        if len(data) - at > _MAX_ROW_BYTES:
            raise BadCopy(f"a row of COPY is longer than {_MAX_ROW_BYTES} bytes", sqlstate="54000")
        del self._rest[:at]
        # A long row is looked at when twice as much of it has come: else each piece would cost all.
        self._enough = 2 * len(self._rest) if len(self._rest) > _LONG else 0
        return found if self.ncols and found[0] else []

    def finish_columns(self) -> Fields:
        """The stream ended. As in PostgreSQL, the mark of its end may be missing behind a row."""
        found = self._rows()
        if not self._is_begun:
            raise BadCopy("COPY file signature not recognized")
        if self._rest:
            raise BadCopy("unexpected EOF in COPY data")
        return found

    def _header(self, data: bytes) -> int:
        """Where it ends; 0 as long as it is not whole."""
        if not _SIGNATURE.startswith(data[: len(_SIGNATURE)]):
            raise BadCopy("COPY file signature not recognized")
        at = len(_SIGNATURE) + _FLAGS.size
        if len(data) < at:
            return 0
        flags, more = _FLAGS.unpack_from(data, len(_SIGNATURE))
        if flags & _WITH_OIDS:
            raise BadCopy("invalid COPY file header (WITH OIDS)")
        if flags & _CRITICAL:
            raise BadCopy("unrecognized critical flags in COPY file header")
        if more > _MAX_ROW_BYTES:
            raise BadCopy("invalid COPY file header (wrong length)")
        if len(data) < at + more:
            return 0
        self._is_begun = True
        return at + int(more)

    def _row(self, data: bytes, at: int, found: Fields) -> int | None:
        """Where the row ends; None: it is not whole yet, and nothing of it was taken."""
        size = len(data)
        if at + 2 > size:
            return None
        (count,) = _COUNT.unpack_from(data, at)
        at += 2
        if count == -1:
            self._is_ended = True
            return at
        if count != self.ncols:
            raise self._bad(f"row field count is {count}, expected {self.ncols}")
        row: list[bytes | None] = []
        for _ in range(count):
            if at + 4 > size:
                return None
            (length,) = _LENGTH.unpack_from(data, at)
            at += 4
            if length < -1:
                raise self._bad("invalid field size")
            if length == -1:
                row.append(None)
                continue
            if at + length > size:
                return None
            row.append(data[at : at + length])
            at += length
        for column, field in zip(found, row, strict=True):
            column.append(field)
        self.line += 1
        return at

    def _bad(self, text: str) -> CairnError:
        return BadCopy(text, detail=f"row {self.line + 1}")


def with_header(rows: bytes) -> bytes:
    """The first rows of an answer, as CopyData messages. Clients count on one message for the
    header and the first row, and one for each other row."""
    if not rows:
        return message(b"d", _HEADER, _TRAILER)
    length = int.from_bytes(rows[1:5])
    return message(b"d", _HEADER, rows[5 : length + 1]) + rows[length + 1 :]


TRAILER: Final = message(b"d", _TRAILER)
