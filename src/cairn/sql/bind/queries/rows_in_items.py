"""`SELECT id, unnest(tags) FROM t`: a function that gives rows among the columns goes to FROM."""

from __future__ import annotations

from sqlglot import exp

from cairn.sql.bind.expressions.functions import AGGREGATES
from cairn.sql.bind.expressions.lists import ROW_FUNCTIONS
from cairn.sql.parse.naming import column_name
from cairn.sql.parse.tree import refuse

ROWS = "*rows"  # no name that anybody could write without quotes


def rows_into_from(tree: exp.Select) -> None:
    """Of one such call, alone or inside of an expression: it is the same as a cross join with it.

    Where rows are grouped it would be called for the groups, so there it stays and is refused.
    """
    found = [call for node in tree.expressions for call in _calls(node)]
    if len(found) != 1 or tree.args.get("group") or any(map(_aggregates, tree.expressions)):
        return
    (call,) = found
    distinct = tree.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise refuse(call, f"{call.this} beside DISTINCT ON")  # it is called for the rows that stay
    if str(call.this).lower().endswith(("_each", "_each_text")):  # a row of two columns
        raise refuse(call, f"{call.this} outside of FROM")
    name = exp.to_identifier(str(call.this).lower())
    alias = exp.TableAlias(this=exp.to_identifier(ROWS, quoted=True), columns=[name])
    rows = exp.Table(this=call.copy(), alias=alias)
    items = [
        each if isinstance(each, (exp.Alias, exp.Star)) or call.find_ancestor(type(each)) is None
        else exp.alias_(each, column_name(each), quoted=True, copy=False)
        for each in tree.expressions
    ]  # fmt: skip
    tree.set("expressions", items)
    if tree.args.get("from_") is None:
        tree.set("from_", exp.From(this=rows))
    else:
        tree.append("joins", exp.Join(this=rows, kind="CROSS"))
    call.replace(exp.Column(this=name.copy(), table=exp.to_identifier(ROWS, quoted=True)))


def _calls(node: exp.Expr) -> list[exp.Anonymous]:
    """Those of this query itself; inside of CASE and COALESCE PostgreSQL refuses them too."""
    return [
        each
        for each in node.find_all(exp.Anonymous)
        if str(each.this).lower() in ROW_FUNCTIONS
        and each.find_ancestor(exp.Query, exp.Case) is node.find_ancestor(exp.Query, exp.Case)
    ]


def _aggregates(node: exp.Expr) -> bool:
    calls = node.find_all(exp.Anonymous)
    return any(str(each.this).lower() in AGGREGATES for each in calls)
