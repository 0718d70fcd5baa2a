"""The setting `trace_endpoint`: where the collector of traces listens."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from cairn.model.errors import InvalidParameter

PATH, PORT = "/v1/traces", 4318  # of OTLP over HTTP


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    path: str
    is_tls: bool


def read_endpoint(text: str) -> Address:
    """`http://host:4318`, as the setting has it; a path of its own is taken as it is."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise _refused(str(problem)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _refused("it is http://host:4318 or https://host:4318")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise _refused("it cannot have a user, a password or a fragment")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise _refused("it has characters that no address has")
    path = parts.path.rstrip("/") or PATH
    if parts.query:
        path += f"?{parts.query}"
    return Address(parts.hostname, port or PORT, path, parts.scheme == "https")


def _refused(why: str) -> InvalidParameter:
    return InvalidParameter(f"invalid value for 'trace_endpoint': {why}")
