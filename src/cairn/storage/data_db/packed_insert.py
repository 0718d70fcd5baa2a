"""Packed rows into a table: in one step of SQLite where the compiled part is there."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from cairn.model.log.packed_rows import Buffer, split_head, unpacked
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.model.tables.violations import not_there
from cairn.native.library import PACKED_WIDTH
from cairn.native.loading import PACKED_ROWS, load
from cairn.storage.data_db.global_parents import check_open, lacking, parent_name
from cairn.storage.data_db.kin import Kin
from cairn.storage.files.sqlite import insert_many


class PackedInsert:
    """For the writer's connection alone: no text of a user or a peer is run with this function.

    Texts of peers are judged on a connection that does not have it (`owner/write_kinds.py`).
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.is_there = load(connection, PACKED_ROWS)

    def insert(self, table: Table, packed: Buffer) -> int:
        """How many. Raises what SQLite raises, or `DecodeError` for what is no list of its rows."""
        width = len(table.columns) + 1
        if self.is_in_c(table):
            return self._insert_in_c(table, packed, width)
        rows = unpacked(packed)
        if any(len(row) != width for row in rows):
            raise _wrong(f"a row has not {width} values")
        insert_many(self._connection, insert_text(table), rows)
        return len(rows)

    def check_named(self, kin: Kin, table: Table, packed: Buffer, fenced_at: int) -> None:
        """Raises if one of these rows names what is not there."""
        for tie in kin.parents_of.get(table.id, ()):
            columns = [f"came.c{at + 1}" for at in tie.key.columns]
            same = " AND ".join(
                f"there.{physical_column(at)} = {name}"
                for at, name in zip(tie.key.parent_columns, columns, strict=True)
            )
            no_parent = (
                f"NOT EXISTS (SELECT 1 FROM {tie.parent.physical_name} AS there "
                f"WHERE there.{BUCKET_COLUMN} = came.c0 AND {same})"
            )
            if (found := self._first(table, columns, no_parent, packed)) is not None:
                raise not_there(tie.key, table, tie.parent.name, found)
        for key in kin.globals_of.get(table.id, ()):
            check_open(self._connection, key, fenced_at)
            columns = [f"came.c{at + 1}" for at in key.columns]
            found = self._first(table, columns, lacking(key, columns), packed)
            if found is not None:
                name = parent_name(self._connection, key)
                raise not_there(key, table, name, found, in_copy=True)

    def _first(
        self, table: Table, columns: list[str], where: str, packed: Buffer
    ) -> tuple[Any, ...] | None:
        given = " AND ".join(f"{name} IS NOT NULL" for name in columns)
        text = (
            f"SELECT {', '.join(columns)} FROM packed_rows(?, {len(table.columns) + 1}) AS came "
            f"WHERE {given} AND {where} LIMIT 1"
        )
        found: Any = self._connection.execute(text, (split_head(packed)[0],)).fetchone()
        return None if found is None else tuple(found)

    def is_in_c(self, table: Table) -> bool:
        return self.is_there and len(table.columns) < PACKED_WIDTH

    def _insert_in_c(self, table: Table, packed: Buffer, width: int) -> int:
        rows, count = split_head(packed)
        names = ", ".join(f"c{at}" for at in range(width))
        text = f"INSERT INTO {table.physical_name} SELECT {names} FROM packed_rows(?, {width})"
        before = self._connection.total_changes()
        try:
            self._connection.execute(text, (rows,))
        except apsw.SQLError as problem:
            raise _wrong(str(problem)) from None
        if self._connection.total_changes() - before != count:
            raise _wrong(f"they are not {count}")
        return count


def insert_text(table: Table) -> str:
    """One physical row, the bucket first."""
    marks = ", ".join("?" * (len(table.columns) + 1))
    return f"INSERT INTO {table.physical_name} VALUES ({marks})"


def _wrong(why: str) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"packed rows cannot be read: {why}")
