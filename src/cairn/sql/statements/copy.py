"""COPY: which table or query, which columns, which way, in which format."""

from __future__ import annotations

from dataclasses import dataclass

from cairn.model.errors import SyntaxProblem, UndefinedColumn, UndefinedTable, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.sql.statements.cursor import Cursor

_OPTIONS = ("format", "header", "delimiter", "null", "quote", "escape", "encoding", "force_null")
_FORMATS = ("text", "csv", "binary", "arrow")
_OF_TEXT = ("delimiter", "null", "quote", "escape", "header", "force_null")


@dataclass(frozen=True)
class CopyStatement:
    direction: str  # in out
    options: dict[str, str]
    table: Table | None = None
    columns: tuple[str, ...] = ()
    query: str | None = None


def parse_copy(cursor: Cursor, catalog: Catalog) -> CopyStatement:
    """After the word COPY."""
    token = cursor.peek()
    if token is not None and token.is_op("("):
        start = cursor.at + 1
        cursor.skip_parens()
        begin, end = cursor.tokens[start].start, cursor.tokens[cursor.at - 1].start
        cursor.expect("to")
        _check_stream(cursor)
        return CopyStatement("out", _options(cursor), query=cursor.text[begin:end])
    schema, name = cursor.qualified()
    known = catalog.public if schema == "public" else catalog
    table = known.table(f"pg_temp.{name}" if schema == "pg_temp" else name)
    if table is None:
        raise UndefinedTable(f'table with name "{name}" not found')
    following = cursor.peek()
    columns = cursor.names() if following is not None and following.is_op("(") else []
    for column in columns:
        if table.column(column) is None:
            raise UndefinedColumn(f'column with name "{column}" not found')
    direction = "in" if cursor.accept("from") else "out"
    if direction == "out":
        cursor.expect("to")
    _check_stream(cursor)
    chosen = tuple(columns) or tuple(column.name for column in table.shown_columns)
    return CopyStatement(direction, _options(cursor), table, chosen)


def _check_stream(cursor: Cursor) -> None:
    """As PostgreSQL reads it, either word will do: PDO says COPY t TO STDIN."""
    if not (cursor.accept("stdin") or cursor.accept("stdout")):
        raise Unsupported("COPY with a file or a program is not supported", hint="use STDIN/STDOUT")


def _check_switch(name: str, value: str) -> None:
    if value.lower() not in ("true", "on", "1", "false", "off", "0"):
        raise SyntaxProblem(f"{name} requires a Boolean value")


def _options(cursor: Cursor) -> dict[str, str]:
    found: dict[str, str] = {"format": "text"}
    cursor.accept("with")
    if cursor.accept_op("("):
        while True:
            name = cursor.take().value
            if name not in (*_OPTIONS, "freeze"):
                raise SyntaxProblem(f'option "{name}" not recognized')
            token = cursor.peek()
            value = "true"
            if token is not None and not token.is_op(",", ")"):
                value = cursor.take().value
            if name == "freeze":  # rows are never frozen here, nor need to be
                _check_switch(name, value)
            else:
                found[name] = value
            if not cursor.accept_op(","):
                break
        cursor.expect_op(")")
    while word := cursor.accept_one("csv", "binary", "header", "delimiter", "null", "quote"):
        if word in ("csv", "binary"):
            found["format"] = word
        elif word == "header":
            found["header"] = "true"
        else:
            cursor.accept("as")
            found[word] = cursor.string()
    cursor.end()
    if found["format"] not in _FORMATS:
        raise Unsupported(f'COPY format "{found["format"]}" is not supported')
    if found["format"] == "binary" and (wrong := [each for each in _OF_TEXT if each in found]):
        raise SyntaxProblem(f"cannot specify {wrong[0].upper()} in BINARY mode")
    if len(found.get("delimiter", ",")) != 1:
        raise SyntaxProblem("COPY delimiter must be a single one-byte character", sqlstate="0A000")
    return found
