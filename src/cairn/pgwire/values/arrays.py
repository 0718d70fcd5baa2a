"""Arrays: `{a,"b c",NULL}` and PostgreSQL's binary arrays, to and from (nested) Python lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

from cairn.pgwire.values.problems import bad_binary, bad_text

Encoder: TypeAlias = Callable[[Any], bytes]
Decoder: TypeAlias = Callable[[bytes], Any]

_HEAD: Final = Struct("!iiI")  # dimensions, has nulls, element type
_DIMENSION: Final = Struct("!ii")  # length, lower bound
_INT32: Final = Struct("!i")
_MAX_DIMENSIONS: Final = 6
_NEEDS_QUOTES: Final = re.compile(rb'[\s"\\{},]|^$|^null$', re.IGNORECASE)
_TOKEN: Final = re.compile(
    rb'\s*(?:([{},])|"((?:[^"\\]|\\.)*)"|((?:[^\s{},"\\]|\\.|\s(?!\s*[{},]))+))\s*', re.DOTALL
)
#: Items without quotes and escapes, in one list.
_PLAIN: Final = re.compile(rb'\{[^\s{},"\\]++(?:,[^\s{},"\\]++)*+\}')


def text_encoder(element: Encoder) -> Encoder:
    def encode(values: list[Any]) -> bytes:
        return b"{" + b",".join(map(one, values)) + b"}"

    def one(value: Any) -> bytes:
        if value is None:
            return b"NULL"
        if isinstance(value, list):
            return encode(value)
        text = element(value)
        return quoted(text) if _NEEDS_QUOTES.search(text) else text

    def quoted(text: bytes) -> bytes:
        return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'

    return encode


def text_decoder(element: Decoder, oid: int) -> Decoder:
    def decode(data: bytes) -> list[Any]:
        if _PLAIN.fullmatch(data):
            return [value(None, part) for part in data[1:-1].split(b",")]
        open_lists: list[list[Any]] = []
        at, expect_value = 0, True  # whether a value or `{` may come here
        while match := _TOKEN.match(data, at):
            at = match.end()
            mark, quoted, plain = match.groups()
            if mark == b"{" and expect_value and len(open_lists) < _MAX_DIMENSIONS:
                open_lists.append([])
            elif mark == b"," and not expect_value and open_lists:
                expect_value = True
            elif mark == b"}" and open_lists and (not expect_value or not open_lists[-1]):
                done, expect_value = open_lists.pop(), False
                if not open_lists:
                    if data[at:].strip():
                        break
                    return _even(done, data)
                if not done:
                    break  # only the outermost may be empty
                open_lists[-1].append(done)
            elif mark is None and expect_value and open_lists:
                open_lists[-1].append(value(quoted, plain))
                expect_value = False
            else:
                break
        raise bad_text(data, oid)

    def value(quoted: bytes | None, plain: bytes | None) -> Any:
        if quoted is None:
            assert plain is not None
            if plain.upper() == b"NULL":
                return None
            quoted = plain
        if b"\\" in quoted:
            quoted = re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        return element(quoted)

    def _even(values: list[Any], data: bytes) -> list[Any]:
        if not _is_even(values):
            raise bad_text(data, oid)
        return values

    return decode


def _is_even(values: list[Any]) -> bool:
    """Multi-dimensional arrays are boxes: lists beside lists have one shape."""
    shapes = {_shape(value) for value in values}
    return len(shapes) <= 1 and None not in shapes


def _shape(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return ()
    inner = {_shape(each) for each in value}
    if len(inner) > 1 or None in inner:
        return None
    return (len(value), *(next(iter(inner)) or ())) if inner else (0,)


def binary_encoder(element: Encoder, element_oid: int) -> Encoder:
    def encode(values: list[Any]) -> bytes:
        dimensions, flat = _flatten(values)
        has_nulls = int(any(value is None for value in flat))
        parts = [_HEAD.pack(len(dimensions), has_nulls, element_oid)]
        parts += [_DIMENSION.pack(length, 1) for length in dimensions]
        for value in flat:
            if value is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                data = element(value)
                parts += (_INT32.pack(len(data)), data)
        return b"".join(parts)

    return encode


def _flatten(values: list[Any]) -> tuple[list[int], list[Any]]:
    dimensions = [len(values)] if values else []
    while values and isinstance(values[0], list):
        dimensions.append(len(values[0]))
        values = [each for row in values for each in row]
    return dimensions, values


def binary_decoder(element: Decoder, element_oid: int, oid: int) -> Decoder:
    def decode(data: bytes) -> list[Any]:
        if len(data) < 12:
            raise bad_binary(data, oid)
        count, _, sent_oid = _HEAD.unpack_from(data)
        at = 12 + 8 * count
        if not 0 <= count <= _MAX_DIMENSIONS or sent_oid != element_oid or len(data) < at:
            raise bad_binary(data, oid)
        lengths = [_DIMENSION.unpack_from(data, 12 + 8 * i)[0] for i in range(count)]
        total = 1 if lengths else 0
        for length in lengths:
            total *= length
            # Each element takes four bytes at least: more were promised than can be here.
            if length < 0 or total > (len(data) - at) // 4:
                raise bad_binary(data, oid)
        values = elements(data, at, total)
        for length in reversed(lengths[1:]):
            step = length or 1
            values = [values[i : i + step] for i in range(0, len(values), step)]
        return values

    def elements(data: bytes, at: int, total: int) -> list[Any]:
        values: list[Any] = []
        for _ in range(total):
            if at + 4 > len(data):
                raise bad_binary(data, oid)
            (length,) = _INT32.unpack_from(data, at)
            at += 4
            if length == -1:
                values.append(None)
                continue
            if length < 0 or at + length > len(data):
                raise bad_binary(data, oid)
            values.append(element(data[at : at + length]))
            at += length
        if at != len(data):
            raise bad_binary(data, oid)
        return values

    return decode
