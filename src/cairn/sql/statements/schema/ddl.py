"""Schema changes: which statement it is, and those of tables that exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from cairn.model.errors import Unsupported
from cairn.model.log.ops import AlterTable, Ddl, DropTable, TruncateTable
from cairn.model.tables.catalog import Catalog
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.alter import alter_table
from cairn.sql.statements.schema.common import (
    DdlStatement,
    Tail,
    accept_temp,
    ddl_statement,
    existing_table,
    finish,
    one_by_one,
)
from cairn.sql.statements.schema.dependents import check_unused
from cairn.sql.statements.schema.foreign_keys import (
    check_not_named,
    children_first,
    with_children,
    without_parent,
)
from cairn.sql.statements.schema.index import alter_index, create_index, drop_index
from cairn.sql.statements.schema.restating import comment_on
from cairn.sql.statements.schema.sequences import (
    alter_sequence,
    create_sequence,
    drop_sequence,
)
from cairn.sql.statements.schema.table import create_table


def parse_ddl(cursor: Cursor, catalog: Catalog, user_id: int) -> DdlStatement | None:
    """CREATE/DROP/ALTER TABLE, INDEX and SEQUENCE, TRUNCATE; None when it is something else."""
    if cursor.looking_at("create", "unlogged"):
        raise Unsupported("UNLOGGED tables are not supported")
    if accept_temp(cursor):
        cursor.expect("table")
        return create_table(cursor, catalog, user_id, is_temp=True)
    catalog = meant(cursor, catalog)
    if cursor.accept("create", "table"):
        return create_table(cursor, catalog, user_id)
    if cursor.accept("drop", "table"):
        return drop_table(cursor, catalog)
    if cursor.accept("alter", "table"):
        return alter_table(cursor, catalog)
    if cursor.looking_at("comment", "on", "table") or cursor.looking_at("comment", "on", "column"):
        cursor.at += 2
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
    if cursor.accept("create", "sequence"):
        return create_sequence(cursor, catalog, user_id)
    if cursor.accept("drop", "sequence"):
        return drop_sequence(cursor, catalog)
    if cursor.accept("alter", "sequence"):
        return alter_sequence(cursor, catalog)
    return None


def meant(cursor: Cursor, catalog: Catalog) -> Catalog:
    """Who writes `public.t` does not mean a temporary table of that name."""
    if catalog.beneath is None:
        return catalog
    words = cursor.tokens
    named = any(word.is_word("public") and dot.is_op(".") for word, dot in pairwise(words))
    return catalog.public if named else catalog


def drop_table(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    """Several tables are all looked up first, then dropped one after the other."""
    quiet = cursor.accept("if", "exists")
    names = [cursor.name()]
    while cursor.accept_op(","):
        names.append(cursor.name())
    # Indexes go with it, and views keep it in any case.
    is_cascade = cursor.accept_one("cascade", "restrict") == "cascade"
    tail = finish(cursor)
    ordered = children_first(catalog, names)
    each: list[DdlStatement] = []
    for at, name in enumerate(ordered):
        if is_cascade:
            each += _cut_off(name, catalog, tail, ordered)
        leaving = None if is_cascade else ordered[:at]
        each.append(_drop_one(name, catalog, tail, leaving, quiet=quiet))
    return one_by_one("DROP TABLE", each)


def _cut_off(name: str, catalog: Catalog, tail: Tail, leaving: list[str]) -> Iterator[DdlStatement]:
    """CASCADE: foreign keys of other tables that name its rows are dropped, one table at a time."""
    table = catalog.table(name)
    children = catalog.children_of(table.id) if table is not None else []
    others = dict.fromkeys(child.name for child, _ in children if child.name not in leaving)
    for other in others:

        def build(
            now: Catalog, schema_version: int, table_id: int, other: str = other
        ) -> Ddl | None:
            child, parent = now.table(other), now.table(name)
            if child is None or parent is None:
                return None
            cut = without_parent(child, parent.id)
            return AlterTable(cut, now.indexes.get(child.id, ())) if cut != child else None

        yield ddl_statement("ALTER TABLE", tail, build, catalog.table(other), "alter")


def _drop_one(
    name: str, catalog: Catalog, tail: Tail, leaving: list[str] | None, *, quiet: bool
) -> DdlStatement:
    """`leaving` are dropped before it; None: nothing holds it any more."""
    own = replace(tail, skipped=f'table "{name}" does not exist, skipping')

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = existing_table(now, name, quiet=quiet)
        check_unused(now, "table", name)
        if table is None:
            return None
        check_not_named(now, table, ())
        return DropTable(table.id, name)

    found = existing_table(catalog, name, quiet=quiet)
    if found is not None and leaving is not None:
        check_not_named(catalog, found, leaving)
    return ddl_statement("DROP TABLE", own, build, found, "drop")


def truncate(cursor: Cursor, catalog: Catalog) -> DdlStatement:
    """Several tables are all looked up first, then emptied one after the other."""
    cursor.accept("only")  # no table inherits from another
    names = [cursor.name()]
    while cursor.accept_op(","):
        cursor.accept("only")
        names.append(cursor.name())
    restarts = cursor.accept("restart", "identity")
    if not restarts:
        cursor.accept("continue", "identity")
    if cursor.accept_one("cascade", "restrict") == "cascade":
        names = with_children(catalog, names)
    tail = finish(cursor)
    names = children_first(catalog, names)
    # Rows that came in between may name a parent that is gone by now. They go too, parents first:
    # from then on nothing can name what was there before.
    again = [name for name in reversed(names) if _has_parent(catalog, name, names)]
    each = [_truncate_one(name, catalog, tail, names, restarts) for name in (*names, *again)]
    return one_by_one("TRUNCATE TABLE", each)


def _has_parent(catalog: Catalog, name: str, names: list[str]) -> bool:
    table = catalog.table(name)
    parents = {key.parent for key in table.foreign_keys} if table is not None else set()
    found = (catalog.table_by_id(each) for each in parents)
    return any(each is not None and each.name != name and each.name in names for each in found)


def _truncate_one(
    name: str, catalog: Catalog, tail: Tail, names: list[str], restarts: bool
) -> DdlStatement:
    known = existing_table(catalog, name)
    for child, key in catalog.children_of(known.id) if known is not None else ():
        if key.is_global and child.name != name:
            raise Unsupported(
                f'cannot truncate the global table "{name}": table "{child.name}" references it',
                hint=f"DELETE FROM {name}; it looks whether its rows are named",
            )
        if child.name not in names:
            raise Unsupported(
                "cannot truncate a table referenced in a foreign key constraint",
                detail=f'Table "{child.name}" references "{name}".',
                hint=f'Truncate table "{child.name}" at the same time, or use '
                "TRUNCATE ... CASCADE.",
            )

    def build(now: Catalog, schema_version: int, table_id: int) -> Ddl | None:
        table = existing_table(now, name)
        assert table is not None
        return TruncateTable(table.id, name, restarts)

    return ddl_statement("TRUNCATE TABLE", tail, build, known, "truncate")
