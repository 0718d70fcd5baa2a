"""A statement of a block that looks at temporary tables, for an owner that does not have them.

Their rows go along as parameters, and each of the tables becomes `unnest` of its columns.

So the owner computes with its own rows, now and when the block is committed, and with those of the
session as they were when the statement was asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from cairn.model.errors import Unsupported
from cairn.model.quoting import identifier
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import LISTS, OIDS, ColumnType
from cairn.sql.parse.lexer import Token, tokens
from cairn.sql.typing_rules import plain

MOST_ROWS = 10_000  # of one table
#: What may follow a table in FROM and is no alias.
_BEHIND = (
    *("where", "on", "join", "left", "right", "inner", "full", "cross", "natural", "order"),
    *("group", "having", "limit", "offset", "fetch", "union", "except", "intersect", "set"),
    *("returning", "using", "window", "for", "when", "lateral"),
)
_BEFORE = ("from", "join", "using", "only")


def refused(why: str = "") -> Unsupported:
    return Unsupported(
        "this statement of a block cannot have temporary tables and others",
        detail=why or None,
        hint="COMMIT first, or copy the rows in a statement before the block",
    )


class Carried:
    """The text for the owner, and which columns of which tables are its further parameters."""

    def __init__(self, text: str, catalog: Catalog, params: Sequence[ColumnType]) -> None:
        self._found = tokens(text)
        self._catalog, self._count = catalog, len(params)
        self.tables: list[Table] = []
        self.oids = [OIDS[type_] for type_ in params]
        parts, at = [], 0
        for index, token in enumerate(self._found):
            table = self._table(index)
            if table is None:
                continue
            begun = self._found[index - 2] if self._is_named(index) else token
            parts += [text[at : begun.start], self._rows(table, token, index)]
            at = token.start + len(token.text)
        self.text = "".join([*parts, text[at:]])

    def _is_named(self, index: int) -> bool:
        """`pg_temp.t`"""
        before = self._found[index - 2 : index]
        return len(before) == 2 and before[1].is_op(".") and before[0].is_word("pg_temp")

    def _table(self, index: int) -> Table | None:
        """The temporary table that stands here in FROM."""
        token = self._found[index]
        table = self._catalog.temps.get(token.value)
        if table is None or token.kind not in ("word", "quoted"):
            return None
        before = self._found[index - (3 if self._is_named(index) else 1)] if index else None
        after = self._found[index + 1] if index + 1 < len(self._found) else None
        is_source = before is not None and (before.is_word(*_BEFORE) or before.is_op(","))
        if not is_source or (after is not None and (after.is_op(".") or after.is_op("("))):
            return None
        if token.value in self._catalog.hides:
            raise refused(f'"{token.value}" hides another table.')
        return table

    def _rows(self, table: Table, token: Token, index: int) -> str:
        columns = carried_columns(table)
        if table not in self.tables:
            self.tables.append(table)
            self.oids += [OIDS[LISTS[plain(column.type)]] for column in columns]
        first = self._count + 1
        for earlier in self.tables[: self.tables.index(table)]:
            first += len(carried_columns(earlier))
        marks = ", ".join(f"${first + at}" for at in range(len(columns)))
        names = ", ".join(identifier(column.name) for column in columns)
        after = self._found[index + 1] if index + 1 < len(self._found) else None
        has_alias = after is not None and (
            after.kind == "quoted" or (after.kind == "word" and not after.is_word(*_BEHIND))
        )
        alias = "" if has_alias else f" AS {identifier(table.name)}"
        return f"(SELECT * FROM unnest({marks}) AS rows_of ({names})){alias}"


def carried_columns(table: Table) -> list[Column]:
    columns = [column for column in table.shown_columns if not column.is_dropped]
    for column in columns:
        if column.enum is not None or plain(column.type) not in LISTS:
            raise refused(f'Column "{column.name}" has a type that cannot go along.')
    return columns


def as_lists(table: Table, rows: Sequence[Sequence[object]]) -> list[list[object]]:
    """Column by column."""
    if len(rows) > MOST_ROWS:
        raise refused(f'Table "{table.name}" has more than {MOST_ROWS} rows.')
    return [[row[at] for row in rows] for at in range(len(carried_columns(table)))]
