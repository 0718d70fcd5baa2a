"""Schema changes: which statement it is, and those of tables that exist."""

from __future__ import annotations

from dataclasses import replace

from cairn.model.errors import (
    DuplicateColumn,
    DuplicateTable,
    InvalidTableDefinition,
    UndefinedColumn,
    Unsupported,
)
from cairn.model.log.ops import (
    AddColumns,
    Ddl,
    DropTable,
    RenameColumn,
    RenameTable,
    TruncateTable,
)
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, Column, Table
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import (
    DdlStatement,
    Make,
    Tail,
    check_column_count,
    ddl_statement,
    existing_table,
    finish,
)
from cairn.sql.statements.schema.dependents import check_unused
from cairn.sql.statements.schema.index import add_unique, alter_index, create_index, drop_index
from cairn.sql.statements.schema.restating import alter_columns, comment_on
from cairn.sql.statements.schema.table import Definition, create_table, read_column, with_zeros


def parse_ddl(cursor: Cursor, catalog: Catalog, user_id: int) -> DdlStatement | None:
    """CREATE/DROP/ALTER TABLE and INDEX, TRUNCATE; None when it is something else."""
    if cursor.looking_at("create", "unlogged"):
        raise Unsupported("UNLOGGED tables are not supported")
    if cursor.accept("create", "table"):
        return create_table(cursor, catalog, user_id)
    if cursor.accept("drop", "table"):
        return drop_table(cursor, catalog)
    if cursor.accept("alter", "table"):
        return alter_table(cursor, catalog)
    if cursor.accept("comment", "on"):
        return comment_on(cursor, catalog)
    if cursor.accept("truncate"):
        cursor.accept("table")
        return truncate(cursor, catalog)
    if cursor.accept("create", "index"):
        return create_index(cursor, catalog, unique=False)
    if cursor.accept("create", "unique", "index"):
        return create_index(cursor, catalog, unique=True)
    if cursor.accept("drop", "index"):
        return drop_index(cursor, catalog)
    if cursor.accept("alter", "index"):
        return alter_index(cursor, catalog)
    return None


