"""Functions of `bytea`: encodings, parts, checksums."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import Any

from cairn.model.errors import CairnError, InvalidParameter, InvalidText
from cairn.model.types.byte_text import escaped, unescaped
from cairn.sql.functions.numbers import strict

_LINE = 76  # characters of a line of base64, as PostgreSQL breaks it
_UTF8 = ("utf8", "utf-8", "unicode")


def x_cat(*parts: bytes | None) -> bytes | None:
    """`||`"""
    return None if None in parts else b"".join(part for part in parts if part is not None)


@strict
def i_bytes(data: bytes) -> int:
    return len(data)


@strict
def i_place(data: bytes, part: bytes) -> int:
    """`position`: counted from 1."""
    return data.find(part) + 1


@strict
def i_bits(data: bytes) -> int:
    return 8 * len(data)


@strict
def c_encoded(data: bytes, word: str) -> str:
    match word.lower():
        case "hex":
            return data.hex()
        case "escape":
            return escaped(data)
        case "base64":
            text = base64.b64encode(data).decode()
            return "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
    raise _unknown(word)


@strict
def x_decoded(text: str, word: str) -> bytes:
    kind = word.lower()
    try:
        match kind:
            case "hex":
                if not text.isascii():
                    raise ValueError(text)
                return bytes.fromhex(text)
            case "escape":
                return unescaped(text.encode())
            case "base64":
                return base64.b64decode("".join(text.split()), validate=True)
    except (ValueError, binascii.Error):
        shown, state = ("bytea", "22P02") if kind == "escape" else (kind, "22023")
        raise InvalidText(f'invalid {shown} data: "{text[:200]}"', sqlstate=state) from None
    raise _unknown(word)


def _unknown(word: str) -> InvalidParameter:
    return InvalidParameter(f'unrecognized encoding: "{word[:100]}"', sqlstate="22023")


def _check_utf8(word: str) -> None:
    if word.lower() not in _UTF8:
        raise InvalidParameter(
            f'encoding "{word[:100]}" is not supported', hint="UTF8", sqlstate="22023"
        )


@strict
def x_of_text(text: str, word: str) -> bytes:
    """`convert_to`"""
    _check_utf8(word)
    return text.encode()


@strict
def c_of_bytes(data: bytes, word: str) -> str:
    """`convert_from`"""
    _check_utf8(word)
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        wrong = " ".join(f"0x{byte:02x}" for byte in data[problem.start : problem.start + 4])
        raise InvalidText(
            f'invalid byte sequence for encoding "UTF8": {wrong}', sqlstate="22021"
        ) from None
    if "\0" in text:
        raise InvalidText('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    return text


def _check_place(data: bytes, at: int) -> None:
    if not 0 <= at < len(data):
        last = len(data) - 1
        raise CairnError(f"index {at} out of valid range, 0..{last}", sqlstate="2202E")


@strict
def i_byte(data: bytes, at: int) -> int:
    _check_place(data, at)
    return data[at]


@strict
def x_set_byte(data: bytes, at: int, value: int) -> bytes:
    _check_place(data, at)
    return data[:at] + bytes((value & 0xFF,)) + data[at + 1 :]


@strict
def x_part(data: bytes, start: int, length: int | None = None) -> bytes:
    """`substring`: counted from 1, what lies before that counts and is empty."""
    if length is None:
        return data[max(start - 1, 0) :]
    if length < 0:
        raise CairnError("negative substring length not allowed", sqlstate="22011")
    return data[max(start - 1, 0) : max(start - 1 + length, 0)]


@strict
def c_md5_of_bytes(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _checksum(name: str) -> Callable[..., Any]:
    return strict(lambda data: hashlib.new(name, data).digest())


x_sha224, x_sha256 = _checksum("sha224"), _checksum("sha256")
x_sha384, x_sha512 = _checksum("sha384"), _checksum("sha512")
