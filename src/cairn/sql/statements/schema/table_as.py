"""`CREATE TABLE … AS query`: a table for the columns of the query, then its rows.

Two steps, and no transaction around both: rows that do not come take the table away again, and
an instance that dies in between leaves it, with some of the rows or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cairn.model.errors import SyntaxProblem, Unsupported
from cairn.model.quoting import identifier
from cairn.model.types.values import ColumnType
from cairn.model.types.widths import WHOLES
from cairn.sql.parse.lexer import Token
from cairn.sql.plans import DdlPlan, OutColumn, Prepared
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import accept_temp

Prepare = Callable[[str], Prepared]


def table_as(cursor: Cursor, prepare: Prepare) -> Prepared | None:
    """None when it is no CREATE TABLE … AS; `prepare` understands the parts of it."""
    begun = cursor.at
    temp = "TEMP " if accept_temp(cursor) else ""
    if not cursor.accept("table" if temp else "create", *(() if temp else ("table",))):
        return None
    quiet = "IF NOT EXISTS " if cursor.accept("if", "not", "exists") else ""
    schema, name = cursor.qualified()
    temp = "TEMP " if schema == "pg_temp" else temp
    names = cursor.names() if _only_names(cursor) else []
    clauses = _clauses(cursor)
    if clauses is None:
        cursor.at = begun
        return None
    start, end, is_filled = _query(cursor)
    # Blanks instead of the words before it: positions in errors stay those of the whole text.
    query = " " * start + cursor.text[start:end]
    made = f"{temp}TABLE {quiet}|{clauses}"
    return _filled(cursor.text, prepare, query, name, names, made, is_filled)


def select_into(found: list[Token], text: str, prepare: Prepare) -> Prepared | None:
    """`SELECT … INTO [TABLE] name …`, which is the same; None when it is something else."""
    at = _into(found)
    if at is None:
        return None
    cursor = Cursor(found, text)
    cursor.at = at + 1
    cursor.accept_one("global", "local")
    temp = "TEMP " if cursor.accept_one("temporary", "temp") else ""
    if cursor.accept("unlogged"):
        raise Unsupported("UNLOGGED tables are not supported", hint="leave the word out")
    cursor.accept("table")
    name = cursor.name()
    last = found[cursor.at - 1]
    end = last.start + len(last.text)
    query = text[: found[at].start] + " " * (end - found[at].start) + text[end:]
    return _filled(text, prepare, query, name, [], f"{temp}TABLE |", is_filled=True)


def _into(found: list[Token]) -> int | None:
    """Where INTO stands in a query, outside of all parentheses."""
    depth = 0
    for at, token in enumerate(found):
        if depth == 0 and token.is_word("into") and not found[at - 1].is_word("insert"):
            return at
        if depth == 0 and token.is_word("from", "insert", "update", "delete"):
            return None
        depth += token.is_op("(") - token.is_op(")")
    return None


def _filled(
    text: str,
    prepare: Prepare,
    query_text: str,
    name: str,
    names: list[str],
    clauses: str,
    is_filled: bool,
) -> Prepared:
    """`clauses` are what stands before the name and after the columns."""
    query = prepare(query_text)
    if not query.only_reads or not query.columns:
        raise SyntaxProblem("CREATE TABLE AS needs a query that only reads")
    if query.param_types:
        raise SyntaxProblem("CREATE TABLE AS cannot have parameters", sqlstate="42P02")
    if len(names) > len(query.columns):
        raise SyntaxProblem("too many column names were specified")
    names = names + [column.name for column in query.columns[len(names) :]]
    types = [_type_word(column) for column in query.columns]
    columns = ", ".join(f"{identifier(n)} {t}" for n, t in zip(names, types, strict=True))
    quiet, _, after = clauses.partition("|")
    made = prepare(f"CREATE {quiet}{identifier(name)} ({columns}) {after}")
    assert isinstance(made.plan, DdlPlan)
    listed = ", ".join(map(identifier, names))
    schema = "public." if made.plan.temp is None else "pg_temp."
    fill = f"INSERT INTO {schema}{identifier(name)} ({listed}) {query_text.strip()}"
    plan = replace(made.plan, fill=fill if is_filled else "")
    tag = "SELECT" if is_filled else "CREATE TABLE AS"
    return Prepared(text, tag, plan, tables=query.tables, rights=(*made.rights, *query.rights))


def _only_names(cursor: Cursor) -> bool:
    """`(a, b)`: names without types."""
    after = cursor.peek(2)
    is_list = cursor.looking_at_op("(") and after is not None
    return is_list and after is not None and (after.is_op(",") or after.is_op(")"))


def _clauses(cursor: Cursor) -> str | None:
    """What stands before AS, as CREATE TABLE takes it; None: there is no AS."""
    begun, depth = cursor.peek(), 0
    while (token := cursor.peek()) is not None:
        if depth == 0 and token.is_word("as"):
            assert begun is not None
            cursor.at += 1
            return cursor.text[begun.start : token.start]
        depth += token.is_op("(") - token.is_op(")")
        cursor.at += 1
    return None


def _query(cursor: Cursor) -> tuple[int, int, bool]:
    """Where the query begins and ends, and whether its rows are wanted."""
    rest = cursor.tokens[cursor.at :]
    if not rest:
        raise cursor.error()
    is_filled, end = True, len(rest)
    if len(rest) > 2 and rest[-1].is_word("data"):
        is_filled = not rest[-2].is_word("no")
        end -= 2 if is_filled else 3
        if end < 1 or not rest[end].is_word("with"):
            raise SyntaxProblem('syntax error at or near "DATA"', position=rest[-1].start + 1)
    last = rest[end - 1]
    return rest[0].start, last.start + len(last.text), is_filled


def _type_word(column: OutColumn) -> str:
    if column.enum is not None:
        return identifier(column.enum.name)
    if column.type is ColumnType.ANY:
        return ColumnType.MAP.value  # JSON of any kind
    if column.type in WHOLES:
        # Not `integer`: how wide that is depends on a setting.
        word = "int8" if column.narrow is None else f"int{column.narrow.value}"
        return word if column.type is ColumnType.INTEGER else f"{word}[]"
    return column.type.value
