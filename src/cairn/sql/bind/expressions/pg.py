"""Spellings that clients use on pg_catalog: qualified functions, OPERATOR, COLLATE, `~`."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cairn.sql.bind.expressions.expr import HANDLERS, bind_expr
from cairn.sql.bind.scope import Scope
from cairn.sql.ir import Call, Expr
from cairn.sql.parse.tree import name_of, refuse, without_schema
from cairn.sql.typing_rules import B, S, no_operator

_COLLATIONS = ("c", "default", "posix", "ucs_basic")
_OPERATORS: dict[str, type[Any]] = {
    "~": exp.RegexpLike,
    "~*": exp.RegexpILike,
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    ">": exp.GT,
    "<=": exp.LTE,
    ">=": exp.GTE,
    "~~": exp.Like,
    "+": exp.Add,
    "-": exp.Sub,
    "||": exp.DPipe,
}


def _qualified(scope: Scope, node: exp.Dot) -> Expr:
    """`pg_catalog.f(x)` is `f(x)`."""
    is_call = isinstance(node.expression, exp.Anonymous) and isinstance(node.this, exp.Identifier)
    if not is_call:
        raise refuse(node, "this use of a dot")
    return bind_expr(scope, without_schema(node))


def _operator(scope: Scope, node: exp.Operator) -> Expr:
    """`a OPERATOR(pg_catalog.~) b` is `a ~ b`."""
    symbol = str(node.args["operator"]).removeprefix("pg_catalog.").strip()
    negate = symbol.startswith("!")
    kind = _OPERATORS.get(symbol.removeprefix("!"))
    if kind is None:
        raise refuse(node, f"OPERATOR({symbol})")
    found = bind_expr(scope, kind(this=node.this, expression=node.expression))
    return Call(B, "not", (found,)) if negate else found


def _collate(scope: Scope, node: exp.Collate) -> Expr:
    """Text is ordered by its bytes; collations that say the same are accepted."""
    name = name_of(without_schema(node.expression)).lower()
    if name not in _COLLATIONS:
        raise refuse(node, f'COLLATE "{name}"')
    return bind_expr(scope, node.this)


def _regexp(scope: Scope, node: exp.Binary) -> Expr:
    values = [bind_expr(scope, node.this), bind_expr(scope, node.expression)]
    if any(each.type not in (None, S) for each in values):
        raise no_operator("~", *(each.type for each in values))
    name = "c_regexp" if isinstance(node, exp.RegexpLike) else "c_iregexp"
    return Call(B, name, tuple(scope.binder.coerce(each, S) for each in values))


HANDLERS.update(
    {
        exp.Dot: _qualified,
        exp.Operator: _operator,
        exp.Collate: _collate,
        exp.RegexpLike: _regexp,
        exp.RegexpILike: _regexp,
    }
)
