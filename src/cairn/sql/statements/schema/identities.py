"""GENERATED … AS IDENTITY: columns whose numbers the cluster gives out."""

from __future__ import annotations

from cairn.model.errors import InvalidTableDefinition, Unsupported
from cairn.model.tables.schema import Identity
from cairn.model.types.values import ColumnType
from cairn.sql.statements.cursor import Cursor


def read_identity(cursor: Cursor, name: str, type_: ColumnType) -> Identity:
    """What follows GENERATED: {ALWAYS | BY DEFAULT} AS IDENTITY [(START [WITH] n)]."""
    always = cursor.accept("always")
    if not always:
        cursor.expect("by", "default")
    cursor.expect("as")
    if not cursor.accept("identity"):
        raise Unsupported("columns that are computed from others are not supported")
    if type_ not in (ColumnType.INTEGER, ColumnType.UNSIGNED):
        raise InvalidTableDefinition(
            f'identity column "{name}" must be a whole number', sqlstate="22023"
        )
    start = 1
    if cursor.accept_op("("):
        while not cursor.accept_op(")"):
            if cursor.accept("increment"):
                cursor.accept("by")
                if int(cursor.number()) != 1:
                    raise Unsupported("an identity column counts in steps of 1")
            elif cursor.accept("start"):
                cursor.accept("with")
                start = int(cursor.number())
            elif not _is_usual(cursor):
                raise Unsupported("of a sequence's options only START and INCREMENT 1 are known")
    return Identity(always, start)


#: Where numbers of an integer and of a bigint end by themselves.
_ENDS = (float(2**31 - 1), float(2**63 - 1))


def _is_usual(cursor: Cursor) -> bool:
    """What tools write out although it is so anyway; the name is found by the column's, too."""
    if cursor.accept("sequence", "name"):
        cursor.name()
        return True
    if cursor.accept("no"):
        return cursor.accept_one("minvalue", "maxvalue", "cycle") is not None
    if cursor.accept("minvalue"):
        return cursor.number() == 1
    if cursor.accept("maxvalue"):
        return cursor.number() in _ENDS
    return cursor.accept("cache") and cursor.number() == 1
