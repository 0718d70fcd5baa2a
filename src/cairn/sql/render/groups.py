"""Groups of an owner's rows by a hash (`native/groups.c`), beside the same by SQLite's GROUP BY.

SQLite sorts rows to find their groups; the hash needs one step for each. It gives the groups in no
order, and perhaps not at all: so it is for those that are merged with groups of other owners, and
the other text goes along.
"""

from __future__ import annotations

from cairn.model.types.values import ELEMENTS, ColumnType
from cairn.sql.ir import Agg, Case, Const, Expr, Select
from cairn.sql.render.render import Renderer
from cairn.sql.typing_rules import I

MOST_COLUMNS = 100  # `groups.c` knows it too
_SUMS = {ColumnType.INTEGER: "i", ColumnType.DOUBLE: "r"}
_KINDS = {"min": "l", "max": "g", "n_sum": "n", "z_sum": "z"}


def grouped(node: Select, renderer: Renderer) -> str:
    """The text for one block of an owner; empty: it has no groups, or they are not plain."""
    keys = [item.expr for item in node.items] if node.distinct else list(node.group or ())
    is_whole = node.having is None and node.limit is None and node.offset is None
    if not keys or not is_whole or node.order or len(node.items) > MOST_COLUMNS:
        return ""
    aggregates = [each.expr for each in node.items if each.expr not in keys]
    rows = renderer.rows(node)
    kinds, arguments = "", []
    for key in keys:
        text = renderer.key(key)
        if key.type is ColumnType.DOUBLE or text != renderer.expr(key):
            return ""  # what is compared is not what is shown
        kinds += "k"
        arguments.append(text)
    for each in aggregates:
        kind, argument = _kind(each) if isinstance(each, Agg) else ("", None)
        if not kind:
            return ""
        kinds += kind
        if argument is not None:
            is_list = argument.type in ELEMENTS
            arguments.append(renderer.key(argument) if is_list else renderer.expr(argument))
    places = {expr: at for at, expr in enumerate([*keys, *aggregates])}
    shown = ", ".join(f"c{places[each.expr]} AS x{at}" for at, each in enumerate(node.items))
    made = f"SELECT packed_groups('{kinds}', {', '.join(arguments)}) {rows}"
    return f"SELECT {shown} FROM packed_rows(({made}), {len(kinds)})"


def _kind(agg: Agg) -> tuple[str, Expr | None]:
    """How C calls it, and what it looks at; an empty kind: it is not plain."""
    if agg.distinct or agg.order or len(agg.args) > 1:
        return "", None
    argument = agg.args[0] if agg.args else None
    if agg.filter is not None:  # all of them pass NULL over
        argument = Case(
            I if argument is None else argument.type,
            ((agg.filter, Const(I, 1) if argument is None else argument),),
            None,
        )
    if agg.name == "count":
        return ("a" if argument is None else "c"), argument
    if argument is None:
        return "", None
    if agg.name == "sum":
        is_same = argument.type is agg.type
        return (_SUMS.get(agg.type, "") if agg.type and is_same else ""), argument
    return _KINDS.get(agg.name, ""), argument
