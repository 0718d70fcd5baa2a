"""COMMENT ON: a change that only the catalogue knows of."""

from __future__ import annotations

from msgspec.structs import replace

from cairn.model.errors import (
    LimitExceeded,
    UndefinedColumn,
)
from cairn.model.log.ops import Ddl, Restate
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Table
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import (
    DdlStatement,
    ddl_statement,
    existing_table,
    finish,
)

MAX_COMMENT = 4_096  # characters; every instance keeps the catalogue in memory


def comment_on(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    """`{TABLE t | COLUMN t.c} IS {'text' | NULL}`; NULL takes the comment away."""
    if cursor.accept("column"):
        name, column = _column_path(cursor)
    else:
        cursor.expect("table")
        name, column = cursor.name(), None
    cursor.expect("is")
    text = "" if cursor.accept("null") else cursor.string()
    if len(text) > MAX_COMMENT:
        raise LimitExceeded(f"a comment has at most {MAX_COMMENT} characters")
    tail = finish(cursor)

    def make(table: Table) -> Ddl:
        if column is None:
            return Restate(table.id, table.name, description=text)
        return Restate(table.id, table.name, (replace(column_of(table, column), comment=text),))

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = existing_table(now, name)
        assert table is not None
        return make(table)

    found = existing_table(catalog, name)
    assert found is not None
    make(found)
    return ddl_statement("COMMENT", tail, build, found, "alter")


def _column_path(cursor: Cursor) -> tuple[str, str]:
    """`[public.]table.column`"""
    parts: list[str] = []
    while True:
        token = cursor.take()
        if token.kind not in ("word", "quoted"):
            cursor.at -= 1
            raise cursor.error()
        parts.append(token.value)
        if not cursor.accept_op("."):
            break
    if len(parts) == 3 and parts[0] == "public":
        parts = parts[1:]
    if len(parts) != 2:
        raise cursor.error()
    return parts[0], parts[1]


def column_of(table: Table, name: str) -> Column:
    column = table.column(name)
    if column is None or column.is_hidden:
        raise UndefinedColumn(f'column "{name}" of relation "{table.name}" does not exist')
    return column


def checked_default(catalog: Catalog, column: Column) -> None:
    """Refused when it is declared, not when the first row comes."""
    if column.default is None:
        return
    from cairn.sql.bind.defaults import check_default  # brings sqlglot along
    from cairn.sql.bind.queries.bind import binder_of

    check_default(binder_of(catalog), column)
