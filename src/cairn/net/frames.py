"""Length-prefixed MessagePack frames between instances, with limits on what a stranger sends."""

from __future__ import annotations

import msgspec

from cairn.model.errors import ProtocolViolation
from cairn.model.settings import limits

MAX_FRAME = limits.FRAME_BYTES
MAX_FRAME_BEFORE_AUTH = 4 * 1024

REQUEST, RESPONSE, ERROR, ONEWAY = 1, 2, 3, 4


class Frame(msgspec.Struct, array_like=True, gc=False):
    """One request, answer, error or message without an answer."""

    kind: int
    id: int
    method: str
    body: msgspec.Raw
    trace: str = ""  # the trace that a request belongs to; most have none, and no such field


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode
EMPTY = msgspec.Raw(_encode(None))


def pack(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def pack_frame(kind: int, request_id: int, method: str, body: bytes, trace: str = "") -> bytes:
    if trace:
        return pack(_encode((kind, request_id, method, msgspec.Raw(body), trace)))
    return pack(_encode((kind, request_id, method, msgspec.Raw(body))))


def decode_frame(payload: bytes) -> Frame:
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ProtocolViolation(f"a peer sent an unreadable frame: {problem}") from None


class FrameReader:
    """Cuts a stream of bytes into frames; a length above the limit is refused unread."""

    def __init__(self, limit: int = MAX_FRAME_BEFORE_AUTH) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        start = 0
        while len(buffer) - start >= 4:
            size = int.from_bytes(buffer[start : start + 4], "big")
            if size > self.limit:
                raise ProtocolViolation(f"a frame of {size} bytes is over the limit {self.limit}")
            if len(buffer) - start - 4 < size:
                break
            found.append(bytes(buffer[start + 4 : start + 4 + size]))
            start += 4 + size
        if start:
            del buffer[:start]
        return found
