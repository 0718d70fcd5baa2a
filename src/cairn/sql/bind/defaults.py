"""What a column holds when an INSERT gives it nothing: its DEFAULT, or NULL."""

from __future__ import annotations

from cairn.model.errors import CairnError, InvalidTableDefinition
from cairn.model.schema import Column
from cairn.sql.bind.changes import stored
from cairn.sql.bind.expr import bind_wanted
from cairn.sql.bind.scope import Binder, Scope
from cairn.sql.bind.sets import assign
from cairn.sql.ir import Agg, Const, Expr, Param, SubQuery, Window, walk
from cairn.sql.parse.lexer import tokens
from cairn.sql.parse.parse import parse_query
from cairn.sql.typing_rules import plain


def default_of(binder: Binder, column: Column) -> Expr:
    """As it is stored; `now()` is the time of the statement that inserts."""
    if column.default is None:
        return Const(plain(column.type), None)
    text = f"SELECT {column.default}"
    tree = parse_query(tokens(text), text)
    scope = Scope(binder)  # no columns are in view
    given = bind_wanted(scope, tree.expressions[0], column.type)
    return stored(assign(scope, given, column.type, column.name), column)


def check_default(binder: Binder, column: Column) -> None:
    """Refused when the table is made, not when the first row comes."""
    try:
        expr = default_of(binder, column)
    except CairnError as error:
        error.position = None  # of a text that nobody has written
        raise
    inside = list(walk(expr))
    if any(isinstance(each, (SubQuery, Agg, Window)) for each in inside):
        raise InvalidTableDefinition(
            f'the DEFAULT of column "{column.name}" is no plain expression', sqlstate="0A000"
        )
    if any(isinstance(each, Param) and each.number > 0 for each in inside):
        raise InvalidTableDefinition(
            f'the DEFAULT of column "{column.name}" has a parameter', sqlstate="42P02"
        )
