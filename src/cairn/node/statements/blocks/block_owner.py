"""Blocks at the master of their rows: planned here, run by the writer as one piece of work.

A block that is not to be committed is run and taken back: its last statement was asked for, the
ones before it are what the client was told so far. One that is committed leaves one record. In
both, every statement whose answer is known has to give it again, or nothing is done.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from cairn.model import stops
from cairn.model.errors import (
    BlockConflict,
    CairnError,
    NumbersNeeded,
    ProtocolViolation,
    QueryCanceled,
    TableUnderDdl,
)
from cairn.model.rpc import BlockItem, BlockRequest, BlockResponse
from cairn.model.settings import limits
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.violations import ParentNotSeen
from cairn.model.types.values import from_physical, micros_to_datetime
from cairn.model.unexpected import owned
from cairn.node.consensus.global_state import GlobalState
from cairn.node.statements.asker.numbers import Numbers
from cairn.node.statements.asker.owners import MOVING
from cairn.node.statements.blocks.block_guard import Buckets
from cairn.node.statements.blocks.block_runs import (
    LOOK_EVERY,
    BlockRun,
    Clock,
    Tape,
    Told,
    TooLong,
    digest,
    is_ordered,
)
from cairn.node.statements.blocks.kept import NOTHING, Done, Kept
from cairn.node.statements.context import ASKED
from cairn.node.statements.ending import Ticket, to_its_end
from cairn.node.statements.owner.execution import Execution
from cairn.node.statements.owner.writes import CATCH_UP_S
from cairn.node.waiting import as_future
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.plans import Prepared
from cairn.storage.data_db.shapes import TooLongHere
from cairn.storage.merging import Merger
from cairn.storage.readers import Cancelled
from cairn.storage.sqlite_errors import translated

PLANS = 2_000  # that are remembered
QUICK_TEXT = 2_000  # characters that are understood within a few milliseconds
QUICK_STATEMENTS, QUICK_ROWS = 30, 100
QUICK_KEPT = 300  # statements of which it is known what they did
QUICK_CHANGES = 500  # of theirs
QUICK_S = 0.004  # on the event loop
OF_VALUES = ("21", "22", "23")  # errors that values make


class BlockOwner:
    """Runs what others, or this instance, ask of the rows that it is the master of."""

    def __init__(
        self,
        name: str,
        state: GlobalState,
        execution: Execution,
        numbers: Numbers,
        raft: Path,
        register: Callable[[apsw.Connection, Callable[[Any], Any]], None],
        first: int,
    ) -> None:
        self._name, self._state, self._execution = name, state, execution
        self._numbers = numbers
        self._tape = Tape()
        self._merger = Merger(raft, lambda connection: register(connection, self._tape.through))
        self._kept = Kept(execution.data.store, first)
        self._plans: OrderedDict[tuple[str, tuple[int, ...], int], _Planned] = OrderedDict()

    def close(self) -> None:
        self._merger.close()

    async def run(self, request: BlockRequest, stopped: Cancelled | None = None) -> BlockResponse:
        """Done and on disk, or seen and taken back; else an error, and nothing was done.

        Who stops waiting ends it, and is told what became of it.
        """
        try:
            return await self._run(request, stopped or Cancelled())
        except asyncio.CancelledError:  # in between two runs: nothing stays of them
            raise QueryCanceled(ASKED) from None

    async def _run(self, request: BlockRequest, stopped: Cancelled) -> BlockResponse:
        planned = [await self._planned(item) for item in request.items]
        is_quick = _are_quick(request.items, planned)
        if request.read is not None:
            is_quick = False
            self._execution.reads.check_text(request.read)
        is_sure = False  # that our copies of global tables are as new as the request
        while True:
            epoch = self._execution.data.fence.epoch
            try:
                ticket = Ticket(stopped)
                work = self._queued(request, planned, is_quick, ticket)
                answer = await to_its_end(work, ticket)
            except NumbersNeeded as need:
                await self._numbers.more(need)
                continue
            except TooLong:
                is_quick = False
                continue
            except CairnError as problem:
                if isinstance(problem, ParentNotSeen) and not is_sure:
                    await self._execution.writes.catch_up(CATCH_UP_S)
                    is_sure = True
                    continue
                if not request.is_commit and problem.sqlstate.startswith("23"):
                    # It tells of rows that are there.
                    await self._execution.guard.check_looked(epoch)
                raise
            if not request.is_commit:
                await self._execution.guard.check_looked(epoch)
            return answer

    def start(self, request: BlockRequest, ticket: Ticket, callback: Callable[[Any], None]) -> bool:
        """`run` without a task, for rows by their keys. False: nothing was begun.

        The callback has the answer or an error; `Again`: nothing was done, and `run` is the way.
        """
        data, planned = self._execution.data, self._known(request.items)
        if planned is None or data.fence.is_sync or data.is_held_up or request.read is not None:
            return False
        if not _are_quick(request.items, planned):
            return False
        epoch = data.fence.epoch

        def done(answer: BlockResponse | CairnError) -> None:
            callback(self._judged(answer, request, epoch))

        catalog, now = self._state.catalog, asyncio.get_running_loop().time
        self._execution.writes.start_block(
            lambda: self._work(request, planned, catalog, now, True, ticket),
            is_commit=request.is_commit,
            is_quick=True,
            callback=done,
        )
        return True

    def _judged(
        self, answer: BlockResponse | CairnError, request: BlockRequest, epoch: int
    ) -> BlockResponse | CairnError:
        if isinstance(answer, _NOT_DONE):
            return Again("not done")
        tells = not isinstance(answer, CairnError) or answer.sqlstate.startswith("23")
        if tells and not request.is_commit:
            try:
                if not self._execution.guard.may_tell_looked(epoch):
                    return Again("not confirmed")
            except CairnError:
                return Again("not confirmed")
        return answer

    def _queued(
        self,
        request: BlockRequest,
        planned: Sequence[Prepared],
        is_quick: bool,
        ticket: Ticket,
    ) -> asyncio.Future[BlockResponse]:
        catalog, now = self._state.catalog, asyncio.get_running_loop().time
        return as_future(
            lambda done: self._execution.writes.start_block(
                lambda: self._work(request, planned, catalog, now, is_quick, ticket),
                is_commit=request.is_commit,
                is_quick=is_quick,
                callback=done,
            )
        )

    # --- planning ---------------------------------------------------------------------------------

    async def _planned(self, item: BlockItem) -> Prepared:
        """As the statement means here and now, if that is what the asker was told."""
        key = (item.text, item.oids, item.user)
        catalog = self._state.catalog
        found = self._plans.get(key)
        if found is None or found.catalog is not catalog:
            if len(item.text) <= QUICK_TEXT:
                prepared = _prepared(item, catalog)
            else:
                prepared = await asyncio.to_thread(_prepared, item, catalog)
            found = self._keep(key, prepared, catalog)
        if found.sharded != item.tables:
            raise TableUnderDdl("the table's schema is changing on this instance; try again")
        if found.types != item.types:
            raise BlockConflict("the schema has changed under the block")
        return found.prepared

    def _known(self, items: Sequence[BlockItem]) -> list[Prepared] | None:
        """The same for what was understood before, by the present catalogue."""
        catalog, planned = self._state.catalog, []
        for item in items:
            found = self._plans.get((item.text, item.oids, item.user))
            if found is None or found.catalog is not catalog:
                return None
            if found.sharded != item.tables or found.types != item.types:
                return None
            planned.append(found.prepared)
        return planned

    def learn(self, prepared: Prepared, oids: tuple[int, ...], user: int) -> None:
        """A statement that was planned at this instance for the present catalogue."""
        key, catalog = (prepared.text, oids, user), self._state.catalog
        known = self._plans.get(key)
        if known is None or known.catalog is not catalog:
            self._keep(key, prepared, catalog)

    def _keep(
        self, key: tuple[str, tuple[int, ...], int], prepared: Prepared, catalog: Catalog
    ) -> _Planned:
        found = self._plans[key] = _Planned(prepared, catalog)
        if len(self._plans) > PLANS:
            self._plans.popitem(last=False)
        return found

    # --- in the writer ----------------------------------------------------------------------------

    def _checked(self, request: BlockRequest) -> Buckets:
        store = self._execution.data.store
        store.check_master()
        for item in request.items:
            for table, version in item.tables.items():
                store.check_version(table, version)
        guard = Buckets(store, self._state, self._name, request)
        guard.check_declared()
        return guard

    def _work(
        self,
        request: BlockRequest,
        planned: Sequence[Prepared],
        catalog: Catalog,
        now: Callable[[], float],
        is_quick: bool,
        ticket: Ticket,
    ) -> BlockResponse:
        """Behind the one writer, inside the group's transaction: as every write is checked."""
        ticket.begin()
        store = self._execution.data.store
        try:
            guard = self._checked(request)
        except Exception as problem:  # nothing was changed: a mistake of ours ends no instance
            raise owned(problem, "the checks of a block") from None
        seconds = QUICK_S if is_quick else min(max(request.timeout_s, 0.001), limits.BLOCK_S)
        clock = Clock(now, seconds, is_quick, ticket.stopped)
        run = BlockRun(store, self._merger, guard, catalog, clock)
        last: list[BlockResponse] = []

        def carry_out() -> int:
            last.append(self._statements(run, guard, request, planned, is_quick))
            if request.read is not None:
                last[0] = BlockResponse(0, rows=tuple(guard.read(run, request.read)))
            return last[0].row_count

        store.connection.set_progress_handler(clock, LOOK_EVERY)
        try:
            with stops.working_until(ticket.stopped.is_set):
                if not request.is_commit:
                    store.look(carry_out, alone=not is_quick, brief=is_quick)
                    return last[0]
                _, lsn = store.statement(carry_out, alone=not is_quick, brief=is_quick)
        except TooLongHere:
            raise TooLong("a long row") from None
        except CairnError:
            raise
        except apsw.InterruptError:
            raise clock.problem() from None
        except Exception as problem:  # its savepoint is rolled back: the group goes on without it
            raise translated(problem) from None
        finally:
            store.connection.set_progress_handler(None)
        [told] = last
        return BlockResponse(told.row_count, lsn, told.rows, told.digest, told.tape)

    def _statements(
        self,
        run: BlockRun,
        guard: Buckets,
        request: BlockRequest,
        planned: Sequence[Prepared],
        is_quick: bool,
    ) -> BlockResponse:
        """All of them in order; the answer of the last one, which is run in any case if it is only
        looked at."""
        items = request.items
        end = len(items) - (not request.is_commit and request.read is None)
        early, done = self._known_behind(items[:end], planned)
        if is_quick and (early > QUICK_STATEMENTS or len(done.said) > QUICK_CHANGES):
            raise TooLong("many statements")
        told, mark = Told(0), b""
        for item, prepared in zip(items[:early], planned[:early], strict=True):
            told, mark = self._compared(run, item, prepared)
        self._kept.do_again(done)
        made = 0
        if end < len(items):
            told, mark, made = self._tried(run, guard, items[-1], planned[-1])
        elif request.is_commit:
            self._kept.forget(items)
        rows, tape = tuple(told.rows or ()), self._tape.values()
        return BlockResponse(told.count, 0, rows, mark, tape, made)

    def _known_behind(
        self, items: Sequence[BlockItem], planned: Sequence[Prepared]
    ) -> tuple[int, Done]:
        """How many have to be run, and what those behind them did, as far as that is known.

        Reads that nothing is known of may come before the others, which have not seen them.
        """
        early = 0
        while early < len(items) and not items[early].made and _is_read(planned[early]):
            early += 1
        done = self._kept.done(items[early:])
        return (len(items), NOTHING) if done is None else (early, done)

    def _tried(
        self, run: BlockRun, guard: Buckets, item: BlockItem, prepared: Prepared
    ) -> tuple[Told, bytes, int]:
        """With the number under which is kept what it did."""
        store = self._execution.data.store
        guard.begin()
        since = store.pending_changes()
        told, mark = self._compared(run, item, prepared)
        if guard.is_all or not _may_be_kept(item, prepared):
            return told, mark, 0
        touched, changes = frozenset(guard.touched), store.changes_since(since)
        made = 0 if changes is None else self._kept.keep(item, mark, touched, changes)
        return told, mark, made

    def _compared(self, run: BlockRun, item: BlockItem, prepared: Prepared) -> tuple[Told, bytes]:
        """Run, and answered as it was before."""
        self._tape.begin(item.tape)
        try:
            told = run.statement(prepared, values_of(item, prepared), item.rows)
        except CairnError as problem:
            if item.told and problem.sqlstate.startswith(OF_VALUES):
                raise _differs(item, problem.message) from None
            raise
        mark = digest(told, is_ordered(prepared))
        if item.told and mark != item.told:
            raise _differs(item, "somebody else has changed its rows")
        return told, mark


