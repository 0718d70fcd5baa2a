"""PREPARE and EXECUTE: a statement that the session keeps under a name."""

from __future__ import annotations

from cairn.model.types.values import OIDS
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.table import read_type


def parse_named(cursor: Cursor) -> tuple[str, tuple[int, ...]]:
    """What follows PREPARE, up to the statement: its name, and the types of its parameters."""
    name, oids = cursor.name(), []
    if cursor.accept_op("("):
        while True:
            is_unknown = cursor.accept("unknown")
            oids.append(0 if is_unknown else OIDS[read_type(cursor)[0]])
            if not cursor.accept_op(","):
                break
        cursor.expect_op(")")
    cursor.expect("as")
    return name, tuple(oids)


def parse_arguments(cursor: Cursor) -> tuple[str, ...]:
    """`(expression, …)` to the end of the statement, or nothing."""
    found: list[str] = []
    if cursor.accept_op("("):
        while True:
            found.append(cursor.expression())
            if not cursor.accept_op(","):
                break
        cursor.expect_op(")")
    cursor.end()
    return tuple(found)
