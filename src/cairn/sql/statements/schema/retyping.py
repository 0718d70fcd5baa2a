"""ALTER COLUMN … TYPE: what takes every value that is there as it is stored. No row is written."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cairn.model.errors import InvalidTableDefinition, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import ELEMENTS, ColumnType
from cairn.model.types.widths import WHOLES, shown_whole, width_of
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.enums import read_enum
from cairn.sql.statements.schema.restating import checked_default
from cairn.sql.statements.schema.table import read_type
from cairn.sql.typing_rules import POSTGRES_NAMES

_HINT = "add a column with the other type, UPDATE it, drop the old one and rename the new one"
Type = tuple[ColumnType, tuple[int, ...]]


def read_new_type(
    cursor: Cursor, name: str, known: Catalog
) -> Callable[[Catalog, Table, Column], Column]:
    """`type [USING column[::type]]`"""
    if (enum := read_enum(cursor, known.types)) is not None:
        raise Unsupported(
            f'column "{name}" cannot become {enum.name}: its values would have to be checked',
            hint=_HINT,
        )
    wanted = read_type(cursor, known.int_size)
    if cursor.accept("using"):
        _read_using(cursor, name, wanted, known.int_size)

    def change(catalog: Catalog, table: Table, column: Column) -> Column:
        if wanted == (column.type, column.sizes) and column.enum is None:
            return column
        if column.identity is not None and wanted[0] is not column.type:
            raise InvalidTableDefinition("identity column type must be an integer type")
        if not _takes_all(wanted, column):
            raise Unsupported(
                f'column "{name}" cannot become {shown(wanted)}: it is '
                f"{shown((column.type, column.sizes))}, and its values would have to be written "
                "anew",
                hint=_HINT,
            )
        changed = replace(column, sizes=wanted[1], enum=None)
        if changed.default is not None:
            checked_default(catalog, changed)
        return changed

    return change


def _read_using(cursor: Cursor, name: str, wanted: Type, int_size: int) -> None:
    """The column itself, as it is or cast to the new type; all else would compute new values."""
    brackets = 0
    while cursor.accept_op("("):
        brackets += 1
    is_itself = cursor.name() == name
    while cursor.accept_op("::"):
        is_itself = read_type(cursor, int_size) == wanted and is_itself
    while brackets and cursor.accept_op(")"):
        brackets -= 1
    is_itself = is_itself and not brackets
    following = cursor.peek()
    if not is_itself or (
        following is not None and following.kind == "op" and following.text != ","
    ):
        raise Unsupported("USING with an expression is not supported", hint=_HINT)


def _takes_all(wanted: Type, column: Column) -> bool:
    """Whether every value of the column is one of the new type, and the same bytes."""
    type_, sizes = wanted
    if type_ is not column.type:
        return False
    if column.enum is not None:
        return not sizes  # labels are stored as texts
    before, of = column.sizes, ELEMENTS.get(type_, type_)
    if of is ColumnType.DECIMAL:
        # What is stored has no zeros at its end: the new scale says how many are shown.
        if not before or not sizes:
            return False
        return sizes[1] >= before[1] and sizes[0] - sizes[1] >= before[0] - before[1]
    return not sizes or (bool(before) and sizes[0] >= before[0])


def shown(type_: Type) -> str:
    if type_[0] in WHOLES:
        return shown_whole(type_[0], width_of(*type_))
    words = {ColumnType.STRING: "character varying" if type_[1] else "text"}
    name = words.get(type_[0], POSTGRES_NAMES[type_[0]])
    return f"{name}({','.join(map(str, type_[1]))})" if type_[1] else name
