"""GROUP BY with ROLLUP, CUBE and GROUPING SETS: one query for each set, all of them together.

What a set does not group by is NULL in its rows. `grouping(…)` tells such a NULL from one of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from sqlglot import exp

from cairn.model.errors import GroupingProblem, LimitExceeded
from cairn.sql.bind.queries.sets import bind_limits
from cairn.sql.bind.scope import MAX_SELECTS, Scope
from cairn.sql.ir import (
    Agg,
    Call,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Query,
    Select,
    SetOp,
    has_aggregate,
    has_window,
    rewrite,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import allow, refuse
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import B, I, S

_SEVERAL = (exp.Rollup, exp.Cube, exp.GroupingSets)
#: Parts of a SELECT that each set has; the others are for the rows of all of them.
_KEPT = ("expressions", "from_", "joins", "where", "having", "order", "windows")
_Set = tuple[exp.Expr, ...]
BindSelect = Callable[[Scope, exp.Select], Select]
BindGroup = Callable[[Scope, exp.Expr, tuple[Item, ...]], tuple[Expr, ...] | None]


def has_sets(group: exp.Expr | None) -> bool:
    return group is not None and any(
        isinstance(each, _SEVERAL) or _is_nothing(each) for each in group.expressions
    )


def _is_nothing(node: exp.Expr) -> bool:
    """`()`, which groups all rows together."""
    return isinstance(node, exp.Tuple) and not node.expressions


def _sets(nodes: list[exp.Expr]) -> list[_Set]:
    """Items of a GROUP BY: every set of the one together with every set of the others."""
    size, each = 1, [_sets_of(node) for node in nodes]
    for found in each:
        size *= len(found)
        if size > MAX_SELECTS:
            raise LimitExceeded(f"more than {MAX_SELECTS} grouping sets in one query")
    return [tuple(node for part in chosen for node in part) for chosen in product(*each)]


def _sets_of(node: exp.Expr) -> list[_Set]:
    if isinstance(node, exp.GroupingSets):
        allow(node, {"expressions"})
        return [found for each in node.expressions for found in _sets_of(each)]
    if not isinstance(node, (exp.Rollup, exp.Cube)):
        return [_members(node)]
    allow(node, {"expressions"})
    parts = [_members(each) for each in node.expressions]
    if isinstance(node, exp.Rollup):
        chosen: list[tuple[_Set, ...]] = [tuple(parts[:size]) for size in range(len(parts), -1, -1)]
    else:
        sizes = range(len(parts), -1, -1)
        if 2 ** len(parts) > MAX_SELECTS:
            raise LimitExceeded(f"more than {MAX_SELECTS} grouping sets in one query")
        chosen = [each for size in sizes for each in combinations(parts, size)]
    return [tuple(node for part in each for node in part) for each in chosen]


def _members(node: exp.Expr) -> _Set:
    if isinstance(node, exp.Tuple):
        return tuple(node.expressions)
    return (node.this if isinstance(node, exp.Paren) else node,)


def bind_grouping_sets(
    scope: Scope, tree: exp.Select, bind_select: BindSelect, bind_group: BindGroup
) -> Select:
    """The query around all of them, which sorts, cuts and compares their rows."""
    group, distinct = tree.args["group"], tree.args.get("distinct")
    allow(group, {"expressions", "all"})
    if distinct is not None and distinct.args.get("on") is not None:
        raise refuse(tree, "DISTINCT ON with several grouping sets")
    sets = _sets(group.expressions)
    if group.args.get("all") is False:  # GROUP BY DISTINCT
        sets = list({frozenset(each.sql() for each in found): found for found in sets}.values())
    every = list({each.sql(): each for found in sets for each in found}.values())
    parts: list[Select] = []
    shown: Select | None = None
    for chosen in sets:
        whole, made = _bound(
            Scope(scope.binder, scope), tree, every, chosen, bind_select, bind_group
        )
        shown = shown or whole
        parts.append(made)
    assert shown is not None
    query: Query = parts[0]
    names = tuple(item.name for item in parts[0].items)
    types = tuple(item.expr.type or S for item in parts[0].items)
    for part in parts[1:]:
        query = SetOp("UNION ALL", query, part, names, types)
    rel, size = scope.binder.next_rel(), len(shown.items)
    exprs = [item.expr for item in shown.items] + [each.expr for each in shown.order]
    columns = [
        Col(expr.type, rel, at, names[at], scale=known_of(expr)) for at, expr in enumerate(exprs)
    ]
    limit, offset = bind_limits(scope, tree)
    order = [
        replace(each, expr=columns[_place(each.expr, exprs, size + at)])
        for at, each in enumerate(shown.order)
    ]
    return Select(
        tuple(Item(names[at], columns[at]) for at in range(size)),
        Derived(rel, query, "", names),
        distinct=distinct is not None,
        order=tuple(order),
        limit=limit,
        offset=offset,
    )


def _place(expr: Expr, exprs: list[Expr], own: int) -> int:
    """Where an ORDER BY is told: by the column that is shown, if it is one."""
    return min(exprs.index(expr), own)


def _bound(
    scope: Scope,
    tree: exp.Select,
    every: list[exp.Expr],
    chosen: _Set,
    bind_select: BindSelect,
    bind_group: BindGroup,
) -> tuple[Select, Select]:
    """One set: as if all were grouped by, and with NULL for what is not."""
    whole_tree = tree.copy() if any(_own_calls(tree)) else tree
    own = exp.Select(**{key: whole_tree.args.get(key) for key in _KEPT})
    _tell_groupings(own, every, chosen)
    listed = exp.Group(expressions=[each.copy() for each in every] or [exp.null()])
    own.set("group", listed)
    whole = bind_select(scope, own)
    grouped = bind_group(scope, listed, whole.items) if every else ()
    here = bind_group(scope, exp.Group(expressions=list(chosen)), whole.items) if chosen else ()
    grouped, here = grouped or (), here or ()
    for extra in whole.group or ():
        if every and extra not in grouped:  # it depends on a key that not every set has
            name = extra.name if isinstance(extra, Col) else "?column?"
            raise GroupingProblem(
                f'column "{name}" must appear in the GROUP BY clause or be used in an '
                "aggregate function"
            )
    exprs = [item.expr for item in whole.items] + [each.expr for each in whole.order]
    if any(map(has_window, exprs)):
        raise refuse(tree, "a window function beside several grouping sets")
    missing = [each for each in grouped if each not in here]
    items = [*whole.items, *(Item("", each.expr) for each in whole.order)]
    having = _without(whole.having, here, missing)
    if not here and having is None and not any(map(has_aggregate, exprs)):
        having = Call(B, ">=", (Agg(I, "count", ()), Const(I, 0)))  # one row, whatever there is
    made = replace(
        whole,
        items=tuple(Item(item.name, _without(item.expr, here, missing)) for item in items),
        group=here,
        having=having,
        order=(),
    )
    return whole, made


def _without(expr: Any, here: tuple[Expr, ...], missing: list[Expr]) -> Any:
    """`here`: what the set groups by has its value, also where a part of it is missing."""

    def change(node: Any) -> Any | None:
        if isinstance(node, Agg) or (isinstance(node, Expr) and node in here):
            return node
        return Const(node.type, None) if isinstance(node, Expr) and node in missing else None

    return rewrite(expr, change)


def _tell_groupings(tree: exp.Select, every: list[exp.Expr], chosen: _Set) -> None:
    """`grouping(a, b)` is a number with a bit for each that this set does not group by."""
    inside = {each.sql() for each in chosen}
    for node in list(_own_calls(tree)):
        value = 0
        for arg in node.expressions:
            found = next((each for each in every if _same(each, arg)), None)
            if found is None:
                raise GroupingProblem(
                    "arguments to GROUPING must be grouping expressions of the associated query "
                    "level",
                    position=walk_position(arg),
                )
            value = value * 2 + (found.sql() not in inside)
        told: exp.Expr = exp.Paren(this=exp.Literal.number(value))
        if node.parent is tree and node.arg_key == "expressions":
            told = exp.Alias(this=told, alias=exp.to_identifier("grouping"))
        node.replace(told)


def _own_calls(tree: exp.Select) -> Iterator[exp.Expr]:
    for node in tree.walk(prune=lambda each: each is not tree and isinstance(each, exp.Query)):
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "grouping":
            yield node


def _same(one: exp.Expr, other: exp.Expr) -> bool:
    if isinstance(one, exp.Column) and isinstance(other, exp.Column):
        tables = {str(each.args["table"]) for each in (one, other) if each.args.get("table")}
        return one.name == other.name and len(tables) < 2
    return bool(one.sql() == other.sql())
