"""Zeros behind the last digit of a DECIMAL: who keeps them, in a statement that is bound.

PostgreSQL shows 1.50 as it was written, and computes the scale of results from that of operands.
Where the statement tells the scale (`scales`), values travel as keys, and the client's column says
how many digits are shown: nothing here costs them anything. Where only the value can tell, it
travels in its shown form (`model/types/decimals`), functions that keep zeros take the place of the
others, and what meets such a value is given its zeros first. So:

    scale_of(expr) is known   its bytes are a key
    scale_of(expr) is None    its bytes may have zeros: the renderer compares their keys
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cairn.model.types.decimals import decode_decimal, encode_shown, key_form
from cairn.sql.functions.numbers import rounded
from cairn.sql.ir import (
    Agg,
    Call,
    Case,
    Col,
    Const,
    Expr,
    Query,
    Select,
    SetOp,
    Unnest,
    Values,
    rewrite,
    walk,
)
from cairn.sql.scales import scale_of, scales
from cairn.sql.typing_rules import I, N

_KEEPING = {
    f"n_{name}": f"z_{name}"
    for name in ("add", "sub", "mul", "mod", "neg", "abs", "round", "trunc", "sum")
}


def keeping_zeros(node: Any) -> Any:
    """The node of a bound statement with what keeps zeros in it."""
    if not any(isinstance(each, (Expr, Values, SetOp)) and _is_number(each) for each in walk(node)):
        return node
    return rewrite(node, _change)


def _is_number(node: Any) -> bool:
    return node.type is N if isinstance(node, Expr) else N in node.types


def padded(expr: Expr, scale: int | None) -> Expr:
    """The expression in its shown form, with so many digits after the point."""
    if expr.type is not N or not scale:
        return expr
    if isinstance(expr, Const):
        if not isinstance(expr.value, bytes):
            return expr
        value = rounded(decode_decimal(expr.value), scale)
        return replace(expr, value=encode_shown(value), scale=None)
    return Call(N, "n_padded", (expr, Const(I, scale)))


def is_key(expr: Expr) -> bool:
    """Whether the bytes of a DECIMAL are known to be a key."""
    if isinstance(expr, Const):
        if expr.type is not N or not isinstance(expr.value, bytes):
            return True
        return key_form(expr.value) == expr.value
    if isinstance(expr, Call) and expr.name == "n_key":
        return True
    return (isinstance(expr, Col) and expr.is_key) or scale_of(expr) is not None


def _shown(expr: Expr) -> Expr:
    return padded(expr, scale_of(expr)) if expr.type is N else expr


def _below(node: Any) -> Any:
    """The node with everything below it changed."""
    return rewrite(node, lambda each: None if each is node else _change(each))


def _change(node: Any) -> Any:
    match node:
        case Call(type=type_, name=name) if type_ is N:
            call = _below(node)
            if scale_of(call) is not None:
                return call
            return Call(N, _KEEPING.get(name, name), tuple(map(_shown, call.args)))
        case Call(name="i_scale"):
            call = _below(node)
            return replace(call, args=tuple(map(_shown, call.args)))
        case Agg(name="n_sum"):
            total = _below(node)
            return total if scale_of(total) is not None else replace(total, name="z_sum")
        case Case(type=type_) if type_ is N:
            case = _below(node)
            if scale_of(case) is not None:
                return case
            whens = tuple((condition, _shown(result)) for condition, result in case.whens)
            return replace(case, whens=whens, default=case.default and _shown(case.default))
        case SetOp():
            both = _below(node)
            for at, scale in enumerate(scales(both)):
                if scale is None and both.types[at] is N:
                    left, right = (_shown_column(each, at) for each in (both.left, both.right))
                    both = replace(both, left=left, right=right)
            return both
        case Unnest():
            return None
        case Values(types=types) if N in types:
            values = _below(node)
            for at, scale in enumerate(scales(values)):
                if scale is None and types[at] is N:
                    values = _shown_column(values, at)
            return values
    return None


def _shown_column(query: Query, at: int) -> Query:
    """The query with one of its columns in the shown form."""
    match query:
        case Select(items=items):
            item = replace(items[at], expr=_shown(items[at].expr))
            return replace(query, items=(*items[:at], item, *items[at + 1 :]))
        case SetOp():
            left, right = (_shown_column(each, at) for each in (query.left, query.right))
            return replace(query, left=left, right=right)
        case Unnest():
            return query
    rows = tuple((*row[:at], _shown(row[at]), *row[at + 1 :]) for row in query.rows)
    return replace(query, rows=rows)


def with_keys(node: Query) -> Query:
    """The terms of a recursion: SQLite wants them as they are, not inside of another query."""
    if not isinstance(node, Select):
        return node
    items = tuple(
        replace(item, expr=Call(N, "n_key", (item.expr,)))
        if item.expr.type is N and not is_key(item.expr)
        else item
        for item in node.items
    )
    return replace(node, items=items)
