"""Frontend messages as bytes: what `PgClient` sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from cairn.model.errors import InvalidParameter, LimitExceeded
from cairn.pgwire import messages as m
from cairn.pgwire.client.params import encode_params, param_formats


def strict_cstring(text: str, what: str) -> bytes:
    """A NUL would end the string early and leave the rest to be taken for something else."""
    if "\0" in text:
        raise InvalidParameter(f"{what} has a NUL character in it")
    return text.encode("utf-8", "surrogatepass") + b"\0"


def ssl_request() -> bytes:
    return m.UINT32.pack(8) + m.UINT32.pack(m.SSL_REQUEST)


def startup(pairs: Mapping[str, str]) -> bytes:
    words = [strict_cstring(word, "a startup parameter") for pair in pairs.items() for word in pair]
    body = m.UINT32.pack(m.PROTOCOL_3_0) + b"".join(words) + b"\0"
    return m.UINT32.pack(len(body) + 4) + body


def cancel(pid: int, key: bytes) -> bytes:
    body = m.UINT32.pack(m.CANCEL_REQUEST) + m.UINT32.pack(pid) + key
    return m.UINT32.pack(len(body) + 4) + body


def query(sql: str) -> bytes:
    return m.message(b"Q", strict_cstring(sql, "the statement"))


def parse(name: str, sql: str, oids: Sequence[int]) -> bytes:
    _check_count(oids)
    types = Struct(f"!H{len(oids)}I").pack(len(oids), *oids)
    return m.message(
        b"P", strict_cstring(name, "a name"), strict_cstring(sql, "the statement"), types
    )


def bind(
    statement: str,
    params: Sequence[Any],
    declared: Sequence[int] | None,
    result_formats: Sequence[int],
) -> bytes:
    """Portals have no name here."""
    _check_count(params)
    names = b"\0" + strict_cstring(statement, "a name")
    formats = m.int16_list(param_formats(params, declared))
    count = m.UINT16.pack(len(params))
    values = encode_params(params, declared)
    return m.message(b"B", names, formats, count, *values, m.int16_list(result_formats))


def _check_count(params: Sequence[Any]) -> None:
    if len(params) > 0xFFFF:
        raise LimitExceeded(f"{len(params)} parameters are more than the protocol's 65535")


def describe(kind: str, name: str) -> bytes:
    return m.message(b"D", kind.encode(), strict_cstring(name, "a name"))


def close(kind: str, name: str) -> bytes:
    return m.message(b"C", kind.encode(), strict_cstring(name, "a name"))


def execute(max_rows: int) -> bytes:
    return m.message(b"E", b"\0", m.UINT32.pack(max_rows))


def check_sizes(parts: Sequence[bytes], limit: int) -> None:
    """A length that does not fit its field would turn our data into messages of its own."""
    for part in parts:
        if len(part) > limit:
            raise LimitExceeded(f"a message of {len(part)} bytes is over the limit of {limit}")
