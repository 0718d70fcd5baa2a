"""Indexes: CREATE, DROP and RENAME."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from cairn.model.errors import (
    DuplicateColumn,
    DuplicateObject,
    InvalidTableDefinition,
    LimitExceeded,
    UndefinedColumn,
    UndefinedObject,
    Unsupported,
)
from cairn.model.log.ops import (
    CreateIndex,
    Ddl,
    DropIndex,
    RenameIndex,
)
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Computed, Index, Table
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import (
    MAX_INDEXES,
    DdlStatement,
    Tail,
    ddl_statement,
    existing_table,
    finish,
    storage_options,
)
from cairn.sql.statements.schema.foreign_keys import check_key_stays


class Part(NamedTuple):
    """Of an index: a column, or an expression with what PostgreSQL would call it."""

    name: str
    text: str = ""


def find_index(catalog: Catalog, name: str) -> Index | None:
    for indexes in catalog.indexes.values():
        for index in indexes:
            if index.name == name:
                return index
    return None


def create_index(cursor: Cursor, catalog: Catalog, *, unique: bool) -> DdlStatement:
    cursor.accept("concurrently")  # as every index of a large table is made
    quiet = cursor.accept("if", "not", "exists")
    name = "" if cursor.looking_at("on") else cursor.name()
    cursor.expect("on")
    table_name = cursor.name()
    kind = cursor.name() if cursor.accept("using") else "tree"
    if kind not in ("tree", "btree", "hash"):
        raise Unsupported(f"index type {kind} is not supported", hint="use tree, the default")
    parts = _parts(cursor)
    columns = [part.name for part in parts if not part.text]
    told = storage_options(cursor) if cursor.accept("with") else []
    if kind == "hash":
        told.append("the index is a tree, which finds equal values as well")
    if cursor.looking_at("include"):
        raise Unsupported(
            "INCLUDE in CREATE INDEX is not supported",
            hint="put the columns at the end of the list",
        )
    where = cursor.expression("option", "wait") if cursor.accept("where") else ""
    tail = finish(cursor)
    tail.notices += told
    name = name or free_name(catalog, f"{table_name}_{'_'.join(p.name for p in parts)}_idx")
    tail.skipped = f'relation "{name}" already exists, skipping'

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        if quiet and find_index(now, name) is not None:
            return None
        return _made(now, schema_version, table_name, name, columns, unique, where, parts)

    found = existing_table(catalog, table_name)
    assert found is not None
    _check_index(found, columns, unique)
    _rule(catalog, found, where, unique)
    _computed(catalog, found, parts, unique)
    return ddl_statement("CREATE INDEX", tail, build, found, "create")


def _rule(catalog: Catalog, table: Table, where: str, unique: bool) -> str:
    """The condition as SQLite judges it by itself: every connection that writes rows does."""
    if not where:
        return ""
    if unique and table.is_global:
        raise Unsupported(
            "a unique index of some rows (WHERE) of a global table is not supported",
            hint="make the table DISTRIBUTED BY (): all of its rows together",
        )
    from cairn.sql.plan.checks import condition  # brings sqlglot along

    return condition(catalog, table.name, table.columns, where)


def _computed(
    catalog: Catalog, table: Table, parts: Sequence[Part], unique: bool
) -> tuple[Computed, ...]:
    """Expressions as every master computes them when it writes a row."""
    if not any(part.text for part in parts):
        return ()
    if table.is_global:
        raise Unsupported(
            "an index of expressions of a global table is not supported",
            hint="make the table DISTRIBUTED BY (): all of its rows together",
        )
    key = 0 if table.sharding is None else len(table.sharding.columns)
    if unique and any(part.text for part in parts[:key]):
        raise InvalidTableDefinition(
            "unique index for the sharded table must begin with the sharding key columns"
        )
    from cairn.sql.plan.checks import computed  # brings sqlglot along

    return tuple(
        computed(catalog, table.name, table.columns, part.text, at)
        for at, part in enumerate(parts)
        if part.text
    )


def _made(
    now: Catalog,
    schema_version: int,
    table_name: str,
    name: str,
    columns: list[str],
    unique: bool,
    where: str = "",
    parts: Sequence[Part] = (),
) -> Ddl:
    if find_index(now, name) is not None:
        raise DuplicateObject(f"index {name} already exists", sqlstate="42P07")
    table = existing_table(now, table_name)
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
            where=where,
            rule=_rule(now, table, where, unique),
            computed=_computed(now, table, parts, unique),
        )
    )


def table_indexes(
    catalog: Catalog,
    table: Table,
    uniques: Sequence[tuple[str, list[str]]],
    plain: Sequence[list[str]],
) -> tuple[Index, ...]:
    """Those of a new table: by name, or "", and columns; then the others by their columns.

    A UNIQUE that repeats another is left out, as PostgreSQL does.
    """
    found: list[Index] = []

    def add(name: str, columns: Sequence[str], is_unique: bool) -> None:
        at, version = len(found) + 1, table.schema_version
        found.append(Index(table.id, at, name, tuple(columns), is_unique, False, version))

    def taken() -> set[str]:
        return {index.name for index in found} | {table.key_name}

    for name, columns in uniques:
        ordered = unique_columns(table, columns)
        if set(ordered) in (set(table.primary_key), *(set(index.columns) for index in found)):
            continue
        wanted = name or free_name(catalog, f"{table.name}_{'_'.join(columns)}_key", taken())
        if wanted in taken() or find_index(catalog, wanted) is not None:
            raise DuplicateObject(f'relation "{wanted}" already exists', sqlstate="42P07")
        add(wanted, ordered, True)
    for columns in plain:
        add(free_name(catalog, f"{table.name}_{'_'.join(columns)}_idx", taken()), columns, False)
    if len(found) >= MAX_INDEXES:
        raise LimitExceeded(f"a table cannot have more than {MAX_INDEXES} indexes")
    return tuple(found)


def add_unique(
    cursor: Cursor, catalog: Catalog, table_name: str, name: str, is_key: bool
) -> DdlStatement:
    """ALTER TABLE … ADD {PRIMARY KEY | UNIQUE}: a unique index. A primary key can be added to a
    table that was made without one."""
    columns = cursor.names()
    tail = finish(cursor)
    found = existing_table(catalog, table_name)
    assert found is not None
    wanted = f"{table_name}_pkey" if is_key else f"{table_name}_{'_'.join(columns)}_key"
    if is_key and name not in ("", wanted):
        tail.notices.append(f'the name "{name}" is not kept: the primary key is called "{wanted}"')
    name = wanted if is_key else name or free_name(catalog, wanted)
    columns = columns if is_key else unique_columns(found, columns)

    def check(now: Catalog) -> Table:
        table = existing_table(now, table_name)
        assert table is not None
        if is_key and (not table.has_hidden_key or find_index(now, wanted) is not None):
            raise InvalidTableDefinition(f'multiple primary keys for table "{table_name}"')
        _check_index(table, columns, unique=True)
        for each in columns if is_key else ():
            column = table.column(each)
            if column is not None and column.nullable:
                raise Unsupported(
                    f'column "{each}" of a primary key that is added must be declared NOT NULL',
                    hint=f"ALTER TABLE {table_name} ALTER COLUMN {each} SET NOT NULL",
                )
        return table

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        check(now)
        return _made(now, schema_version, table_name, name, columns, unique=True)

    return ddl_statement("ALTER TABLE", tail, build, check(catalog), "alter")


def _parts(cursor: Cursor) -> list[Part]:
    """`(a, lower(b) DESC, (c % 10), …)`"""
    cursor.expect_op("(")
    found = []
    while True:
        first, second = cursor.peek(), cursor.peek(1)
        if first is not None and (first.is_op("(") or (second is not None and second.is_op("("))):
            word = first.value if first.kind == "word" else "expr"
            found.append(Part(word, cursor.expression("asc", "desc", "nulls")))
        else:
            found.append(Part(cursor.name()))
        cursor.order_of_part()
        if not cursor.accept_op(","):
            break
    cursor.expect_op(")")
    return found


def free_name(catalog: Catalog, wanted: str, taken: Collection[str] = ()) -> str:
    """As PostgreSQL names an index that nobody named: t_a_b_idx, then t_a_b_idx1."""
    name, number = wanted, 0
    while name in taken or find_index(catalog, name) is not None:
        number += 1
        name = f"{wanted}{number}"
    return name


def _check_index(table: Table, columns: list[str], unique: bool) -> None:
    for name in columns:
        column = table.column(name)
        if column is None:
            raise UndefinedColumn(f"no field with name: {name}")
        if columns.count(name) > 1:
            raise DuplicateColumn(f'column "{name}" appears twice in the index')
        if not column.type.is_key:
            raise InvalidTableDefinition(f'column "{name}" of type {column.type} cannot be indexed')
    if unique and table.sharding is not None:
        size = len(table.sharding.columns)
        if set(columns[:size]) != set(table.sharding.columns):
            key = ", ".join(table.sharding.columns)
            raise InvalidTableDefinition(
                "unique index for the sharded table must include all sharding key columns as a "
                "prefix",
                hint=f"begin it with {key}, by which the rows of {table.name} are distributed, or "
                "make the table DISTRIBUTED BY columns of the index, BY () (all rows together), or "
                "GLOBALLY",
            )


def unique_columns(table: Table, columns: list[str]) -> list[str]:
    """Those of a UNIQUE, in any order: the distribution key goes first."""
    key = () if table.sharding is None else table.sharding.columns
    first = [name for name in key if name in columns]
    ordered = [*first, *(name for name in columns if name not in first)]
    _check_index(table, ordered if len(set(columns)) == len(columns) else columns, unique=True)
    return ordered


def _index_statement(
    tag: str,
    tail: Tail,
    catalog: Catalog,
    name: str,
    quiet: bool,
    make: Callable[[Index], Ddl],
    drops: bool = False,
) -> DdlStatement:
    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        index = find_index(now, name)
        if index is None:
            if quiet:
                return None
            raise UndefinedObject(f'index with name "{name}" not found')
        table = now.table_by_id(index.table_id)
        if drops and index.is_key and table is not None:
            check_key_stays(now, table, index.columns, f"index {name}")
        return make(index)

    tail.skipped = f'index "{name}" does not exist, skipping'
    found = find_index(catalog, name)
    if found is None and not quiet:
        raise UndefinedObject(f'index with name "{name}" not found')
    table = catalog.table_by_id(found.table_id) if found is not None else None
    return ddl_statement(tag, tail, build, table, "alter")


def drop_index(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    cursor.accept("concurrently")  # it takes milliseconds
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
        drops=True,
    )


def alter_index(cursor: Cursor, catalog: Catalog) -> DdlStatement:
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
