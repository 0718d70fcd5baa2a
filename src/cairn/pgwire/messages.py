"""Numbers and ready-made messages of the protocol: nothing here depends on a connection."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, TypeAlias

from cairn.model.errors import CairnError
from cairn.model.settings import limits
from cairn.pgwire.values.oids import TYPE_SIZES

PROTOCOL_3_0: Final = 196608
SSL_REQUEST: Final = 80877103
GSSENC_REQUEST: Final = 80877104
CANCEL_REQUEST: Final = 80877102

TEXT_FORMAT: Final = 0
BINARY_FORMAT: Final = 1
DATA_ROW: Final = ord("D")

MAX_MESSAGE_BYTES: Final = limits.CLIENT_MESSAGE_BYTES
MAX_STARTUP_BYTES: Final = 10_000

HEADER: Final = Struct("!BI")  # kind, length that counts itself but not the kind
INT16: Final = Struct("!h")
UINT16: Final = Struct("!H")
INT32: Final = Struct("!i")
UINT32: Final = Struct("!I")
_FIELD: Final = Struct("!IhIhih")  # table, attribute number, type, size, modifier, format

Column: TypeAlias = tuple[str, int, int]  # name, type OID, format code
Origin: TypeAlias = tuple[int, int, int]  # OID of the table, number of the column, type modifier
NO_ORIGIN: Final[Origin] = (0, 0, -1)

PARSE_COMPLETE: Final = b"1\0\0\0\4"
BIND_COMPLETE: Final = b"2\0\0\0\4"
CLOSE_COMPLETE: Final = b"3\0\0\0\4"
NO_DATA: Final = b"n\0\0\0\4"
EMPTY_QUERY: Final = b"I\0\0\0\4"
PORTAL_SUSPENDED: Final = b"s\0\0\0\4"
COPY_DONE: Final = b"c\0\0\0\4"
AUTH_OK: Final = b"R\0\0\0\x08\0\0\0\0"
READY: Final = {status: b"Z\0\0\0\5" + status.encode() for status in "ITE"}
SYNC_MESSAGE: Final = b"S\0\0\0\4"
TERMINATE_MESSAGE: Final = b"X\0\0\0\4"


def message(kind: int | bytes, *parts: bytes) -> bytes:
    """One whole message of `parts`."""
    body = b"".join(parts)
    code = kind if isinstance(kind, int) else kind[0]
    return HEADER.pack(code, len(body) + 4) + body


def cstring(text: str) -> bytes:
    """NUL-terminated UTF-8. A NUL inside would end it early, so it is shown as `?`."""
    return text.replace("\0", "?").encode("utf-8", "replace") + b"\0"


def int16_list(values: Sequence[int]) -> bytes:
    """A count and as many 16-bit numbers."""
    count = len(values)
    return Struct(f"!H{count}h").pack(count, *values)


def row_description(columns: Sequence[Column], origins: Sequence[Origin] = ()) -> bytes:
    """RowDescription. By the origins JDBC tools know what can be edited."""
    parts = [UINT16.pack(len(columns))]
    for at, (name, oid, fmt) in enumerate(columns):
        table, place, modifier = origins[at] if origins else NO_ORIGIN
        parts.append(cstring(name))
        parts.append(_FIELD.pack(table, place, oid, TYPE_SIZES.get(oid, -1), modifier, fmt))
    return message(b"T", *parts)


def parameter_description(oids: Sequence[int]) -> bytes:
    count = len(oids)
    return message(b"t", Struct(f"!H{count}I").pack(count, *oids))


def command_complete(tag: str) -> bytes:
    return message(b"C", cstring(tag))


def error_response(error: CairnError, severity: str) -> bytes:
    """ErrorResponse with S, V, C, M and, when the error has them, D, H, P and s, t, c, n."""
    parts = [b"S", cstring(severity), b"V", cstring(severity), b"C", cstring(error.sqlstate)]
    parts += [b"M", cstring(error.message)]
    if error.detail is not None:
        parts += [b"D", cstring(error.detail)]
    if error.hint is not None:
        parts += [b"H", cstring(error.hint)]
    if error.position is not None:
        parts += [b"P", cstring(str(error.position))]
    if error.about is not None:
        named = zip((b"s", b"t", b"c", b"n"), ("public", *error.about), strict=True)
        parts += [part for kind, name in named if name for part in (kind, cstring(name))]
    return message(b"E", *parts, b"\0")


def notice_response(text: str, severity: str = "NOTICE", code: str = "00000") -> bytes:
    """NoticeResponse with exactly S, C and M: drivers of the seeds read no more."""
    parts = (b"S", cstring(severity), b"C", cstring(code), b"M", cstring(text), b"\0")
    return message(b"N", *parts)
