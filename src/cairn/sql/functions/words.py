"""More functions of text, as PostgreSQL has them."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable
from typing import Any

from cairn.model import stops
from cairn.model.errors import InvalidParameter, LimitExceeded
from cairn.model.quoting import identifier
from cairn.model.types.enums import checker, ranks
from cairn.sql.functions.numbers import strict
from cairn.sql.functions.texts import check_length

_WORD, _BORDER = re.compile(r"[^\W_]+"), re.compile(r"[\W_]")
PIECE = 65_536  # characters
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


@strict
def c_initcap(text: str) -> str:
    """Piece by piece: the words of a long text would take many times its memory at once."""
    pieces, start = [], 0
    while start < len(text):
        stops.check()
        border = _BORDER.search(text, start + PIECE)  # never inside of a word
        end = len(text) if border is None else border.end()
        pieces.append(_WORD.sub(_capitalised, text[start:end]))
        start = end
    return "".join(pieces)


def _capitalised(word: re.Match[str]) -> str:
    return word[0][0].upper() + word[0][1:].lower()


@strict
def c_split_part(text: str, delimiter: str, at: int) -> str:
    """The one part that is asked for: all of them may be many times as large as the text."""
    if at == 0:
        raise InvalidParameter("field position must not be zero")
    if not delimiter:
        return text if at in (1, -1) else ""
    before = at - 1 if at > 0 else text.count(delimiter) + 1 + at
    if before < 0:
        return ""
    start = 0
    for number in range(before):
        if number % 10_000 == 0:
            stops.check()
        found = text.find(delimiter, start)
        if found < 0:
            return ""
        start = found + len(delimiter)
    end = text.find(delimiter, start)
    return text[start : len(text) if end < 0 else end]


def c_concat_ws(separator: str | None, *parts: str | None) -> str | None:
    if separator is None:
        return None
    return joined(separator, parts)


def joined(separator: str, parts: tuple[str | None, ...]) -> str:
    given = [part for part in parts if part is not None]
    check_length(sum(map(len, given)) + len(separator) * len(given))
    return separator.join(given)


@strict
def c_md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@strict
def c_chr(code: int) -> str:
    if code < 0:
        raise InvalidParameter("character number must be positive")
    if code == 0:
        raise LimitExceeded("null character not permitted")
    try:
        found = chr(code)
    except (ValueError, OverflowError):
        found = "\ud800"
    if "\ud800" <= found <= "\udfff":
        raise LimitExceeded(f"requested character too large for encoding: {code}")
    return found


@strict
def c_ascii(text: str) -> int:
    return ord(text[0]) if text else 0


@strict
def c_translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for at, char in enumerate(old):
        table.setdefault(ord(char), new[at] if at < len(new) else None)
    return text.translate(table)


@strict
def c_starts_with(text: str, prefix: str) -> int:
    return int(text.startswith(prefix))


@strict
def c_octets(text: str) -> int:
    return len(text.encode())


@strict
def c_bits(text: str) -> int:
    return 8 * len(text.encode())


@strict
def c_quote_literal(text: str) -> str:
    quoted = text.replace("'", "''")
    return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in quoted else f"'{quoted}'"


def c_quote_nullable(text: str | None) -> str:
    return "NULL" if text is None else str(c_quote_literal(text))


#: PostgreSQL's words that are no plain names.
_NOT_NAMES = (
    "all analyse analyze and any array as asc asymmetric authorization between bigint binary "
    "bit boolean both case cast char character check coalesce collate collation column "
    "concurrently constraint create cross current_catalog current_date current_role "
    "current_schema current_time current_timestamp current_user dec decimal default "
    "deferrable desc distinct do else end except exists extract false fetch float for foreign "
    "freeze from full grant greatest group grouping having ilike in initially inner inout int "
    "integer intersect interval into is isnull join lateral leading least left like limit "
    "localtime localtimestamp national natural nchar none normalize not notnull null nullif "
    "numeric offset on only or order out outer overlaps overlay placing position precision "
    "primary real references returning right row select session_user setof similar smallint "
    "some substring symmetric table tablesample then time timestamp to trailing treat trim "
    "true union unique user using values varchar variadic verbose when where window with "
    "xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi "
    "xmlroot xmlserialize xmltable"
)
_QUOTED = frozenset(_NOT_NAMES.split())


@strict
def c_quote_ident(text: str) -> str:
    is_plain = _PLAIN_NAME.fullmatch(text) and text not in _QUOTED
    return text if is_plain else identifier(text)


@strict
def c_overlay(text: str, new: str, start: int, length: int | None = None) -> str:
    if start < 1:
        raise InvalidParameter("negative substring length not allowed", sqlstate="22011")
    size = len(new) if length is None else length
    return text[: start - 1] + new + text[max(start - 1 + size, 0) :]


# --- labels of enums: a type travels as its `text` ---


def s_label(label: Any, type_: str) -> Any:
    """The label itself, if it is one."""
    return checker(type_)(label)


def s_rank(label: Any, type_: str) -> int | None:
    """Its place among the labels, counted from 1."""
    return None if label is None else ranks(type_)[1].get(label)


def s_nth(place: int | None, type_: str) -> str | None:
    labels = list(ranks(type_)[1])
    return labels[place - 1] if place is not None and 0 < place <= len(labels) else None


def s_labels(listed: str | None, type_: str) -> str | None:
    """A list of texts, if all of them are labels."""
    for label in json.loads(listed) if listed is not None else ():
        checker(type_)(label)
    return listed


LABELS: dict[str, Callable[..., Any]] = {
    "s_label": s_label,
    "s_labels": s_labels,
    "s_rank": s_rank,
    "s_nth": s_nth,
}


@strict
def c_hashtext(text: str) -> int:
    """PostgreSQL's hash of a text, by which programs make keys of advisory locks from names.

    It is Jenkins' lookup3, as `hash_bytes` in hashfn.c has it for machines whose lowest byte comes
    first. Longer texts than names are refused: it is done byte by byte.
    """
    data = text.encode()
    if len(data) > _HASHED_BYTES:
        raise LimitExceeded(f"hashtext of more than {_HASHED_BYTES} bytes")
    a = b = c = (0x9E3779B9 + len(data) + 3923095) & _32
    whole = len(data) - len(data) % 12
    for at in range(0, whole, 12):
        first, second, third = struct.unpack_from("<3I", data, at)
        a, b, c = _mixed((a + first) & _32, (b + second) & _32, (c + third) & _32)
    rest = data[whole:]
    first, second = struct.unpack("<2I", rest[:8].ljust(8, b"\0"))
    (third,) = struct.unpack("<I", (b"\0" + rest[8:]).ljust(4, b"\0"))
    found = _ended((a + first) & _32, (b + second) & _32, (c + third) & _32)
    return found - 2**32 if found >> 31 else found


_32, _HASHED_BYTES = 0xFFFFFFFF, 65_536


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _32


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):
        a, c = ((a - c) & _32) ^ _turned(c, bits), (c + b) & _32
        a, b, c = b, c, a
    return a, b, c


def _ended(a: int, b: int, c: int) -> int:
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _turned(b, bits)) & _32
        a, b, c = b, c, a
    return b
