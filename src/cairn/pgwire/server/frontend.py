"""Decodes the bodies of frontend messages. `server.py` cuts the stream into messages.

The decoders read by offset from the received bytes: [at, end) is one body. Whatever is wrong with
a body raises ProtocolViolation; the frame around it is whole, so the connection can go on.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, Literal

from cairn.model.errors import ProtocolViolation
from cairn.pgwire.messages import INT32, UINT16
from cairn.pgwire.server.requests import (
    COPY_DONE_REQUEST,
    FLUSH,
    SYNC,
    TERMINATE,
    BadMessage,
    Bind,
    Close,
    CopyDone,
    CopyFail,
    Describe,
    Execute,
    Parse,
    Query,
    Request,
    SaslInitial,
    Terminate,
)

_uint16: Final = UINT16.unpack_from
_int32: Final = INT32.unpack_from
_SHORT_LISTS: Final = tuple(Struct(f"!{count}h") for count in range(64))

_ALL_TEXT: Final = b"\0\1\0\0"  # one format code for all columns
_ALL_BINARY: Final = b"\0\1\0\1"

# What nearly every driver sends after Bind: the unnamed portal, all rows, Sync.
DESCRIBE_EXECUTE_SYNC: Final = b"D\0\0\0\6P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\4"
EXECUTE_SYNC: Final = DESCRIBE_EXECUTE_SYNC[7:]
DESCRIBE_UNNAMED: Final = Describe("P", b"")
EXECUTE_UNNAMED: Final = Execute(b"", 0)


def malformed(why: str) -> ProtocolViolation:
    return ProtocolViolation("invalid message format", detail=why)


def _cstring(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The string at `at` and the offset behind its NUL."""
    stop = data.find(0, at, end)
    if stop < 0:
        raise malformed("a string has no end")
    return data[at:stop], stop + 1


def _nothing_left(at: int, end: int) -> None:
    if at != end:
        raise malformed(f"{end - at} bytes too many")


def decode_query(data: bytes, at: int, end: int) -> Query:
    sql, at = _cstring(data, at, end)
    _nothing_left(at, end)
    return Query(sql)


def decode_parse(data: bytes, at: int, end: int) -> Parse:
    name, at = _cstring(data, at, end)
    sql, at = _cstring(data, at, end)
    if at + 2 > end:
        raise malformed("the number of parameter types is missing")
    (count,) = _uint16(data, at)
    at += 2
    _nothing_left(at + 4 * count, end)
    return Parse(name, sql, Struct(f"!{count}I").unpack_from(data, at))


class BindHead:
    """What a Bind of one statement repeats each time: everything before its parameters.

    Kept per connection, so that the second Bind in a row is compared instead of decoded.
    """

    __slots__ = ("count", "formats", "portal", "raw", "statement")

    def __init__(
        self, raw: bytes, portal: bytes, statement: bytes, formats: tuple[int, ...], count: int
    ) -> None:
        self.raw, self.portal, self.statement = raw, portal, statement
        self.formats, self.count = formats, count


NO_HEAD: Final = BindHead(b"\xff" * 8, b"", b"", (), 0)  # a portal's name is never so


def decode_bind_head(data: bytes, at: int, end: int) -> BindHead:
    start = at
    portal, at = _cstring(data, at, end)
    statement, at = _cstring(data, at, end)
    formats, at = _formats(data, at, end)
    if at + 2 > end:
        raise malformed("the number of parameters is missing")
    (count,) = _uint16(data, at)
    return BindHead(data[start : at + 2], portal, statement, formats, count)


