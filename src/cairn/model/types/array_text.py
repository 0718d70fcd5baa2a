"""Arrays as PostgreSQL writes them: `{a,"b c",NULL}`, of one dimension."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cairn.model import stops
from cairn.model.errors import InvalidText

CHECKED = 1024  # items until it is asked again whether anybody still wants them

_ITEM = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^\\",{}\s]|\\.|\s+(?=[^\s,}]))+))\s*', re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(r'[\s"\\{},]|^$|^null$', re.IGNORECASE)


def split_list(text: str) -> list[str | None]:
    """The items of `{a,"b c",NULL}`."""
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}") and len(body) > 1):
        raise InvalidText(
            f'malformed array literal: "{text}"',
            detail='Array value must start with "{" or dimension information.',
        )
    found: list[str | None] = []
    body, at = body[1:-1], 0
    if not body.strip():
        return []
    while True:
        if not len(found) % CHECKED:
            stops.check()
        match = _ITEM.match(body, at)
        if match is None:
            raise InvalidText(f'malformed array literal: "{text}"')
        quoted, bare = match.groups()
        is_null = bare is not None and bare.upper() == "NULL"
        word = quoted if quoted is not None else bare
        found.append(None if is_null else _ESCAPED.sub(r"\1", word))
        at = match.end()
        if at == len(body):
            return found
        if body[at] != ",":
            raise InvalidText(f'malformed array literal: "{text}"')
        at += 1


def join_list(items: Iterable[str | None]) -> str:
    """The text behind `split_list`."""
    return "{" + ",".join(map(_written, items)) + "}"


def _written(text: str | None) -> str:
    if text is None:
        return "NULL"
    if not _QUOTED.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
