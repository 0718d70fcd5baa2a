"""Aggregates that look at all values in order: WITHIN GROUP (ORDER BY …), ARRAY(SELECT …)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from cairn.model.errors import SyntaxProblem, Unsupported
from cairn.model.types.values import ELEMENTS, LISTS
from cairn.sql.bind.expressions.lists import item_of
from cairn.sql.bind.scope import Binder, Scope
from cairn.sql.ir import (
    Agg,
    Call,
    Case,
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
from cairn.sql.typing_rules import ASSIGNMENT, RANK, B, D, I, S, no_function, plain

HYPOTHETICAL = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
ORDERED_SETS = frozenset(("percentile_cont", "percentile_disc", "mode")) | HYPOTHETICAL


def ordered_set(
    binder: Binder,
    name: str,
    args: list[Expr],
    order: tuple[Order, ...],
    condition: Expr | None,
    position: int | None,
) -> tuple[Sequence[Expr], Expr]:
    """What it looks at, and what is picked from all values in order."""
    if name in HYPOTHETICAL:
        return [each.expr for each in order], _rank(binder, name, args, order, condition, position)
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
        return (key,), item_of(values, Call(I, "i_mode", (values,)))
    is_list = args[0].type in ELEMENTS
    part = binder.coerce(args[0], LISTS[D] if is_list else D, ASSIGNMENT)
    if name == "percentile_cont":
        kind = (LISTS[D], "a_percentiles") if is_list else (D, "d_percentile")
        return (key,), Call(kind[0], kind[1], (values, part))
    size = Call(I, "a_size", (values,))
    if is_list:
        places = Call(LISTS[I], "a_percentile_places", (size, part))
        return (key,), Call(values.type, "a_items", (values, places))
    return (key,), item_of(values, Call(I, "i_percentile", (size, part)))


def _rank(
    binder: Binder,
    name: str,
    args: list[Expr],
    order: tuple[Order, ...],
    condition: Expr | None,
    position: int | None,
) -> Expr:
    """Where a row with these values would be: how many of the others come before it."""
    if len(args) != len(order):
        raise no_function(name, [each.type for each in (*args, *(o.expr for o in order))], position)
    pairs = [
        (replace(each, expr=each.expr), binder.coerce(arg, each.expr.type or S))
        for each, arg in zip(order, args, strict=True)
    ]
    before, same = _before(pairs)

    def counted(holds: Expr | None, *what: Expr) -> Expr:
        parts = [each for each in (condition, holds) if each is not None]
        filter_ = reduce(lambda a, b: Call(B, "and", (a, b)), parts) if parts else None
        return Agg(I, "count", what, bool(what), filter_)

    one = Const(I, 1)
    if name == "rank":
        return Call(I, "i_add", (counted(before), one))
    if name == "dense_rank":
        if len(pairs) != 1:
            raise Unsupported("dense_rank WITHIN GROUP of several columns is not supported")
        key = pairs[0][0].expr
        # NULL is one of them, and count(DISTINCT …) passes over it.
        nulls = Call(B, "and", (before, Call(B, "is_null", (key,))))
        has_null = Case(I, ((Call(B, ">", (counted(nulls), Const(I, 0))), one),), Const(I, 0))
        distinct = counted(before, key)
        return reduce(lambda a, b: Call(I, "i_add", (a, b)), (distinct, has_null, one))
    every = counted(None)
    if name == "percent_rank":
        share = (Call(D, "d_of_i", (counted(before),)), Call(D, "d_of_i", (every,)))
        is_none = Call(B, "=", (every, Const(I, 0)))
        return Case(D, ((is_none, Const(D, 0.0)),), Call(D, "d_div", share))
    upto = counted(Call(B, "or", (before, same)))
    both = [Call(D, "d_of_i", (Call(I, "i_add", (each, one)),)) for each in (upto, every)]
    return Call(D, "d_div", tuple(both))


def _before(pairs: list[tuple[Order, Expr]]) -> tuple[Expr, Expr]:
    """That a row comes before the given values, and that it is their equal."""
    before: Expr = Const(B, False)
    same: Expr = Const(B, True)
    for each, value in pairs:
        key = each.expr
        no_key, no_value = Call(B, "is_null", (key,)), Call(B, "is_null", (value,))
        both = Call(B, "and", (no_key, no_value))
        smaller = Call(B, ">" if each.desc else "<", (key, value))
        first = (no_key, each.nulls_first), (no_value, not each.nulls_first)
        whens = ((both, Const(B, False)), *((when, Const(B, is_it)) for when, is_it in first))
        own_before = Case(B, whens, smaller)
        equal = Call(B, "=", (key, value))
        either = Call(B, "or", (no_key, no_value))
        own_same = Case(B, ((both, Const(B, True)), (either, Const(B, False))), equal)
        before = Call(B, "or", (before, Call(B, "and", (same, own_before))))
        same = Call(B, "and", (same, own_same))
    return before, same


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
