"""Aggregates that look at all values in order: WITHIN GROUP (ORDER BY …), ARRAY(SELECT …)."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from cairn.model.errors import SyntaxProblem
from cairn.model.types.values import LISTS
from cairn.sql.bind.expressions.lists import item_of
from cairn.sql.bind.scope import Binder, Scope
from cairn.sql.ir import (
    Agg,
    Call,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Order,
    Query,
    Select,
    SubQuery,
    has_aggregate,
    has_window,
    outer_columns,
    output,
)
from cairn.sql.parse.tree import refuse
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import RANK, B, D, I, no_function, plain

ORDERED_SETS = frozenset(("percentile_cont", "percentile_disc", "mode"))


def ordered_set(
    binder: Binder,
    name: str,
    args: list[Expr],
    order: tuple[Order, ...],
    condition: Expr | None,
    position: int | None,
) -> tuple[Agg, Expr]:
    """The list of all values in order, and what is picked from it."""
    wanted = 0 if name == "mode" else 1
    types = [arg.type for arg in args] + [each.expr.type for each in order]
    if len(args) != wanted or len(order) != 1:
        raise no_function(name, types, position)
    key = order[0].expr
    if name == "percentile_cont":
        if key.type not in RANK:
            raise no_function(name, types, position)
        key = binder.coerce(key, D)
    if key.type not in LISTS:
        raise no_function(name, types, position)
    there: Expr = Call(B, "not", (Call(B, "is_null", (key,)),))
    there = there if condition is None else Call(B, "and", (condition, there))
    values = Agg(LISTS[key.type], "a_agg", (key,), False, there, (replace(order[0], expr=key),))
    if name == "mode":
        return values, item_of(values, Call(I, "i_mode", (values,)))
    part = binder.coerce(args[0], D)
    if name == "percentile_cont":
        return values, Call(D, "d_percentile", (values, part))
    return values, item_of(values, Call(I, "i_percentile", (Call(I, "a_size", (values,)), part)))


def array_of(scope: Scope, node: exp.Anonymous) -> Expr:
    """`ARRAY(SELECT …)`: one column of a query, in its order."""
    if len(node.expressions) != 1 or not isinstance(node.expressions[0], exp.Query):
        raise refuse(node, "ARRAY(…) of anything but a query")
    query = scope.query(node.expressions[0])
    columns = output(query)
    if len(columns) != 1:
        raise SyntaxProblem("subquery must return only one column")
    type_ = plain(columns[0][1])
    if type_ not in LISTS:
        raise refuse(node, f"an array of {type_}")
    if isinstance(query, Select) and _is_plain(query):
        values = Agg(LISTS[type_], "a_agg", (query.items[0].expr,), False, None, query.order)
        plain_select = replace(query, items=(Item("array", values),), order=(), group=())
        return _or_empty(SubQuery(LISTS[type_], "scalar", plain_select))
    if outer_columns(query):
        raise refuse(node, "ARRAY(…) of such a query with columns from around it")
    rel = scope.binder.next_rel()
    query, order = _with_order(query, rel)
    first = query.items[0].expr if isinstance(query, Select) else None
    column = Col(type_, rel, 0, columns[0][0], scale=known_of(first) if first else None)
    names = tuple(name for name, _ in output(query))
    values = Agg(LISTS[type_], "a_agg", (column,), False, None, order)
    select = Select((Item("array", values),), Derived(rel, query, "", names), group=())
    return _or_empty(SubQuery(LISTS[type_], "scalar", select))


def _or_empty(found: SubQuery) -> Expr:
    assert found.type is not None
    return Call(found.type, "coalesce", (found, Const(found.type, "[]")))


def _is_plain(query: Select) -> bool:
    """One row of it for each row of FROM: its values can be collected as they are."""
    exprs = [item.expr for item in query.items] + [each.expr for each in query.order]
    counts = any(has_aggregate(each) or has_window(each) for each in exprs)
    rest = (query.group, query.having, query.limit, query.offset)
    return not (query.distinct or counts or any(each is not None for each in rest))


def _with_order(query: Query, rel: int) -> tuple[Query, tuple[Order, ...]]:
    """The query with what it is ordered by as further columns, and that order outside of it."""
    if not isinstance(query, Select):
        types = query.types
        return query, tuple(
            Order(Col(types[at], rel, at, ""), desc, nulls) for at, desc, nulls in query.order
        )
    if query.distinct:
        shown = [item.expr for item in query.items]
        return query, tuple(
            replace(each, expr=Col(each.expr.type, rel, shown.index(each.expr), ""))
            for each in query.order
        )
    size = len(query.items)
    order = tuple(
        replace(each, expr=Col(each.expr.type, rel, size + at, "", scale=known_of(each.expr)))
        for at, each in enumerate(query.order)
    )
    more = tuple(Item("", each.expr) for each in query.order)
    return replace(query, items=(*query.items, *more)), order
