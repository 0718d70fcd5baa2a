"""`nextval('s')`: the next number of a sequence, or of an identity column by its name for it."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from cairn.model.errors import UndefinedTable, Unsupported
from cairn.model.tables.sequences import Numbering, numbering
from cairn.model.types.values import ColumnType
from cairn.sql.bind.scope import Binder
from cairn.sql.functions.function_list import BY_NAME, CURRENT_NUMBER, NEXT_NUMBER
from cairn.sql.ir import Call, Const, Expr
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.lexer import plain_name

_INT = ColumnType.INTEGER


def next_value(binder: Binder, node: exp.Anonymous) -> Expr:
    found, _ = _numbering(binder, node, "nextval")
    binder.numbered[found.table.id] = found.table
    given = (found.table.id, found.start, found.step)
    return Call(_INT, NEXT_NUMBER, tuple(Const(_INT, each) for each in given))


def current_value(binder: Binder, node: exp.Anonymous, bind: Callable[[exp.Expr], Expr]) -> Expr:
    """`currval('s')`, and `lastval()` of whichever sequence was asked last. Who may not take its
    numbers has none to be told again, so the name may be a parameter, too."""
    if str(node.this).lower() == "lastval" and not node.expressions:
        return Call(_INT, CURRENT_NUMBER, (Const(_INT, 0), Const(ColumnType.STRING, "")))
    given = _inner(node.expressions[0]) if len(node.expressions) == 1 else None
    if isinstance(given, exp.Parameter):
        text = binder.coerce(bind(given), ColumnType.STRING)
        return Call(_INT, CURRENT_NUMBER, (Const(_INT, BY_NAME), text))
    found, name = _numbering(binder, node, "currval")
    of = (Const(_INT, found.table.id), Const(ColumnType.STRING, name))
    return Call(_INT, CURRENT_NUMBER, of)


def _numbering(binder: Binder, node: exp.Anonymous, word: str) -> tuple[Numbering, str]:
    """Only a name that is known when the statement is planned: the right to it is checked then."""
    name = _name(node)
    if name is None:
        raise Unsupported(
            f"{word} takes the name of a sequence as a constant",
            hint=f"{word}('name')",
            position=walk_position(node),
        )
    found = numbering(binder.catalog, name)
    if found is None:
        raise UndefinedTable(f'relation "{name}" does not exist', position=walk_position(node))
    binder.tables[found.table.id] = found.table
    return found, name


def _name(node: exp.Anonymous) -> str | None:
    if len(node.expressions) != 1:
        return None
    given = _inner(node.expressions[0])
    if isinstance(given, exp.Literal) and given.is_string:
        return plain_name(given.this)
    if isinstance(given, exp.Anonymous) and str(given.this).lower() == "pg_get_serial_sequence":
        parts = [each.this for each in given.expressions if isinstance(each, exp.Literal)]
        return f"{plain_name(parts[0])}_{parts[1]}_seq" if len(parts) == 2 else None
    return None


def _inner(given: exp.Expr) -> exp.Expr:
    """`'s'::regclass`"""
    while isinstance(given, exp.Cast | exp.Paren):
        given = given.this
    return given
