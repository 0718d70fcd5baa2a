"""`FETCH FIRST n ROWS WITH TIES`: rows that are equal to the last one come too."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from cairn.model.errors import SyntaxProblem
from cairn.sql.bind.scope import Binder
from cairn.sql.ir import (
    Agg,
    Call,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Select,
    Window,
    conjunction,
)
from cairn.sql.parse.tree import refuse
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import B, I


def wants_ties(node: exp.Expr | None) -> bool:
    options = node.args.get("limit_options") if isinstance(node, exp.Fetch) else None
    return options is not None and bool(options.args.get("with_ties"))


def with_ties(binder: Binder, select: Select, node: exp.Expr) -> Select:
    """The query around `select` that counts its rows by rank."""
    if not select.order:
        raise SyntaxProblem("WITH TIES cannot be specified without ORDER BY clause")
    if select.distinct:
        raise refuse(node, "WITH TIES after DISTINCT")
    last: Expr = select.limit or Const(I, 1)
    if select.offset is not None:
        last = Call(I, "i_add", (last, select.offset))
    rank = Window(I, Agg(I, "rank", ()), (), select.order, "")
    number = Window(I, Agg(I, "row_number", ()), (), select.order, "")
    more = (*(each.expr for each in select.order), rank, number)
    items = (*select.items, *(Item("", each) for each in more))
    inner = replace(select, items=items, order=(), limit=None, offset=None)
    rel = binder.next_rel()
    columns = [
        Col(item.expr.type, rel, at, item.name, scale=known_of(item.expr))
        for at, item in enumerate(items)
    ]
    size = len(select.items)
    holds: list[Expr] = [Call(B, "<=", (columns[-2], last))]
    if select.offset is not None:
        holds.append(Call(B, ">", (columns[-1], select.offset)))
    return Select(
        tuple(replace(item, expr=columns[at]) for at, item in enumerate(select.items)),
        Derived(rel, inner, "", tuple(item.name for item in items)),
        conjunction(holds),
        order=tuple(replace(each, expr=columns[size + at]) for at, each in enumerate(select.order)),
    )
