"""Gathered rows and a last statement over them: in memory while they are few, else in a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from cairn.native.library import PACKED_WIDTH
from cairn.native.loading import FUNCTIONS, PACKED_ROWS, load
from cairn.storage.files.pieces import Encode, Packed, Piece, Pieces, Row, Rows, plain
from cairn.storage.files.spill import OPEN_EMPTY, SpillFiles, native
from cairn.storage.readers import Cancelled, Register, Steps, attach, only_reading
from cairn.storage.sqlite_errors import translated

CACHE_KIB = 16_000  # of the gathered rows, and again of a sort: the rest goes to files


class Merger:
    """Tables m0, m1, … for one statement at a time; one thread at a time, any one."""

    def __init__(self, raft: Path, register: Register) -> None:
        self._files = SpillFiles(raft.parent)
        self.connection = apsw.Connection(
            "", flags=OPEN_EMPTY, vfs=self._files.name, statementcachesize=200
        )
        self.connection.pragma("cache_size", -CACHE_KIB)
        self.connection.pragma("journal_mode", "memory")
        attach(self.connection, raft, "raft", native())
        register(self.connection)
        load(self.connection, FUNCTIONS)
        self._takes_packed = load(self.connection, PACKED_ROWS)
        self._steps: Steps | None = None
        self._cursor: apsw.Cursor | None = None
        self._pieces: Pieces | None = None
        self._widths: list[int] = []
        self.has_spilled = False
        self.lock = threading.Lock()  # work may go on for somebody who is gone

    def begin(self, stopped: Cancelled, opcode_max: int, spill_max: int) -> None:
        self._steps = Steps(stopped, opcode_max)
        self._files.max_bytes, self._files.is_full = spill_max, False
        self.connection.set_progress_handler(self._steps, self._steps.every)
        with self._in_our_words():  # a limit of one step ends even this one
            self.connection.execute("BEGIN")

    def table(self, storage: Sequence[str], rows: Rows) -> None:
        """The next table, and its first rows. `storage`: what SQLite has in each column, or empty.
        Where it is that of the cluster's tables, indexes of both can be used for a join."""
        columns = ", ".join(f"x{at} {each}" for at, each in enumerate(storage))
        with self._in_our_words():
            self.connection.execute(f"CREATE TABLE m{len(self._widths)} ({columns})")
        self._widths.append(len(storage))
        self.add(rows)

    def index(self, table: int, columns: Sequence[int]) -> None:
        """Of a table that has all of its rows."""
        shown = ", ".join(f"x{at}" for at in columns)
        name = "_".join(map(str, ("i", table, *columns)))
        with self._in_our_words():
            self.connection.execute(f"CREATE INDEX {name} ON m{table} ({shown})")

    def given(self, number: int, width: int, rows: Sequence[Row]) -> None:
        """Table g<number>, which no fragment has gathered."""
        columns = ", ".join(f"x{column}" for column in range(width))
        marks = ", ".join("?" * width)
        with self._in_our_words():
            self.connection.execute(f"CREATE TABLE g{number} ({columns})")
            self.connection.executemany(f"INSERT INTO g{number} VALUES ({marks})", rows)

    def add(self, rows: Rows) -> None:
        """More rows of the last table."""
        at, width = len(self._widths) - 1, self._widths[-1]
        if isinstance(rows, Packed) and self._takes_packed and width <= PACKED_WIDTH:
            columns = ", ".join(f"c{column}" for column in range(width))
            for part in rows.parts:
                with self._in_our_words():
                    self.connection.execute(
                        f"INSERT INTO m{at} SELECT {columns} FROM packed_rows(?, {width})", (part,)
                    )
            return
        marks = ", ".join("?" * width)
        with self._in_our_words():
            self.connection.executemany(f"INSERT INTO m{at} VALUES ({marks})", plain(rows))

    def start(self, sql: str, args: Sequence[Any], *, is_foreign: bool = False) -> None:
        """A text of another instance is a SELECT and no more, to its end."""
        self.connection.authorizer = only_reading if is_foreign else None
        with self._in_our_words():
            self._cursor = self.connection.execute(sql, args, can_cache=not is_foreign)
        self._pieces = Pieces(self._cursor)

    def take(self, most: int, *encode: Encode) -> Piece:
        assert self._pieces is not None
        with self._in_our_words():
            return self._pieces.take(most, *encode)

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except Exception as problem:
            raise self._told(problem) from None

    def _told(self, problem: Exception) -> Exception:
        if self._files.is_full:
            return self._files.problem()
        if isinstance(problem, apsw.InterruptError) and self._steps is not None:
            return self._steps.problem()
        return translated(problem)

    def end(self) -> None:
        """The merger may be used for something else."""
        with self.lock:
            self._end()

    def _end(self) -> None:
        self.has_spilled = self.has_spilled or self._files.bytes > 0
        if self._cursor is not None:
            self._cursor.close(True)
        self._cursor = self._pieces = self._steps = None
        self.connection.set_progress_handler(None)
        self.connection.authorizer = None
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._widths.clear()

    def close(self) -> None:
        self.connection.close()
        self._files.unregister()
