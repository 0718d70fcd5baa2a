"""FOREIGN KEY: kept where the one writer sees a row and the one that it names, else refused.

That is so between tables whose rows lie together (`DISTRIBUTED BY ()`), and towards global tables,
of which every instance has a copy. Other rows may be on another replicaset, where nobody can look
inside of one transaction. Where the cluster's setting
`foreign_keys` is `ignore` all of them are read, not kept, and a notice says so: for applications
whose schema is made by a tool, and that keep them themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from cairn.model.errors import (
    CairnError,
    DatatypeMismatch,
    DuplicateObject,
    InvalidTableDefinition,
    SyntaxProblem,
    UndefinedColumn,
    UndefinedTable,
    Unsupported,
)
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import ForeignKey, Index, Table
from cairn.model.tables.temporary import touches
from cairn.sql.plans import Right
from cairn.sql.statements.cursor import Cursor
from cairn.sql.typing_rules import plain


@dataclass(frozen=True)
class Reference:
    """A foreign key as it is written."""

    name: str
    columns: list[str]
    parent: str
    parent_columns: list[str] | None  # None: its primary key
    on_delete: str = "no action"
    on_update: str = "no action"
    is_deferred: bool = False


def read_foreign_key(cursor: Cursor) -> Reference | None:
    """`[CONSTRAINT name] FOREIGN KEY (columns) REFERENCES …`; None when it is something else."""
    begun, name = cursor.at, ""
    if cursor.accept("constraint"):
        name = cursor.name()
    if not cursor.accept("foreign", "key"):
        cursor.at = begun
        return None
    columns = cursor.names()
    cursor.expect("references")
    return read_references(cursor, name, columns)


def read_references(cursor: Cursor, name: str, columns: list[str]) -> Reference:
    """What follows REFERENCES."""
    parent = cursor.name()
    theirs = cursor.names() if cursor.looking_at_op("(") else None
    found = Reference(name, columns, parent, theirs)
    while True:
        if cursor.accept("match"):
            if cursor.accept_one("simple", "full", "partial") != "simple" and len(columns) > 1:
                raise Unsupported("of MATCH only SIMPLE is supported")
        elif cursor.accept("on", "delete"):
            found = replace(found, on_delete=_action(cursor))
        elif cursor.accept("on", "update"):
            found = replace(found, on_update=_action(cursor))
        elif cursor.accept("initially"):
            word = cursor.accept_one("deferred", "immediate")
            if word is None:
                raise cursor.error()
            found = replace(found, is_deferred=word == "deferred")
        elif not (cursor.accept("deferrable") or cursor.accept("not", "deferrable")):
            break
    if cursor.accept("not", "valid"):
        raise Unsupported("NOT VALID is not supported: rows that are there are looked at")
    return found


def _action(cursor: Cursor) -> str:
    word = cursor.accept_one("cascade", "restrict")
    if word is not None:
        return word
    if cursor.accept("no", "action"):
        return "no action"
    if cursor.accept("set", "null"):
        if cursor.looking_at_op("("):
            raise Unsupported("SET NULL of some columns is not supported")
        return "set null"
    if cursor.accept("set", "default"):
        raise Unsupported("SET DEFAULT is not supported", hint="use SET NULL, or CASCADE")
    raise cursor.error()


def are_ignored(catalog: Catalog) -> bool:
    return bool(catalog.setting("foreign_keys") == "ignore")


def notice_of(table: str) -> str:
    """What is said when one is read and not kept."""
    return (
        f'the foreign key of table "{table}" is not kept: nobody looks whether its rows are there'
    )


def with_keys(
    catalog: Catalog, table: Table, indexes: Iterable[Index], given: Collection[Reference]
) -> Table:
    """The table with its foreign keys; none where they are ignored."""
    if are_ignored(catalog):
        return table
    if given and touches((table.id,)):
        raise Unsupported(
            "foreign keys of temporary tables are not supported",
            hint="leave REFERENCES out, or make an ordinary table DISTRIBUTED BY ()",
        )
    made = list(table.foreign_keys)
    for each in given:
        made.append(_key(catalog, table, indexes, each, {key.name for key in made}))
    return _with(table, made)


def keys_rights(
    catalog: Catalog, table: Table, before: Collection[ForeignKey] = ()
) -> tuple[tuple[Right, ...], dict[int, int]]:
    """What its new keys need, and the tables that have to be those that were seen. Whoever may
    name rows can ask which there are, and keeps them from being deleted."""
    found = {key.parent for key in table.foreign_keys if key not in before} - {table.id}
    parents = [each for each in map(catalog.table_by_id, sorted(found)) if each is not None]
    rights = tuple(("references", "table", each.id, each.name) for each in parents)
    return rights, {each.id: each.schema_version for each in parents}


def _with(table: Table, keys: list[ForeignKey]) -> Table:
    from msgspec.structs import replace as changed

    return changed(table, foreign_keys=tuple(keys))


def _key(
    catalog: Catalog, table: Table, indexes: Iterable[Index], given: Reference, taken: set[str]
) -> ForeignKey:
    is_own = given.parent == table.name
    parent = table if is_own else catalog.table(given.parent)
    if parent is None or (parent.is_system and not is_own):
        raise UndefinedTable(f'relation "{given.parent}" does not exist')
    _check_together(table, parent)
    theirs = given.parent_columns
    known = indexes if is_own else catalog.indexes.get(parent.id, ())
    uniques = [set(index.columns) for index in known if index.is_key]
    if not parent.has_hidden_key:
        uniques.append(set(parent.primary_key))
    if theirs is None:
        key = _primary(parent, known)
        if key is None:
            raise CairnError(
                f'there is no primary key for referenced table "{parent.name}"', sqlstate="42704"
            )
        theirs = list(key)
    if len(given.columns) != len(theirs):
        raise SyntaxProblem(
            "number of referencing and referenced columns for foreign key disagree",
            sqlstate="42830",
        )
    own_places = [_place(table, name) for name in given.columns]
    their_places = [_place(parent, name) for name in theirs]
    if set(theirs) not in uniques or len(set(theirs)) != len(theirs):
        raise InvalidTableDefinition(
            "there is no unique constraint matching given keys for referenced table "
            f'"{parent.name}"',
            sqlstate="42830",
        )
    name = given.name or _free_name(f"{table.name}_{'_'.join(given.columns)}_fkey", taken)
    if name in taken:
        raise DuplicateObject(f'constraint "{name}" for relation "{table.name}" already exists')
    _check_types(table, parent, own_places, their_places, name)
    made = ForeignKey(
        name,
        tuple(own_places),
        table.id if is_own else parent.id,
        tuple(their_places),
        given.on_delete,
        given.on_update,
        given.is_deferred,
        parent.sharding is None,
    )
    _check_actions(table, made)
    return made


def _primary(parent: Table, indexes: Iterable[Index]) -> tuple[str, ...] | None:
    if not parent.has_hidden_key:
        return parent.primary_key
    added = f"{parent.name}_pkey"
    return next((each.columns for each in indexes if each.is_key and each.name == added), None)


def _check_together(table: Table, parent: Table) -> None:
    """Both in one bucket, or the parent everywhere: else a row could be anywhere."""
    if parent.sharding is None:
        return
    for each in (table, parent):
        if each.sharding is None or each.sharding.columns:
            kind = "global" if each.sharding is None else "distributed by a key"
            raise Unsupported(
                f'FOREIGN KEY is not supported here: table "{each.name}" is {kind}',
                hint=f'make "{parent.name}" DISTRIBUTED GLOBALLY, or both DISTRIBUTED BY (), or '
                "leave it out; or ALTER SYSTEM SET foreign_keys = 'ignore', then it is read and "
                "not kept",
            )
    if table.sharding != parent.sharding:
        raise Unsupported("FOREIGN KEY between tables of different tiers is not supported")


def _place(table: Table, name: str) -> int:
    column = table.column(name)
    if column is None or column.is_hidden:
        raise UndefinedColumn(
            f'column "{name}" referenced in foreign key constraint does not exist'
        )
    return table.position(name)


def _check_types(table: Table, parent: Table, own: list[int], theirs: list[int], name: str) -> None:
    for mine, other in zip(own, theirs, strict=True):
        left, right = table.columns[mine], parent.columns[other]
        same_enum = (left.enum and left.enum.id) == (right.enum and right.enum.id)
        if plain(left.type) is not plain(right.type) or not same_enum:
            raise DatatypeMismatch(
                f'foreign key constraint "{name}" cannot be implemented',
                detail=f'Key columns "{left.name}" and "{right.name}" are of incompatible types: '
                f"{left.type.value} and {right.type.value}.",
            )
        if left.keeps_zeros or right.keeps_zeros or not left.type.is_key:
            raise Unsupported(
                f'a foreign key on column "{left.name}" of type {left.type.value} is not supported',
                hint="give NUMERIC a scale: NUMERIC(20, 2)" if left.keeps_zeros else None,
            )


def _check_actions(table: Table, key: ForeignKey) -> None:
    if key.is_global and not {key.on_delete, key.on_update} <= {"no action", "restrict"}:
        raise Unsupported(
            "ON DELETE and ON UPDATE of a foreign key towards a global table have to be NO ACTION "
            "or RESTRICT",
            detail="what follows would be changes on several replicasets, which are not one",
            hint="change the rows first, then the one that they name",
        )
    if key.is_global and key.is_deferred and table.sharding is None:
        raise Unsupported("between global tables a foreign key cannot be DEFERRED")
    names = {table.columns[at].name for at in key.columns}
    if key.on_update in ("cascade", "set null") and names & set(table.primary_key):
        raise Unsupported(
            f"ON UPDATE {key.on_update.upper()} of a column of the primary key is not supported"
        )


def _free_name(wanted: str, taken: Collection[str]) -> str:
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}{number}"
    return name


# --- what depends on them -----------------------------------------------------------------------


def check_not_named(catalog: Catalog, table: Table, leaving: Collection[str]) -> None:
    """Refuse to drop a table that rows of others name; `leaving` are dropped before it."""
    users = [
        f"constraint {key.name} on table {child.name} depends on table {table.name}"
        for child, key in catalog.children_of(table.id)
        if child.id != table.id and child.name not in leaving
    ]
    if users:
        raise CairnError(
            f"cannot drop table {table.name} because other objects depend on it",
            detail="\n".join(users),
            hint="Use DROP ... CASCADE to drop the dependent objects too.",
            sqlstate="2BP01",
        )


def check_key_stays(catalog: Catalog, table: Table, columns: Iterable[str], what: str) -> None:
    """Refuse to drop a unique index, or a column, that a foreign key stands on."""
    gone = {table.position(name) for name in columns}
    for child, key in catalog.children_of(table.id):
        if set(key.parent_columns) == gone or (len(gone) == 1 and gone <= set(key.parent_columns)):
            raise CairnError(
                f"cannot drop {what} because other objects depend on it",
                detail=f"constraint {key.name} on table {child.name} depends on {what}",
                hint=f"first ALTER TABLE {child.name} DROP CONSTRAINT {key.name}",
                sqlstate="2BP01",
            )


def without_parent(child: Table, parent: int) -> Table:
    return _with(child, [key for key in child.foreign_keys if key.parent != parent])


def children_first(catalog: Catalog, names: Iterable[str]) -> list[str]:
    """Tables in an order in which none is emptied or dropped while another one names its rows."""
    left = list(dict.fromkeys(names))
    found: list[str] = []
    while left:
        for name in left:
            table = catalog.table(name)
            children = catalog.children_of(table.id) if table is not None else []
            if not any(child.name in left and child.name != name for child, _ in children):
                break
        else:
            name = left[0]  # a circle
        left.remove(name)
        found.append(name)
    return found


def with_children(catalog: Catalog, names: Iterable[str]) -> list[str]:
    """TRUNCATE … CASCADE: also what names their rows, and so on."""
    found = list(dict.fromkeys(names))
    for name in found:
        table = catalog.table(name)
        for child, _ in catalog.children_of(table.id) if table is not None else ():
            if child.name not in found:
                found.append(child.name)
    return found