def _differs(item: BlockItem, why: str) -> BlockConflict:
    return BlockConflict(
        "could not serialize access: a statement of the block would be answered differently now",
        detail=f"{why}: {item.text[:200]}",
    )


def values_of(item: BlockItem, prepared: Prepared) -> list[Any]:
    """Of its parameters, as they came from a peer."""
    if len(item.args) != len(prepared.param_types):
        wanted, given = len(prepared.param_types), len(item.args)
        raise ProtocolViolation(f"a peer's block has {given} values for {wanted} parameters")
    try:
        params = [*map(from_physical, prepared.param_types, item.args)]
        return prepared.start(params, micros_to_datetime(item.now))
    except (TypeError, ValueError, LookupError, ArithmeticError) as problem:
        raise ProtocolViolation(f"a peer's values cannot be read: {problem}") from None


class Again(CairnError):
    """Nothing was done, and the answer has to be waited for in another way."""


#: Numbers or parents that are not here yet, work that is too long, rows or masters that move.
_NOT_DONE = (NumbersNeeded, TooLong, ParentNotSeen, *MOVING)


_READS = (plans.PointRead, plans.ScatterRead)


def _is_read(prepared: Prepared) -> bool:
    return isinstance(prepared.plan, _READS)


def _may_be_kept(item: BlockItem, prepared: Prepared) -> bool:
    """Whether it reads only rows of sharded tables, in buckets that the guard was asked of."""
    if len(item.tables) != len(prepared.tables):
        return False  # the others are global, or not tables
    return not isinstance(prepared.plan, plans.BlockPlan)


