"""`SELECT DISTINCT ON (…)`: the first row of each group, as a window function finds it."""

from __future__ import annotations

from dataclasses import replace

from cairn.model.errors import CairnError
from cairn.sql.bind.scope import Binder
from cairn.sql.ir import Agg, Call, Col, Const, Derived, Expr, Item, Select, Window
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import B, I


def check_order(select: Select, on: tuple[Expr, ...]) -> None:
    first = [each.expr for each in select.order[: len(on)]]
    if any(expr not in on for expr in first):
        raise CairnError(
            "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
            sqlstate="42P10",
            position=on[0].place if isinstance(on[0], Col) else None,
        )


def first_of_each(binder: Binder, select: Select, on: tuple[Expr, ...]) -> Select:
    """The query around `select` that keeps one row for each value of `on`."""
    check_order(select, on)
    number = Window(I, Agg(I, "row_number", ()), on, select.order, "")
    shown = [item.expr for item in select.items]
    inner = replace(
        select,
        items=(
            *select.items,
            *(Item("", each.expr) for each in select.order),
            Item("", number),
        ),
        order=(),
        limit=None,
        offset=None,
    )
    rel = binder.next_rel()
    columns = [
        Col(item.expr.type, rel, at, item.name, scale=known_of(item.expr))
        for at, item in enumerate(inner.items)
    ]
    size = len(shown)
    return Select(
        tuple(replace(item, expr=columns[at]) for at, item in enumerate(select.items)),
        Derived(rel, inner, "", tuple(item.name for item in inner.items)),
        Call(B, "=", (columns[-1], Const(I, 1))),
        order=tuple(replace(each, expr=columns[size + at]) for at, each in enumerate(select.order)),
        limit=select.limit,
        offset=select.offset,
    )
