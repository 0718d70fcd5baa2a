"""Moves of buckets, as the instances carry them out: a source answers, a target pulls, old rows go.

Each instance acts on what it has applied. The target's master pulls deltas from the source's
master; the source's master drops the old rows once the target owns the range. What was reached is
told to the leader, again and again, and is durable only in the row log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from cairn.model.errors import CairnError, NoMaster, NotOwner, TimedOut
from cairn.model.moves import END, TAKES, Amount, Mark, Move, MovePart, MoveReport, Phase, Stamp
from cairn.model.records import Vclock
from cairn.model.rpc import Empty
from cairn.model.spans import Ranges, merged, subtract
from cairn.model.topology import BucketState, Grade
from cairn.moves.delta import Delta, MoveMustRestart, MoveRefused, Progress
from cairn.moves.seen import Rate
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.leader import Leader
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseHolder
from cairn.node.runtime import spawn
from cairn.node.waiting import signalled, until
from cairn.storage.moving_in import (
    begin,
    behind,
    drop_some,
    progress_of,
    sweep_some,
    take,
    write_part,
)
from cairn.storage.moving_out import MoveReader

log = logging.getLogger("cairn.moves")

DELTA_BYTES = 1024 * 1024
GENTLE_BYTES = 32 * 1024  # with a limit on rows per second: nobody waits long behind a delta
DROP_ROWS = 1_000
NEAR_RECORDS = 100
LOOK_S = 0.1  # between two questions once everything is copied
REPORT_S = 0.5
RETRY_S = 0.5
FROZEN_RETRY_S = 0.02  # statements wait, and a freeze is ended after half a second
HELD_S = 0.25  # shorter than a freeze: the leader hears in it whom it waits for
ATTEMPTS_MAX = 10
SPARE_BYTES = 32 * 1024 * 1024  # never filled by moves: clients and Raft write too
ON_DISK = 3  # a value that is copied is in its table, in the row log and in the write-ahead log
ROWS_PER_S = 20_000  # of one move, unless `rebalance_rows_per_s` says otherwise; 0: no limit
DROP_DELAY_S = 5.0  # old rows stay so long, for whoever still reads them


class DeltaRequest(msgspec.Struct, frozen=True):
    """What follows a position of the target's; with `is_begin`, only where to begin."""

    move: int
    at: Stamp = {}
    after: Mark = ()
    frozen_at: int = 0  # answer from behind this freeze
    max_bytes: int = DELTA_BYTES
    is_begin: bool = False


class _Hopeless(MoveRefused):
    """The move should be given up."""


