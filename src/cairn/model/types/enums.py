"""CREATE TYPE … AS ENUM: labels in an order that people declare.

A value is stored as its label, a text. So keys, hashes, rows on their way and every client read
what they read of a text; only what compares, sorts or checks values asks for the order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from cairn.model.errors import InvalidText

_FIRST_OID = 2_100_000_000
LABEL_BYTES = 63  # of UTF-8, as in PostgreSQL


class EnumType(msgspec.Struct, frozen=True):
    id: int
    name: str = ""
    labels: tuple[str, ...] = ()
    owner: int = 1
    schema_version: int = 0

    @property
    def oid(self) -> int:
        """Its number for clients; the next one is that of its arrays."""
        return _FIRST_OID + 2 * (self.id & 0xFFFFFF)

    @property
    def text(self) -> str:
        """Name and labels, as SQLite's functions are given them."""
        return json.dumps([self.name, *self.labels], ensure_ascii=False)

    def check(self, label: str) -> str:
        if label not in self.labels:
            raise not_a_label(self.name, label)
        return label


def text_oid(oid: int) -> int:
    """What clients send under the number of an enum, or of its arrays, is text, or text[]."""
    if not _FIRST_OID <= oid <= _FIRST_OID + 2 * 0xFFFFFF + 1:
        return oid
    return 1009 if oid % 2 else 25


def not_a_label(name: str, label: Any) -> InvalidText:
    return InvalidText(f'invalid input value for enum {name}: "{str(label)[:200]}"')


@lru_cache(maxsize=1024)
def ranks(text: str) -> tuple[str, dict[str, int]]:
    """The name of a type from its `text`, and the place of each label, counted from 1."""
    name, *labels = json.loads(text)
    return name, {label: at for at, label in enumerate(labels, 1)}


def checker(text: str) -> Callable[[Any], Any]:
    name, known = ranks(text)

    def check(label: Any) -> Any:
        if label is not None and label not in known:
            raise not_a_label(name, label)
        return label

    return check
