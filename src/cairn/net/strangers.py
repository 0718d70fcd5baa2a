"""Who speaks something else at the port of instances, told by the first bytes.

Most are nobody's enemies: an address with the wrong port, or TLS on one side only. They get a
sentence in their own protocol where there is one, and so does the log.
"""

from __future__ import annotations

from typing import NamedTuple

from cairn.model.errors import PeerRefused
from cairn.pgwire.messages import error_response
from cairn.pgwire.server.wrong_doors import http_refusal, is_http_request

ENOUGH = 8  # bytes that tell them apart

_STARTUP = b"\x00\x03\x00"  # of protocol 3
_ENCRYPTION = (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"\x00\x00\x00\x08\x04\xd2\x16\x30")
_FOR_CLIENTS = "this port is for instances of the cluster (--listen)"


class Stranger(NamedTuple):
    problem: PeerRefused | None  # None: it is answered, and goes on in clear
    answer: bytes = b""


def who_dials(start: bytes) -> Stranger | None:
    """Of a connection that came to us."""
    if is_http_request(start):
        problem = PeerRefused(f"it speaks HTTP; {_FOR_CLIENTS}, HTTP is at --http-listen")
        return Stranger(problem, http_refusal(f"{_FOR_CLIENTS}: HTTP is at --http-listen"))
    if start.startswith(b"\x16\x03"):
        return Stranger(PeerRefused("it speaks TLS, and this instance has no --peer-tls-cert"))
    if start[:ENOUGH] in _ENCRYPTION:  # libpq shows no error before it has an answer to this
        return Stranger(None, b"N")
    if start[4:7] == _STARTUP:
        told = PeerRefused(
            f"{_FOR_CLIENTS}, and not for PostgreSQL clients", hint="see --pg-listen"
        )
        problem = PeerRefused(
            f"it is a PostgreSQL client; {_FOR_CLIENTS}, clients go to --pg-listen"
        )
        return Stranger(problem, error_response(told, "FATAL"))
    return None


def who_answers(start: bytes) -> Stranger | None:
    """Of a connection that we made."""
    asked = "--peer wants what the other instance has as --listen"
    if start.startswith(b"E\x00\x00"):
        return Stranger(PeerRefused(f"it is a port for PostgreSQL clients; {asked}"))
    if start.startswith(b"HTTP/"):
        return Stranger(PeerRefused(f"it is a port for HTTP; {asked}"))
    if start.startswith(b"\x15\x03"):
        return Stranger(PeerRefused("it wants TLS, and this instance has no --peer-tls-cert"))
    return None
