"""Arithmetic of dates, times and intervals: which pairs there are, and what each gives."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from cairn.model.types.intervals import decode_interval, encode_interval
from cairn.sql.bind.expressions.expr import HANDLERS, arithmetic, bind_expr
from cairn.sql.bind.expressions.functions import folded
from cairn.sql.bind.expressions.lists import interval_of
from cairn.sql.bind.scope import Scope
from cairn.sql.ir import Call, Const, Expr
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import refuse
from cairn.sql.typing_rules import RANK, TIMES, D, H, I, M, S, T, V, Y, common_type, no_operator

_WORDS: dict[type[Any], tuple[str, str]] = {
    exp.Add: ("+", "add"),
    exp.Sub: ("-", "sub"),
    exp.Mul: ("*", "mul"),
    exp.Div: ("/", "div"),
}


def _operation(scope: Scope, node: exp.Binary) -> Expr:
    """An operator that numbers have, and some of which times have too."""
    symbol, word = _WORDS[type(node)]
    left, right = bind_expr(scope, node.left), bind_expr(scope, node.right)
    if not {left.type, right.type} & {V, H, *TIMES}:
        return arithmetic(scope, symbol, word, left, right)
    find = {"+": _plus, "-": _minus, "*": _times, "/": _over}[symbol]
    found = find(scope, left, right)
    if found is None:
        raise no_operator(symbol, left.type, right.type, position=walk_position(node))
    return folded(found) if isinstance(found, Call) else found


def _plus(scope: Scope, left: Expr, right: Expr) -> Expr | None:
    if left.type is H and right.type is not V:
        left, right = right, left
    if right.type is H and left.type in TIMES:  # a day, or a moment, and so long after it
        return _shifted(left, scope.binder.coerce(right, V), 1)
    if left.type is V and right.type in (V, None):
        return Call(V, "v_add", (left, scope.binder.coerce(right, V)))
    if left.type in (T, M) and right.type is None:
        right = scope.binder.coerce(right, V)
    if right.type in (T, M) and left.type is None:
        left = scope.binder.coerce(left, V)
    if right.type is V:
        if left.type is None:
            return Call(V, "v_add", (scope.binder.coerce(left, V), right))
        return _shifted(left, right, 1)
    if left.type is V:
        return _shifted(right, left, 1)
    if left.type is Y and right.type is I:
        return _days_later(left, right)
    return _days_later(right, left) if left.type is I and right.type is Y else None


def _minus(scope: Scope, left: Expr, right: Expr) -> Expr | None:
    coerce = scope.binder.coerce
    if V in (left.type, right.type) and {left.type, right.type} <= {V, None}:
        return Call(V, "v_add", (coerce(left, V), folded(Call(V, "v_neg", (coerce(right, V),)))))
    if right.type is V:
        return _shifted(left, right, -1)
    if left.type is Y and right.type is I:
        return _days_later(left, folded(Call(I, "i_neg", (right,))))
    if {left.type, right.type} <= {H, None}:
        return Call(V, "v_between", (coerce(left, H), coerce(right, H)))
    if right.type is H and left.type in TIMES:
        return _shifted(left, coerce(right, V), -1)
    if {left.type, right.type} <= {Y, None}:
        return Call(I, "v_of_days", (coerce(left, Y), coerce(right, Y)))
    if {left.type, right.type} <= {None, *TIMES}:
        type_ = common_type((left.type, right.type), "-") or T
        return Call(V, "v_between", (coerce(left, type_), coerce(right, type_)))
    return None


def _times(scope: Scope, left: Expr, right: Expr) -> Expr | None:
    if right.type is V:
        left, right = right, left
    if left.type is not V or right.type not in (None, *RANK):
        return None
    return Call(V, "v_mul", (left, scope.binder.coerce(right, D)))


def _over(scope: Scope, left: Expr, right: Expr) -> Expr | None:
    if left.type is not V or right.type not in (None, *RANK):
        return None
    return Call(V, "v_div", (left, scope.binder.coerce(right, D)))


def _shifted(time: Expr, size: Expr, sign: int) -> Expr | None:
    """A time and an interval; of a date it is a timestamp, as in PostgreSQL."""
    if time.type is H:
        return Call(H, "h_plus" if sign > 0 else "h_minus", (time, size))
    if time.type not in TIMES:
        return None
    type_ = M if time.type is Y else time.type
    if isinstance(size, Const) and isinstance(size.value, bytes):
        parts = (Const(I, sign * part) for part in decode_interval(size.value))
        return Call(type_, "t_shift", (time, *parts))
    return Call(type_, "t_plus" if sign > 0 else "t_minus", (time, size))


def _days_later(day: Expr, days: Expr) -> Expr:
    return Call(Y, "t_shift", (day, Const(I, 0), days, Const(I, 0)))


def _interval(scope: Scope, node: exp.Interval) -> Expr:
    size = interval_of(node)
    if size is None:
        raise refuse(node)
    return Const(V, encode_interval(size))


def _zone(scope: Scope, node: exp.AtTimeZone) -> Expr:
    """From a moment to what the clock shows there, or back: in UTC that is the same number."""
    zone, time = node.args["zone"], bind_expr(scope, node.this)
    is_shown = time.type is M
    time = time if is_shown else scope.binder.coerce(time, T)
    if isinstance(zone, exp.Literal) and zone.name.upper() in ("UTC", "GMT", "ETC/UTC", "Z"):
        return Call(T if is_shown else M, "same", (time,))
    where = bind_expr(scope, zone)
    if where.type is not V:
        where = scope.binder.coerce(where, S)
    found = Call(T, "t_moment", (where, time)) if is_shown else Call(M, "t_clock", (where, time))
    return folded(found)


HANDLERS.update(dict.fromkeys(_WORDS, _operation))
HANDLERS[exp.Interval] = _interval
HANDLERS[exp.AtTimeZone] = _zone
