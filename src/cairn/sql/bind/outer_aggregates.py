"""Aggregates over columns of a query that stand in its sub-queries: they are that query's own.

`SELECT (SELECT sum(t.b) FROM u) FROM t` adds up the rows of t, once, and then asks the sub-query.
So the query becomes two: one that groups, and around it one that asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cairn.model.errors import Unsupported
from cairn.sql.bind.scope import AskedAggregates, Scope
from cairn.sql.ir import (
    Agg,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Param,
    Select,
    SubQuery,
    children,
    columns_in,
    has_window,
    rewrite,
    substitute,
)
from cairn.sql.scales import known_of


def owner_of(scope: Scope, args: Sequence[Expr]) -> Scope:
    """The innermost block that has one of the columns; without columns it is its own."""
    used = {col.rel for arg in args for col in columns_in(arg)}
    around: Scope | None = scope
    while used and around is not None:
        if used & {each.rel for each in around.visible}:
            return around
        around = around.parent
    return scope


def is_asked(owner: Scope, expr: Expr) -> bool:
    """Whether an aggregate of this block stands in it."""
    return owner.asked is not None and any(col.rel == owner.asked.rel for col in columns_in(expr))


def asked_of(owner: Scope, expr: Expr) -> Expr:
    """What stands for the aggregate in the sub-query."""
    if owner.parent is not None and owner.parent.has_sets:
        raise Unsupported("an aggregate of an outer query with several grouping sets")
    if owner.asked is None:
        owner.asked = AskedAggregates(owner.binder.next_rel())
    asked = owner.asked
    if expr not in asked.exprs:
        asked.exprs.append(expr)
    at = asked.exprs.index(expr)
    return Col(expr.type, asked.rel, at, "aggregate", scale=known_of(expr))


def answered(select: Select, asked: AskedAggregates) -> Select:
    """A grouped block with what its sub-queries ask for, and around it all that it does after."""
    shown = [item.expr for item in select.items] + [each.expr for each in select.order]
    if any(map(has_window, shown)):
        raise Unsupported("a window function beside an aggregate of an outer query")
    group = list(select.group or ())
    after = [*shown, *([select.having] if select.having is not None else [])]
    own = list(dict.fromkeys(agg for each in after for agg in _aggregates(each)))
    exprs = [*asked.exprs, *group, *own]
    names = tuple(_name(expr) for expr in exprs)
    inner = Select(
        tuple(Item(name, expr) for name, expr in zip(names, exprs, strict=True)),
        select.source,
        select.where,
        tuple(group),
    )
    mapping: dict[Expr, Expr] = {
        expr: Col(expr.type, asked.rel, at, names[at], scale=known_of(expr))
        for at, expr in enumerate(exprs)
    }
    columns = {expr: col for expr, col in mapping.items() if not isinstance(expr, _THEIRS)}

    def change(node: Any) -> Any:
        if isinstance(node, SubQuery):
            operands = rewrite(node.operands, change)
            return replace(node, query=substitute(node.query, columns), operands=operands)
        return mapping.get(node) if isinstance(node, Expr) else None

    items, order, having = rewrite((select.items, select.order, (select.having,)), change)
    return replace(
        select,
        items=items,
        source=Derived(asked.rel, inner, "", names),
        where=having[0],
        group=None,
        having=None,
        order=order,
    )


#: In a sub-query these are its own, also when they look alike: `count(*)`.
_THEIRS = (Agg, Const, Param)


def _name(expr: Expr) -> str:
    return expr.name if isinstance(expr, (Col, Agg)) else ""


def _aggregates(node: Any) -> Iterator[Agg]:
    """Those of the block itself: what stands in sub-queries is theirs, or was asked for."""
    if isinstance(node, Agg):
        yield node
        return
    below = node.operands if isinstance(node, SubQuery) else children(node)
    for each in below:
        yield from _aggregates(each)
