"""Query metadata: from the notice before ParseComplete to the bucket of a set of parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from cairn.model.errors import CairnError
from cairn.model.sharding.buckets import HASH_VERSION, bucket_function
from cairn.model.types.values import INT64_MAX, INT64_MIN, TYPE_OF_OID


class _Notice(msgspec.Struct):
    type: str = ""
    query: str | None = None
    tier: str | None = None
    dk_cols: list[int] | None = None
    dk_meta: list[tuple[int, int]] | None = None
    hash_version: int | None = None


class Metadata(msgspec.Struct):
    """What is known of one text. `positions` empty: its bucket cannot be told from parameters."""

    positions: tuple[int, ...] = ()  # in the parameter array, from 0, in the key's order
    oids: tuple[int, ...] = ()
    tier: str | None = None
    hash_version: int = HASH_VERSION
    told: bool = False  # a notice came
    _functions: dict[int, Callable[[Sequence[Any]], int]] = {}

    @property
    def is_bound(self) -> bool:
        return bool(self.positions) and bool(self.tier)

    def bucket(self, params: Sequence[Any], bucket_count: int) -> int | None:
        """None when a value is not one of its type: the server will say what is wrong."""
        function = self._functions.get(bucket_count) or self._function(bucket_count)
        try:
            if len(self.positions) == 1:
                value = params[self.positions[0]]
                return function((value if value is None else _CASTS[self.oids[0]](value),))
            values = []
            for position, oid in zip(self.positions, self.oids, strict=True):
                value = params[position]
                values.append(value if value is None else _CASTS[oid](value))
            return function(values)
        except (TypeError, ValueError, IndexError, KeyError, ArithmeticError, CairnError):
            return None

    def bucket_of(self, key: Sequence[Any], bucket_count: int) -> int | None:
        """The same, of the key's parts in their order, which are of their types already."""
        function = self._functions.get(bucket_count) or self._function(bucket_count)
        try:
            return function(key)
        except (TypeError, ValueError, ArithmeticError, CairnError):
            return None

    def _function(self, bucket_count: int) -> Callable[[Sequence[Any]], int]:
        types = [TYPE_OF_OID[oid] for oid in self.oids]
        made = bucket_function(types, bucket_count, self.hash_version)
        self._functions[bucket_count] = made
        return made


def read_notice(message: str, query: str, param_oids: Sequence[int] = ()) -> Metadata | None:
    """None for a notice that is not the metadata of this very text."""
    try:
        notice = msgspec.json.decode(message, type=_Notice)
    except msgspec.MsgspecError:
        return None
    if notice.query != query or (notice.dk_meta is None and notice.dk_cols is None):
        return None
    if notice.dk_meta is not None:
        positions = tuple(number - 1 for number, _ in notice.dk_meta)
        oids = tuple(oid for _, oid in notice.dk_meta)
    else:
        positions = tuple(notice.dk_cols or ())
        if any(not 0 <= at < len(param_oids) for at in positions):
            return Metadata(told=True)
        oids = tuple(param_oids[at] for at in positions)
    if any(oid not in _CASTS for oid in oids) or any(at < 0 for at in positions):
        return Metadata(told=True)
    version = HASH_VERSION if notice.hash_version is None else notice.hash_version
    return Metadata(positions, oids, notice.tier, version, told=True, _functions={})


class MetadataCache:
    """By text; the least used is forgotten first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: OrderedDict[str, Metadata] = OrderedDict()
        self._dropped: dict[str, int] = {}
        self.generation = 0  # what was prepared before a drop of its text is stale

    def __len__(self) -> int:
        return len(self._found)

    def get(self, sql: str) -> Metadata | None:
        found = self._found.get(sql)
        if found is not None and len(self._found) >= self._size:
            self._found.move_to_end(sql)
        return found

    def put(self, sql: str, metadata: Metadata) -> None:
        self._found[sql] = metadata
        while len(self._found) > self._size:
            self._found.popitem(last=False)

    def drop(self, sql: str) -> None:
        self._found.pop(sql, None)
        self.generation += 1
        self._dropped[sql] = self.generation

    def dropped_at(self, sql: str) -> int:
        return self._dropped.get(sql, 0) if self._dropped else 0

    def clear(self) -> None:
        self._found.clear()


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _int(value: Any) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise TypeError
    return float(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise TypeError
    return Decimal(value)


def _datetime(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TypeError
    return value


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(_text(value))


_CASTS: dict[int, Callable[[Any], Any]] = {
    16: _bool,
    20: _int,
    21: _int,
    23: _int,
    25: _text,
    701: _float,
    1184: _datetime,
    1700: _decimal,
    2950: _uuid,
}
