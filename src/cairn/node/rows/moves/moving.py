"""What an instance does for each move: a target's master pulls deltas, a source's drops old rows.

Each instance acts on what it has applied. What was reached is told to the leader, again and again,
and is durable only in the row log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from cairn.model.errors import CairnError, NoMaster
from cairn.model.members.moves import END, TAKES, Move, MovePart, MoveReport, Phase
from cairn.model.rpc import Empty
from cairn.moves.delta import (
    NEAR_RECORDS,
    Delta,
    MoveMustRestart,
    MoveRefused,
    Progress,
    is_empty,
)
from cairn.moves.seen import Rate
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.leader import Leader
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.moves.giving import DeltaRequest, Giving
from cairn.node.rows.moves.held import Held
from cairn.node.rows.moves.pace import pace
from cairn.node.rows.moves.sweeping import Sweeping
from cairn.node.runtime import spawn
from cairn.node.waiting import signalled
from cairn.storage.data_db.moving_in import (
    begin,
    progress_of,
    take,
    write_part,
)

log = logging.getLogger("cairn.moves")

LOOK_S = 0.1  # between two questions once everything is copied
REPORT_S = 0.5
RETRY_S = 0.5
FROZEN_RETRY_S = 0.02  # statements wait, and a freeze is ended after half a second
ATTEMPTS_MAX = 10
BUSY = "the source is busy with a long write"
SPARE_BYTES = 32 * 1024 * 1024  # never filled by moves: clients and Raft write too
ON_DISK = 3  # a value that is copied is in its table, in the row log and in the write-ahead log


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
        held: Held,
        giving: Giving,
        leader: Leader,
        free_bytes: Callable[[], int],
    ) -> None:
        self._name, self._state, self._peers, self._data = name, state, peers, data
        self._held, self._giving, self._sweeping = held, giving, Sweeping(name, state, data)
        self._leader, self._free_bytes = leader, free_bytes
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._told: dict[int, float] = {}  # when the leader was last told of a move
        self._ended: set[int] = set()  # moves of which nothing is left to be noted here
        self.reports: dict[int, MoveReport] = {}  # what this instance says of its own moves
        self._rates: dict[int, Rate] = {}
        #: How far moves have come, as it was last read or written here, and in which epoch: in
        #: another one it may have been taken back.
        self._known: dict[int, tuple[int, Progress]] = {}
        self.taken_rows = self.taken_bytes = 0  # copied since the start, by all moves

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._sweeping.close()

    def follow(self) -> None:
        """Entries were applied: begin what is ours now, wake what waits for a change."""
        for move in self._state.cluster.moves.values():
            if move.id not in self._tasks and self._part_in(move) is not None:
                task = spawn(self._work(move.id), f"move {move.id}")
                self._tasks[move.id] = task
                task.add_done_callback(partial(self._ended_work, move.id))
        self._sweeping.follow()
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
                self._known.pop(number, None)
                log.info("move %d begins anew: %s", number, problem)
                pause_s = await self._tried(self._begin(move), number)
            except CairnError as problem:
                self._known.pop(number, None)
                log.info("move %d: %s", number, problem)
                await self._report_problem(number, problem)
                pause_s = FROZEN_RETRY_S if move.phase is Phase.FROZEN else RETRY_S
            await signalled(changed, pause_s)
        self.reports.pop(number, None)
        self._rates.pop(number, None)
        self._known.pop(number, None)

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
        is_frozen = move.phase is Phase.FROZEN  # statements wait: it goes ahead of everything
        epoch = self._data.fence.epoch
        read_in, known = self._known.get(move.id, (0, None))
        if read_in != epoch:
            known = await self._data.run(
                lambda: progress_of(self._data.store.connection, move.id), urgent=is_frozen
            )
        if known is None:
            await self._begin(move)
            return 0.0
        loop = asyncio.get_running_loop()
        begun = loop.time()
        speed = pace(self._state)
        request = DeltaRequest(
            move.id,
            known.at,
            known.after,
            move.frozen_at if is_frozen else 0,
            speed.delta_bytes,
        )
        if self._is_paused() and not request.frozen_at and known.after != END:
            await self._report(self._said(move.id, problem="paused"))
            return REPORT_S
        if not request.frozen_at:
            self._check_space(request.max_bytes)
        delta = await self._ask_source(move, request)
        if self._data.fence.epoch != epoch:
            return 0.0
        lsn, progress = 0, known
        if not is_empty(known, delta):
            lsn = await self._data.run(
                lambda: take(self._data.store, move, known, delta, self._truncated()),
                alone=True,
                urgent=is_frozen,
            )
            done = (progress.done[0] + delta.count, progress.done[1] + delta.bytes)
            progress = msgspec.structs.replace(progress, at=delta.at, after=delta.after, done=done)
        self._known[move.id] = epoch, progress
        self.taken_rows += delta.count
        self.taken_bytes += delta.bytes
        said = self._said(
            move.id,
            attempt=progress.attempt,
            rows=progress.done[0],
            bytes=progress.done[1],
            total=progress.total,
            rows_per_s=self._rates.setdefault(move.id, Rate()).at(loop.time(), progress.done[0]),
            lag=delta.lag,
            is_near=delta.after == END and delta.lag <= NEAR_RECORDS and not delta.is_writing,
            problem=BUSY if delta.is_writing else "",
        )
        if delta.is_final:
            await self._held.by_those_who_count(lsn, epoch)
            first = await self._giving.stamp_here()
            said = msgspec.structs.replace(
                said,
                frozen_at=move.frozen_at,
                source_epoch=delta.epoch,
                target_epoch=epoch,
                final=delta.at,
                first=first,
            )
            await self._report(said)
            return REPORT_S
        self._report_now_and_then(said)
        if request.frozen_at:
            return 0.005
        if delta.after == END:
            return LOOK_S if delta.lag <= NEAR_RECORDS else 0.0
        return speed.after_copying(delta.count, loop.time() - begun)

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
        await self._held.by_those_who_count(lsn, epoch)
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

    async def _drop(self, move: Move) -> float:
        epoch = self._data.fence.epoch
        pause_s = await self._giving.drop(move)
        if pause_s is not None:
            return min(pause_s, REPORT_S)
        await self._held.by_those_who_count(0, epoch)
        await self._report(self._said(move.id, is_empty=True))
        return REPORT_S

    def taken_over(self) -> list[Move]:
        """Moves that were handed over to this replicaset, as far as they are remembered.

        Not to one that had its name before: none of its members wrote the first records.
        """
        cluster = self._state.cluster
        me = cluster.instances.get(self._name)
        if me is None:
            return []
        ours = {each.uuid for each in cluster.members(me.replicaset_name)} | set(self._data.vclock)
        return [
            move
            for move in cluster.moves.values()
            if move.target == me.replicaset_name
            and move.phase in (Phase.COPIED, Phase.DONE)
            and not ours.isdisjoint(move.target_first)
        ]

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
