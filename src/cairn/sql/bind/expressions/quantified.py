"""`x > ALL (query)`, `x <= ANY (query)`: its rows are counted, and the extreme of them taken."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cairn.model.errors import SyntaxProblem
from cairn.sql.bind.expressions.expr import bind_expr
from cairn.sql.bind.scope import Scope
from cairn.sql.ir import Expr
from cairn.sql.parse.dialect import walk_position

#: Which value of the query decides: for ALL the hardest to meet, for ANY the easiest.
_HARDEST: dict[type[Any], str] = {exp.GT: "max", exp.GTE: "max", exp.LT: "min", exp.LTE: "min"}
_OTHER = {"max": "min", "min": "max"}
_SHAPED = ("group", "having", "distinct", "limit", "offset", "with_", "windows", "qualify")


def compared_with_all(scope: Scope, node: exp.Binary, query: exp.Query, *, is_any: bool) -> Expr:
    """With NULL where PostgreSQL has it: no row decides, and some value is not known."""
    if len(query.selects) != 1:
        few = "many" if len(query.selects) > 1 else "few"
        raise SyntaxProblem(f"subquery has too {few} columns", position=walk_position(query))
    kind = type(node)
    if kind in (exp.EQ, exp.NEQ):  # `= ALL` and `<> ANY`: both extremes are the value itself
        both = [exp.EQ(this=node.left.copy(), expression=_told(query, name)) for name in _OTHER]
        meets: exp.Expr = exp.and_(*both)
        meets = meets if kind is exp.EQ else exp.Not(this=exp.Paren(this=meets))
    else:
        name = _HARDEST[kind]
        extreme = _told(query, _OTHER[name] if is_any else name)
        meets = kind(this=node.left.copy(), expression=extreme)
    rows, known = _told(query, "rows"), _told(query, "count")
    unsure = exp.or_(
        exp.Is(this=node.left.copy(), expression=exp.Null()), exp.LT(this=known, expression=rows)
    )
    none = exp.EQ(this=_told(query, "rows"), expression=exp.Literal.number(0))
    true, false, null = exp.true(), exp.false(), exp.cast(exp.Null(), "boolean")
    if is_any:
        cases = [(meets, true), (none, false), (unsure, null)]
    else:
        cases = [(none, true), (exp.Not(this=exp.Paren(this=meets)), false), (unsure, null)]
    whens = [exp.If(this=condition, true=value) for condition, value in cases]
    return bind_expr(scope, exp.Case(ifs=whens, default=exp.false() if is_any else exp.true()))


def _told(query: exp.Query, name: str) -> exp.Expr:
    """One figure of the query's column: its rows, those that are not NULL, its extreme."""

    def figure(column: exp.Expr) -> exp.Expr:
        if name == "rows":
            return exp.Anonymous(this="count", expressions=[exp.Star()])
        return exp.Anonymous(this=name, expressions=[column])

    made = query.copy()
    is_plain = isinstance(made, exp.Select) and not any(made.args.get(each) for each in _SHAPED)
    if is_plain and not made.selects[0].find(exp.Func, exp.Window, exp.Star):  # no aggregate
        made.set("expressions", [figure(made.selects[0].unalias())])
        made.set("order", None)
        return exp.Subquery(this=made)
    names = exp.TableAlias(this=exp.to_identifier("q"), columns=[exp.to_identifier("c")])
    derived = exp.Subquery(this=made, alias=names)
    return exp.Subquery(this=exp.select(figure(exp.column("c"))).from_(derived))
