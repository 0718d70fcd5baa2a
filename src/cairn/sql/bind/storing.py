"""A value on its way into a column: may it be assigned, and what storing adds."""

from __future__ import annotations

from dataclasses import replace

from cairn.model.errors import CairnError, DatatypeMismatch
from cairn.model.tables.schema import Column
from cairn.model.types.values import ColumnType
from cairn.model.types.widths import Width
from cairn.sql.bind.enums import assigned
from cairn.sql.bind.scope import Scope
from cairn.sql.ir import Call, Const, Expr
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import fold, plain


def is_text(column: Column) -> bool:
    """Whether it takes every text as it is."""
    return column.type is ColumnType.STRING and column.enum is None


def assign(scope: Scope, expr: Expr, column: Column) -> Expr:
    """A value for a column; what PostgreSQL would not assign is refused by name."""
    to = column.type
    if column.enum is not None:
        return assigned(scope.binder, expr, column.enum, column.name)
    try:
        return scope.binder.coerce(expr, plain(to), 1)
    except DatatypeMismatch as error:
        if error.sqlstate != "42804":
            raise
        raise DatatypeMismatch(
            f'column "{column.name}" is of type {to} but expression is of type {expr.type}',
            hint="You will need to rewrite or cast the expression.",
        ) from None


def stored(expr: Expr, column: Column) -> Expr:
    """The value as the column takes it: rules that only storing has."""
    type_ = column.type
    if column.width is not None and type_ is ColumnType.INTEGER:
        return fitted(expr, column.width)
    if column.sizes:
        sizes = (Const(ColumnType.INTEGER, size) for size in column.sizes)
        given = (expr, Const(ColumnType.STRING, type_.value), *sizes)
        expr = Call(type_, "store_fit", given)
    if type_ is ColumnType.DECIMAL:
        return Call(type_, "store_z" if column.keeps_zeros else "store_n", (expr,))
    if type_ is ColumnType.UNSIGNED:
        return Call(ColumnType.INTEGER, "store_u", (expr,))
    return expr


def fitted(expr: Expr, width: Width) -> Expr:
    """A whole number that has to fit into so many bytes."""
    return expr if known_of(expr) in (width, Width.TWO) else _checked(expr, width)


def cast_whole(expr: Expr, width: Width | None) -> Expr:
    """The same number, or list of numbers, told as wide as the cast says."""
    if known_of(expr) == width:
        return expr
    if width is None:
        return Call(expr.type, "i_wide", (expr,))
    if expr.type is ColumnType.INTEGER:
        return _checked(expr, width)
    kind = Const(ColumnType.STRING, ColumnType.INTEGERS.value)
    return Call(expr.type, "store_fit", (expr, kind, Const(ColumnType.INTEGER, width.value)))


def _checked(expr: Expr, width: Width) -> Expr:
    made = Call(ColumnType.INTEGER, "i_fit", (expr, Const(ColumnType.INTEGER, width.value)))
    try:
        found = fold(made)
    except CairnError:
        return made  # it is told when the expression is evaluated, if ever
    return replace(found, scale=width) if isinstance(found, Const) else found
