"""Local tables of rows: their shapes, and the hook that sees every change of a row.

A table looks as the last shape says; whoever applies one makes the difference itself (ADR 5).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.log.records import RowChange, RowOp, Shape
from cairn.model.settings import limits
from cairn.model.tables.schema import (
    Index,
    Table,
    create_index_sql,
    create_table_sql,
)
from cairn.storage.data_db.hidden.indexes import HiddenIndexes
from cairn.storage.data_db.kin import Enforcing, Kin, no_pairs, rekeyed_rows
from cairn.storage.data_db.long.gathering import Gathering
from cairn.storage.data_db.touched import Touched
from cairn.storage.files.reshaping import reshape

_SIZED = (str, bytes)
_OPS = {"INSERT": RowOp.INSERT, "UPDATE": RowOp.UPDATE, "DELETE": RowOp.DELETE}
_decode_shape = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode


class TooLongHere(Exception):
    """Work that has to be done on a thread instead."""


class RowTables:
    """What `data.db` has of rows, and what the statement that is running did to them."""

    connection: apsw.Connection
    hidden: HiddenIndexes

    def __init__(self, directory: Path) -> None:
        self._gathered = Gathering(directory, lambda table: table in self.kin)
        self._changes = self._gathered.changes  # always this list
        self.touched = Touched()
        self._judges = True
        self._is_brief = False  # long rows are work for a thread
        self.versions: dict[int, int] = {}  # replaced, never changed: readers keep what they saw
        self.fenced_at = 0  # the entry of Raft that says what the writer may do
        self._kin = Kin({})
        self._kin_versions = self.versions

    def reload_tables(self) -> None:
        """As the open transaction sees them: after a schema change that was taken back."""
        self.tables: dict[int, Table] = {}
        self.indexes: dict[int, tuple[Index, ...]] = {}
        found: list[Any] = self.connection.execute("SELECT id, body FROM local_table").fetchall()
        for table_id, body in found:
            self.tables[table_id], self.indexes[table_id] = _decode_shape(body)
        self.versions = {table_id: table.schema_version for table_id, table in self.tables.items()}

    @property
    def kin(self) -> Kin:
        """Tables that are tied by foreign keys, as they are now."""
        if self._kin_versions is not self.versions:
            self._kin, self._kin_versions = Kin(self.tables), self.versions
        return self._kin

    # --- the hook -----------------------------------------------------------------------------

    def _on_change(self, update: Any) -> None:
        name = update.table_name
        if name[0] != "t" or not name[1:].isdigit():
            return
        table = int(name[1:])
        if self._is_brief and update.op != "INSERT":
            self._check_brief(update.old)
        self._changes.append(
            RowChange(
                table,
                self.versions.get(table, 0),
                _OPS[update.op],
                None if update.op == "INSERT" else tuple(update.old),
                None if update.op == "DELETE" else tuple(update.new),
            )
        )
        if len(self._changes) >= self._gathered.look_at:
            if self._is_brief:
                raise TooLongHere
            self._gathered.look()

    def _check_brief(self, row: Iterable[Any]) -> None:
        if sum(len(value) for value in row if type(value) in _SIZED) > limits.QUICK_VALUE_BYTES:
            raise TooLongHere

    def briefly(self, run: Callable[[], int]) -> int:
        """`TooLongHere` when what is done meets a long row: reading and logging one takes
        milliseconds for each of its megabytes, and this is the event loop. SQLite itself refuses
        to look at a long value; the hook sees those that are deleted or replaced unseen.
        """
        self._is_brief = True
        self.connection.limit(apsw.SQLITE_LIMIT_LENGTH, limits.QUICK_VALUE_BYTES)
        try:
            return run()
        except apsw.TooBigError:
            raise TooLongHere from None
        finally:
            self.connection.limit(apsw.SQLITE_LIMIT_LENGTH, limits.VALUE_BYTES)
            self._is_brief = False

    @contextlib.contextmanager
    def unobserved(self) -> Iterator[None]:
        """For changes that somebody has told already: the hook need not tell them again."""
        self.touched.all()
        with self.unheard():
            yield

    @contextlib.contextmanager
    def unheard(self) -> Iterator[None]:
        self.connection.preupdate_hook(None)
        try:
            yield
        finally:
            self.connection.preupdate_hook(self._on_change)

    def repeat(self, changes: Sequence[RowChange], carry_out: Callable[[], None]) -> None:
        """Changes that a statement made before and took back, as part of the one that is running.
        The rows are as they were then, and tables are not tied to others."""
        with self.unheard():
            carry_out()
        self._changes.extend(changes)
        self._gathered.enforced = len(self._changes)

    def judge(self, *, clients: bool) -> None:
        """Whether checks are made: of what clients write, not of what a master took already.

        Rows that come by the log, a full copy or a move may be of a time before a check.
        """
        if self._judges is not clients:
            self.connection.execute(f"PRAGMA ignore_check_constraints = {int(not clients)}")
            self._judges = clients

    def insert_one(self, sql: str, row: Sequence[Any]) -> int:
        self.connection.execute(sql, row)
        return self.count_rows()

    def whole(self, run: Callable[[], int]) -> int:
        """With what foreign keys ask for; a client is told of its own rows only."""
        count = run()
        self.enforce()
        if self._changes:
            self._enforcing().check(0, deferred=True)
        return count

    def enforce(self, *, is_rekeying: bool = False) -> None:
        """Foreign keys after one statement of a client, for what it changed since the last time.

        `is_rekeying`: rows that were deleted were inserted again, in order, with other keys.
        """
        gathered = self._gathered
        since, gathered.enforced = gathered.enforced, len(self._changes)
        if since == gathered.enforced or not any(
            change.table in self.kin for change in self._changes[since:]
        ):
            return
        enforcing = self._enforcing()
        if self._is_brief and enforcing.has_lost(since):
            raise TooLongHere  # nobody knows how many rows name them
        pairs = rekeyed_rows(self._changes, since) if is_rekeying else no_pairs
        enforcing.act(since, pairs)
        enforcing.check(since, deferred=False)
        gathered.enforced = len(self._changes)

    def _enforcing(self) -> Enforcing:
        return Enforcing(self.connection, self.kin, self._changes, self.fenced_at)

    def take_changes(self) -> tuple[RowChange, ...]:
        """Of a statement that cannot be long."""
        found = tuple(self._changes)
        self._gathered.clear()
        return found

    def pending_changes(self) -> int:
        """Rows changed so far by the statement that is running."""
        return self._gathered.count()

    def changes_since(self, since: int) -> tuple[RowChange, ...] | None:
        """None: they are too many to be held."""
        return self._gathered.since(since)

    def count_rows(self, since: int = 0) -> int:
        """Rows a client is told of, after the first `since` changes."""
        return self._gathered.count_rows(since)

    # --- shapes ---------------------------------------------------------------------------------

    def differs(self, shape: Shape) -> bool:
        have = self.tables.get(shape.table_id)
        if shape.table is None or have is None:
            return have is not shape.table
        return have.schema_version != shape.table.schema_version

    def apply_shape(self, shape: Shape) -> None:
        execute = self.connection.execute
        have, want = self.tables.get(shape.table_id), shape.table
        if want is None:
            if have is not None:
                execute(f"DROP TABLE {have.physical_name}")
                execute("DELETE FROM local_table WHERE id = ?", (have.id,))
                del self.tables[have.id]
                self.versions = {key: v for key, v in self.versions.items() if key != have.id}
                self.indexes.pop(have.id, None)
            return
        known = self._index_texts(have)
        # A number may have been given to another index since.
        wanted = {each: create_index_sql(want, each) for each in shape.indexes}
        texts = wanted.values()
        for name, text in known.items():
            if text not in texts:
                execute(f"DROP INDEX IF EXISTS {name}")
        if have is None:
            execute(create_table_sql(want))
        else:
            if len(want.columns) < len(have.columns):  # none may be taken away under it
                self.hidden.drop(want.id)
            reshape(self.connection, have, want)
            if shape.truncate:
                with self.unobserved():  # page by page, not row by row
                    execute(f"DELETE FROM {want.physical_name}")
        for index, text in wanted.items():
            if known.get(index.physical_name) != text and not self.hidden.show(want, index):
                execute(text)
        body = msgspec.msgpack.encode((want, shape.indexes))
        execute("INSERT OR REPLACE INTO local_table VALUES (?, ?)", (want.id, body))
        self.tables[want.id] = want
        self.versions = {**self.versions, want.id: want.schema_version}
        self.indexes[want.id] = shape.indexes

    def _index_texts(self, table: Table | None) -> dict[str, str]:
        if table is None:
            return {}
        indexes = self.indexes.get(table.id, ())
        return {index.physical_name: create_index_sql(table, index) for index in indexes}

    def computed_by(self, version: str) -> None:
        """Indexes of expressions were made by functions of some version; another one makes them
        anew. Before anything is written."""
        query = "SELECT value FROM local_state WHERE key = 'computed_by'"
        found: Any = self.connection.execute(query).fetchone()
        if found is not None and found[0] == version:
            return
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for index in (each for known in self.indexes.values() for each in known):
            if index.computed and found is not None:
                execute(f"REINDEX {index.physical_name}")
        execute("INSERT OR REPLACE INTO local_state VALUES ('computed_by', ?)", (version,))
        execute("COMMIT")

    def build_indexes(self, shape: Shape) -> None:
        """After a full copy: indexes are made once, over all rows."""
        assert shape.table is not None
        for index in shape.indexes:
            self.connection.execute(create_index_sql(shape.table, index))
        body = msgspec.msgpack.encode((shape.table, shape.indexes))
        self.connection.execute(
            "INSERT OR REPLACE INTO local_table VALUES (?, ?)", (shape.table_id, body)
        )
        self.indexes[shape.table_id] = shape.indexes
