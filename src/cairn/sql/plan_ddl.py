"""Schema changes: read from tokens, checked against the catalogue, built when their turn comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from cairn.model.catalog import ALL_OBJECTS, Catalog
from cairn.model.errors import (
    AccessDenied,
    CairnError,
    DuplicateColumn,
    DuplicateObject,
    DuplicateTable,
    InvalidTableDefinition,
    LimitExceeded,
    UndefinedColumn,
    UndefinedObject,
    UndefinedTable,
    Unsupported,
)
from cairn.model.ops import (
    AddColumns,
    CreateIndex,
    CreateTable,
    Ddl,
    DropIndex,
    DropTable,
    RenameColumn,
    RenameIndex,
    RenameTable,
    TruncateTable,
)
from cairn.model.schema import BUCKET_COLUMN, Column, Index, Sharded, Table
from cairn.model.values import ColumnType
from cairn.sql.cursor import Cursor
from cairn.sql.plans import DdlPlan
from cairn.sql.typing_rules import type_word

MAX_TABLES, MAX_INDEXES = 65000, 128
Right = tuple[str, str, int, str]
Build = Callable[[Catalog, int, int], Ddl | None]


@dataclass(frozen=True)
class DdlStatement:
    tag: str
    plan: DdlPlan
    rights: tuple[Right, ...]
    tables: dict[int, int] = field(default_factory=dict)


@dataclass
class Tail:
    """Clauses that may follow any schema change."""

    wait: Literal["globally", "locally"] = "globally"
    timeout: float | None = None
    notices: list[str] = field(default_factory=list)

    def plan(self, build: Build) -> DdlPlan:
        return DdlPlan(build, self.wait, self.timeout, tuple(self.notices))


def read_tail(cursor: Cursor, tail: Tail) -> bool:
    """One tail clause; whether there was one."""
    if cursor.accept("wait", "applied"):
        if cursor.accept("globally"):
            tail.wait = "globally"
        else:
            cursor.expect("locally")
            tail.wait = "locally"
        return True
    if cursor.accept("option"):
        cursor.expect_op("(")
        cursor.expect("timeout")
        cursor.expect_op("=")
        tail.timeout = cursor.number()
        cursor.expect_op(")")
        if tail.timeout < 0:
            raise CairnError("TIMEOUT must not be negative", sqlstate="22023")
        return True
    return False


def finish(cursor: Cursor) -> Tail:
    tail = Tail()
    while read_tail(cursor, tail):
        pass
    cursor.end()
    return tail


def parse_ddl(cursor: Cursor, catalog: Catalog, user_id: int) -> DdlStatement | None:
    """CREATE/DROP/ALTER TABLE and INDEX, TRUNCATE; None when it is something else."""
    if cursor.looking_at("create", "unlogged"):
        raise Unsupported("UNLOGGED tables are not supported")
    if cursor.accept("create", "table"):
        return _create_table(cursor, catalog, user_id)
    if cursor.accept("drop", "table"):
        return _drop_table(cursor, catalog)
    if cursor.accept("alter", "table"):
        return _alter_table(cursor, catalog)
    if cursor.accept("truncate"):
        cursor.accept("table")
        return _truncate(cursor, catalog)
    if cursor.accept("create", "index"):
        return _create_index(cursor, catalog, unique=False)
    if cursor.accept("create", "unique", "index"):
        return _create_index(cursor, catalog, unique=True)
    if cursor.accept("drop", "index"):
        return _drop_index(cursor, catalog)
    if cursor.accept("alter", "index"):
        return _alter_index(cursor, catalog)
    return None


# --- CREATE TABLE ---------------------------------------------------------------------------------


@dataclass
class _Definition:
    columns: list[Column] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    by: list[str] | None = None
    is_global: bool = False
    tier: str | None = None


def read_type(cursor: Cursor) -> ColumnType:
    token = cursor.take()
    word = token.value
    if word == "double":
        cursor.accept("precision")
    elif word == "character":
        cursor.accept("varying")
    elif word == "timestamp" and cursor.accept_one("with", "without"):
        cursor.expect("time", "zone")
    found = type_word(word, token.start + 1)
    following = cursor.peek()
    if following is not None and following.is_op("("):
        cursor.skip_parens()
    if cursor.accept_op("["):
        if cursor.peek() is not None and not cursor.accept_op("]"):
            cursor.take()
            cursor.expect_op("]")
        return ColumnType.ARRAY
    if cursor.accept("array"):
        if cursor.accept_op("["):
            cursor.take()
            cursor.expect_op("]")
        return ColumnType.ARRAY
    if found is ColumnType.ANY:
        raise Unsupported("columns of type ANY belong to system tables")
    return found


def _read_column(cursor: Cursor, definition: _Definition) -> Column:
    name, type_, nullable = cursor.name(), read_type(cursor), True
    while True:
        if cursor.accept("not", "null"):
            nullable = False
        elif cursor.accept("null"):
            nullable = True
        elif cursor.accept("primary", "key"):
            cursor.accept_one("asc", "desc")
            definition.key.append(name)
        elif word := cursor.accept_one(
            "default", "unique", "references", "check", "collate", "generated", "constraint"
        ):
            raise Unsupported(f"{word.upper()} in a column definition is not supported")
        else:
            return Column(name, type_, nullable)


def _create_table(cursor: Cursor, catalog: Catalog, user_id: int) -> DdlStatement:
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.name()
    if cursor.looking_at("as"):
        raise Unsupported("CREATE TABLE AS is not supported")
    definition, tail = _Definition(), Tail()
    cursor.expect_op("(")
    while True:
        if cursor.accept("primary", "key"):
            if definition.key:
                raise InvalidTableDefinition(f'multiple primary keys for table "{name}"')
            definition.key = cursor.names()
        elif word := cursor.accept_one("constraint", "foreign", "check", "unique", "like"):
            raise Unsupported(f"{word.upper()} in CREATE TABLE is not supported")
        else:
            definition.columns.append(_read_column(cursor, definition))
        if not cursor.accept_op(","):
            break
    cursor.expect_op(")")
    while _table_clause(cursor, definition, tail):
        pass
    cursor.end()
    columns, key, sharding = _check_table(name, definition, catalog, tail)

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        if name in now.tables:
            if quiet:
                return None
            raise DuplicateTable(f"table {name} already exists")
        if len(now.tables) >= MAX_TABLES:
            raise LimitExceeded(f"a limit on the total number of tables: {MAX_TABLES}")
        return CreateTable(
            Table(
                id=table_id,
                name=name,
                columns=columns,
                primary_key=key,
                sharding=sharding,
                schema_version=schema_version,
                operable=False,
                owner=user_id,
            )
        )

    rights = (("create", "table", ALL_OBJECTS, name),)
    return DdlStatement("CREATE TABLE", tail.plan(build), rights)


def _table_clause(cursor: Cursor, definition: _Definition, tail: Tail) -> bool:
    if cursor.accept("using"):
        engine = cursor.name()
        if engine == "vinyl":
            raise Unsupported("the vinyl engine is not supported", hint="use memtx, the default")
        if engine != "memtx":
            raise UndefinedObject(f"unknown engine {engine}")
        return True
    if cursor.accept("distributed", "globally"):
        definition.is_global = True
        return True
    if cursor.accept("distributed", "by"):
        definition.by = cursor.names()
        if cursor.accept("in", "tier"):
            definition.tier = cursor.name()
        return True
    if cursor.accept("in", "tier"):
        definition.tier = cursor.name()
        return True
    if cursor.accept("with"):
        raise InvalidTableDefinition("table engine memtx does not support options")
    if cursor.accept("partition", "by"):
        cursor.name()
        cursor.skip_parens()
        tail.notices.append("PARTITION BY is ignored: rows are placed by DISTRIBUTED BY")
        return True
    return read_tail(cursor, tail)


def _check_table(
    name: str, definition: _Definition, catalog: Catalog, tail: Tail
) -> tuple[tuple[Column, ...], tuple[str, ...], Sharded | None]:
    names = [column.name for column in definition.columns]
    for each in names:
        if names.count(each) > 1:
            raise DuplicateColumn(f"several fields have the same name: {each}")
    if BUCKET_COLUMN in names:
        raise InvalidTableDefinition('the column name "bucket_id" is reserved')
    if not definition.key:
        raise InvalidTableDefinition(
            "Primary key must be declared", hint="add PRIMARY KEY (…) to the table"
        )
    key = [each for each in definition.key if each != BUCKET_COLUMN]
    if not key:
        raise InvalidTableDefinition(
            "primary key must include at least one column in addition to bucket_id"
        )
    _check_key_columns(definition, key, "primary key")
    columns = tuple(
        Column(each.name, each.type, each.nullable and each.name not in key)
        for each in definition.columns
    )
    if definition.is_global:
        if definition.tier is not None:
            raise InvalidTableDefinition("a global table is in every tier; IN TIER has no meaning")
        return columns, tuple(key), None
    by = definition.by or key
    _check_key_columns(definition, by, "distribution key")
    if not set(by) <= set(key):
        tail.notices.append(
            f'primary key of "{name}" does not include its distribution key: '
            "it is unique in each bucket only, not in the whole table"
        )
    return columns, tuple(key), Sharded(tuple(by), _check_tier(definition.tier, catalog))


def _check_key_columns(definition: _Definition, key: list[str], what: str) -> None:
    types = {column.name: column.type for column in definition.columns}
    for each in key:
        if each not in types:
            raise UndefinedColumn(f"no field with name: {each}")
        if key.count(each) > 1:
            raise DuplicateColumn(f'column "{each}" appears twice in the {what}')
        if not types[each].is_scalar:
            raise InvalidTableDefinition(
                f'column "{each}" of type {types[each]} cannot be part of the {what}'
            )


def _check_tier(name: str | None, catalog: Catalog) -> str:
    tier_name = name or catalog.default_tier
    tier = catalog.tiers.get(tier_name)
    if tier is None:
        raise UndefinedObject(f"specified tier '{tier_name}' doesn't exist")
    if tier.bucket_count == 0:
        raise InvalidTableDefinition(
            f"specified tier '{tier_name}' has bucket_count=0 and cannot store sharded data"
        )
    return tier_name


# --- other tables ---------------------------------------------------------------------------------


def _existing(catalog: Catalog, name: str, *, quiet: bool = False) -> Table | None:
    table = catalog.table(name)
    if table is None:
        if quiet:
            return None
        raise UndefinedTable(f'table with name "{name}" not found')
    if table.is_system:
        raise AccessDenied(f'table "{name}" belongs to the system and cannot be changed')
    return table


def _statement(
    tag: str, tail: Tail, build: Build, table: Table | None, privilege: str
) -> DdlStatement:
    rights: tuple[Right, ...] = ()
    tables = {}
    if table is not None:
        rights = ((privilege, "table", table.id, table.name),)
        tables = {table.id: table.schema_version}
    return DdlStatement(tag, tail.plan(build), rights, tables)


def _drop_table(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    tail = finish(cursor)

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = _existing(now, name, quiet=quiet)
        return None if table is None else DropTable(table.id, name)

    return _statement("DROP TABLE", tail, build, _existing(catalog, name, quiet=quiet), "drop")


def _truncate(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    name = cursor.name()
    tail = finish(cursor)

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = _existing(now, name)
        assert table is not None
        return TruncateTable(table.id, name)

    return _statement("TRUNCATE TABLE", tail, build, _existing(catalog, name), "write")


def _alter_table(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    if cursor.accept("rename", "to"):
        make = _rename_table(name, cursor.name())
    elif cursor.accept("rename"):
        cursor.accept("column")
        old = cursor.name()
        cursor.expect("to")
        make = _rename_column(old, cursor.name())
    elif cursor.looking_at("add"):
        make = _add_columns(cursor)
    elif word := cursor.accept_one("drop", "alter"):
        raise Unsupported(
            f"unsupported DDL: `ALTER TABLE _ {word.upper()} COLUMN` is not yet supported"
        )
    else:
        raise cursor.error()
    tail = finish(cursor)

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = _existing(now, name, quiet=quiet)
        return None if table is None else make(now, table)

    found = _existing(catalog, name, quiet=quiet)
    if found is not None:
        make(catalog, found)
    return _statement("ALTER TABLE", tail, build, found, "alter")


Make = Callable[[Catalog, Table], Ddl | None]


def _rename_table(name: str, new: str) -> Make:
    def make(catalog: Catalog, table: Table) -> Ddl | None:
        if new in catalog.tables:
            raise DuplicateTable(f"table {new} already exists")
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
        return RenameColumn(table.id, table.name, old, new)

    return make


def _add_columns(cursor: Cursor) -> Make:
    wanted: list[tuple[Column, bool]] = []
    while cursor.accept("add"):
        cursor.accept("column")
        quiet = cursor.accept("if", "not", "exists")
        definition = _Definition()
        column = _read_column(cursor, definition)
        if definition.key:
            raise Unsupported("a primary key cannot be added to a table")
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
            added.append(column)
        return AddColumns(table.id, table.name, tuple(added)) if added else None

    return make


# --- indexes --------------------------------------------------------------------------------------


def find_index(catalog: Catalog, name: str) -> Index | None:
    for indexes in catalog.indexes.values():
        for index in indexes:
            if index.name == name:
                return index
    return None


def _create_index(cursor: Cursor, catalog: Catalog, *, unique: bool) -> DdlStatement:
    quiet = cursor.accept("if", "not", "exists")
    name = cursor.name()
    cursor.expect("on")
    table_name = cursor.name()
    kind = cursor.name() if cursor.accept("using") else "tree"
    if kind not in ("tree", "btree"):
        raise Unsupported(f"index type {kind} is not supported", hint="use tree, the default")
    columns = cursor.names()
    if cursor.accept("with"):
        raise Unsupported("options of an index are not supported")
    tail = finish(cursor)

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        if find_index(now, name) is not None:
            if quiet:
                return None
            raise DuplicateObject(f"index {name} already exists", sqlstate="42P07")
        table = _existing(now, table_name)
        assert table is not None
        _check_index(table, columns, unique)
        others = now.indexes.get(table.id, ())
        if len(others) + 1 >= MAX_INDEXES:
            raise LimitExceeded(f"a table cannot have more than {MAX_INDEXES} indexes")
        index_id = max((index.id for index in others), default=0) + 1
        return CreateIndex(
            Index(
                table.id,
                index_id,
                name,
                tuple(columns),
                unique,
                operable=False,
                schema_version=schema_version,
            )
        )

    found = _existing(catalog, table_name)
    assert found is not None
    _check_index(found, columns, unique)
    return _statement("CREATE INDEX", tail, build, found, "create")


def _check_index(table: Table, columns: list[str], unique: bool) -> None:
    for name in columns:
        column = table.column(name)
        if column is None:
            raise UndefinedColumn(f"no field with name: {name}")
        if columns.count(name) > 1:
            raise DuplicateColumn(f'column "{name}" appears twice in the index')
        if not column.type.is_scalar:
            raise InvalidTableDefinition(f'column "{name}" of type {column.type} cannot be indexed')
    if unique and table.sharding is not None:
        size = len(table.sharding.columns)
        if set(columns[:size]) != set(table.sharding.columns):
            raise InvalidTableDefinition(
                "unique index for the sharded table must include all sharding key columns as a "
                "prefix"
            )


def _index_statement(
    tag: str, tail: Tail, catalog: Catalog, name: str, quiet: bool, make: Callable[[Index], Ddl]
) -> DdlStatement:
    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        index = find_index(now, name)
        if index is None:
            if quiet:
                return None
            raise UndefinedObject(f'index with name "{name}" not found')
        return make(index)

    found = find_index(catalog, name)
    if found is None and not quiet:
        raise UndefinedObject(f'index with name "{name}" not found')
    table = catalog.table_by_id(found.table_id) if found is not None else None
    return _statement(tag, tail, build, table, "alter")


def _drop_index(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    tail = finish(cursor)
    return _index_statement(
        "DROP INDEX",
        tail,
        catalog,
        name,
        quiet,
        lambda index: DropIndex(index.table_id, index.id, name),
    )


def _alter_index(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    cursor.expect("rename", "to")
    new = cursor.name()
    tail = finish(cursor)
    if find_index(catalog, new) is not None:
        raise DuplicateObject(f"index {new} already exists", sqlstate="42P07")
    return _index_statement(
        "RENAME INDEX",
        tail,
        catalog,
        name,
        quiet,
        lambda index: RenameIndex(index.table_id, index.id, name, new),
    )
