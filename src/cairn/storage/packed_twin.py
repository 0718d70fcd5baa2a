"""`packed_rows` in Python, for instances without the compiled part: others send rows by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw
import apsw.ext
import msgspec

WIDTH = 256  # columns, as in `native/packed_rows.c`
_decode = msgspec.msgpack.Decoder(tuple[Any, ...]).decode
#: Bytes behind the first one of a value, by that one; of texts and bytes: those of their length.
_NUMBERS = {0xC0: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_NUMBERS |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


def offer(connection: apsw.Connection) -> None:
    apsw.ext.make_virtual_module(connection, "packed_rows", packed_rows)  # type: ignore[arg-type]


def packed_rows(data: bytes = b"", width: int = 1) -> Iterator[tuple[Any, ...]]:
    at = 0
    while at < len(data):
        end = at + (3 if data[at] == 0xDC else 1)
        for _ in range(width):
            end = _after(data, end)
        row = _decode(data[at:end])
        if len(row) != width:
            raise ValueError("packed rows are damaged")
        yield row
        at = end


packed_rows.columns = tuple(f"c{at}" for at in range(WIDTH))  # type: ignore[attr-defined]
packed_rows.column_access = apsw.ext.VTColumnAccess.By_Index  # type: ignore[attr-defined]


def _after(data: bytes, at: int) -> int:
    """Where the value that begins here ends."""
    if at >= len(data):
        raise ValueError("packed rows are damaged")
    first = data[at]
    if first < 0x80 or first >= 0xE0:
        return at + 1
    if 0xA0 <= first < 0xC0:
        return at + 1 + (first & 31)
    if (size := _LENGTHS.get(first)) is not None:
        return at + 1 + size + int.from_bytes(data[at + 1 : at + 1 + size], "big")
    if (size := _NUMBERS.get(first)) is not None:
        return at + 1 + size
    raise ValueError("packed rows are damaged")