class Moving:
    """One for the instance."""

    def __init__(
        self,
        name: str,
        state: GlobalState,
        peers: Peers,
        data: DataPlane,
        acks: Acknowledgements,
        lease: LeaseHolder,
        leader: Leader,
        free_bytes: Callable[[], int],
    ) -> None:
        self._name, self._state, self._peers = name, state, peers
        self._data, self._acks, self._lease = data, acks, lease
        self._leader, self._free_bytes = leader, free_bytes
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._reader: MoveReader | None = None
        self._reading = asyncio.Lock()
        self._told: dict[int, float] = {}  # when the leader was last told of a move
        self._ended: set[int] = set()  # moves of which nothing is left to be noted here
        self._due: dict[int, float] = {}  # when the old rows of a move may go
        self._swept = -1  # the epoch in which rows of others were last looked for
        self._is_involved = False  # in a move that is open
        self._sweeping: asyncio.Task[None] | None = None
        self.reports: dict[int, MoveReport] = {}  # what this instance says of its own moves
        self._rates: dict[int, Rate] = {}
        self.taken_rows = self.taken_bytes = 0  # copied since the start, by all moves

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._reader is not None:
            self._reader.close()

    def follow(self) -> None:
        """Entries were applied: begin what is ours now, wake what waits for a change."""
        for move in self._state.cluster.moves.values():
            if move.id not in self._tasks and self._part_in(move) is not None:
                task = spawn(self._work(move.id), f"move {move.id}")
                self._tasks[move.id] = task
                task.add_done_callback(partial(self._ended_work, move.id))
        self._sweep_if_due()
        self._changed.set()
        self._changed = asyncio.Event()

    def _ended_work(self, number: int, _: object) -> None:
        self._tasks.pop(number, None)

    def _part_in(self, move: Move) -> Callable[[Move], Awaitable[float]] | None:
        """What this instance has to do for a move now; None: nothing."""
        me = self._state.cluster.instances.get(self._name)
        if me is None or not self._data.fence.is_master:
            return None
        if move.target == me.replicaset_name and move.phase in TAKES:
            return self._pull
        if move.target == me.replicaset_name and move.phase is Phase.ABORTING:
            return self._clean
        if move.phase is Phase.COPIED:
            if move.source == me.replicaset_name:
                return self._drop
            if move.target == me.replicaset_name and move.id not in self._ended:
                return self._end
        return None

    async def _work(self, number: int) -> None:
        while (move := self._state.cluster.moves.get(number)) is not None:
            part = self._part_in(move)
            if part is None:
                break
            changed = self._changed
            try:
                pause_s = await part(move)
            except MoveMustRestart as problem:
                log.info("move %d begins anew: %s", number, problem)
                pause_s = await self._tried(self._begin(move), number)
            except CairnError as problem:
                log.info("move %d: %s", number, problem)
                await self._report_problem(number, problem)
                pause_s = FROZEN_RETRY_S if move.phase is Phase.FROZEN else RETRY_S
            await signalled(changed, pause_s)
        self.reports.pop(number, None)
        self._rates.pop(number, None)

    async def _tried(self, work: Awaitable[None], number: int) -> float:
        try:
            await work
        except CairnError as problem:
            await self._report_problem(number, problem)
            return RETRY_S
        return 0.0

    # --- the target -----------------------------------------------------------------------------

    async def _pull(self, move: Move) -> float:
        """One delta; how long to wait before the next."""
        progress = await self._data.run(lambda: progress_of(self._data.store.connection, move.id))
        if progress is None:
            await self._begin(move)
            return 0.0
        loop = asyncio.get_running_loop()
        begun = loop.time()
        limit = int(self._state.setting("rebalance_rows_per_s", ROWS_PER_S))
        request = DeltaRequest(
            move.id,
            progress.at,
            progress.after,
            move.frozen_at if move.phase is Phase.FROZEN else 0,
            GENTLE_BYTES if limit else DELTA_BYTES,
        )
        if self._is_paused() and not request.frozen_at and progress.after != END:
            await self._report(self._said(move.id, problem="paused"))
            return REPORT_S
        if not request.frozen_at:
            self._check_space(request.max_bytes)
        delta = await self._ask_source(move, request)
        epoch = self._data.fence.epoch
        lsn = 0
        if not _is_empty(progress, delta):
            lsn = await self._data.run(
                lambda: take(self._data.store, move, progress, delta, self._truncated()),
                alone=True,
            )
        self.taken_rows += delta.count
        self.taken_bytes += delta.bytes
        rows = progress.done[0] + delta.count
        said = self._said(
            move.id,
            attempt=progress.attempt,
            rows=rows,
            bytes=progress.done[1] + delta.bytes,
            total=progress.total,
            rows_per_s=self._rates.setdefault(move.id, Rate()).at(loop.time(), rows),
            lag=delta.lag,
            is_near=delta.after == END and delta.lag <= NEAR_RECORDS,
        )
        if delta.is_final:
            await self._held_by_those_who_count(lsn, epoch)
            first = await self._stamp_here()
            said = msgspec.structs.replace(
                said,
                frozen_at=move.frozen_at,
                source_epoch=delta.epoch,
                target_epoch=epoch,
                final=delta.at,
                first=first,
            )
        if delta.is_final:
            await self._report(said)
            return REPORT_S
        self._report_now_and_then(said)
        if request.frozen_at:
            return 0.005
        if delta.after == END:
            return LOOK_S if delta.lag <= NEAR_RECORDS else 0.0
        spent = loop.time() - begun
        return max(delta.count / limit - spent, 0.0) if limit else 0.0

    async def _begin(self, move: Move) -> None:
        """Empty the range, whatever an earlier attempt or an earlier owner left of it."""
        known = await self._data.run(lambda: progress_of(self._data.store.connection, move.id))
        attempt = 1 if known is None else known.attempt + 1
        if attempt > ATTEMPTS_MAX:
            raise _Hopeless(f"{ATTEMPTS_MAX} attempts did not come to an end")
        answer = await self._ask_source(move, DeltaRequest(move.id, is_begin=True))
        self._check_space(0 if answer.total is None else answer.total[1])
        store = self._data.store
        await self._data.run(
            lambda: begin(store, move, attempt, answer.at, answer.total), alone=True
        )

    def _check_space(self, more: int) -> None:
        """A disk that is full would end this instance: the move is given up before."""
        free = self._free_bytes()
        if free < ON_DISK * more + SPARE_BYTES:
            raise _Hopeless(
                f"no space at {self._name}: {free >> 20} MiB are free, and the move needs "
                f"{(ON_DISK * more + SPARE_BYTES) >> 20}"
            )

    def _truncated(self) -> dict[int, int]:
        """Tables of the catalogue, and the schema version of the last TRUNCATE of each."""
        return {table.id: table.truncated_at for table in self._state.catalog.tables.values()}

    async def _held_by_those_who_count(self, lsn: int, epoch: int) -> None:
        """Sync: a majority of the recorded members. Async: all that are Online, at least two."""
        data = self._data
        lsn = lsn or data.vclock.get(data.store.origin, 0)
        if data.fence.is_sync:
            await self._acks.wait_safe(lsn, epoch)
            return
        if not await until(lambda: not self._lacking(lsn), HELD_S, 0.002):
            raise TimedOut(f"waiting for {', '.join(self._lacking(lsn))} to have the rows")
        if data.fence.epoch != epoch:
            raise NoMaster("another master was named meanwhile")

    def _lacking(self, lsn: int) -> list[str]:
        cluster = self._state.cluster
        missing = self._acks.missing_members(lsn)
        online = [
            name
            for name in missing
            if (row := cluster.instances.get(name)) is not None
            and row.current_state.grade is Grade.ONLINE
        ]
        me = cluster.instances.get(self._name)
        replicaset = cluster.replicasets.get(me.replicaset_name) if me is not None else None
        members = () if replicaset is None else replicaset.members
        if not online and len(members) - len(missing) < min(2, len(members)):
            return missing  # the only copy must not be this one
        return online

    async def _clean(self, move: Move) -> float:
        """The move was given up: nothing of it stays here."""
        progress = await self._data.run(lambda: progress_of(self._data.store.connection, move.id))
        attempt = progress.attempt if progress is not None else 0

        def write(action: str) -> Callable[[], int]:
            def run() -> int:
                self._data.store.check_master()
                if self._data.store.fence.takes(move.id):
                    raise MoveRefused("the move still goes on here")
                part = MovePart(move.id, attempt, action, move.start, move.end)
                return write_part(self._data.store, part)

            return run

        epoch = self._data.fence.epoch
        lsn = 0
        if progress is not None:
            await self._data.run(write("empty"), alone=True)
            lsn = await self._data.run(write("end"))
        await self._held_by_those_who_count(lsn, epoch)
        await self._report(self._said(move.id, is_empty=True))
        return REPORT_S

    async def _end(self, move: Move) -> float:
        """The range is ours: how far it was copied is of no use any more."""
        if await self._data.run(lambda: progress_of(self._data.store.connection, move.id)):

            def write() -> int:
                self._data.store.check_master()
                return write_part(
                    self._data.store, MovePart(move.id, 0, "end", move.start, move.end)
                )

            await self._data.run(write)
        self._ended.add(move.id)
        return 0.0

    # --- the source -----------------------------------------------------------------------------

    async def handle_delta(self, request: DeltaRequest) -> Delta:
        """Asked by the target's master."""
        move, epoch = self._checked(request)
        final: Vclock | None = None
        if request.frozen_at:
            store = self._data.store
            final = await self._data.run(
                lambda: behind(store, move, request.frozen_at), urgent=True
            )
        if request.is_begin:
            total = await asyncio.to_thread(self._total, move)
            delta = Delta(epoch, await self._stamp_here(), (), total=total)
        else:
            async with self._reading:
                if self._reader is None:
                    self._reader = MoveReader(self._data.store.path)
                delta = await asyncio.to_thread(
                    self._reader.delta,
                    move.start,
                    move.end,
                    request.at,
                    request.after,
                    request.max_bytes,
                    epoch,
                )
        if self._data.fence.is_sync:  # nothing is shown that a failover could take back
            own = delta.at.get(self._data.store.origin, (0, 0))[0]
            await self._acks.wait_safe(own, epoch)
        self._checked(request)
        is_final = final is not None and delta.after == END and _reaches(delta.at, final)
        return msgspec.structs.replace(delta, is_final=is_final)

    def _total(self, move: Move) -> Amount | None:
        """With a reader of its own: the last records of a frozen range do not wait for this."""
        reader = MoveReader(self._data.store.path)
        try:
            return reader.total(move.start, move.end)
        finally:
            reader.close()

    def _checked(self, request: DeltaRequest) -> tuple[Move, int]:
        """Still the master, with a lease, of a replicaset that gives these buckets away."""
        move = self._state.cluster.moves.get(request.move)
        me = self._state.cluster.instances.get(self._name)
        if move is None or me is None or move.source != me.replicaset_name:
            raise NotOwner("this replicaset does not give these buckets away")
        if move.phase not in TAKES:
            raise MoveRefused(f"the move is {move.phase}")
        fence = self._data.fence
        if not fence.is_master or not self._lease.is_held(fence.epoch):
            raise NoMaster("this instance is not the master of its replicaset")
        return move, fence.epoch

    async def _drop(self, move: Move) -> float:
        """The target owns the range: the old rows go, a few at a time."""
        delay_s = float(self._state.setting("rebalance_drop_delay", DROP_DELAY_S))
        loop = asyncio.get_running_loop()
        due = self._due.setdefault(move.id, loop.time() + delay_s)
        if loop.time() < due:
            return min(due - loop.time(), REPORT_S)
        epoch = self._data.fence.epoch
        lsn = await self._data.run(lambda: drop_some(self._data.store, move, DROP_ROWS))
        if lsn:
            return 0.0
        await self._held_by_those_who_count(0, epoch)
        await self._report(self._said(move.id, is_empty=True))
        return REPORT_S

    # --- rows that no move remembers ------------------------------------------------------------

    def _sweep_if_due(self) -> None:
        """Once in an epoch, and whenever the last move that concerns us has ended."""
        cluster, fence = self._state.cluster, self._data.fence
        me = cluster.instances.get(self._name)
        mine = me.replicaset_name if me is not None else ""
        before, self._is_involved = (
            self._is_involved,
            any(
                move.is_open and mine in (move.source, move.target)
                for move in cluster.moves.values()
            ),
        )
        if before and not self._is_involved:
            self._swept = -1
        is_at_it = self._sweeping is not None and not self._sweeping.done()
        if fence.is_master and fence.epoch != self._swept and not is_at_it:
            self._sweeping = spawn(self._sweep(fence.epoch), "sweep rows of others")

    async def _sweep(self, epoch: int) -> None:
        while self._data.fence.is_master and self._data.fence.epoch == epoch:
            foreign = self._foreign()
            found = await asyncio.to_thread(self._first_of, foreign) if foreign else None
            if found is None:
                self._swept = epoch
                return
            log.warning("buckets %d–%d belong to others: their rows here are deleted", *found)
            try:
                while await self._data.run(
                    partial(sweep_some, self._data.store, *found, DROP_ROWS)
                ):
                    await asyncio.sleep(0)
            except CairnError as problem:
                log.info("rows of buckets %d–%d stay for now: %s", *found, problem)
                await asyncio.sleep(RETRY_S)

    def _foreign(self) -> Ranges:
        """Buckets of our tier that are at rest with others, if the picture can be read whole."""
        cluster = self._state.cluster
        me = cluster.instances.get(self._name)
        tier = cluster.tiers.get(me.tier) if me is not None else None
        if me is None or tier is None or cluster.problems:
            return ()
        return merged(
            (row.start, row.end)
            for row in cluster.tier_buckets(tier.name)
            if row.owner != me.replicaset_name
            and row.state is BucketState.ACTIVE
            and row.move_id is None
        )

    def _first_of(self, ranges: Ranges) -> tuple[int, int] | None:
        reader = MoveReader(self._data.store.path)
        try:
            return reader.first_of(ranges)
        finally:
            reader.close()

    def taken_over(self) -> list[Move]:
        """Moves that were handed over to this replicaset, as far as they are remembered."""
        me = self._state.cluster.instances.get(self._name)
        return [
            move
            for move in self._state.cluster.moves.values()
            if me is not None
            and move.target == me.replicaset_name
            and move.phase in (Phase.COPIED, Phase.DONE)
        ]

    def has_rows(self, low: int, high: int) -> bool:
        """Whether all rows of these buckets are here, also of those that were just given away.

        A stream that began before a hand-over still reads the past of them.
        """
        now = asyncio.get_running_loop().time()
        me = self._state.cluster.instances.get(self._name)
        kept = [
            (move.start, move.end)
            for move in self._state.cluster.moves.values()
            if me is not None
            and move.source == me.replicaset_name
            and move.phase is Phase.COPIED
            and now < self._due.get(move.id, 0.0)
        ]
        return not subtract(((low, high),), (*self._data.fence.owned, *kept))

    # --- words ----------------------------------------------------------------------------------

    def _is_paused(self) -> bool:
        return bool(self._state.cluster.properties.get("rebalance_paused"))

    async def _ask_source(self, move: Move, request: DeltaRequest) -> Delta:
        source = self._state.cluster.replicasets.get(move.source)
        master = None
        if source is not None:
            master = self._state.cluster.instances.get(source.current_master_name)
        if master is None:
            raise NoMaster(f"replicaset {move.source} has no master")
        return await self._peers.call(master.raft_id, "move_delta", request, Delta, 10.0)

    async def _stamp_here(self) -> Stamp:
        async with self._reading:
            if self._reader is None:
                self._reader = MoveReader(self._data.store.path)
            return await asyncio.to_thread(self._reader.stamp)

    def _said(self, number: int, **fields: Any) -> MoveReport:
        """A report that continues the one before: how far it had come is not forgotten."""
        before = self.reports.get(number)
        if before is not None:
            for name in ("attempt", "rows", "bytes", "total"):
                fields.setdefault(name, getattr(before, name))
        return MoveReport(number, self._name, **fields)

    def _report_now_and_then(self, report: MoveReport) -> None:
        """Progress: the leader need not hear of every delta, unless it may act on it."""
        before = self.reports.get(report.move)
        self.reports[report.move] = report
        now = asyncio.get_running_loop().time()
        is_news = before is None or before.is_near != report.is_near or before.problem
        if is_news or now - self._told.get(report.move, 0.0) >= REPORT_S:
            self._told[report.move] = now
            spawn(self._report(report), "report move")

    async def _report_problem(self, number: int, problem: CairnError) -> None:
        is_hopeless = isinstance(problem, _Hopeless)
        await self._report(self._said(number, problem=str(problem), is_hopeless=is_hopeless))

    async def _report(self, report: MoveReport) -> None:
        self.reports[report.move] = report
        try:
            await self._leader.ask("report_move", report, Empty, 1.0)
        except CairnError as problem:
            log.debug("the leader was not told of move %d: %s", report.move, problem)


def _is_empty(progress: Progress, delta: Delta) -> bool:
    """Whether nothing would be written but a position that moved a little."""
    if delta.changes or delta.rows or delta.operations or delta.after != progress.after:
        return False
    moved = sum(lsn - progress.at.get(origin, (0, 0))[0] for origin, (lsn, _) in delta.at.items())
    return moved < NEAR_RECORDS


def _reaches(at: Stamp, vclock: Vclock) -> bool:
    return all(at.get(origin, (0, 0))[0] >= lsn for origin, lsn in vclock.items())
