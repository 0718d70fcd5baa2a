"""Decodes backend messages for a client, which believes none of them before it has checked."""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgspec

from cairn.model.errors import CairnError, ProtocolViolation
from cairn.pgwire.messages import INT16, UINT16, UINT32, Column
from cairn.pgwire.values.rows import RowDecoder, row_decoder

_FIELD = Struct("!IhIhih")


class Notice(msgspec.Struct, frozen=True):
    """A NoticeResponse. `fields` has all of it by field letter."""

    severity: str
    code: str
    message: str
    fields: dict[str, str]


class ServerError(CairnError):
    """What the server reported. `severity` and `fields` are as sent; a missing code is XX000."""

    def __init__(self, fields: dict[str, str]) -> None:
        position = fields.get("P", "")
        super().__init__(
            fields.get("M", "the server reported an error without a message"),
            detail=fields.get("D"),
            hint=fields.get("H"),
            position=int(position) if position.isascii() and position.isdigit() else None,
            sqlstate=fields.get("C", "XX000"),
        )
        self.fields = fields
        self.severity = fields.get("V") or fields.get("S", "ERROR")


def decode_fields(body: bytes) -> dict[str, str]:
    """Fields of an ErrorResponse or NoticeResponse; what is missing is missing."""
    fields: dict[str, str] = {}
    for part in body.split(b"\0"):
        if part:
            fields[chr(part[0])] = part[1:].decode("utf-8", "replace")
    return fields


def decode_notice(body: bytes) -> Notice:
    fields = decode_fields(body)
    severity = fields.get("V") or fields.get("S", "NOTICE")
    return Notice(severity, fields.get("C", "00000"), fields.get("M", ""), fields)


def decode_columns(body: bytes) -> list[Column]:
    """RowDescription: name, type OID and format code of each column."""
    (count,) = short(body)
    columns: list[Column] = []
    at = 2
    for _ in range(count):
        stop = body.find(0, at)
        if stop < 0 or stop + 19 > len(body):
            raise ProtocolViolation("a row description ends before its last column")
        _, _, oid, _, _, fmt = _FIELD.unpack_from(body, stop + 1)
        if fmt not in (0, 1):
            raise ProtocolViolation(f"a row description has format code {fmt}")
        columns.append((body[at:stop].decode("utf-8", "replace"), oid, fmt))
        at = stop + 19
    return columns


def decode_parameter_oids(body: bytes) -> tuple[int, ...]:
    (count,) = short(body)
    if len(body) != 2 + 4 * count:
        raise ProtocolViolation("a parameter description has a wrong length")
    return Struct(f"!{count}I").unpack_from(body, 2)


def decode_strings(body: bytes, count: int) -> list[str]:
    parts = body.split(b"\0")
    if len(parts) != count + 1 or parts[-1]:
        raise ProtocolViolation(f"{count} strings were expected")
    return [part.decode("utf-8", "replace") for part in parts[:-1]]


def decode_key_data(body: bytes) -> tuple[int, bytes]:
    if not 8 <= len(body) <= 260:
        raise ProtocolViolation("backend key data has a wrong length")
    return UINT32.unpack_from(body)[0], body[4:]


def decode_copy_format(body: bytes) -> tuple[int, int]:
    """Overall format and number of columns of a CopyInResponse or CopyOutResponse."""
    if len(body) < 3 or len(body) != 3 + 2 * UINT16.unpack_from(body, 1)[0]:
        raise ProtocolViolation("a copy response has a wrong length")
    return body[0], INT16.unpack_from(body, 1)[0]


def short(body: bytes) -> tuple[int]:
    if len(body) < 2:
        raise ProtocolViolation("a message is cut short")
    found: tuple[int] = UINT16.unpack_from(body)
    return found


def reader(columns: list[Column]) -> RowDecoder:
    return row_decoder([oid for _, oid, _ in columns], [fmt for _, _, fmt in columns])


class Result(msgspec.Struct):
    """What one statement gave. `tag` is None if it ended with an empty query or was suspended."""

    columns: list[Column]
    rows: list[tuple[Any, ...]]
    tag: str | None = None
    suspended: bool = False

    @property
    def row_count(self) -> int:
        """Rows touched, as the tag says it."""
        last = (self.tag or "").rpartition(" ")[2]
        return int(last) if last.isascii() and last.isdigit() else 0
