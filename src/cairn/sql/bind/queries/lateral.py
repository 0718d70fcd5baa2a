"""LATERAL: a query in FROM that sees its neighbours, made into one that does not, and a join.

`t, LATERAL (SELECT … FROM u WHERE u.a = t.b …)` is a join of t with rows of u: by the conditions
that name both, if the query only filters. If it groups, sorts and cuts, or takes distinct rows, it
does so for each value of what is compared with t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlglot import exp

from cairn.model.errors import Unsupported
from cairn.sql.bind.scope import Scope, Visible
from cairn.sql.ir import (
    Agg,
    Call,
    Case,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Known,
    Query,
    Rel,
    Select,
    SubQuery,
    Window,
    columns_in,
    conjunction,
    conjuncts,
    has_aggregate,
    has_window,
    outer_columns,
    output,
    rels_of,
    rewrite,
    substitute,
    walk,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import allow, name_of
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import B, I, S, plain

_HINT = (
    "compare columns of the neighbours by = in WHERE of the sub-query, or write a correlated "
    "sub-query in the select list"
)


class Lateral(NamedTuple):
    rel: Rel
    on: Expr | None  # what ties it to its neighbours
    is_one: bool  # it has a row for every row of the neighbours


def bind_lateral(scope: Scope, node: exp.Lateral, left: Rel) -> Lateral:
    allow(node, {"this", "alias"})
    allow(node.this, {"this", "with_"})
    query = Scope(scope.binder, scope).query(node.this)
    alias = node.args.get("alias")
    columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
    shown = name_of(alias.this) if alias is not None else f"*{scope.binder.next_rel()}"
    names = [*columns, *(name for name, _ in output(query)[len(columns) :])]
    beside = rels_of(left)
    around = {col.rel for col in outer_columns(query)}
    seen = around & beside
    if around & {each.rel for each in scope.visible} - beside:
        raise _refused(node)  # it names a part of FROM that is not joined with it yet
    if not seen:
        found = _Parts(query, (), None, False)
    elif isinstance(query, Select):
        found = _Untied(scope, node, query, beside).parts()
    else:
        raise _refused(node)
    rel = scope.binder.next_rel()
    made = output(found.query)
    types = [type_ for _, type_ in made]
    derived = [
        Col(plain(type_), rel, at, "", scale=_scale(found.query, at))
        for at, type_ in enumerate(types)
    ]
    size = len(names)
    told: dict[Expr, Expr] = dict(zip(found.keys, derived[size:], strict=False))
    on = None if found.on is None else substitute(found.on, told)
    visible = Visible(
        shown,
        rel,
        names,
        types[:size],
        [True] * size,
        scales=[_scale(found.query, at) for at in range(size)],
    )
    if found.is_one:
        marker = Call(B, "is_null", (derived[size],))
        for at, item in enumerate(query.items if isinstance(query, Select) else ()):
            visible.filled[at] = Case(
                item.expr.type or S, ((marker, _of_nothing(item.expr)),), visible.column(at)
            )
    scope.add(visible, walk_position(node))
    every = (*names, *(f"k{at}" for at in range(len(made) - size)))
    return Lateral(Derived(rel, found.query, shown, every), on, found.is_one)


class _Parts(NamedTuple):
    query: Query  # its columns, and the keys behind them
    keys: Sequence[Expr]
    on: Expr | None
    is_one: bool


class _Untied:
    """One query, and what of it names its neighbours."""

    def __init__(self, scope: Scope, node: exp.Lateral, query: Select, beside: set[int]) -> None:
        self._binder, self._node, self._query, self._beside = scope.binder, node, query, beside
        parts = conjuncts(query.where)
        self._ties = [each for each in parts if self._is_tied(each)]
        self._own = conjunction([each for each in parts if not self._is_tied(each)])
        rest = replace(query, where=self._own)
        if self._is_tied(rest) or any(
            isinstance(each, SubQuery) for tie in self._ties for each in walk(tie)
        ):
            raise _refused(node)

    def _is_tied(self, node: Any) -> bool:
        found = columns_in(node) if not isinstance(node, Select) else outer_columns(node)
        return any(col.rel in self._beside for col in found)

    def parts(self) -> _Parts:
        query = self._query
        exprs = [item.expr for item in query.items] + [each.expr for each in query.order]
        having = [query.having] if query.having is not None else []
        is_grouped = query.group is not None or any(map(has_aggregate, (*exprs, *having)))
        is_cut = query.limit is not None or query.offset is not None
        if not is_grouped and not is_cut and not query.distinct and not any(map(has_window, exprs)):
            return self._filtered()
        if any(map(has_window, exprs)):
            raise _refused(self._node)
        keys = [self._inner_side(tie) for tie in self._ties]
        on = conjunction(self._ties)
        extra = tuple(Item("", key) for key in keys)
        whole = replace(query, items=(*query.items, *extra), where=self._own)
        if is_grouped:
            is_one = not query.group and not having
            if is_cut and not (is_one and _takes_one(query)):
                raise _refused(self._node)
            if not query.group and having:
                raise _refused(self._node)
            group = (*(query.group or ()), *keys)
            whole = replace(whole, group=group, order=(), limit=None, offset=None)
            return _Parts(whole, keys, on, is_one)
        if is_cut:
            return _Parts(self._cut(whole, keys), keys, on, False)
        return _Parts(replace(whole, order=()), keys, on, False)

    def _filtered(self) -> _Parts:
        """Rows that meet conditions: these become the join's own."""
        inside = {col for tie in self._ties for col in columns_in(tie)}
        keys = sorted(
            {replace(col, place=None) for col in inside if col.rel not in self._beside},
            key=lambda col: (col.rel, col.at),
        )
        items = (*self._query.items, *(Item("", key) for key in keys))
        made = replace(self._query, items=items, where=self._own, order=())
        return _Parts(made, keys, conjunction(self._ties), False)

    def _inner_side(self, tie: Expr) -> Expr:
        """Of `inner = outer`."""
        if isinstance(tie, Call) and tie.name == "=" and len(tie.args) == 2:
            sides = [{col.rel in self._beside for col in columns_in(each)} for each in tie.args]
            for at in (0, 1):
                if sides[at] == {False} and sides[1 - at] == {True}:
                    return tie.args[at]
        raise _refused(self._node)

    def _cut(self, whole: Select, keys: list[Expr]) -> Select:
        """LIMIT and OFFSET for each value of the keys, by numbering their rows."""
        limit, offset = _number(whole.limit), _number(whole.offset)
        is_known = (limit is None) == (whole.limit is None)
        if whole.distinct or not is_known or (offset is None) != (whole.offset is None):
            raise _refused(self._node)
        number = Window(I, Agg(I, "row_number", ()), tuple(keys), whole.order, "")
        inner = replace(
            whole, items=(*whole.items, Item("", number)), order=(), limit=None, offset=None
        )
        rel = self._binder.next_rel()
        columns = [
            Col(item.expr.type, rel, at, item.name, scale=known_of(item.expr))
            for at, item in enumerate(inner.items)
        ]
        conditions: list[Expr] = []
        if offset:
            conditions.append(Call(B, ">", (columns[-1], Const(I, offset))))
        if limit is not None:
            conditions.append(Call(B, "<=", (columns[-1], Const(I, limit + (offset or 0)))))
        items = tuple(Item(item.name, columns[at]) for at, item in enumerate(whole.items))
        names = tuple(item.name for item in inner.items)
        return Select(items, Derived(rel, inner, "", names), conjunction(conditions))


def _takes_one(query: Select) -> bool:
    """A limit that an only row meets."""
    limit = query.limit
    return query.offset is None and isinstance(limit, Const) and bool(limit.value)


def _number(expr: Expr | None) -> int | None:
    return expr.value if isinstance(expr, Const) and isinstance(expr.value, int) else None


def _of_nothing(expr: Expr) -> Expr:
    """What a select item is when there are no rows to aggregate."""

    def change(node: Any) -> Any | None:
        if not isinstance(node, Agg):
            return None
        return Const(node.type, 0 if node.name == "count" else None)

    found: Expr = rewrite(expr, change)
    return found


def _scale(query: Query, at: int) -> Known:
    return known_of(query.items[at].expr) if isinstance(query, Select) else None


def _refused(node: exp.Lateral) -> Unsupported:
    return Unsupported(
        "this use of LATERAL is not supported", hint=_HINT, position=walk_position(node)
    )
