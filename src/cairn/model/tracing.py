"""`traceparent`, as W3C defines it: the trace that a client's statement belongs to."""

from __future__ import annotations

import re
from typing import NamedTuple

_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
#: At the end of a text, as sqlcommenter and its kind write it.
_COMMENT = re.compile(rb"/\*[^*]*\btraceparent='([0-9a-f-]{55})'[^*]*\*/\s*(;?)\s*")
_COMMENT_MAX = 2_000


class Parent(NamedTuple):
    """Where a trace comes from, as W3C's `traceparent` says it."""

    trace_id: str
    span_id: str
    is_sampled: bool


def read_parent(text: str) -> Parent | None:
    """None for what is no traceparent."""
    found = _PARENT.fullmatch(text)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return Parent(found[1], found[2], bool(int(found[3], 16) & 1))


def without_parent(text: bytes) -> tuple[bytes, Parent | None]:
    """A statement, and the traceparent of the comment at its end. The comment is left out: with it
    no text would be seen twice, and each would be parsed and planned anew."""
    at = text.rfind(b"/*", -_COMMENT_MAX)
    found = None if at < 0 else _COMMENT.fullmatch(text, at)
    if found is None:
        return text, None
    return text[:at].rstrip() + found[2], read_parent(found[1].decode())
