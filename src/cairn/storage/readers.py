"""Reading connections: rows joined with the global tables.

The event loop's reader runs only what it can finish at once; whatever takes longer is handed to
a thread with a connection of its own, so that no cursor ever stays open there.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from sys import getsizeof
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

import apsw

from cairn.model import stops
from cairn.model.errors import (
    CairnError,
    LimitExceeded,
    QueryCanceled,
)
from cairn.model.settings import limits
from cairn.native.loading import POINTS, load
from cairn.native.point_reads import Answers, Layout, PointRead
from cairn.native.points import GivenUp
from cairn.storage.data_db.shapes import TooLongHere
from cairn.storage.files.pieces import Encode, PackedPieces, Piece, Pieces, Row, too_many
from cairn.storage.files.spill import OPEN_EMPTY, SpillFiles, native
from cairn.storage.files.writer import Disk
from cairn.storage.groups import Groups
from cairn.storage.sqlite_errors import translated

T = TypeVar("T")
Register = Callable[[apsw.Connection], None]
CACHE_KIB = 32_000  # pages that one connection keeps
QUICK_S = 0.002  # what a read may take on the event loop
ANSWER_BYTES = limits.ANSWER_BYTES
TAKEN_ROWS = 1_000  # between two looks at their size
QUICK_TEXT = 16_384  # characters that SQLite understands in a moment
POINT_READS_MOST = 1_000  # statements that a reader has in C
NOTED = 5_000  # statements that a reader remembers
LONG_FOR = 63  # times that a statement goes to a thread at once after it took long here
_ALWAYS = LONG_FOR + 1
LOOK_EVERY = 2_000  # steps of SQLite's machine between two looks at the clock


def attach(connection: apsw.Connection, path: Path, name: str, vfs: str = "") -> None:
    way = f"&vfs={vfs}" if vfs else ""
    connection.execute(f"ATTACH 'file:{path}?mode=ro{way}' AS {name}")


_READING = {
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_RECURSIVE,
}

#: Compiled texts are kept: nobody else may come by the same one.
_OURS = f"/* {secrets.token_hex(8)} */"


def only_reading(
    action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
) -> int:
    """Asked when a text is compiled: a question of another instance is a SELECT and no more."""
    if action not in _READING or (first or "").startswith("sqlite_"):
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_FUNCTION and second in ("load_extension", "randomblob", "zeroblob"):
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


class RowReader:
    """A connection that sees `data.db` and the global tables of `raft.db` under plain names.

    With `spill_max`, for what may take long, its sorts go to files that are counted: SQLite opens
    them by the way of its first database, which is an empty one then.
    """

    def __init__(
        self,
        data: Path,
        raft: Path,
        register: Register,
        answer_bytes: int = ANSWER_BYTES,
        heavy: Iterable[str] = (),
        cache_kib: int = CACHE_KIB,
        value_bytes: int = limits.VALUE_BYTES,
        spill_max: Callable[[], int] | None = None,
    ) -> None:
        self._answer_bytes = answer_bytes
        self._heavy_words = [f"{name}(" for name in heavy]
        self._heavy: dict[str, int] = {}  # statements seen, and for how many times they are
        self._spill_max, self._spill, self._rows = spill_max, None, "main"
        flags, path, way = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, str(data), None
        if spill_max is not None:
            self._spill, self._rows = SpillFiles(raft.parent), "data"
            flags, path, way = OPEN_EMPTY, "", self._spill.name
        self.connection = apsw.Connection(path, flags=flags, vfs=way, statementcachesize=1000)
        self.connection.set_busy_timeout(10_000)
        if self._spill is not None:
            attach(self.connection, data, self._rows, native())
        attach(self.connection, raft, "raft", "" if self._spill is None else native())
        register(self.connection)
        self.groups = Groups(self.connection)
        self.connection.limit(apsw.SQLITE_LIMIT_LENGTH, value_bytes)
        for name in {"main", self._rows}:  # what a sort may hold is what the first one may
            self.connection.pragma("cache_size", -cache_kib, schema=name)
        self._is_opening = False  # a transaction of our own, not of some text
        self.connection.authorizer = self._may  # from here on, whoever the text comes from
        self._is_quick = False
        self._begun = 0.0
        self.count = 0  # of quick reads
        self._at_work: set[Disk] = set()
        self._answers = Answers() if load(self.connection, POINTS) else None
        self._point_reads: WeakSet[PointRead] = WeakSet()
        self._given_up = GivenUp()
        self._may_stand = False  # whether nothing can be committed meanwhile
        self._was_read = self._stands = False  # since something was committed

    def _may(self, action: int, first: str | None, second: str | None, *more: str | None) -> int:
        if action == apsw.SQLITE_TRANSACTION and self._is_opening:
            return apsw.SQLITE_OK
        return only_reading(action, first, second, *more)

    def _is_late(self) -> bool:
        return monotonic() - self._begun > QUICK_S

    def quick(self, sql: str, args: Sequence[Any]) -> list[Row] | None:
        """All rows, or None when it would take too long for the event loop."""
        heavy = self._heavy.get(sql)  # as in `_is_heavy`: every point read comes here
        if (heavy is None or heavy) and self._is_heavy(sql):
            return None
        found = self.at_once(sql, args)
        if found is None:
            self._was_long(sql)
        return found

    def at_once(self, sql: str, args: Sequence[Any]) -> list[Row] | None:
        """The same, however long it took before."""
        self._begin_quickly()
        try:
            return self.connection.execute(sql, args).fetchall()
        except (apsw.InterruptError, apsw.TooBigError):
            return None
        except Exception as problem:
            self._leave()
            raise translated(problem) from None

    def quick_rows(self, sql: str, args: Sequence[Any], most: int) -> list[Row] | None:
        """The same for a statement that may have many rows; None also if there are over `most`."""
        if self._is_heavy(sql):
            return None
        self._begin_quickly()
        cursor: apsw.Cursor | None = None
        try:
            cursor = self.connection.execute(sql, args)
            found = list(islice(cursor, most + 1))
        except (apsw.InterruptError, apsw.TooBigError):
            found = []
            is_long = True
        except Exception as problem:
            self._leave()
            raise translated(problem) from None
        else:
            is_long = len(found) > most
        finally:
            if cursor is not None:
                cursor.close(True)
        if is_long:
            self._was_long(sql)
            return None
        return found

    def _begin_quickly(self) -> None:
        if not self._is_quick:
            self._look_at_the_clock()
        self._begun = monotonic()
        self.count += 1
        if self._may_stand and not self._stands:
            self._stand()

    def point_read(self, sql: str, layout: Layout) -> PointRead | None:
        """The same statement for `answer`; None: it is left to Python."""
        if self._answers is None or self._note(sql) or len(self._point_reads) >= POINT_READS_MOST:
            return None
        self._given_up.free()
        try:
            made = PointRead(self.connection, sql, layout, self._given_up)
        except ValueError:
            return None
        self._point_reads.add(made)
        return made

    def bucket(self, read: PointRead, data: bytes, at: int) -> int:
        """Of the row that a request asks for; 0: ask Python."""
        return 0 if self._answers is None else self._answers.bucket(read, data, at)

    def answer(self, read: PointRead) -> tuple[bytes, int] | None:
        """`quick` for what was asked last, as messages. None: also when there is an error."""
        if self._answers is None:
            return None
        self._begin_quickly()
        return self._answers.answer(read)

    # --- one moment for many quick reads --------------------------------------------------------

    def stand_between(self, *disks: Disk) -> None:
        """Quick reads share one transaction as long as these do not write: nothing is committed to
        the files that this event loop has not begun, so it sees what one of its own would see.
        """
        for disk in disks:
            disk.reader = self
        self._at_work = {disk for disk in disks if disk.is_busy}
        self._may_stand = not self._at_work

    def writing(self, disk: Disk) -> None:
        """Before a commit, and before a checkpoint, which a reader of an older moment would end."""
        self._at_work.add(disk)
        self._may_stand = False
        self._leave()

    def written(self, disk: Disk) -> None:
        self._at_work.discard(disk)
        self._may_stand = not self._at_work

    def _stand(self) -> None:
        """From the second read on: between two commits there may be just one."""
        if self._was_read:
            with suppress(apsw.InterruptError):
                self._transaction("BEGIN")
            self._stands = self.connection.in_transaction
        self._was_read = True

    def _leave(self) -> None:
        self._was_read = False
        if self._stands:
            self._stands = False
            while self.connection.in_transaction:  # a damaged page may have ended it
                self._begun = monotonic()  # or it might seem late
                with suppress(apsw.InterruptError):
                    self._transaction("COMMIT")

    def quick_piece(self, sql: str, args: Sequence[Any], most: int) -> Piece | None:
        """The same for rows that may be long: all of them in one piece, or None."""
        if self._is_heavy(sql):
            return None
        self._begin_quickly()
        cursor: apsw.Cursor | None = None
        try:
            cursor = self.connection.execute(sql, args)
            piece = Pieces(cursor).take(most)
        except (apsw.InterruptError, apsw.TooBigError):
            self._was_long(sql)
            return None
        except Exception as problem:
            self._leave()
            raise translated(problem) from None
        finally:
            if cursor is not None:
                cursor.close(True)
        if not piece.is_last:
            self._was_long(sql)
            return None
        return piece

    def _is_heavy(self, sql: str) -> bool:
        """Whether it is not tried on the event loop. What took long is tried again now and then."""
        heavy = self._heavy.get(sql)
        if heavy is None:
            return self._note(sql)
        if 0 < heavy < _ALWAYS:
            self._heavy[sql] = heavy - 1
        return heavy > 0

    def _was_long(self, sql: str) -> None:
        """It was begun in vain: others waited for that."""
        if not self._heavy.get(sql):
            self._heavy[sql] = LONG_FOR

    def _note(self, sql: str) -> bool:
        """Whether it calls a function whose work cannot be ended in the middle, or is long itself:
        SQLite would read it here, and it would be remembered whole."""
        if len(sql) > QUICK_TEXT:
            return True
        if len(self._heavy) >= NOTED:
            self._heavy.clear()
        found = any(word in sql for word in self._heavy_words)
        self._heavy[sql] = _ALWAYS if found else 0
        return found

    def _look_at_the_clock(self) -> None:
        self._is_quick = True
        self.connection.set_progress_handler(self._is_late, LOOK_EVERY)

    def briefly(self, sql: str, args: Sequence[Any]) -> list[Row]:
        """All rows on the event loop; `TooLongHere` when that is no place for it."""
        found = self.quick(sql, args)
        if found is None:
            raise TooLongHere
        return found

    def rows(
        self,
        sql: str,
        args: Sequence[Any],
        row_max: int,
        cancelled: Cancelled,
        opcode_max: int = 0,
        check: Callable[[], object] | None = None,
        answer_bytes: int = 0,
    ) -> list[Row]:
        """All rows, however long it takes, unless cancelled, too many or at too many steps.

        `check` is called once the rows are those of one moment, however long they are read: what
        may be told then may be told at the end.
        """
        self._is_quick = False
        self.may_spill()
        steps = Steps(cancelled, opcode_max)
        self.connection.set_progress_handler(steps, steps.every)
        try:
            if check is not None:
                self.begin(check)
            most = answer_bytes or self._answer_bytes
            with stops.working_until(cancelled.is_set):
                return taken(self.connection.execute(sql, args), row_max, most)
        except apsw.InterruptError:
            raise steps.problem() from None
        except Exception as problem:
            raise self.told(problem) from None
        finally:
            self.end()

    def may_spill(self) -> None:
        """Before a statement: it has all of what one may have."""
        if self._spill is not None and self._spill_max is not None:
            self._spill.max_bytes, self._spill.is_full = self._spill_max(), False

    def told(self, problem: Exception) -> CairnError:
        if self._spill is not None and self._spill.is_full:
            return self._spill.problem()
        return translated(problem)

    def begin(self, check: Callable[[], object]) -> None:
        self._transaction("BEGIN")
        self.connection.execute(f"SELECT 1 FROM {self._rows}.origin LIMIT 1").fetchall()
        check()

    def end(self) -> None:
        self.connection.set_progress_handler(None)  # or a cancel would leave it open
        if self.connection.in_transaction:
            self._transaction("COMMIT")

    def _transaction(self, text: str) -> None:
        self._is_opening = True
        try:
            self.connection.execute(f"{text} {_OURS}")
        finally:
            self._is_opening = False

    def close(self) -> None:
        self._stands = False
        self._answers = None
        for read in self._point_reads:
            read.close()
        self._given_up.free()
        self.connection.close()
        if self._spill is not None:
            self._spill.unregister()


Cancelled = threading.Event


class RowCursor:
    """The rows of one statement as of one moment, piece by piece: one thread at a time, any one."""

    def __init__(
        self,
        reader: RowReader,
        sql: str,
        args: Sequence[Any],
        row_max: int,
        opcode_max: int,
        stopped: Cancelled,
        check: Callable[[], object],
        grouped: str = "",
        is_packed: bool = False,
    ) -> None:
        self.reader, self.stopped, self._grouped = reader, stopped, grouped
        self._is_packed = is_packed and reader.groups.is_native
        self._steps = Steps(stopped, opcode_max)
        self._sql, self._args, self._row_max, self._check = sql, args, row_max, check
        self._cursor: apsw.Cursor | None = None
        self._pieces: Pieces | PackedPieces | None = None
        self._lock = threading.Lock()  # a piece may still be made for somebody who is gone
        self._is_over = False  # the reader is somebody else's by now

    def take(self, most: int, *encode: Encode) -> Piece:
        found: Piece = self._working(lambda pieces: pieces.take(most, *encode))
        return found

    def rows(self, count: int) -> list[Row]:
        """The next rows as they are; fewer than `count` at the end."""
        return self._working(lambda pieces: pieces.read(count))

    def _working(self, work: Callable[[Any], T]) -> T:
        with self._lock, stops.working_until(self.stopped.is_set):
            if self._is_over:  # it waited for a thread longer than its asker for the answer
                raise self._steps.problem()
            try:
                return work(self._pieces or self._begun())
            except apsw.InterruptError:
                raise self._steps.problem() from None
            except Exception as problem:
                raise self.reader.told(problem) from None

    def _begun(self) -> Pieces | PackedPieces:
        connection = self.reader.connection
        connection.set_progress_handler(self._steps, self._steps.every)
        self.reader.may_spill()
        self.reader.begin(self._check)
        run = self.reader.groups.packed if self._is_packed else self.reader.groups.asked
        self._cursor = run(self._sql, self._args, self._grouped)
        kind = PackedPieces if self._is_packed else Pieces
        self._pieces = kind(self._cursor, self._row_max)
        return self._pieces

    def end(self) -> None:
        """The reader may be used for something else."""
        with self._lock:
            self._is_over = True
            if self._cursor is not None:
                self._cursor.close(True)
            self.reader.end()


class Steps:
    """Asked by SQLite every so many steps of its machine whether to stop a statement."""

    def __init__(self, cancelled: Cancelled, opcode_max: int) -> None:
        self._is_cancelled, self._most = cancelled.is_set, opcode_max
        self.every = min(1_000, opcode_max) if opcode_max else 10_000
        self._count = 0

    def __call__(self) -> bool:
        self._count += self.every
        return self._is_over() or self._is_cancelled()

    def _is_over(self) -> bool:
        return 0 < self._most < self._count

    def problem(self) -> CairnError:
        if not self._is_over():
            return QueryCanceled("canceling statement due to user request")
        return LimitExceeded(
            f"Reached a limit on max executed vdbe opcodes. Limit: {self._most}",
            hint="narrow the statement, or allow more: SET sql_vdbe_opcode_max (0: no limit)",
        )


def taken(cursor: apsw.Cursor, row_max: int, answer_bytes: int) -> list[Row]:
    """All rows of a cursor, unless they are too many or too large to be held."""
    found: list[Row] = []
    size = 0
    try:
        while part := list(islice(cursor, TAKEN_ROWS)):
            found += part
            if row_max and len(found) > row_max:
                raise too_many(row_max)
            size += len(part) * (getsizeof(part[-1]) + sum(map(getsizeof, part[-1])))
            if size > answer_bytes:
                raise LimitExceeded(
                    f"the answer is larger than {answer_bytes >> 20} MiB",
                    hint="narrow the query, add LIMIT, or take a whole table by COPY",
                )
    finally:
        cursor.close(True)
    return found
