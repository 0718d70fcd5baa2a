"""What a change of columns makes of a table, and what it asks of the rows that are there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from cairn.model.quoting import identifier
from cairn.model.tables.schema import Column, Index, Table


def with_renamed(
    table: Table, indexes: tuple[Index, ...], old: str, new: str
) -> tuple[Table, tuple[Index, ...]]:
    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    sharding = table.sharding
    if sharding is not None:
        sharding = replace(sharding, columns=renamed(sharding.columns))
    changed = replace(
        table,
        columns=tuple(
            replace(column, name=new) if column.name == old else column for column in table.columns
        ),
        primary_key=renamed(table.primary_key),
        sharding=sharding,
    )
    return changed, tuple(
        replace(
            index,
            columns=renamed(index.columns),
            where=_said_anew(index.where, old, new),
            computed=tuple(
                replace(each, text=_said_anew(each.text, old, new)) for each in index.computed
            ),
        )
        for index in indexes
    )


_WORDS = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")*)"|\b([^\W\d]\w*)\b""")


def _said_anew(text: str, old: str, new: str) -> str:
    """A condition that names a column: strings in it stay."""

    def one(match: re.Match[str]) -> str:
        name = match[2].lower() if match[1] is None and match[2] else match[1]
        return identifier(new) if name == old else match[0]

    return _WORDS.sub(one, text)


def without_column(table: Table, name: str) -> Table:
    """Its place stays: rows, records of the log, streams and backups keep their width.

    Values that are there are told to nobody; a row that is written anew has none.
    """
    at = table.position(name)
    gone = Column(
        f"........dropped.{at}........", table.columns[at].type, is_hidden=True, is_dropped=True
    )
    gone = replace(gone, missing=table.columns[at].missing)
    return replace(table, columns=(*table.columns[:at], gone, *table.columns[at + 1 :]))


def as_added(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Rows of before have no value for them, so NOT NULL is for those to come."""
    return tuple(replace(column, is_judged=not column.nullable) for column in columns)


def newly_required(have: Table, want: Table) -> list[int]:
    """Places of columns that rows may have no value in so far, and then must have one."""
    return [
        at
        for at, column in enumerate(want.columns)
        if not column.nullable
        and (at >= len(have.columns) or have.columns[at].nullable)
        and not (at >= len(have.columns) and column.missing)
    ]
