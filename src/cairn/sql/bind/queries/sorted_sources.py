"""A sorted query in FROM gives its rows in that order, as in PostgreSQL, also from several owners.

SQL does not promise it. Programs count on it all the same: a page around a sorted query, a view
with ORDER BY, `array_agg` or `row_number() OVER ()` over one.
"""

from __future__ import annotations

from dataclasses import replace

from cairn.sql.ir import (
    Agg,
    Col,
    Derived,
    Expr,
    Item,
    Order,
    Select,
    SetOp,
    SubQuery,
    Window,
    has_window,
    rewrite,
)
from cairn.sql.scales import known_of

#: Aggregates that tell in which order their values came.
_LISTS = frozenset(("a_agg", "concat", "j_agg", "j_object_agg"))
#: Window functions that need an order and are the same in any frame.
_NUMBERS = frozenset(("row_number", "ntile", "lag", "lead"))
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def in_order_of_source(select: Select) -> Select:
    """`select`, with the order of the one query that it reads where it has none of its own."""
    source = select.source
    if not isinstance(source, Derived) or not _is_sorted(source):
        return select
    exprs = [item.expr for item in select.items]
    is_grouped = select.group is not None
    if is_grouped:
        change = _in_aggregates
        needs_it = any(_listed(expr) for expr in exprs)
    else:
        change = _in_windows
        needs_it = any(map(has_window, exprs)) or not (select.order or select.distinct)
    if not needs_it:
        return select
    order, source = _order_of(source)
    items = tuple(replace(each, expr=change(each.expr, order)) for each in select.items)
    if is_grouped or select.order or select.distinct:
        order = select.order
    return replace(select, items=items, source=source, order=order)


def _is_sorted(source: Derived) -> bool:
    return isinstance(source.query, (Select, SetOp)) and bool(source.query.order)


def _order_of(source: Derived) -> tuple[tuple[Order, ...], Derived]:
    """Its order in columns of it; what it sorts by and does not show is added to them."""
    query, rel = source.query, source.rel
    if isinstance(query, SetOp):
        columns = [
            (Col(query.types[at], rel, at, query.names[at]), desc, nulls)
            for at, desc, nulls in query.order
        ]
        return tuple(Order(*each) for each in columns), source
    assert isinstance(query, Select)
    items, names, order = list(query.items), list(source.names), []
    for each in query.order:
        places = [at for at, item in enumerate(items) if item.expr == each.expr]
        if not places:
            places = [len(items)]
            items.append(Item("", each.expr))
            names.append("")
        at = places[0]
        column = Col(each.expr.type, rel, at, names[at], scale=known_of(each.expr))
        order.append(replace(each, expr=column))
    query = replace(query, items=tuple(items))
    if query.limit is None and query.offset is None:
        query = replace(query, order=())
    return tuple(order), replace(source, query=query, names=tuple(names))


def _listed(expr: Expr) -> bool:
    found: list[Agg] = []

    def look(each: object) -> object:
        if isinstance(each, (SubQuery, Window)):
            return each
        if isinstance(each, Agg) and each.name in _LISTS and not each.order and not each.distinct:
            found.append(each)
        return None

    rewrite(expr, look)
    return bool(found)


def _in_aggregates(expr: Expr, order: tuple[Order, ...]) -> Expr:
    def change(each: object) -> object:
        if isinstance(each, (SubQuery, Window)):
            return each
        if isinstance(each, Agg) and each.name in _LISTS and not each.order and not each.distinct:
            return replace(each, order=order)
        return None

    found: Expr = rewrite(expr, change)
    return found


def _in_windows(expr: Expr, order: tuple[Order, ...]) -> Expr:
    """Rows of a window that has no order; all of them stay peers where a frame counts them."""

    def change(each: object) -> object:
        if isinstance(each, SubQuery):
            return each
        if not isinstance(each, Window) or each.order:
            return None
        if each.func.name in _NUMBERS or each.frame.startswith("ROWS"):
            return replace(each, order=order)
        if each.frame == "" and (each.func.name in _LISTS or each.func.name.endswith("_value")):
            return replace(each, order=order, frame=_WHOLE)
        return None

    found: Expr = rewrite(expr, change)
    return found
