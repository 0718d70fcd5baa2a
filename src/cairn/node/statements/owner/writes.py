"""Writes of rows that are here: through the one writer, and their verdicts.

The writer checks mastership, buckets and the table's version inside its transaction. After the
commit the lease is looked at once more: who has lost it cannot say whether the write stays, before
it has the next one in the same epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import apsw

from cairn.model import stops
from cairn.model.errors import CairnError, OutcomeUnknown, QueryCanceled
from cairn.model.rpc import BlockResponse, WriteRequest, WriteResponse
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.violations import ParentNotSeen
from cairn.native.point_inserts import PointInsert
from cairn.net.spans import ACTIVE, INTERNAL, Span
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseHolder
from cairn.node.rows.replication import Replication
from cairn.node.runtime import spawn
from cairn.node.statements.context import ASKED
from cairn.node.statements.ending import Ticket, to_its_end
from cairn.node.statements.owner.carrying_out import (
    TakenBack,
    carry_out,
    is_plain,
    is_quick,
    left_of,
    refused_row,
    takes_long,
)
from cairn.node.statements.owner.write_kinds import WriteKind, WriteKinds
from cairn.node.waiting import as_future
from cairn.sql.render.constraints import translate
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.shapes import TooLongHere
from cairn.storage.files.groups import Job
from cairn.storage.files.pieces import Row
from cairn.storage.raft_db.state_machine import constraint_error
from cairn.storage.readers import Cancelled, Steps
from cairn.storage.sqlite_errors import translated

CATCH_UP_S = 5.0
Answer = WriteResponse | BlockResponse
Done = Callable[[WriteResponse | CairnError], None]
Children = dict[int, set[tuple[int, int]]]


class NotPlain(CairnError):
    """Nothing was done: the same request has to go the ordinary way, which says what is wrong."""


_NOT_PLAIN = NotPlain("a new row is not plain")


class OwnerWrites:
    def __init__(
        self,
        state: GlobalState,
        data: DataPlane,
        lease: LeaseHolder,
        replication: Replication,
        kinds: WriteKinds,
        catch_up: Callable[[float], Awaitable[None]],
    ) -> None:
        self.catch_up = catch_up  # with all that Raft has decided
        self._state, self.data, self._lease = state, data, lease
        self._replication, self._kinds = replication, kinds
        # By the id of their parents, and who names global rows, as of one catalogue: read by the
        # writer's thread as well.
        self._kin: tuple[Catalog | None, Children, frozenset[int]] = (None, {}, frozenset())
        self.short = 0  # statements of clients that wait for the chunk of a COPY before them

    def start_write(
        self, request: WriteRequest, callback: Done, ticket: Ticket | None = None
    ) -> None:
        """Queue a write; `callback` has its verdict after the commit and the second lease check.

        `ticket` ends one that is long, until it is committed.
        """
        if self.names_globals(request.table):
            callback = self._looking_twice(request, callback, ticket)
        self._start_write(request, callback, ticket)

    def _looking_twice(self, request: WriteRequest, callback: Done, ticket: Ticket | None) -> Done:
        """A row that others were told of may not be in our copy of its table yet."""

        async def look_again() -> None:
            try:
                await self.catch_up(CATCH_UP_S)
            except CairnError as problem:
                callback(problem)
                return
            self._start_write(request, callback, ticket)

        def done(verdict: WriteResponse | CairnError) -> None:
            if isinstance(verdict, ParentNotSeen):
                spawn(look_again(), "a second look for a named row")
            else:
                callback(verdict)

        return done

    def _start_write(self, request: WriteRequest, callback: Done, ticket: Ticket | None) -> None:
        data, fence = self.data, self.data.fence
        self.short += not (request.is_bulk or request.packed)
        if (active := ACTIVE.get()) is not None:
            callback = _within(active, "sync" if fence.is_sync else "async", callback)
        try:
            kind = self._kinds.of(request)
            is_long = takes_long(request, kind)
            has_followers = not (is_long or kind.only_inserts) and self.has_followers(request.table)
            if ticket is not None and not is_long:
                ticket.begin()  # over in a moment: it runs to its end
                if not has_followers:
                    ticket = None
        except CairnError as problem:
            callback(problem)
            return
        if is_quick(request, kind):
            write = _OneRow(self, data.store, fence, request, kind, callback, ticket)
            data.submit_job(Job(write.run, write.done, is_quick=True))
            return
        self.queue(request, kind, fence, callback, is_long or has_followers, ticket)

    def queue(
        self,
        request: WriteRequest,
        kind: WriteKind,
        fence: Fence,
        callback: Done,
        is_long: bool = False,
        ticket: Ticket | None = None,
    ) -> None:
        """For the writer's thread."""
        self.data.submit_call(
            lambda: self._write(request, kind, False, is_long, ticket),
            lambda done: self.settle(done, fence, request.check_only, callback),
            alone=is_long,
        )

    def start_insert(self, insert: Insert, callback: Done) -> None:
        """Queue a new row that C reads from its request. `callback` may have `NotPlain`."""
        self.short += 1
        write = _AskedRow(self, self.data.store, self.data.fence, insert, callback)
        self.data.submit_job(Job(write.run, write.done, is_quick=True))

    def settle(
        self,
        done: Answer | CairnError,
        fence: Fence,
        check_only: bool,
        callback: Callable[[Any], None],
    ) -> None:
        """After the commit: is it still ours to say that it happened?"""
        if check_only:
            callback(done)
        elif isinstance(done, CairnError):
            if fence.is_sync and done.sqlstate.startswith("23"):
                # It tells of rows that are there: not before they are there to stay.
                self._confirm(done, self._seen(), fence.epoch, callback)
            else:
                callback(done)
        elif self._lease.is_held(fence.epoch):
            self._stays(done, fence, callback)
        else:
            self._lease.when_clear(
                fence.epoch,
                lambda is_held: (
                    self._stays(done, fence, callback) if is_held else callback(_lease_lost())
                ),
            )

    def _stays(self, done: Answer, fence: Fence, callback: Callable[[Any], None]) -> None:
        """With a lease: nobody else was named."""
        if fence.is_sync:
            self._confirm(done, done.lsn or self._seen(), fence.epoch, callback)
        else:
            callback(done)

    def _seen(self) -> int:
        """A statement that left no record has still seen rows: an operation that was done before,
        a row that was there already.
        """
        return self.data.vclock.get(self.data.store.origin, 0)

    def _confirm(
        self, verdict: Answer | CairnError, lsn: int, epoch: int, callback: Callable[[Any], None]
    ) -> None:
        """Sync mode: told when a majority of the members has it, in the same epoch."""

        def safe(problem: CairnError | None) -> None:
            callback(verdict if problem is None else problem)

        self._replication.acks.when_safe(lsn, epoch, safe)

    def start_block(
        self,
        work: Callable[[], BlockResponse],
        *,
        is_commit: bool,
        is_quick: bool,
        callback: Callable[[BlockResponse | CairnError], None],
    ) -> None:
        """Queue a block; its verdict comes the same way as that of a write."""
        fence = self.data.fence
        self.data.submit_call(
            work,
            lambda done: self.settle(done, fence, not is_commit, callback),
            alone=not is_quick,
            quick=is_quick,
            look=not is_commit,
        )

    def write(
        self, request: WriteRequest, ticket: Ticket | None = None
    ) -> asyncio.Future[WriteResponse]:
        return as_future(lambda done: self.start_write(request, done, ticket))

    async def write_or_end(self, request: WriteRequest, stopped: Cancelled) -> WriteResponse:
        """Who stops waiting ends it, and is told what became of it.

        Queued here, not before: a task that is cancelled before its first step would leave a
        write behind that nobody can end.
        """
        ticket = Ticket(stopped)
        return await to_its_end(self.write(request, ticket), ticket)

    def handle_write(self, request: WriteRequest) -> Awaitable[WriteResponse]:
        """For another instance. What is short needs no task of its own."""
        try:
            kind = self._kinds.of(request)
            is_long = takes_long(request, kind) or (
                not kind.only_inserts and self.has_followers(request.table)
            )
        except CairnError:
            is_long = False
        return self.write_or_end(request, Cancelled()) if is_long else self.write(request)

    def write_row(self, request: WriteRequest, kind: WriteKind) -> WriteResponse:
        return self._write(request, kind, True, False)

    def _write(
        self,
        request: WriteRequest,
        kind: WriteKind,
        is_quick: bool,
        is_alone: bool,
        ticket: Ticket | None = None,
    ) -> WriteResponse:
        """Behind the one writer, inside the group's transaction."""
        if ticket is not None:
            ticket.begin()
            with stops.working_until(ticket.stopped.is_set):
                return self._write_until(ticket.stopped, request, kind, is_alone)
        return self._write_now(request, kind, is_quick, is_alone)

    def _write_until(
        self, stopped: Cancelled, request: WriteRequest, kind: WriteKind, is_alone: bool
    ) -> WriteResponse:
        connection, steps = self.data.store.connection, Steps(stopped, 0)
        connection.set_progress_handler(steps, steps.every)
        try:
            return self._write_now(request, kind, False, is_alone)
        finally:
            connection.set_progress_handler(None)

    def _check_kin(self, store: DataStore, table_id: int) -> None:
        """A master that was just named may not have the tables yet whose rows name these."""
        for child, version in self._kin_now()[1].get(table_id, ()):
            store.check_version(child, version)

    def _kin_now(self) -> tuple[Catalog | None, Children, frozenset[int]]:
        catalog, found = self._state.catalog, self._kin
        if found[0] is not catalog:  # looked for once: this is the way of every row
            found = self._kin = catalog, children_by_parent(catalog), naming_globals(catalog)
        return found

    def names_globals(self, table_id: int) -> bool:
        """Whether its rows name some of global tables."""
        return table_id in self._kin_now()[2]

    def has_followers(self, table_id: int) -> bool:
        """Whether rows of others may have to follow its rows, or be looked for: that may take
        long, however few rows a statement names."""
        return table_id in self._kin_now()[1]

    def _write_now(
        self, request: WriteRequest, kind: WriteKind, is_quick: bool, is_alone: bool
    ) -> WriteResponse:
        store = self.data.store
        store.check_write(request.table, request.version, request.buckets, request.ranges)
        self._check_kin(store, request.table)
        if request.operation is not None and (done := store.operation(request.operation)):
            left = left_of(request, done)
            if left is None:
                return WriteResponse(done.rows, 0)
            request = left
        rows: list[Row] = []
        try:
            if is_quick and kind.only_inserts and is_plain(request):
                count, lsn = store.insert_row(request.table, request.sql, request.rows[0])
            else:
                count, lsn = store.statement(
                    lambda: carry_out(store, request, rows), alone=is_alone, brief=is_quick
                )
        except TooLongHere:
            raise
        except TakenBack as checked:
            return WriteResponse(checked.count, 0)
        except apsw.ConstraintError as problem:
            row = refused_row(store, request, is_alone) if kind.only_inserts else None
            verdict = translate(str(problem), self._state.catalog, row)
            raise verdict or constraint_error(problem) from None
        except apsw.InterruptError:
            raise QueryCanceled(ASKED) from None
        except Exception as problem:  # its savepoint is rolled back: the group goes on without it
            raise translated(problem) from None
        return WriteResponse(count, lsn, tuple(rows)) if rows else WriteResponse(count, lsn)


