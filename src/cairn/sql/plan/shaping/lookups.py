"""Indexes of gathered rows, for sub-queries that are run once for each row around them.

SQLite makes an index for a join that has none, but for such a sub-query it would make it anew every
time. So those that it can use are made once, before the statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cairn.sql.ir import (
    Call,
    Col,
    Expr,
    Gathered,
    Join,
    Query,
    Rel,
    Select,
    SubQuery,
    columns_in,
    conjuncts,
    outer_columns,
    rels_of,
    walk,
)
from cairn.sql.typing_rules import N
from cairn.sql.zeros import is_key

Index = tuple[int, tuple[int, ...]]  # of table m<n>: these columns of it
MOST = 8  # for one statement


def lookups(merged: Query) -> tuple[Index, ...]:
    found: dict[Index, None] = {}
    for each in walk(merged):
        if isinstance(each, SubQuery) and outer_columns(each.query):
            for block in walk(each.query):
                if isinstance(block, Select):
                    found |= dict.fromkeys(_of_block(block))
    return tuple(found)[:MOST]


def _of_block(block: Select) -> Iterator[Index]:
    inside = rels_of(block.source)
    parts = [*conjuncts(block.where), *_on(block.source)]
    for rows in _gathered(block.source):
        tied: list[int] = []
        others: list[int] = []
        for col, other in _compared(rows.rel, parts):
            is_outside = not any(each.rel in inside for each in columns_in(other))
            (tied if is_outside else others).append(col.at)
        if tied:
            yield rows.index, tuple(dict.fromkeys(tied))
        for at in others:
            yield rows.index, (at,)


def _compared(rel: int, parts: list[Expr]) -> Iterator[tuple[Col, Expr]]:
    for part in parts:
        if not isinstance(part, Call) or part.name != "=":
            continue
        for mine, other in (part.args, part.args[::-1]):
            if not isinstance(mine, Col) or mine.rel != rel:
                continue
            # Other numbers are compared by keys that SQLite would have to make first.
            is_looked_up = mine.type is not N or is_key(mine)
            if is_looked_up and all(col.rel != rel for col in columns_in(other)):
                yield mine, other


def _on(source: Rel | None) -> list[Expr]:
    if not isinstance(source, Join):
        return []
    return [*conjuncts(source.on), *_on(source.left), *_on(source.right)]


def _gathered(source: Any) -> list[Gathered]:
    if isinstance(source, Join):
        return [*_gathered(source.left), *_gathered(source.right)]
    return [source] if isinstance(source, Gathered) else []
