"""FOREIGN KEY: a row that it names may lie on another replicaset, so nobody can keep it.

It is refused. Where the cluster's setting `foreign_keys` is `ignore` it is read, not kept, and a
notice says so: for applications whose schema is made by a tool, and that keep it themselves.
"""

from __future__ import annotations

from cairn.model.errors import Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.sql.statements.cursor import Cursor

_ACTIONS = ("cascade", "restrict")


def read_foreign_key(cursor: Cursor) -> bool:
    """`[CONSTRAINT name] FOREIGN KEY (columns) REFERENCES …`; False when it is something else."""
    begun = cursor.at
    if cursor.accept("constraint"):
        cursor.name()
    if not cursor.accept("foreign", "key"):
        cursor.at = begun
        return False
    cursor.names()
    cursor.expect("references")
    read_references(cursor)
    return True


def read_references(cursor: Cursor) -> None:
    """What follows REFERENCES."""
    cursor.name()
    if cursor.looking_at_op("("):
        cursor.names()
    while True:
        if cursor.accept("match"):
            cursor.take()
        elif cursor.accept("on"):
            if not cursor.accept_one("delete", "update"):
                raise cursor.error()
            if not (
                cursor.accept_one(*_ACTIONS)
                or cursor.accept("no", "action")
                or cursor.accept("set", "null")
                or cursor.accept("set", "default")
            ):
                raise cursor.error()
        elif cursor.accept("initially"):
            if not cursor.accept_one("deferred", "immediate"):
                raise cursor.error()
        elif not (cursor.accept("deferrable") or cursor.accept("not", "deferrable")):
            return


def are_ignored(catalog: Catalog) -> bool:
    return bool(catalog.setting("foreign_keys") == "ignore")


def notice_of(catalog: Catalog, table: str) -> str:
    """What is said when one is read and not kept; Unsupported where that is not asked for."""
    if not are_ignored(catalog):
        raise Unsupported(
            "FOREIGN KEY is not supported",
            hint="leave it out; or ALTER SYSTEM SET foreign_keys = 'ignore', then it is read and "
            "not kept",
        )
    return (
        f'the foreign key of table "{table}" is not kept: nobody looks whether its rows are there'
    )
