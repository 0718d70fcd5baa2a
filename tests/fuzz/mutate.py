"""Bytes and values that are nearly right."""

from __future__ import annotations

import random

NUMBERS = (0, 1, -1, 2, 7, 127, 255, 256, 65_535, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63))
TEXTS = (
    *("", "i1", "admin", "things", "x" * 3_000, "\U0001f600", "SELECT 1", "127.0.0.1:1", "é\u0301"),
    *(
        "%s%n",
        "../../etc/passwd",
        "'; DROP TABLE things; --",
        "\x01\x7f",
        "1e999",
        "NaN",
        "{}",
        "[]",
    ),
    *("default_1", "Online", "a\nb\tc", "{1,2}", "2026-02-30", "infinity", "-0", "0x1f", "\\x00"),
)
PIECES = (
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\0",
    b"\x80",
    b"'",
    b"\r\n",
)


def mutated(chance: random.Random, data: bytes) -> bytes:
    """A few bytes changed, cut out, doubled or put in; now and then none."""
    found = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(6):
            case 0 if found:
                found[at % len(found)] = chance.randrange(256)
            case 1:
                del found[at : at + chance.choice((1, 2, 8, 100))]
            case 2:
                found[at:at] = chance.choice(PIECES)
            case 3:
                found[at:at] = found[at : at + chance.choice((1, 4, 32))]
            case 4 if found:
                found[at % len(found)] ^= 1 << chance.randrange(8)
            case _:
                found[at:at] = chance.randbytes(chance.choice((1, 3, 9)))
    return bytes(found)


def any_text(chance: random.Random) -> str:
    return chance.choice(TEXTS)


def any_number(chance: random.Random) -> int:
    return chance.choice(NUMBERS) if chance.random() < 0.7 else chance.randrange(-(10**6), 10**6)
