"""The usual case of a prepared statement, without the general machinery of `PgClient`.

The request is put together from parts made once; an answer that is nothing but rows, a tag and an
idle server is read in one pass. Anything else (a notice, an error, half an answer) is left to
`PgClient`, which then reads the same bytes from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cairn.model.errors import CairnError
from cairn.pgwire import messages as m
from cairn.pgwire.client import requests as ask
from cairn.pgwire.client.backend import Result
from cairn.pgwire.client.params import encode_params
from cairn.pgwire.client.replies import Prepared
from cairn.pgwire.values import oids

MAX_BYTES: Final = 1 << 20  # longer requests go the general way, which checks every length
_IDLE: Final = m.READY["I"]
_BOUND: Final = m.BIND_COMPLETE
_ROW, _DONE = ord("D"), ord("C")
_LENGTH: Final = m.INT32.pack
_NULL: Final = m.INT32.pack(-1)
_BIND: Final = m.HEADER.pack
_header: Final = m.HEADER.unpack_from


class Quick:
    """One prepared statement on one connection."""

    __slots__ = ("_columns", "_head", "_oids", "_read", "_tail", "_texts")

    def __init__(self, name: str, prepared: Prepared) -> None:
        self._oids = prepared.param_oids
        json = {oids.JSON, oids.JSONB}
        self._texts = json.isdisjoint(prepared.param_oids)  # a str is then sent as it is
        self._columns, self._read = prepared.columns, prepared.read
        # Portal without a name, this statement, no format codes: all parameters as text.
        names = b"\0" + ask.strict_cstring(name, "a name")
        self._head = names + b"\0\0" + m.UINT16.pack(len(self._oids))
        formats = m.int16_list([fmt for _, _, fmt in prepared.columns])
        self._tail = formats, ask.execute(0) + m.SYNC_MESSAGE

    def request(self, params: Sequence[Any]) -> bytes | None:
        """Bind, Execute, Sync; None for what the general way has to judge."""
        if len(params) != len(self._oids) or not self._texts:
            return None
        parts = [self._head]
        for value in params:
            kind = type(value)
            if kind is int:
                text = b"%d" % value
            elif kind is str:
                text = value.encode("utf-8", "surrogatepass")
            elif value is None:
                parts.append(_NULL)
                continue
            elif kind is bytes:
                return None  # its format has to be told
            else:
                parts[1:] = encode_params(params, self._oids)
                break
            parts.append(_LENGTH(len(text)) + text)
        formats, rest = self._tail
        body = b"".join(parts) + formats
        return _BIND(66, len(body) + 4) + body + rest if len(body) < MAX_BYTES else None

    def answer(self, data: bytes) -> Result | None:
        """The result, if these bytes are the whole and usual answer."""
        if data[:5] != _BOUND or data[-6:] != _IDLE:
            return None
        at, end, size = 5, 5, len(data) - 6
        rows: list[tuple[Any, ...]] = []
        read = self._read
        while at + 5 <= size:
            kind, length = _header(data, at)
            end = at + 1 + length
            if length < 4 or end > size:
                return None
            if kind == _ROW and read is not None:
                try:
                    rows.append(read(data, at + 5, end))
                except CairnError:
                    return None  # `PgClient` finds the same, and closes
            elif kind == _DONE and end == size and data.find(0, at + 5, end) == end - 1:
                return Result(
                    self._columns, rows, data[at + 5 : end - 1].decode("utf-8", "replace")
                )
            else:
                return None
            at = end
        return None
