"""A session's temporary tables: which there are, their rows, and its transaction over both.

A block of the session is a savepoint of SQLite, and so is each savepoint in it. They are opened
when the first statement needs them and ended when the next one comes: the loop only notes what a
COMMIT or ROLLBACK says (`_due`), since carrying it out may take long. The picture of the tables
changes at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import apsw
import msgspec

from cairn.model import stops
from cairn.model.errors import CairnError, QueryCanceled
from cairn.model.log import ops
from cairn.model.settings import limits
from cairn.model.tables.altering import as_added, with_renamed
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Index, Table, create_index_sql, create_table_sql
from cairn.model.tables.temporary import MOST, TempIds, only_temps, with_temps
from cairn.node.statements.asker.numbers import Numbers
from cairn.node.statements.asker.streams import Merge, Stream
from cairn.node.statements.context import ASKED, Context
from cairn.node.statements.owner.open_reads import OpenReads
from cairn.sql.change_plans import OnCommit
from cairn.sql.plans import DdlPlan
from cairn.sql.render.constraints import translate
from cairn.storage.files.pieces import PIECE_BYTES, Piece, Pieces, Row, plain
from cairn.storage.files.reshaping import check_rows, reshape
from cairn.storage.readers import Cancelled
from cairn.storage.sqlite_errors import translated
from cairn.storage.temp_store import TempStore

T = TypeVar("T")
Work = Callable[[apsw.Connection], object]
LOOK_EVERY = 5_000  # steps of SQLite's machine between two looks whether somebody waits
HELD_BYTES = 4 * 1024 * 1024  # that a session with temporary tables may keep in memory, about
IDS = TempIds()
_LIVE: WeakSet[Temps] = WeakSet()


def forget_catalogs() -> None:
    """The schema has changed: sessions that say nothing must not keep the one of before."""
    for each in list(_LIVE):
        each.forget_catalog()


class Picture(msgspec.Struct, frozen=True):
    """Which tables there are."""

    tables: dict[str, Table] = {}
    indexes: dict[int, tuple[Index, ...]] = {}
    on_commit: dict[int, OnCommit] = {}

    def with_table(self, table: Table, indexes: tuple[Index, ...]) -> Picture:
        tables = {name: each for name, each in self.tables.items() if each.id != table.id}
        return Picture(
            {**tables, table.name: table}, {**self.indexes, table.id: indexes}, self.on_commit
        )

    def without(self, ids: set[int]) -> Picture:
        return Picture(
            {name: each for name, each in self.tables.items() if each.id not in ids},
            {key: each for key, each in self.indexes.items() if key not in ids},
            {key: each for key, each in self.on_commit.items() if key not in ids},
        )


class _Level(msgspec.Struct):
    """A block, or a savepoint in it: the tables that it found, and whether SQLite knows of it."""

    found: Picture
    is_open: bool = False


class Temps:
    """`hold` counts what the session keeps; `most` is how many bytes of files it may have."""

    def __init__(
        self,
        reads: OpenReads,
        numbers: Numbers,
        session: int,
        hold: Callable[[int], None],
        most: Callable[[], int],
    ) -> None:
        self._reads, self._numbers, self._session = reads, numbers, session
        self._hold, self._most = hold, most
        hold(HELD_BYTES)
        self._store: TempStore | None = None
        self._lock = threading.Lock()  # a thread may still work for somebody who is gone
        self._is_closed = False
        self.picture = Picture()
        self._levels: list[_Level] = []
        self._due: list[str] = []  # what SQLite has to be told before the next statement
        self._read: list[apsw.Cursor] = []  # that nobody reads any more
        self._is_lost = False  # SQLite took back the whole block
        self._made: set[int] = set()  # numbers of all tables that were ever made
        self.plans: OrderedDict[Any, Any] = OrderedDict()  # by text: of this session alone
        self._seen: tuple[Catalog, Picture, Catalog] | None = None
        _LIVE.add(self)

    # --- the picture ------------------------------------------------------------------------------

    def catalog(self, base: Catalog) -> Catalog:
        """What names mean in this session."""
        if not self.picture.tables:
            return base
        if self._seen is None or self._seen[0] is not base or self._seen[1] is not self.picture:
            picture = self.picture
            made = with_temps(base, picture.tables, picture.indexes, self.plans, self._session)
            self._seen = base, picture, made
        return self._seen[2]

    def forget_catalog(self) -> None:
        self._seen = None

    # --- its transaction --------------------------------------------------------------------------

    def enter(self) -> None:
        """BEGIN, or SAVEPOINT inside of it."""
        self._levels.append(_Level(self.picture))

    def release(self, depth: int) -> None:
        """Levels from `depth` on end, and what was done in them stays."""
        if self._levels[depth].is_open:
            self._due.append(f"RELEASE b{depth}")
        del self._levels[depth:]

    def roll_back(self, depth: int) -> None:
        """As it was when the level began, which goes on."""
        level = self._levels[depth]
        if level.is_open:
            self._due.append(f"ROLLBACK TO b{depth}")
        self.picture = level.found
        del self._levels[depth + 1 :]

    def end(self, *, is_committed: bool) -> None:
        """COMMIT or ROLLBACK."""
        if self._levels:
            if not is_committed or self._is_lost:
                self.roll_back(0)
            self.release(0)
        self._is_lost = False
        self.committed()

    def committed(self) -> None:
        """A transaction has ended: ON COMMIT."""
        if self._levels:
            return
        doomed = {table for table, what in self.picture.on_commit.items() if what == "drop"}
        self._due += [f"DROP TABLE IF EXISTS t{each}" for each in doomed]
        if doomed:
            self.picture = self.picture.without(doomed)
        emptied = [table for table, what in self.picture.on_commit.items() if what == "delete"]
        for table in emptied:
            if (text := f"DELETE FROM t{table}") not in self._due:
                self._due.append(text)

    async def discard(self, context: Context) -> None:
        """DISCARD TEMP: all of them are dropped."""
        texts = [f"DROP TABLE t{table.id}" for table in self.picture.tables.values()]

        def drop(store: TempStore) -> None:
            for text in texts:
                store.connection.execute(text)

        await self.run(context, drop, Picture())

    def close(self) -> None:
        """The session has ended."""
        self._is_closed = True
        self._reads.later(self._close)

    def _close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
            if store is not None:
                store.close()
            for table in self._made:
                self._numbers.begin_anew(table)
            IDS.give_back(self._made)

    # --- work with the rows -----------------------------------------------------------------------

    async def run(
        self,
        context: Context,
        work: Callable[[TempStore], T],
        after: Picture | None = None,
        *,
        is_ended: bool = True,
    ) -> T:
        """One whole statement on a thread: all of it or nothing. `after` are the tables then."""

        def whole(store: TempStore) -> T:
            self.begin(store)
            try:
                found = work(store)
            except BaseException:
                self.undo(store)
                raise
            self.keep(store)
            return found

        found = await self.work(context, whole)
        self.picture = self.picture if after is None else after
        if is_ended:
            self.committed()
        return found

    async def as_one(self, context: Context, work: Coroutine[Any, Any, T]) -> T:
        """Several turns on a thread that are one statement."""
        try:
            await self.work(context, self.begin)
        except BaseException:
            work.close()
            raise
        try:
            found = await work
            await self.work(context, self.keep)
        except BaseException:
            await self._take_back(context)
            raise
        self.committed()
        return found

    async def insert(
        self, sql: str, rows: Sequence[Row], context: Context, catalog: Catalog
    ) -> int:
        """Some rows of a COPY."""

        def put(store: TempStore) -> None:
            try:
                store.insert_many(sql, rows)
            except apsw.ConstraintError as problem:
                raise translate(str(problem), catalog) or translated(problem) from None

        await self.work(context, put)
        return len(rows)

    def begin(self, store: TempStore) -> None:
        """On a thread: a statement that `undo` can take back."""
        store.connection.execute("SAVEPOINT statement")

    def keep(self, store: TempStore) -> None:
        store.connection.execute("RELEASE statement")

    async def _take_back(self, context: Context) -> None:
        """What was begun, whoever has cancelled it."""
        if self._is_closed:
            return
        await self.work(msgspec.structs.replace(context, cancelled=Cancelled()), self.undo)

    def undo(self, store: TempStore) -> None:
        if store.connection.in_transaction:
            store.connection.execute("ROLLBACK TO statement")
            store.connection.execute("RELEASE statement")
        elif self._levels:  # a full disk or a cancel: SQLite has taken back all of it
            self._is_lost = True
            for level in self._levels:
                level.is_open = False

    async def work(self, context: Context, work: Callable[[TempStore], T]) -> T:
        """On a thread, behind what is due."""
        most = self._most()
        found: T = await self._reads.run(context.user_id, partial(self._work, context, work, most))
        return found

    def _work(self, context: Context, work: Callable[[TempStore], T], most: int) -> T:
        with self._lock:
            if self._is_closed:
                raise QueryCanceled(ASKED)
            if self._is_lost:
                raise CairnError(
                    "the temporary tables of this block are as they were before it",
                    detail="a statement of it was cancelled, or found no room",
                    hint="ROLLBACK, and begin the block anew",
                    sqlstate="40000",
                )
            if self._store is None:
                self._store = self._reads.temp_store()
            store = self._store
            self._catch_up(store)
            store.files.max_bytes, store.files.leaves_room = most, True
            store.files.is_full = False
            is_stopped = context.cancelled.is_set
            try:
                with store.watched(is_stopped, LOOK_EVERY), stops.working_until(is_stopped):
                    return work(store)
            except CairnError:
                if store.files.is_full:
                    raise store.files.problem() from None
                raise
            except apsw.InterruptError:
                raise QueryCanceled(ASKED) from None
            except Exception as problem:
                is_full = store.files.is_full
                raise (store.files.problem() if is_full else translated(problem)) from None

    def _catch_up(self, store: TempStore) -> None:
        store.files.max_bytes, store.files.leaves_room = 0, False  # COMMIT and ROLLBACK are done
        while self._read:
            self._read.pop().close(True)
        due, self._due = self._due, []
        for text in due:
            store.connection.execute(text)
        for depth, level in enumerate(self._levels):
            if not level.is_open:
                store.connection.execute(f"SAVEPOINT b{depth}")
                level.is_open = True

    # --- reading ----------------------------------------------------------------------------------

    async def read(
        self, sql: str, args: Sequence[Any], context: Context
    ) -> tuple[list[Row], Stream | None]:
        """All rows of this moment. A longer answer is kept aside: what is told later must not see
        what the session does meanwhile."""
        begun: list[tuple[apsw.Cursor, Pieces]] = []

        def first(store: TempStore) -> Piece:
            cursor = store.connection.cursor()
            begun.append((cursor, Pieces(cursor.execute(sql, args))))
            return begun[0][1].take(PIECE_BYTES)

        try:
            piece = await self.work(context, first)
            rows = plain(piece.rows)
            if piece.is_last:
                return rows, None
            return await self._aside(rows, begun[0][1], context)
        finally:
            # A thread may still be at it, for somebody who has cancelled.
            self._read += [cursor for cursor, _ in begun]

    async def _aside(
        self, rows: list[Row], pieces: Pieces, context: Context
    ) -> tuple[list[Row], Stream | None]:
        merge = Merge(self._reads, context)
        merge.begin(0, limits.SPILL_BYTES)
        try:
            await merge.table([""] * len(rows[0]), rows, _Rest(self, pieces), context)
            return await merge.answer("SELECT * FROM m0", ())
        except BaseException:
            merge.close()
            raise

    # --- the schema -------------------------------------------------------------------------------

    async def forget(self, picture: Picture, context: Context) -> None:
        """The rows of CREATE TEMP TABLE AS did not come: the table goes too."""
        known = {table.id for table in picture.tables.values()}
        made = [each.id for each in self.picture.tables.values() if each.id not in known]

        def drop(store: TempStore) -> None:
            for table in made:
                store.connection.execute(f"DROP TABLE IF EXISTS t{table}")

        if not self._is_lost:
            anyway = msgspec.structs.replace(context, cancelled=Cancelled())
            await self.run(anyway, drop, picture)

    async def change(
        self,
        plan: DdlPlan,
        user_id: int,
        base: Catalog,
        context: Context,
        *,
        is_ended: bool = True,
    ) -> bool:
        """Whether something was changed. `is_ended`: with it the statement is over."""
        own = self.catalog(base)
        if own.beneath is None:
            own = with_temps(base, {}, {}, self.plans, self._session)
        if len(self.picture.tables) >= MOST and plan.temp is not None:
            raise CairnError(f"a session has at most {MOST} temporary tables", sqlstate="53400")
        table_id, version = 0, IDS.version()
        if plan.temp is not None:
            table_id, version = IDS.take()
            self._made.add(table_id)
        ddl = plan.build(only_temps(own), version, table_id)
        if ddl is None:
            return False
        before = self.picture
        picture = _after(before, ddl, version, plan.temp)
        texts = _texts(before, picture, ddl)

        def carry_out(store: TempStore) -> None:
            for each in texts:
                try:
                    each(store.connection)
                except apsw.ConstraintError as problem:
                    raise translate(str(problem), own) or translated(problem) from None

        await self.run(context, carry_out, picture, is_ended=is_ended)
        if isinstance(ddl, ops.TruncateTable) and ddl.restarts:
            self._numbers.begin_anew(ddl.table_id)
        return True


class _Rest:
    """What a cursor over temporary tables has left, piece by piece."""

    def __init__(self, temps: Temps, pieces: Pieces) -> None:
        self._temps, self._pieces, self._is_over = temps, pieces, False

    async def next(self, context: Context) -> list[Row] | None:
        if self._is_over:
            return None
        piece = await self._temps.work(context, lambda _: self._pieces.take(PIECE_BYTES))
        self._is_over = piece.is_last
        return plain(piece.rows) or None

    def close(self) -> None:
        self._is_over = True


def _table(picture: Picture, table_id: int) -> Table:
    return next(each for each in picture.tables.values() if each.id == table_id)


def _after(picture: Picture, ddl: ops.Ddl, version: int, on_commit: OnCommit | None) -> Picture:
    replace = msgspec.structs.replace
    if isinstance(ddl, ops.CreateTable):
        made = picture.with_table(replace(ddl.table, operable=True), ddl.indexes)
        assert on_commit is not None
        return replace(made, on_commit={**picture.on_commit, ddl.table.id: on_commit})
    table = replace(_table(picture, ops.table_of(ddl)), schema_version=version)
    indexes = picture.indexes.get(table.id, ())
    match ddl:
        case ops.DropTable():
            return picture.without({table.id})
        case ops.TruncateTable():
            return picture
        case ops.CreateIndex(index=index):
            return picture.with_table(table, (*indexes, replace(index, operable=True)))
        case ops.DropIndex(index_id=index_id):
            return picture.with_table(table, tuple(x for x in indexes if x.id != index_id))
        case ops.RenameIndex(index_id=index_id, new_name=name):
            renamed = tuple(replace(x, name=name) if x.id == index_id else x for x in indexes)
            return picture.with_table(table, renamed)
        case ops.RenameTable(new_name=name):
            return picture.with_table(replace(table, name=name), indexes)
        case ops.RenameColumn(old=old, new=new):
            return picture.with_table(*with_renamed(table, indexes, old, new))
        case ops.AddColumns(columns=columns):
            wider = replace(table, columns=table.columns + as_added(columns))
            return picture.with_table(wider, indexes)
        case ops.Restate(columns=columns, description=description):
            told = {column.name: column for column in columns}
            stated = tuple(told.get(column.name, column) for column in table.columns)
            about = table.description if description is None else description
            return picture.with_table(replace(table, columns=stated, description=about), indexes)
        case ops.AlterTable(table=wanted, indexes=wished):
            return picture.with_table(
                replace(wanted, operable=True, schema_version=version), wished
            )


def _texts(before: Picture, after: Picture, ddl: ops.Ddl) -> list[Work]:
    """What makes SQLite's tables so."""

    def run(text: str) -> Work:
        return lambda connection: connection.execute(text)

    table_id = ops.table_of(ddl)
    match ddl:
        case ops.CreateTable(table=table, indexes=indexes):
            made = [create_table_sql(table), *(create_index_sql(table, x) for x in indexes)]
            return [run(text) for text in made]
        case ops.DropTable():
            return [run(f"DROP TABLE t{table_id}")]
        case ops.TruncateTable():
            return [run(f"DELETE FROM t{table_id}")]
        case ops.CreateIndex(index=index):
            return [run(create_index_sql(_table(before, table_id), index))]
        case ops.DropIndex(index_id=index_id):
            return [run(f"DROP INDEX i{table_id}_{index_id}")]
        case ops.AlterTable() | ops.AddColumns():
            return _altered(before, after, table_id)
    return []


def _altered(before: Picture, after: Picture, table_id: int) -> list[Work]:
    old, new = _table(before, table_id), _table(after, table_id)

    def alter(connection: apsw.Connection) -> None:
        for index in before.indexes.get(table_id, ()):
            connection.execute(f"DROP INDEX {index.physical_name}")
        reshape(connection, old, new)
        check_rows(connection, old, new)
        for index in after.indexes.get(table_id, ()):
            connection.execute(create_index_sql(new, index))

    return [alter]
