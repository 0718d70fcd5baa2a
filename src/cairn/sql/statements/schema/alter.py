"""ALTER TABLE: any number of actions, all of them in one change of the schema or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from msgspec.structs import replace

from cairn.model.errors import (
    CairnError,
    DuplicateColumn,
    DuplicateObject,
    DuplicateTable,
    InvalidTableDefinition,
    UndefinedColumn,
    UndefinedObject,
    Unsupported,
)
from cairn.model.log.ops import AlterTable, Ddl, RenameColumn, RenameTable
from cairn.model.tables.altering import as_added, with_renamed, without_column
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, ROW_COLUMN, Column, Index, Table
from cairn.sql.plans import Right
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import (
    DdlStatement,
    check_column_count,
    check_own_name,
    ddl_statement,
    existing_table,
    finish,
    storage_options,
)
from cairn.sql.statements.schema.dependents import check_unused
from cairn.sql.statements.schema.enums import check_types
from cairn.sql.statements.schema.foreign_keys import (
    Reference,
    are_ignored,
    check_key_stays,
    keys_rights,
    notice_of,
    read_foreign_key,
    with_keys,
)
from cairn.sql.statements.schema.index import add_unique
from cairn.sql.statements.schema.restating import checked_default, column_of
from cairn.sql.statements.schema.retyping import read_new_type
from cairn.sql.statements.schema.table import (
    Definition,
    default_text,
    read_check,
    read_column,
    with_zeros,
)

Draft = tuple[Table, tuple[Index, ...]]  # the indexes without the primary key
Step = Callable[[Catalog, Draft], Draft]


def alter_table(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    quiet = cursor.accept("if", "exists")
    cursor.accept("only")  # no table inherits from another
    name = cursor.name()
    if unique := _added_key(cursor):
        return add_unique(cursor, catalog, name, *unique)
    renamed = _renamed_alone(cursor, name)
    ignored: list[str] = []
    passes, steps = ((), []) if renamed is not None else _steps(cursor, catalog, ignored)
    tail = finish(cursor)
    tail.notices += ignored

    def make(now: Catalog, table: Table) -> Ddl | None:
        if renamed is not None:
            return renamed(now, table)
        before = table, now.indexes.get(table.id, ())
        after = before
        for step in steps:
            after = step(now, after)
        return AlterTable(*after) if after != before else None

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = existing_table(now, name, quiet=quiet)
        return None if table is None else make(now, table)

    found = existing_table(catalog, name, quiet=quiet)
    tail.skipped = f'relation "{name}" does not exist, skipping'
    needs: tuple[Right, ...] = ()
    parents: dict[int, int] = {}
    if found is not None:
        if isinstance(made := make(catalog, found), AlterTable):
            needs, parents = keys_rights(catalog, made.table, found.foreign_keys)
        tail.skipped = f'relation "{name}" is so already, skipping'
        if set(passes) == {3} and are_ignored(catalog):
            tail.skipped = notice_of(name)
        if set(passes) == {1}:
            tail.skipped = f'the columns of relation "{name}" already exist, skipping'
    told = ddl_statement("ALTER TABLE", tail, build, found, "alter")
    return dataclasses.replace(told, rights=(*told.rights, *needs), tables=told.tables | parents)


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


def _renamed_alone(cursor: Cursor, name: str) -> Callable[[Catalog, Table], Ddl] | None:
    """RENAME as the only action: its entry says what is renamed, not how all looks."""
    begun = cursor.at
    if not cursor.accept("rename"):
        return None
    what = _names_renamed(cursor)
    if cursor.looking_at_op(","):
        cursor.at = begun
        return None

    def make(catalog: Catalog, table: Table) -> Ddl:
        _rename(*what)(catalog, (table, ()))
        old, new = what
        if old is None:
            return RenameTable(table.id, name, new)
        return RenameColumn(table.id, name, old, new)

    return make


def _steps(cursor: Cursor, catalog: Catalog, told: list[str]) -> tuple[tuple[int, ...], list[Step]]:
    """In PostgreSQL's order: first what takes away, then columns, then what is asked of them.
    `told` gets a notice for what has no meaning here.

    Beside RENAME, which PostgreSQL has only alone, as they are written.
    """
    found: list[tuple[int, Step]] = []
    has_rename = False
    while True:
        if cursor.accept("rename"):
            has_rename = True
            found.append((0, _rename(*_names_renamed(cursor))))
        elif cursor.accept("add"):
            found.append(_add(cursor, catalog))
        elif cursor.accept("drop", "constraint"):
            found.append((0, _drop_constraint(cursor)))
        elif cursor.accept("drop"):
            found.append((0, _drop_column(cursor)))
        elif notices := _without_meaning(cursor, found):
            told += notices
        elif cursor.accept("alter"):
            found.append(_alter_column(cursor, catalog))
        elif cursor.accept("owner", "to"):
            found.append((0, _same_owner(cursor)))
        elif word := cursor.accept_one(
            "enable", "disable", "inherit", "attach", "detach", "cluster"
        ):
            raise Unsupported(f"ALTER TABLE _ {word.upper()} is not supported")
        elif cursor.accept("set"):
            raise Unsupported("ALTER TABLE _ SET is not supported")
        else:
            raise cursor.error()
        if not cursor.accept_op(","):
            break
    if not has_rename:
        found.sort(key=lambda each: each[0])
    return tuple(when for when, _ in found), [step for _, step in found]


def _without_meaning(cursor: Cursor, found: list[tuple[int, Step]]) -> list[str]:
    """How PostgreSQL lays out rows and reads its log, as dumps write it; none: something else."""
    begun = cursor.at
    if cursor.accept_one("set", "reset") and cursor.looking_at_op("("):
        return storage_options(cursor)
    cursor.at = begun
    if cursor.accept("replica", "identity"):
        if cursor.accept("using", "index"):
            cursor.name()
        elif cursor.accept_one("full", "nothing", "default") is None:
            raise cursor.error()
        return ["REPLICA IDENTITY is ignored: streams of changes tell whole rows"]
    if cursor.accept("cluster", "on"):
        cursor.name()
        return ["CLUSTER ON is ignored: rows are kept by bucket and primary key"]
    if cursor.accept("alter"):
        cursor.accept("column")
        name = cursor.name()
        words = ("storage", "statistics", "compression")
        if cursor.accept("set") and (word := cursor.accept_one(*words)):
            cursor.accept_op("-")  # SET STATISTICS -1
            cursor.take()
            found.append((2, _of_column(name, lambda _, __, column: column)))
            return [f"SET {word.upper()} is ignored: it says nothing about rows here"]
    cursor.at = begun
    return []


def _same_owner(cursor: Cursor) -> Step:
    """Dumps say whose the table is: no change if it is theirs already."""
    name = cursor.name()

    def step(catalog: Catalog, draft: Draft) -> Draft:
        user = catalog.users.get(name)
        if user is None or user.id != draft[0].owner:
            raise Unsupported(
                "ALTER TABLE _ OWNER TO another user is not supported",
                hint="GRANT ALL ON TABLE … TO them",
            )
        return draft

    return step


# --- names --------------------------------------------------------------------------------------


def _names_renamed(cursor: Cursor) -> tuple[str | None, str]:
    """What follows RENAME: the column, or None for the table, and its new name."""
    if cursor.accept("to"):
        return None, cursor.name()
    if cursor.looking_at("constraint"):
        raise Unsupported(
            "RENAME CONSTRAINT is not supported", hint="ALTER INDEX … RENAME TO renames a unique"
        )
    cursor.accept("column")
    old = cursor.name()
    cursor.expect("to")
    return old, cursor.name()


def _rename(old: str | None, new: str) -> Step:
    def step(catalog: Catalog, draft: Draft) -> Draft:
        table, indexes = draft
        if old is None:
            check_own_name(new, catalog)
            if new in catalog.tables or new in catalog.views:
                raise DuplicateTable(f"table {new} already exists")
            check_unused(catalog, "table", table.name, verb="rename")
            return replace(table, name=new), indexes
        column = table.column(old)
        if column is None or column.is_hidden:
            raise UndefinedColumn(f'column with name "{old}" not found')
        _check_free(table, new)
        check_unused(catalog, "table", table.name, old, verb="rename")
        return with_renamed(table, indexes, old, new)

    return step


def _check_free(table: Table, name: str) -> None:
    if name in (BUCKET_COLUMN, ROW_COLUMN):
        raise InvalidTableDefinition(f'the column name "{name}" is reserved')
    if table.column(name) is not None:
        raise DuplicateColumn(f"several fields have the same name: {name}")


# --- columns ------------------------------------------------------------------------------------


def _add(cursor: Cursor, known: Catalog) -> tuple[int, Step]:
    definition = Definition(types=known.types, int_size=known.int_size)
    if read_check(cursor, definition):
        return 3, _add_checks(definition)
    if reference := read_foreign_key(cursor):
        return 3, _add_keys([reference])
    word = cursor.accept_one("constraint", "primary", "unique")
    if word is not None:
        is_key = word in ("primary", "unique")
        raise Unsupported(
            f"ALTER TABLE _ ADD {word.upper()} {'beside other actions ' * is_key}is not supported",
            hint="a statement of its own for each constraint" if is_key else None,
        )
    cursor.accept("column")
    quiet = cursor.accept("if", "not", "exists")
    column = read_column(cursor, definition)
    if definition.key:
        raise Unsupported("a primary key cannot be added to a table")
    if definition.uniques:
        raise Unsupported(
            "UNIQUE of a column that is added is not supported",
            hint="ALTER TABLE … ADD UNIQUE (…) as a statement of its own",
        )
    if column.identity is not None:
        raise Unsupported("an identity column cannot be added to a table")
    checks, keys = _add_checks(definition), _add_keys(definition.references)

    def step(catalog: Catalog, draft: Draft) -> Draft:
        table, indexes = draft
        if quiet and table.column(column.name) is not None:
            return draft
        _check_free(table, column.name)
        check_column_count(len(table.columns) + 1)
        check_types(catalog, (column,))
        added = _with_missing(catalog, with_zeros(column))
        wider = replace(table, columns=table.columns + as_added((added,)))
        return keys(catalog, checks(catalog, (wider, indexes)))

    return 1, step


def _add_keys(references: list[Reference]) -> Step:
    def step(catalog: Catalog, draft: Draft) -> Draft:
        table, indexes = draft
        return with_keys(catalog, table, indexes, references), indexes

    return step


def _with_missing(catalog: Catalog, column: Column) -> Column:
    """With the one value that all rows have that were written before."""
    if column.default is None:
        return column
    from cairn.sql.plan.added import constant_default  # brings sqlglot along

    return replace(column, missing=constant_default(catalog, column))


def _drop_column(cursor: Cursor) -> Step:
    cursor.accept("column")
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    cursor.accept_one("cascade", "restrict")  # indexes and checks go with it in either case

    def step(catalog: Catalog, draft: Draft) -> Draft:
        table, indexes = draft
        column = table.column(name)
        if column is None or column.is_hidden:
            if quiet:
                return draft
            raise UndefinedColumn(f'column "{name}" of relation "{table.name}" does not exist')
        _check_no_key(table, name)
        if table.shown_columns == (column,):
            raise Unsupported(
                f"column {name} of table {table.name} is its last one: a table without columns is "
                "not supported",
                hint="DROP TABLE, or TRUNCATE if its rows are meant",
            )
        check_unused(catalog, "table", table.name, name)
        check_key_stays(catalog, table, [name], f"column {name} of table {table.name}")
        at = table.position(name)
        keys = tuple(key for key in table.foreign_keys if at not in key.columns)
        own_indexes = [
            index for index in indexes if name in index.columns or at in index.all_places
        ]
        own_checks = [check for check in table.checks if at + 1 in check.places]
        left = tuple(check for check in table.checks if check not in own_checks)
        return (
            without_column(replace(table, checks=left, foreign_keys=keys), name),
            tuple(index for index in indexes if index not in own_indexes),
        )

    return step


def _check_no_key(table: Table, name: str) -> None:
    keys = [("primary key", table.primary_key)]
    if table.sharding is not None:
        keys.append(("distribution key", table.sharding.columns))
    for what, columns in keys:
        if name in columns:
            raise CairnError(
                f"cannot drop column {name} of table {table.name}: it is part of its {what}",
                hint="make another table with CREATE TABLE … AS, and rename both",
                sqlstate="2BP01",
            )


def _alter_column(cursor: Cursor, known: Catalog) -> tuple[int, Step]:
    """`[COLUMN] c {{SET | DROP} {DEFAULT … | NOT NULL} | [SET DATA] TYPE …}`"""
    cursor.accept("column")
    name = cursor.name()
    if cursor.accept("set", "default"):
        default: str | None = default_text(cursor)
        return 2, _of_column(
            name, lambda catalog, _, column: _set_default(catalog, column, default)
        )
    if cursor.accept("drop", "default"):
        return 0, _of_column(name, lambda catalog, _, column: _set_default(catalog, column, None))
    if cursor.accept("set", "not", "null"):
        return 2, _of_column(
            name,
            lambda _, __, column: (
                replace(column, nullable=False, is_judged=True) if column.nullable else column
            ),
        )
    if cursor.accept("drop", "not", "null"):
        return 0, _of_column(name, _with_nulls)
    if cursor.accept("type") or cursor.accept("set", "data", "type"):
        return 1, _of_column(name, read_new_type(cursor, name, known))
    raise Unsupported("unsupported DDL: `ALTER COLUMN` knows TYPE, DEFAULT and NOT NULL")


def _of_column(name: str, change: Callable[[Catalog, Table, Column], Column]) -> Step:
    def step(catalog: Catalog, draft: Draft) -> Draft:
        table, indexes = draft
        column = change(catalog, table, column_of(table, name))
        columns = tuple(column if each.name == name else each for each in table.columns)
        return replace(table, columns=columns), indexes

    return step


def _set_default(catalog: Catalog, column: Column, text: str | None) -> Column:
    if column.identity is not None:
        raise InvalidTableDefinition(f'column "{column.name}" is an identity column')
    changed = replace(column, default=text)
    checked_default(catalog, changed)
    return changed


def _with_nulls(catalog: Catalog, table: Table, column: Column) -> Column:
    added = f"{table.name}_pkey" if table.has_hidden_key else ""  # by ALTER TABLE … ADD PRIMARY KEY
    keys = [each.columns for each in catalog.indexes.get(table.id, ()) if each.name == added]
    if any(column.name in key for key in (table.primary_key, *keys)):
        raise InvalidTableDefinition(f'column "{column.name}" is in a primary key')
    if column.identity is not None:
        raise InvalidTableDefinition(f'column "{column.name}" is an identity column')
    return replace(column, nullable=True, is_judged=False)


# --- constraints --------------------------------------------------------------------------------


def _add_checks(definition: Definition) -> Step:
    def step(catalog: Catalog, draft: Draft) -> Draft:
        table, indexes = draft
        if not definition.checks:
            return draft
        from cairn.sql.plan.checks import checks_of  # brings sqlglot along

        names = {check.name for check in table.checks}
        for name, _ in definition.checks:
            if name in names:
                raise DuplicateObject(
                    f'constraint "{name}" for relation "{table.name}" already exists'
                )
        added = checks_of(catalog, table.name, table.columns, definition.checks, table.checks)
        return replace(table, checks=table.checks + added), indexes

    return step


def _drop_constraint(cursor: Cursor) -> Step:
    quiet = cursor.accept("if", "exists")
    name = cursor.name()
    cursor.accept_one("cascade", "restrict")

    def step(catalog: Catalog, draft: Draft) -> Draft:
        table, indexes = draft
        if name == table.key_name and not table.has_hidden_key:
            raise Unsupported("a primary key cannot be dropped", hint="make the table anew")
        checks = tuple(check for check in table.checks if check.name != name)
        left = tuple(index for index in indexes if index.name != name or not index.is_key)
        keys = tuple(key for key in table.foreign_keys if key.name != name)
        for index in indexes:
            if index not in left:
                what = f"constraint {name} on table {table.name}"
                check_key_stays(catalog, table, index.columns, what)
        is_same = (checks, left, keys) == (table.checks, indexes, table.foreign_keys)
        if is_same and not quiet:
            raise UndefinedObject(
                f'constraint "{name}" of relation "{table.name}" does not exist', sqlstate="42704"
            )
        return replace(table, checks=checks, foreign_keys=keys), left

    return step
