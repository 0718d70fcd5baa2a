"""BEGIN … COMMIT without locks: a list of statements and of what the client was told of each.

Nothing is held anywhere while a client thinks. What a block has written so far is nowhere but in
its list. A new statement is run at the master of the block's rows, behind those of the list that
it may depend on, and all of it is taken back. COMMIT runs the whole list once more: if every
statement is answered as it was before, that is a serial execution whose answers the client has
seen, and it is committed as one record. Otherwise nothing is, and the client is told to repeat
the block (40001).

Reads before the first write are answered as outside of a block; COMMIT compares them too.

Two kinds of statements cannot be part of this and commit by themselves. Rows of several replicasets
and of global tables are written only as the one write of their block: a second one could not be
undone with it. Changes of the schema, of rights and settings may be several, before the block has
written rows; as in other databases whose DDL is not transactional, ROLLBACK leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getsizeof
from typing import Any, NamedTuple

import msgspec

from cairn.model.errors import (
    BlockConflict,
    BlockLeaves,
    CairnError,
    LimitExceeded,
    NumbersNeeded,
    PlanOutdated,
)
from cairn.model.rpc import BlockResponse
from cairn.model.settings import limits
from cairn.node.statements.asker.hops import HERE, Hop
from cairn.node.statements.asker.owners import MOVING
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.blocks.alone import Alone
from cairn.node.statements.blocks.asking import Listed, Statement, made_here
from cairn.node.statements.blocks.block_owner import OF_VALUES, Again
from cairn.node.statements.blocks.block_runs import Told, digest, is_ordered
from cairn.node.statements.blocks.parts import (
    Done,
    EarlyRead,
    Given,
    Mark,
    Trial,
    Written,
    as_told,
    before,
    check_room,
)
from cairn.node.statements.context import Context
from cairn.node.statements.executor import FEW_ROWS, Executor
from cairn.sql import plans
from cairn.sql.functions.function_list import calls_late
from cairn.sql.plans import Prepared
from cairn.storage.files.pieces import Row

_READS = (plans.PointRead, plans.ScatterRead)
_BLOCK_WRITES = (*plans.ROW_WRITES, plans.Returning, plans.BlockPlan)
COPIES = 2  # of a statement's bytes: as values, and with what it was told
READ_BYTES = 300  # that a read keeps beside its parameters
#: What may touch a few rows by their keys: `block_owner` asks more closely.
_STARTED = (plans.PointRead, plans.PointWrite, *FEW_ROWS)
_SCHEMA = (plans.DdlPlan, plans.AclPlan, plans.RoutinePlan, plans.AlterSystemPlan)


class _Begun(NamedTuple):
    """A statement on its way, behind those it may depend on."""

    listed: Listed
    block: tuple[Listed, ...]
    context: Context


class OpenBlock:
    """One block of one session, from BEGIN to its end.

    `hold` is told of bytes that it keeps, or (below zero) keeps no more, and may refuse.
    """

    def __init__(
        self,
        executor: Executor,
        hold: Callable[[int], None] = lambda more: None,
        *,
        is_strict: bool = False,
    ) -> None:
        self._executor, self._blocks, self._hold = executor, executor.blocks, hold
        self._strict_from = 0 if is_strict else None  # which of the reads must not go unchecked
        self._list: list[Listed] = []
        self._first: Listed | None = None  # that writes: it says whose the block is
        self._bytes = 0
        self._held = 0
        self._read: list[EarlyRead] = []  # before the first write, and not in the list yet
        self._unseen = ""  # why something that was read cannot be compared again
        self.alone = Alone()
        self.now = executor.blocks.wall_clock()  # the time of all its statements

    @property
    def is_strict(self) -> bool:
        """Serializable or repeatable read, or rows were read FOR UPDATE: from there on all that is
        read has to be so still at COMMIT."""
        return self._strict_from is not None

    def set_strict(self, is_strict: bool) -> None:
        """By its level of isolation."""
        self._strict_from = 0 if is_strict else None

    @property
    def mark(self) -> Mark:
        """Where a savepoint stands."""
        return Mark(len(self._list), self._strict_from)

    def return_to(self, to: Mark) -> None:
        """Forget what was written since, and what was read FOR UPDATE. What was read after a write
        of that cannot be compared any more; what was read before it can."""
        mark, self._strict_from = to
        since = self._list[mark:]
        first = next((at for at, each in enumerate(since) if each.is_write), len(since))
        if any(not each.is_write for each in since[first:]):
            self._unseen = self._unseen or "rows between a savepoint and ROLLBACK TO"
        del self._list[mark + first :]
        kept = sum(each.size for each in self._list)
        self._keep((kept - self._bytes) * COPIES)
        self._bytes = kept
        self._first = next((each for each in self._list if each.is_write), None)

    def _keep(self, more: int) -> None:
        self._hold(more)
        self._held += more

    def end(self) -> None:
        """Nothing of it is kept any longer."""
        self._keep(-self._held)

    @property
    def has_written(self) -> bool:
        return self._first is not None

    @property
    def has_work(self) -> bool:
        """Whether COMMIT has something to do."""
        first = self._strict_from
        return self.has_written or (first is not None and len(self._read) - first > 1)

    # --- statements -------------------------------------------------------------------------------

    def reads_outside(self, statement: Statement) -> bool:
        """Whether it is a read that sees nothing of what the block has written."""
        plan = statement.prepared.plan
        if isinstance(plan, plans.PointRead) and plan.bucket is None:
            return True  # of a sharded table it knows the sequence at most
        return isinstance(plan, _READS) and not (self.has_written and statement.sharded)

    async def run(
        self,
        statement: Statement,
        params: Sequence[Any],
        context: Context,
        given: Given | None = None,
    ) -> Outcome:
        """Any statement but those about the block itself. `given`: it inserts rows that are here,
        and the owner is told so."""
        context = msgspec.structs.replace(context, now=self.now)
        plan = statement.prepared.plan
        self._heed(statement)
        if plans.carried_out(plan) is not plan:
            return await self._executor.analyze(
                statement, params, context, lambda inner, noting: self.run(inner, params, noting)
            )
        if self.reads_outside(statement):
            outcome = await self._executor.run(statement, params, context)
            self.note(statement, params, context, outcome)
            return outcome
        if isinstance(plan, _READS):
            try:
                return await self._tried(statement, params, context)
            except BlockLeaves:
                if self.is_strict:
                    raise
            return await self._read_all_over(statement, params, context)
        if not isinstance(plan, (*_BLOCK_WRITES, *_SCHEMA, plans.GlobalWrite)):
            return await self._executor.run(statement, params, context)
        tag = statement.prepared.tag
        if isinstance(plan, (*_SCHEMA, plans.GlobalWrite)):
            return await self._run_alone(statement, params, context)
        if self.alone.rows:
            raise self.alone.refusal(tag, has_written=self.has_written)
        try:
            return await self._tried(statement, params, context, given)
        except BlockLeaves:
            if self.has_written or self.is_strict:
                raise
        return await self._run_alone(statement, params, context)

    def _heed(self, statement: Statement) -> None:
        """FOR UPDATE holds no lock: what the block reads from now on has to be so at its end."""
        if statement.prepared.locks and not self.is_strict:
            self._strict_from, self._unseen = len(self._read), ""

    def check_alone(self, tag: str, *, is_schema: bool = False) -> None:
        """Before something that commits by itself: rows have to be the one write of their block."""
        if self.has_written or (not is_schema and (self.alone.rows or self.is_strict)):
            raise self.alone.refusal(tag, has_written=self.has_written)

    async def _run_alone(
        self, statement: Statement, params: Sequence[Any], context: Context
    ) -> Outcome:
        tag = statement.prepared.tag
        is_schema = isinstance(statement.prepared.plan, _SCHEMA)
        self.check_alone(tag, is_schema=is_schema)
        outcome = await self._executor.run(statement, params, context)
        plan = statement.prepared.plan
        if isinstance(plan, plans.DdlPlan) and not (plan.fill or outcome.is_queue_told):
            return outcome  # IF EXISTS, of something that is not there: nothing was done
        if not is_schema and outcome.count == 0:
            return outcome  # it met no row: there is nothing to undo
        self.alone.note(tag, is_schema=is_schema)
        said = f"{tag} was committed at once: ROLLBACK will not undo it"
        outcome.notices = (*outcome.notices, said)
        return outcome

    # --- reads before the first write -------------------------------------------------------------

    def note(
        self, statement: Statement, params: Sequence[Any], context: Context, outcome: Outcome
    ) -> None:
        """It was answered as outside of a block; COMMIT will look whether it still holds."""
        self._heed(statement)
        prepared = statement.prepared
        options = prepared.options
        if calls_late(prepared.bound):
            why = "a function of chance or place" if statement.sharded else ""
        elif outcome.more is not None:
            why = "an answer of many rows"
        elif str(options.get("read_preference", context.preference)) != "leader":
            why = "rows of a replica"
        elif context.is_local or options.get("read_concern") == "local":
            why = "rows that a majority may not have"
        elif len(self._read) >= limits.BLOCK_STATEMENTS:
            why = "more often than can be remembered"
        else:
            self._keep(READ_BYTES + sum(map(getsizeof, params)))
            rows = list(outcome.rows or ())
            mark = digest(Told(len(rows), rows), is_ordered(prepared))
            self._read.append(EarlyRead(statement, tuple(params), context, mark))
            why = ""
        self._unseen = self._unseen or why
        first = self._strict_from
        if first is not None and len(self._read) - first + bool(why) > 1:
            self._check_strict()

    def _check_strict(self) -> None:
        """All that is read can be compared again, at one replicaset."""
        if not self._unseen:
            try:
                self._blocks.owner(self._listed_reads()[self._strict_from :])
                return
            except BlockLeaves:
                self._unseen = "rows of several replicasets"
        raise BlockLeaves(
            f"this block is not serializable: it has read {self._unseen}",
            hint="read rows of one replicaset, or BEGIN ISOLATION LEVEL READ COMMITTED",
        )

    def _listed_reads(self) -> list[Listed]:
        return [
            as_told(self._blocks.listed(each.statement, each.params, each.context), each.mark, ())
            for each in self._read
        ]

    # --- at the master ----------------------------------------------------------------------------

    async def _tried(
        self,
        statement: Statement,
        params: Sequence[Any],
        context: Context,
        given: Given | None = None,
    ) -> Outcome:
        if given is not None:
            return await self._try(given.statement, params, context, given.rows)
        try:
            return await self._try(statement, params, context)
        except PlanOutdated:
            again = await context.face.plan_again(statement, context)
            return await self._try(again, params, context)

    async def _try(
        self,
        statement: Statement,
        params: Sequence[Any],
        context: Context,
        rows: Sequence[tuple[int, Row]] | None = None,
    ) -> Outcome:
        """Run behind what it may depend on, and take back; then it is part of the list."""
        self._blocks.check_fresh(statement, context.user_id)
        if self.is_strict and self._unseen:
            self._check_strict()
        if rows is None:
            listed = await self._made(statement, params, context)
        else:
            listed = self._blocks.listed(statement, params, context, rows)
        self._check_room(listed)
        block = [*before(self._list, listed), listed]
        try:
            answer = await self._sent(block, context, is_commit=False, like=self._like)
        except BaseException as problem:
            self._keep(-listed.size * COPIES)
            if isinstance(problem, CairnError) and self._is_doubtful(problem):
                await self._sent(self._whole(), context, is_commit=False, like=self._list)
            raise
        return self._took(statement.prepared, listed, answer)

    def _took(self, prepared: Prepared, listed: Listed, answer: BlockResponse) -> Outcome:
        told = as_told(listed, answer.digest, answer.tape, answer.made)
        self._list.append(told)
        self._bytes += told.size
        if told.is_write:
            self._first = self._first or told
        found = answer.rows if prepared.columns else None
        return Outcome(found, answer.row_count, prepared.complete(answer.row_count))

    async def _read_all_over(
        self, statement: Statement, params: Sequence[Any], context: Context
    ) -> Outcome:
        """Rows of other replicasets as they are committed, and those of the block's as it has
        written them. COMMIT cannot compare that."""
        needed = before(self._list, self._blocks.listed(statement, params, context))
        assert self._first is not None
        overlay = Written(self._blocks, needed, self._first, context) if needed else None
        context = msgspec.structs.replace(context, overlay=overlay)
        outcome = await self._executor.run(statement, params, context)
        self._unseen = self._unseen or "rows of several replicasets"
        return outcome

    async def _made(self, statement: Statement, params: Sequence[Any], context: Context) -> Listed:
        """Generated keys are made here and once: they say whose the rows are."""
        plan = made_here(statement.prepared.plan)
        if plan is None:
            return self._blocks.listed(statement, params, context)
        values = statement.prepared.start(params, self.now)
        at_masters = context.at_masters()
        while True:
            try:
                found = await self._executor.reads.read(plan.read, values, {}, at_masters)
                break
            except NumbersNeeded as need:
                await self._executor.numbers.more(need)
        return self._blocks.listed(statement, params, context, plan.rows(found))

    def _check_room(self, listed: Listed) -> None:
        check_room(len(self._list), self._bytes + listed.size)
        self._keep(listed.size * COPIES)

    def _check_together(self) -> None:
        """The list had one owner before: if it has not now, its buckets went apart."""
        written = [each for each in self._list if each.is_write]
        try:
            self._blocks.owner(written)
        except BlockLeaves:
            raise BlockConflict("the buckets of the block's rows moved apart") from None

    # --- without a task ---------------------------------------------------------------------------

    def start(
        self, statement: Statement, params: Sequence[Any], context: Context, done: Done
    ) -> Hop | None:
        """`run` for a few rows by their keys that are here; None: nothing was begun.

        `done` is given how to go on: that has the outcome, or None when `run` is the way.
        """
        begun = self._begun(statement, params, context)
        if begun is None:
            return None
        listed = begun.listed
        trial = Trial(
            done,
            lambda answer: self._finished(statement.prepared, listed, answer),
            lambda: self._keep(-listed.size * COPIES),
        )
        if self._blocks.start(
            *(begun.block, begun.context, trial.ticket, trial.answered),
            is_commit=False,
            like=self._like,
        ):
            return trial
        self._keep(-listed.size * COPIES)
        return None

    @property
    def _like(self) -> tuple[Listed, ...]:
        """Whose owner has to be that of every other statement."""
        return () if self._first is None else (self._first,)

    def _begun(
        self, statement: Statement, params: Sequence[Any], context: Context
    ) -> _Begun | None:
        """What is to be sent for a statement that needs no task, and room for it is taken."""
        prepared = statement.prepared
        if not isinstance(prepared.plan, _STARTED) or prepared.locks or self.is_strict:
            return None
        if self.alone.rows or self.reads_outside(statement):
            return None
        context = msgspec.structs.replace(context, now=self.now)
        try:
            self._blocks.check_fresh(statement, context.user_id)
            made, rows = made_here(prepared.plan), None
            if made is not None:
                values = prepared.start(params, self.now)
                rows = self._executor.writes.made_at_once(made, values)
                if rows is None:
                    return None
            listed = self._blocks.listed(statement, params, context, rows)
            needed = before(self._list, listed)
            self._check_room(listed)
        except (PlanOutdated, LimitExceeded):
            return None
        return _Begun(listed, (*needed, listed), context)

    def _finished(
        self, prepared: Prepared, listed: Listed, answer: BlockResponse | CairnError
    ) -> Outcome | None:
        if isinstance(answer, CairnError):
            self._keep(-listed.size * COPIES)
            if isinstance(answer, Again) or self._is_doubtful(answer):
                return None
            raise answer
        return self._took(prepared, listed, answer)

    def start_commit(self, context: Context, done: Done) -> Hop | None:
        """The same for `commit`. It is not ended half-way."""
        if not self.has_written or self.is_strict:
            return None
        context = msgspec.structs.replace(context, now=self.now)
        try:
            block = self._whole()
        except CairnError:
            return None

        def finish(answer: BlockResponse | CairnError) -> bool:
            if isinstance(answer, Again):
                return False
            if isinstance(answer, CairnError):
                raise answer
            return True

        trial = Trial(done, finish)
        if self._blocks.start(
            block, context, trial.ticket, trial.answered, is_commit=True, like=self._list
        ):
            return HERE
        return None

    # --- the end ----------------------------------------------------------------------------------

    async def commit(self, context: Context) -> None:
        """All of it at once, if all that was told still holds."""
        if self.has_work:
            context = msgspec.structs.replace(context, now=self.now)
            await self._sent(self._whole(), context, is_commit=self.has_written, like=self._list)

    def _is_doubtful(self, problem: CairnError) -> bool:
        """It may come from what the block was told before, and that may not hold any more."""
        return self.has_written and problem.sqlstate.startswith(OF_VALUES)

    def _whole(self) -> list[Listed]:
        reads = self._listed_reads()
        first = len(reads) if self._strict_from is None else self._strict_from
        early = self._of_the_same_owner(reads[:first]) if self.has_written else []
        return [*early, *reads[first:], *self._list]

    async def _sent(
        self, block: Sequence[Listed], context: Context, *, is_commit: bool, like: Sequence[Listed]
    ) -> BlockResponse:
        """What certainly was not done, because masters or buckets move, may be repeated."""
        try:
            return await self._blocks.send(block, context, is_commit=is_commit, like=like)
        except BlockLeaves:
            self._check_together()
            raise
        except MOVING as problem:
            raise BlockConflict(problem.message, detail=problem.detail) from None

    def _of_the_same_owner(self, reads: list[Listed]) -> list[Listed]:
        """Other reads were of committed rows, and no more is promised of them."""
        self._check_together()
        assert self._first is not None
        owner = self._blocks.owner((self._first,)).replicaset
        return [each for each in reads if not each.item.tables or self._blocks.is_at(each, owner)]
