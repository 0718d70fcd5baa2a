"""A process that calls SQL functions on giant values for an instance.

    python -m cairn.node.statements.owner.apart_worker

Calls come on stdin, values leave on stdout; both as one number of eight bytes and so many bytes of
MessagePack. It knows no rows and no files, and ends with its instance, or when nobody asks.
"""

from __future__ import annotations

import os
import resource
import select
from typing import Any

import msgspec

from cairn.model.carried_errors import to_wire
from cairn.model.errors import CairnError
from cairn.model.unexpected import of_value
from cairn.sql.functions.functions import SCALARS

IDLE_S = 60.0
MOST_BYTES = 4 << 30  # of memory: a call that needs more is refused
HEAD = 8
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, list[Any]]).decode


def answer(call: bytes) -> bytes:
    """(True, value) or (False, error)"""
    name, args = _decode(call)
    try:
        return _encode((True, SCALARS[name](*args)))
    except CairnError as problem:
        return _encode((False, to_wire(problem)))
    except Exception as problem:
        return _encode((False, to_wire(of_value(problem, name))))


def read_exactly(size: int) -> bytes:
    """From standard input. Raises EOFError."""
    parts, left = [], size
    while left:
        part = os.read(0, min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    try:
        while select.select([0], [], [], IDLE_S)[0]:
            size = int.from_bytes(read_exactly(HEAD), "little")
            told = memoryview(answer(read_exactly(size)))
            os.write(1, len(told).to_bytes(HEAD, "little"))
            while told:
                told = told[os.write(1, told) :]
            del told
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the instance is gone


if __name__ == "__main__":
    main()