def drop_table(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    """Several tables are all looked up first, then dropped one after the other."""
    quiet = cursor.accept("if", "exists")
    names = [cursor.name()]
    while cursor.accept_op(","):
        names.append(cursor.name())
    cursor.accept_one("cascade", "restrict")  # indexes go with it, and views keep it in any case
    tail = finish(cursor)
    each = [_drop_one(name, catalog, tail, quiet=quiet) for name in dict.fromkeys(names)]
    return _one_by_one("DROP TABLE", each)


def _drop_one(name: str, catalog: Catalog, tail: Tail, *, quiet: bool) -> DdlStatement:
    own = replace(tail, skipped=f'table "{name}" does not exist, skipping')

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = existing_table(now, name, quiet=quiet)
        check_unused(now, "table", name)
        return None if table is None else DropTable(table.id, name)

    found = existing_table(catalog, name, quiet=quiet)
    return ddl_statement("DROP TABLE", own, build, found, "drop")


def truncate(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    """Several tables are all looked up first, then emptied one after the other."""
    names = [cursor.name()]
    while cursor.accept_op(","):
        names.append(cursor.name())
    cursor.accept_one("cascade", "restrict")  # nothing depends on the rows of a table
    tail = finish(cursor)
    each = [_truncate_one(name, catalog, tail) for name in dict.fromkeys(names)]
    return _one_by_one("TRUNCATE TABLE", each)


def _truncate_one(name: str, catalog: Catalog, tail: Tail) -> DdlStatement:
    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = existing_table(now, name)
        assert table is not None
        return TruncateTable(table.id, name)

    return ddl_statement("TRUNCATE TABLE", tail, build, existing_table(catalog, name), "truncate")


def _one_by_one(tag: str, each: list[DdlStatement]) -> DdlStatement:
    first, rest = each[0], each[1:]
    return DdlStatement(
        tag,
        replace(first.plan, more=tuple(other.plan for other in rest)),
        tuple(right for other in each for right in other.rights),
        {table: version for other in each for table, version in other.tables.items()},
    )


def alter_table(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    if cursor.accept("rename", "to"):
        make = _rename_table(name, cursor.name())
    elif cursor.accept("rename"):
        cursor.accept("column")
        old = cursor.name()
        cursor.expect("to")
        make = _rename_column(old, cursor.name())
    elif unique := _added_key(cursor):
        return add_unique(cursor, catalog, name, *unique)
    elif cursor.looking_at("add"):
        make = _add_columns(cursor)
    elif cursor.looking_at("alter"):
        make = alter_columns(cursor)
    elif cursor.accept("drop"):
        raise Unsupported("unsupported DDL: `ALTER TABLE _ DROP COLUMN` is not yet supported")
    else:
        raise cursor.error()
    tail = finish(cursor)

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = existing_table(now, name, quiet=quiet)
        return None if table is None else make(now, table)

    found = existing_table(catalog, name, quiet=quiet)
    tail.skipped = f'relation "{name}" does not exist, skipping'
    if found is not None:
        make(catalog, found)
        tail.skipped = f'the columns of relation "{name}" already exist, skipping'
    return ddl_statement("ALTER TABLE", tail, build, found, "alter")


def _added_key(cursor: Cursor) -> tuple[str, bool] | None:
    """`ADD [CONSTRAINT name] {PRIMARY KEY | UNIQUE}`: the name, and whether it is the first."""
    begun, name = cursor.at, ""
    if cursor.accept("add"):
        if cursor.accept("constraint"):
            name = cursor.name()
        if cursor.accept("primary", "key"):
            return name, True
        if cursor.accept("unique"):
            return name, False
    cursor.at = begun
    return None


def _rename_table(name: str, new: str) -> Make:
    def make(catalog: Catalog, table: Table) -> Ddl | None:
        if new in catalog.tables or new in catalog.views:
            raise DuplicateTable(f"table {new} already exists")
        check_unused(catalog, "table", name, verb="rename")
        return RenameTable(table.id, name, new)

    return make


def _rename_column(old: str, new: str) -> Make:
    def make(catalog: Catalog, table: Table) -> Ddl | None:
        if table.column(old) is None:
            raise UndefinedColumn(f'column with name "{old}" not found')
        if new == BUCKET_COLUMN:
            raise InvalidTableDefinition('the column name "bucket_id" is reserved')
        if table.column(new) is not None:
            raise DuplicateColumn(f"several fields have the same name: {new}")
        check_unused(catalog, "table", table.name, old, verb="rename")
        return RenameColumn(table.id, table.name, old, new)

    return make


def _add_columns(cursor: Cursor) -> Make:
    wanted: list[tuple[Column, bool]] = []
    while cursor.accept("add"):
        word = cursor.accept_one("constraint", "primary", "unique", "check", "foreign")
        if word is not None:
            raise Unsupported(f"ALTER TABLE _ ADD {word.upper()} is not supported")
        cursor.accept("column")
        quiet = cursor.accept("if", "not", "exists")
        definition = Definition()
        column = read_column(cursor, definition)
        if definition.key:
            raise Unsupported("a primary key cannot be added to a table")
        if column.identity is not None:
            raise Unsupported("an identity column cannot be added to a table")
        if column.default is not None:
            raise Unsupported(
                "DEFAULT of a column that is added is not supported: rows that are there would "
                "not have it",
                hint="add the column without it, then UPDATE the rows",
            )
        wanted.append((column, quiet))
        if not cursor.accept_op(","):
            break

    def make(catalog: Catalog, table: Table) -> Ddl | None:
        names = {column.name for column in table.columns}
        added = []
        for column, quiet in wanted:
            if column.name == BUCKET_COLUMN:
                raise InvalidTableDefinition('the column name "bucket_id" is reserved')
            if column.name in names:
                if quiet:
                    continue
                raise DuplicateColumn(f"several fields have the same name: {column.name}")
            names.add(column.name)
            added.append(with_zeros(column))
        check_column_count(len(names))
        return AddColumns(table.id, table.name, tuple(added)) if added else None

    return make
