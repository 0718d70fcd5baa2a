"""Scans whose rows are copied before they are joined: what the copy has to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn.sql.functions.function_list import told_anew
from cairn.sql.ir import Col, Expr, Join, Rel, Scan, Select, SubQuery, columns_in, conjuncts, walk

#: Of each relation: its columns, and conditions that are about it alone.
Copies = dict[int, tuple[list[str], list[str]]]


def copies_of(select: Select, column: Callable[[Col], str], expr: Callable[[Expr], str]) -> Copies:
    rels = {
        each.rel for each in _relations(select.source) if isinstance(each, Scan) and each.is_copied
    }
    if not rels:
        return {}
    columns: dict[int, set[str]] = {rel: set() for rel in rels}
    for each in walk(select):
        if isinstance(each, Col) and each.rel in rels:
            columns[each.rel].add(column(each))
    own = {rel: list[str]() for rel in rels}
    for hold in conjuncts(select.where):
        asked = {col.rel for col in columns_in(hold)}
        if len(asked) == 1 and asked <= rels and not _asks_anew(hold):
            own[asked.pop()].append(expr(hold))
    return {rel: (sorted(columns[rel]), own[rel]) for rel in rels}


def _relations(source: Rel | None) -> list[Any]:
    if isinstance(source, Join):
        return [*_relations(source.left), *_relations(source.right)]
    return [] if source is None else [source]


def _asks_anew(hold: Expr) -> bool:
    return told_anew(hold) or any(isinstance(each, SubQuery) for each in walk(hold))
