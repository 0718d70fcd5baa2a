"""A connection string taken apart, with several hosts: `scheme://user:password@h1:1,[::1]:2/db?a=b`.

`urllib` is no help here: since its fix for CVE-2024-11168 it refuses a second host in brackets.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

import msgspec

_PARTS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?P<account>[^/?#]*)@)?(?P<hosts>[^/?#@]*)(?:/(?P<database>[^?#]*))?(?:\?(?P<query>[^#]*))?"
)


class Dsn(msgspec.Struct, frozen=True):
    """Its parts, unquoted; empty where nothing was given."""

    scheme: str
    user: str
    password: str
    hosts: tuple[str, ...]
    database: str
    options: tuple[tuple[str, str], ...]


def split_dsn(text: str) -> Dsn | None:
    """None: it is no connection string at all."""
    found = _PARTS.fullmatch(text.strip())
    if found is None:
        return None
    user, _, password = (found["account"] or "").partition(":")
    return Dsn(
        found["scheme"].lower(),
        unquote(user),
        unquote(password),
        tuple(host for host in found["hosts"].split(",") if host),
        unquote((found["database"] or "").strip("/")),
        tuple(parse_qsl(found["query"] or "", keep_blank_values=True)),
    )
