"""Changes that only the catalogue knows of: COMMENT ON, ALTER COLUMN … SET DEFAULT."""

from __future__ import annotations

from msgspec.structs import replace

from cairn.model.errors import (
    InvalidTableDefinition,
    LimitExceeded,
    UndefinedColumn,
    Unsupported,
)
from cairn.model.log.ops import Ddl, Restate
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Table
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import (
    DdlStatement,
    Make,
    ddl_statement,
    existing_table,
    finish,
)
from cairn.sql.statements.schema.table import default_text

MAX_COMMENT = 4_096  # characters; every instance keeps the catalogue in memory


def comment_on(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    """`{TABLE t | COLUMN t.c} IS {'text' | NULL}`; NULL takes the comment away."""
    if cursor.accept("column"):
        name, column = _column_path(cursor)
    else:
        if not cursor.accept("table"):
            raise Unsupported(
                f"COMMENT ON {cursor.take().value.upper()} is not supported",
                hint="tables and columns have comments",
            )
        name, column = cursor.name(), None
    cursor.expect("is")
    text = "" if cursor.accept("null") else cursor.string()
    if len(text) > MAX_COMMENT:
        raise LimitExceeded(f"a comment has at most {MAX_COMMENT} characters")
    tail = finish(cursor)

    def make(table: Table) -> Ddl:
        if column is None:
            return Restate(table.id, table.name, description=text)
        return Restate(table.id, table.name, (replace(_of(table, column), comment=text),))

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


def _of(table: Table, name: str) -> Column:
    column = table.column(name)
    if column is None or column.is_hidden:
        raise UndefinedColumn(f'column "{name}" of relation "{table.name}" does not exist')
    return column


def alter_columns(cursor: Cursor) -> Make:
    """`ALTER [COLUMN] c {SET DEFAULT expression | DROP DEFAULT} [, …]`: of rows to come."""
    wanted: dict[str, str | None] = {}
    while cursor.accept("alter"):
        cursor.accept("column")
        name = cursor.name()
        if cursor.accept("set", "default"):
            wanted[name] = default_text(cursor)
        elif cursor.accept("drop", "default"):
            wanted[name] = None
        else:
            raise Unsupported(
                "unsupported DDL: `ALTER TABLE _ ALTER COLUMN` knows SET DEFAULT and DROP DEFAULT",
                hint="add a column with the other type, UPDATE it, and rename both",
            )
        if not cursor.accept_op(","):
            break
        if not cursor.looking_at("alter"):
            raise Unsupported(
                "ALTER COLUMN beside other changes in one ALTER TABLE is not supported"
            )

    def make(catalog: Catalog, table: Table) -> Ddl | None:
        columns = []
        for name, text in wanted.items():
            column = replace(_of(table, name), default=text)
            if column.identity is not None:
                raise InvalidTableDefinition(
                    f'column "{name}" of relation "{table.name}" is an identity column',
                    sqlstate="42601",
                )
            _check(catalog, column)
            columns.append(column)
        return Restate(table.id, table.name, tuple(columns))

    return make


def _check(catalog: Catalog, column: Column) -> None:
    if column.default is None:
        return
    from cairn.sql.bind.defaults import check_default  # brings sqlglot along
    from cairn.sql.bind.queries.bind import binder_of

    check_default(binder_of(catalog), column)
