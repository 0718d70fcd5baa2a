"""The first packet of a connection: SSLRequest, GSSENCRequest, CancelRequest, StartupMessage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from cairn.model.errors import InvalidAuthorization, ProtocolViolation, Unsupported
from cairn.pgwire.messages import (
    CANCEL_REQUEST,
    GSSENC_REQUEST,
    PROTOCOL_3_0,
    SSL_REQUEST,
    UINT32,
    cstring,
    message,
)

_EXTENSION: Final = "_pq_."
_NOT_OPTIONS: Final = frozenset(("user", "database", "options"))
# A comma begins the next pair only before `name=`: -c search_path=a,b is one pair.
_PAIR_BORDER: Final = re.compile(r",(?=\s*[A-Za-z_][\w.-]*=|\s*$)")
_MAX_CANCEL_KEY_BYTES: Final = 256  # as protocol 3.2 has it


class StartupParams(msgspec.Struct, frozen=True):
    """Who connects and what they ask for; fixed for the life of the connection."""

    user: str
    database: str
    params: dict[str, str]  # the packet's pairs as they came
    options: dict[str, str]  # pairs of `options`, overridden by direct keys of the same name

    def extensions(self) -> set[str]:
        """Names of the packet that a server need not know."""
        return {name[len(_EXTENSION) :] for name in self.params if name.startswith(_EXTENSION)}


class Tls(Enum):
    """The client asks whether it may encrypt."""

    SSL = "SSLRequest"
    GSS = "GSSENCRequest"


class Cancel(msgspec.Struct, frozen=True):
    pid: int
    key: bytes


class Startup(msgspec.Struct, frozen=True):
    params: StartupParams
    negotiation: bytes  # NegotiateProtocolVersion to send, or nothing


FirstPacket: TypeAlias = Tls | Cancel | Startup


def decode_first_packet(body: bytes, known_extensions: frozenset[str]) -> FirstPacket:
    """`body` is the packet without its length. `known_extensions` are names after `_pq_.`."""
    if len(body) < 4:
        raise ProtocolViolation("invalid length of startup packet")
    (code,) = UINT32.unpack_from(body)
    if code == CANCEL_REQUEST:
        return _decode_cancel(body)
    if code in (SSL_REQUEST, GSSENC_REQUEST):
        if len(body) != 4:
            raise ProtocolViolation("invalid length of encryption request")
        return Tls.SSL if code == SSL_REQUEST else Tls.GSS
    major, minor = code >> 16, code & 0xFFFF
    if major != 3:
        raise Unsupported(
            f"unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
        )
    pairs = _decode_pairs(body)
    unknown = [
        name
        for name in pairs
        if name.startswith(_EXTENSION) and name.removeprefix(_EXTENSION) not in known_extensions
    ]
    negotiation = negotiate(unknown) if minor or unknown else b""
    return Startup(startup_params(pairs), negotiation)


def _decode_cancel(body: bytes) -> Cancel:
    if not 12 <= len(body) <= 8 + _MAX_CANCEL_KEY_BYTES:
        raise ProtocolViolation("invalid length of cancel request")
    return Cancel(UINT32.unpack_from(body, 4)[0], body[8:])


def _decode_pairs(body: bytes) -> dict[str, str]:
    if len(body) < 5 or body[-1]:
        raise ProtocolViolation("invalid startup packet layout: expected terminator as last byte")
    try:
        words = body[4:-1].decode().split("\0")
    except UnicodeDecodeError:
        raise ProtocolViolation("startup packet is not valid UTF-8") from None
    last = words.pop()  # after the last NUL there is nothing, unless a value was cut
    if last or len(words) % 2 or not all(words[::2]):
        raise ProtocolViolation("invalid startup packet layout: names and values do not pair up")
    return dict(zip(words[::2], words[1::2], strict=True))


def startup_params(pairs: dict[str, str]) -> StartupParams:
    user = pairs.get("user", "")
    if not user:
        raise InvalidAuthorization("parameter 'user' is missing")
    options = parse_options(pairs.get("options", ""))
    for name, value in pairs.items():
        if name.startswith(_EXTENSION):
            options[name.removeprefix(_EXTENSION)] = value
    for name, value in pairs.items():
        if name not in _NOT_OPTIONS and not name.startswith(_EXTENSION):
            options[name] = value
    return StartupParams(user, pairs.get("database") or user, pairs, options)


def negotiate(unknown: list[str]) -> bytes:
    """NegotiateProtocolVersion: we speak 3.0 and do not know these extensions."""
    head = UINT32.pack(PROTOCOL_3_0) + UINT32.pack(len(unknown))
    return message(b"v", head, *map(cstring, unknown))


def parse_options(text: str) -> dict[str, str]:
    """Both spellings: `a=1,b=2` as Picodata has it, and libpq's `-c a=1 -c b=2 --c=3`.

    The last of equal names wins. What has no name is skipped, as are other switches; a name alone
    has an empty value, which whoever knows the name refuses.
    """
    found: dict[str, str] = {}
    for word in _words(text):
        pair = word.lstrip("-") if word.startswith("--") else word
        if word.startswith("-c"):
            pair = word[2:]
        elif word.startswith("-") and pair is word:
            continue  # another of postgres' command line switches
        for piece in _PAIR_BORDER.split(pair):
            name, equals, value = piece.partition("=")
            name = name.strip()
            if word.startswith("--"):
                name = name.replace("-", "_")
            if name and (equals or name.isidentifier()):
                found[name] = value
    return found


def _words(text: str) -> Iterator[str]:
    """Split at blanks; a backslash takes the next character as it is."""
    word: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            word.append(next(characters, ""))
        elif not character.isspace():
            word.append(character)
        elif word:
            yield "".join(word)
            word = []
    if word:
        yield "".join(word)