def children_by_parent(catalog: Catalog) -> Children:
    """Tables whose rows name those of others, with their versions, by the id of these."""
    found: Children = {}
    for child in catalog.tables.values():
        for key in child.foreign_keys:
            found.setdefault(key.parent, set()).add((child.id, child.schema_version))
    return found


def naming_globals(catalog: Catalog) -> frozenset[int]:
    tables = catalog.tables.values()
    return frozenset(each.id for each in tables if any(k.is_global for k in each.foreign_keys))


def _lease_lost() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the write was committed here while this master lost its lease",
        hint="look whether the rows are there before trying again",
    )


def _within(active: Span, mode: str, callback: Done) -> Done:
    """Told when the write is durable, in sync mode on a majority: that is its span."""
    span = active.child("write and commit", INTERNAL, {"cairn.replication": mode})
    if span is None:
        return callback

    def done(verdict: WriteResponse | CairnError) -> None:
        span.end(verdict.sqlstate if isinstance(verdict, CairnError) else "")
        callback(verdict)

    return done


class Insert(NamedTuple):
    """A new row as it was asked for."""

    what: PointInsert
    data: bytes  # of the request
    at: int  # where its parameters begin
    bucket: int
    table: int
    version: int


class _AskedRow:
    """The same as `_OneRow` for a row that C reads from its request."""

    __slots__ = ("_callback", "_fence", "_insert", "_store", "_writes")

    def __init__(
        self, writes: OwnerWrites, store: DataStore, fence: Fence, insert: Insert, callback: Done
    ) -> None:
        self._writes, self._store, self._fence = writes, store, fence
        self._insert, self._callback = insert, callback

    def run(self) -> Any:
        store, insert = self._store, self._insert
        try:
            store.check_write(insert.table, insert.version, (insert.bucket,), None)
            found = store.insert_asked(
                insert.table, insert.bucket, insert.what, insert.data, insert.at
            )
        except CairnError:
            return _NOT_PLAIN
        except apsw.Error as problem:  # it has ended the transaction: others are run once more
            return translated(problem).without_frames()
        if found is None:
            return _NOT_PLAIN
        return WriteResponse(*found), store.last_epoch, store.vclock.copy(), store.versions

    def done(self, result: Any) -> None:
        writes = self._writes
        if isinstance(result, CairnError):
            self._callback(result)
            return
        writes.data.arrived(*result[1:])
        writes.settle(result[0], self._fence, False, self._callback)