class _Planned:
    """A statement as it was understood with one catalogue."""

    __slots__ = ("catalog", "prepared", "sharded", "types")

    def __init__(self, prepared: Prepared, catalog: Catalog) -> None:
        self.catalog, self.prepared = catalog, prepared
        self.sharded = catalog.sharded(prepared.tables)
        self.types = tuple(type_.value for type_ in prepared.param_types)


def _prepared(item: BlockItem, catalog: Catalog) -> Prepared:
    return prepare(item.text, catalog, param_oids=item.oids, user_id=item.user)


def _are_quick(items: Sequence[BlockItem], planned: Sequence[Prepared]) -> bool:
    if len(items) > QUICK_STATEMENTS and not all(item.made for item in items[:-1]):
        return False
    return len(items) <= QUICK_KEPT and all(
        _is_quick(each, item.rows) for each, item in zip(planned, items, strict=True)
    )


def _is_quick(prepared: Prepared, given: Sequence[Any] | None = None) -> bool:
    """Whether it touches some rows by their keys: short enough for the event loop."""
    if given is not None:
        return len(given) <= QUICK_ROWS
    match prepared.plan:
        case plans.PointRead(bucket=bucket):
            return bucket is not None
        case plans.PointWrite() | plans.Returning(write=plans.PointWrite()):
            return True
        case plans.ShardedInsert():
            return len(prepared.text) < QUICK_TEXT
        case plans.BlockPlan(steps=steps):
            return len(steps) <= QUICK_STATEMENTS and all(
                _is_quick(step.prepared) and all(_is_quick(each.prepared) for each in step.body)
                for step in steps
            )
    return False
