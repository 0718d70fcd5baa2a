"""Expressions without columns, evaluated in Python: values of INSERT, keys of buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cairn.model.types.values import (
    ColumnType,
    Physical,
    from_physical,
    physical_reader,
    to_physical,
)
from cairn.sql.functions.functions import SCALARS
from cairn.sql.ir import Call, Const, Expr, Param

Params = Sequence[Any]
Evaluate = Callable[[Params], Physical]


def _concat(*parts: str | None) -> str | None:
    return None if None in parts else "".join(part for part in parts if part is not None)


def _coalesce(*parts: Physical) -> Physical:
    return next((part for part in parts if part is not None), None)


_PLAIN: dict[str, Callable[..., Any]] = {
    "||": _concat,
    "coalesce": _coalesce,
    "neg": lambda value: None if value is None else -value,
    "same": lambda value: value,
    "i_wide": lambda value: value,
    "s_plain": lambda value: value,
}


def evaluator(expr: Expr) -> Evaluate | None:
    """A function from parameters to the physical value, or None when SQLite has to do it."""
    match expr:
        case Const(value=value):
            return lambda params: value
        case Param(type=type_, number=number):
            assert type_ is not None
            kind, at = type_, number - 1
            return lambda params: to_physical(kind, params[at])
        case Call(name=name, args=args):
            function = SCALARS.get(name) or _PLAIN.get(name)
            parts = [evaluator(arg) for arg in args]
            if function is None or any(part is None for part in parts):
                return None
            known = tuple(part for part in parts if part is not None)
            call = function
            if len(known) == 1:
                only = known[0]
                return lambda params: call(only(params))
            return lambda params: call(*[part(params) for part in known])
    return None


def value_of(expr: Expr, type_: ColumnType) -> Callable[[Params], Any] | None:
    """Like `evaluator`, but giving the Python value, as hashing wants it."""
    if isinstance(expr, Param) and expr.type is type_:
        at = expr.number - 1
        return lambda params: params[at]
    found = evaluator(expr)
    if found is None:
        return None
    physical = found
    if physical_reader(type_) is None:
        return physical
    return lambda params: from_physical(type_, physical(params))