class _OneRow:
    """The write of one row on its way through the writer: one small object instead of closures."""

    __slots__ = ("_callback", "_fence", "_kind", "_request", "_store", "_ticket", "_writes")

    def __init__(
        self,
        writes: OwnerWrites,
        store: DataStore,
        fence: Fence,
        request: WriteRequest,
        kind: WriteKind,
        callback: Done,
        ticket: Ticket | None,
    ) -> None:
        self._writes, self._store, self._fence = writes, store, fence
        self._request, self._kind, self._callback = request, kind, callback
        self._ticket = ticket

    def run(self) -> Any:
        store = self._store
        try:
            response = self._writes.write_row(self._request, self._kind)
        except TooLongHere:
            return None
        except CairnError as problem:
            return problem.without_frames()
        return response, store.last_epoch, store.vclock.copy(), store.versions

    def done(self, result: Any) -> None:
        writes = self._writes
        if result is None:
            kind, ticket = self._kind, self._ticket
            # What is ended takes its transaction with it: that has nobody else's work.
            is_alone = ticket is not None
            writes.queue(self._request, kind, self._fence, self._callback, is_alone, ticket)
            return
        if isinstance(result, CairnError):
            writes.settle(result, self._fence, self._request.check_only, self._callback)
            return
        writes.data.arrived(*result[1:])
        writes.settle(result[0], self._fence, self._request.check_only, self._callback)
