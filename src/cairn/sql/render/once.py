"""What `random()` and its kind tell is told once for each row, however often it is named.

SQLite computes an expression wherever it stands: `random() BETWEEN 0.4 AND 0.6` has it twice, so
has `ORDER BY x` where x is `random()`. And it takes sub-queries of FROM apart, so that `a, a` FROM
(SELECT gen_random_uuid() AS a) would be two values.

So a call that a block has more than once is made by a query of its own below the block (`lifted`),
and a query below another one that tells such values is done before (`fenced`). Every call in the
text of a statement has a number (`binder`), so equal calls are copies of one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from cairn.sql.functions.function_list import EACH_TIME, told_anew
from cairn.sql.ir import (
    Call,
    Col,
    Derived,
    Expr,
    Item,
    Query,
    Select,
    SetOp,
    rels_of,
    rewrite,
    walk,
)


def _shows_anew(query: Query) -> bool:
    match query:
        case Select(items=items):
            return told_anew(items)
        case SetOp(left=left, right=right):
            return _shows_anew(left) or _shows_anew(right)
    return told_anew(query)


def fenced(query: Query, text: str) -> str:
    """`text` is the query; SQLite leaves it as it is."""
    if not _shows_anew(query):
        return text
    return f"WITH once AS MATERIALIZED ({text}) SELECT * FROM once"


def lifted(node: Select, rel: int) -> Select:
    """Calls that it has more than once become columns of a query below it, which is `rel`."""
    shown = (*(item.expr for item in node.items), *(node.group or ()), node.having)
    shown += tuple(each.expr for each in node.order)
    times = _calls(shown)
    where_times = _calls((node.where,))
    calls = [call for call, count in (times + where_times).items() if count > 1]
    if not calls:
        return node
    is_asked = not where_times.keys().isdisjoint(calls)  # then WHERE is judged above, too
    above = (*shown, node.where) if is_asked else shown
    rels = rels_of(node.source)
    columns = list({(col.rel, col.at): col for col in _columns(above) if col.rel in rels}.values())
    places = {(col.rel, col.at): at for at, col in enumerate(columns)}

    def change(each: Any) -> Any | None:
        if isinstance(each, Col) and (each.rel, each.at) in places:
            return replace(each, rel=rel, at=places[each.rel, each.at])
        if isinstance(each, Call) and each in calls:
            return Col(each.type, rel, len(columns) + calls.index(each), each.name)
        return None

    items = [Item(col.name, replace(col, is_key=False)) for col in columns]
    items += [Item(call.name, call) for call in calls]
    below = Select(tuple(items), node.source, None if is_asked else node.where)
    names = tuple(item.name for item in items)
    return replace(
        node,
        items=rewrite(node.items, change),
        source=Derived(rel, below, "", names),
        where=rewrite(node.where, change) if is_asked else None,
        group=rewrite(node.group, change),
        having=rewrite(node.having, change),
        order=rewrite(node.order, change),
    )


def _calls(exprs: tuple[Expr | None, ...]) -> Counter[Call]:
    """Those that have a number, and how often. Each `nextval` is one of its own."""
    return Counter(
        each
        for expr in exprs
        for each in walk((expr,))
        if isinstance(each, Call) and each.name in EACH_TIME
    )


def _columns(exprs: tuple[Expr | None, ...]) -> list[Col]:
    return [each for expr in exprs for each in walk((expr,)) if isinstance(each, Col)]