def decode_bind(data: bytes, at: int, end: int, head: BindHead) -> Bind:
    """`head` was decoded from, or found equal to, the bytes at `at`."""
    at += len(head.raw)
    params: list[bytes | None] = []
    for _ in range(head.count):
        if at + 4 > end:
            raise malformed("parameters are missing")
        (length,) = _int32(data, at)
        at += 4
        if length < 0:
            if length != -1:
                raise malformed("a parameter has a negative length")
            params.append(None)
            continue
        stop = at + length
        if stop > end:
            raise malformed("a parameter is longer than its message")
        params.append(data[at:stop])
        at = stop
    tail = data[at:end]
    if tail == _ALL_TEXT:
        formats: tuple[int, ...] = (0,)
    elif tail == _ALL_BINARY:
        formats = (1,)
    else:
        formats, at = _formats(data, at, end)
        _nothing_left(at, end)
    return Bind(head.portal, head.statement, head.formats, params, formats)


def _formats(data: bytes, at: int, end: int) -> tuple[tuple[int, ...], int]:
    if at + 2 > end:
        raise malformed("format codes are missing")
    (count,) = _uint16(data, at)
    at += 2
    stop = at + 2 * count
    if stop > end:
        raise malformed("format codes are missing")
    struct = _SHORT_LISTS[count] if count < 64 else Struct(f"!{count}h")
    return struct.unpack_from(data, at), stop


def _kind_and_name(data: bytes, at: int, end: int) -> tuple[Literal["S", "P"], bytes]:
    kind = data[at : at + 1]
    name, stop = _cstring(data, at + 1, end)
    _nothing_left(stop, end)
    if kind == b"S":
        return "S", name
    if kind == b"P":
        return "P", name
    raise malformed("neither a statement nor a portal")


def decode_describe(data: bytes, at: int, end: int) -> Describe:
    return Describe(*_kind_and_name(data, at, end))


def decode_close(data: bytes, at: int, end: int) -> Close:
    return Close(*_kind_and_name(data, at, end))


def decode_execute(data: bytes, at: int, end: int) -> Execute:
    portal, at = _cstring(data, at, end)
    _nothing_left(at + 4, end)
    (max_rows,) = _int32(data, at)
    return Execute(portal, max(max_rows, 0))


def decode_copy_fail(data: bytes, at: int, end: int) -> CopyFail:
    text, at = _cstring(data, at, end)
    _nothing_left(at, end)
    return CopyFail(text.decode("utf-8", "replace"))


def decode_sasl_initial(data: bytes, at: int, end: int) -> SaslInitial:
    mechanism, at = _cstring(data, at, end)
    if at + 4 > end:
        raise malformed("the SASL response is missing")
    (length,) = _int32(data, at)
    at += 4
    _nothing_left(at + max(length, 0), end)
    return SaslInitial(mechanism.decode("utf-8", "replace"), data[at:end])


def ending_copy(request: Request) -> Request:
    """What ends a COPY by its own right is left as it is; any other message makes it fail."""
    if isinstance(request, CopyDone | CopyFail | Terminate):
        return request
    if isinstance(request, BadMessage) and request.recovery == "close":
        return request
    return CopyFail("unexpected message during COPY from stdin")


def _bare(request: Request) -> Callable[[bytes, int, int], Request]:
    """A message without a body is always the same value."""

    def decode(data: bytes, at: int, end: int) -> Request:
        _nothing_left(at, end)
        return request

    return decode


# Bind and CopyData are not here: `server.py` has faster ways with them.
DECODERS: Final[dict[int, Callable[[bytes, int, int], Request]]] = {
    ord("Q"): decode_query,
    ord("P"): decode_parse,
    ord("D"): decode_describe,
    ord("E"): decode_execute,
    ord("C"): decode_close,
    ord("H"): _bare(FLUSH),
    ord("S"): _bare(SYNC),
    ord("c"): _bare(COPY_DONE_REQUEST),
    ord("f"): decode_copy_fail,
    ord("X"): _bare(TERMINATE),
}
# An error in these is answered at once by ReadyForQuery; after the others the client sends Sync.
SIMPLE_KINDS: Final = frozenset(map(ord, "QFdcf"))
