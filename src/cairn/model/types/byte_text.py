"""`bytea` as text: PostgreSQL's hex form, and the escape form that it still reads."""

from __future__ import annotations

import re

from cairn.model.errors import InvalidText

_ESCAPED = re.compile(rb"\\(\\|[0-3][0-7]{2})")


def bytes_text(value: bytes) -> str:
    return "\\x" + value.hex()


def parse_bytes(text: str) -> bytes:
    r"""`\x6162`, with blanks between bytes; else every character for itself, `\\` and `\ooo`."""
    if text.startswith("\\x"):
        try:
            if text.isascii():
                return bytes.fromhex(text[2:])
        except ValueError:
            pass
        raise InvalidText(f'invalid hexadecimal data: "{text[:200]}"', sqlstate="22023")
    return unescaped(text.encode())


def unescaped(data: bytes) -> bytes:
    if b"\\" in _ESCAPED.sub(b"", data):
        raise ValueError("a backslash before something else")
    return _ESCAPED.sub(_one, data)


def _one(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] == b"\\" else bytes([int(match[1], 8)])


def escaped(data: bytes) -> str:
    r"""The escape form: a zero byte and what is not ASCII as `\ooo`, a backslash twice."""
    return "".join(
        "\\\\" if byte == 0x5C else chr(byte) if 0 < byte < 0x80 else f"\\{byte:03o}"
        for byte in data
    )
