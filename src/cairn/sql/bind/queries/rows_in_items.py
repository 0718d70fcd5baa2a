"""`SELECT generate_series(1, 3)`: a function that gives rows among the columns goes to FROM."""

from __future__ import annotations

from sqlglot import exp

from cairn.sql.bind.expressions.functions import AGGREGATES
from cairn.sql.bind.expressions.lists import ROW_FUNCTIONS

_ROWS = "*rows"  # no name that anybody could write without quotes


def rows_into_from(tree: exp.Select) -> None:
    """Of one such column whose arguments are of no table: then it is the same as a cross join."""
    places = [at for at, node in enumerate(tree.expressions) if _is_rows(node)]
    if len(places) != 1 or tree.args.get("group") or tree.args.get("distinct"):
        return
    node = tree.expressions[places[0]]
    call = node.this if isinstance(node, exp.Alias) else node
    others = [each for at, each in enumerate(tree.expressions) if at != places[0]]
    if any(call.find_all(exp.Column)) or any(map(_aggregates, others)):
        return
    name = str(call.this).lower()
    shown = node.args["alias"] if isinstance(node, exp.Alias) else exp.to_identifier(name)
    alias = exp.TableAlias(this=exp.to_identifier(_ROWS, quoted=True), columns=[shown.copy()])
    rows = exp.Table(this=call.copy(), alias=alias)
    if tree.args.get("from_") is None:
        tree.set("from_", exp.From(this=rows))
    else:
        tree.append("joins", exp.Join(this=rows, kind="CROSS"))
    column = exp.Column(this=shown.copy(), table=exp.to_identifier(_ROWS, quoted=True))
    items = list(tree.expressions)
    items[places[0]] = exp.alias_(column, shown.copy())
    tree.set("expressions", items)


def _is_rows(node: exp.Expr) -> bool:
    call = node.this if isinstance(node, exp.Alias) else node
    return isinstance(call, exp.Anonymous) and str(call.this).lower() in ROW_FUNCTIONS


def _aggregates(node: exp.Expr) -> bool:
    calls = node.find_all(exp.Anonymous)
    return any(str(each.this).lower() in AGGREGATES for each in calls)
