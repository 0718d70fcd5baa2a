"""A value on its way into a column: may it be assigned, and what storing adds."""

from __future__ import annotations

from cairn.model.errors import DatatypeMismatch
from cairn.model.tables.schema import Column
from cairn.model.types.values import ColumnType
from cairn.sql.bind.enums import assigned
from cairn.sql.bind.scope import Scope
from cairn.sql.ir import Call, Const, Expr
from cairn.sql.typing_rules import plain


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
    if column.sizes:
        sizes = (Const(ColumnType.INTEGER, size) for size in column.sizes)
        given = (expr, Const(ColumnType.STRING, type_.value), *sizes)
        expr = Call(type_, "store_fit", given)
    if type_ is ColumnType.DECIMAL:
        return Call(type_, "store_z" if column.keeps_zeros else "store_n", (expr,))
    if type_ is ColumnType.UNSIGNED:
        return Call(ColumnType.INTEGER, "store_u", (expr,))
    return expr
