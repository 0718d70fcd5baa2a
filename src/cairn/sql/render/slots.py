"""The `?n` of SQLite statements, and the marks where bucket ranges go."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from cairn.model.sharding.spans import merged
from cairn.model.tables.schema import BUCKET_COLUMN
from cairn.model.types.values import ColumnType, Physical, to_physical
from cairn.sql.ir import Param

Params = Sequence[Any]
Bind = Callable[[Params], tuple[Physical, ...]]
Ranges = list[tuple[int, int]]
_MARK = re.compile(r"/\*buckets:(\w+)\*/")


class Slots:
    """The `?n` of one SQLite statement and where their values come from."""

    def __init__(self, first: int = 0) -> None:
        self._first = first  # so many places are taken by values of others
        self._numbers: dict[object, int] = {}
        self._sources: list[Callable[[Params], Physical]] = []

    def param(self, param: Param) -> str:
        number = self._numbers.get(param)
        if number is None:
            assert param.type is not None
            type_, at = param.type, param.number - 1
            number = self._add(param, lambda params: to_physical(type_, params[at]))
        return f"?{number}"

    def computed(self, key: object, source: Callable[[Params], Physical]) -> str:
        number = self._numbers.get(key) or self._add(key, source)
        return f"?{number}"

    def _add(self, key: object, source: Callable[[Params], Physical]) -> int:
        self._sources.append(source)
        self._numbers[key] = number = self._first + len(self._sources)
        return number

    def numbers(self, computed: object = None) -> tuple[list[int], dict[int, ColumnType]] | None:
        """The parameters behind `?1`, `?2`, … with their types; 0 is the value `computed`. None:
        there are others."""
        bindings: list[int] = []
        types: dict[int, ColumnType] = {}
        for key in self._numbers:
            if isinstance(key, Param) and key.type is not None:
                bindings.append(key.number)
                types[key.number] = key.type
            elif computed is not None and key == computed:
                bindings.append(0)
            else:
                return None
        return bindings, types

    @property
    def count(self) -> int:
        return self._first + len(self._sources)

    def bind(self) -> Bind:
        """Parameters to SQLite's bindings; hot shapes have functions of their own."""
        sources = tuple(self._sources)
        if not sources:
            return lambda params: ()
        if len(sources) == 1:
            only = sources[0]
            return lambda params: (only(params),)
        if len(sources) == 2:
            first, second = sources
            return lambda params: (first(params), second(params))
        return lambda params: tuple([source(params) for source in sources])


def with_ranges(sql: str, ranges: Ranges | None) -> str:
    """Put bucket ranges in place of the marks; None means every bucket that is here."""

    def predicate(match: re.Match[str]) -> str:
        if ranges is None:
            return "1"
        return bucket_condition(f"{match.group(1)}.{BUCKET_COLUMN}", ranges)

    return _MARK.sub(predicate, sql)


@dataclass(frozen=True)
class Places:
    """Where the bindings of a statement come from, when each is a parameter or the bucket."""

    bindings: tuple[int, ...]  # numbers of parameters; 0: the bucket
    types: dict[int, ColumnType]  # of those parameters
    key: tuple[int, ...] = ()  # parameters that make the bucket
    bucket_count: int = 0


@dataclass(frozen=True)
class Keys:
    """The keys that a statement lists, each with its bucket, for the one mark of its text.

    Buckets and keys in two lists of their own would be looked for in all their combinations.
    """

    columns: tuple[str, ...]  # the bucket first
    rows: Callable[[Params], list[tuple[Physical, ...]] | None]

    def asked(
        self,
        sql: str,
        args: tuple[Physical, ...],
        params: Params,
        ranges: Sequence[tuple[int, int]],
    ) -> tuple[str, tuple[Physical, ...]] | None:
        """The text and its values for some buckets, in their order. None: not by these keys."""
        found = self.rows(params)
        if found is None:
            return None
        here = [row for row in found if _has(ranges, row[0])]
        if not here:
            return None
        width, first = len(self.columns), len(args) + 1
        rows = ", ".join(
            f"({', '.join([f'?{at + n}' for n in range(width)])})"
            for at in range(first, first + len(here) * width, width)
        )
        condition = f"({', '.join(self.columns)}) IN (VALUES {rows})"
        return _MARK.sub(condition, sql), (*args, *chain.from_iterable(here))


def _has(ranges: Sequence[tuple[int, int]], bucket: Any) -> bool:
    at = bisect_right(ranges, bucket, key=lambda each: each[0]) - 1
    return at >= 0 and bucket <= ranges[at][1]


def bucket_condition(column: str, ranges: Sequence[tuple[int, int]]) -> str:
    """Neighbours become one range; a long list becomes IN, as a chain of ORs has a limit.

    A wide range holds most rows that are here. SQLite is told so: otherwise it takes the range for
    the narrowest condition and reads the whole table by it, whatever index there is.
    """
    apart = merged(ranges)
    if sum(high - low + 1 for low, high in apart) > max(_NARROW, _SPARSE * len(apart)):
        return _wide_condition(column, apart)
    return f"({_any_of(column, apart)})" if apart else "0"


def _wide_condition(column: str, apart: Sequence[tuple[int, int]]) -> str:
    """One range with all of them in it, which an index may use, and then which of it they are."""
    around = f"likely({column} BETWEEN {apart[0][0]} AND {apart[-1][1]})"
    if len(apart) == 1:
        return f"({around})"
    return f"({around} AND ({_any_of(f'+{column}', apart)}))"


def _any_of(column: str, apart: Sequence[tuple[int, int]]) -> str:
    if len(apart) > _MOST_RANGES:
        every = ", ".join(str(each) for low, high in apart for each in range(low, high + 1))
        return f"{column} IN ({every})"
    return " OR ".join(
        f"{column} = {low}" if low == high else f"{column} BETWEEN {low} AND {high}"
        for low, high in apart
    )


_MOST_RANGES = 100
_NARROW = 64  # buckets: so many are quickly read one by one
_SPARSE = 8  # buckets in a range on average: those of keys lie apart
