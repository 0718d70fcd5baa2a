"""The leader's part in moves: take a view, decide, propose. A loop beside the governor's.

A frozen range makes statements wait, so nothing slow may stand before its end: this loop asks
nobody anything. Masters report by themselves; every decision is a compare-and-swap at the position
of the view, so two that contradict each other cannot both be made.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque

from cairn.model.errors import CairnError, CasRetry, NotLeader
from cairn.model.log import ops
from cairn.model.log.ranges import Predicate
from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import MoveReport, MoveSeen, Phase
from cairn.model.rpc import Empty
from cairn.moves import seen
from cairn.moves.decide import MovesView, decide
from cairn.moves.outlook import Outlook
from cairn.moves.ranges import BrokenCover
from cairn.moves.shares import Wanted
from cairn.moves.steps import PAUSED
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.proposals import Proposer
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.runtime import Runtime, timestamp
from cairn.node.waiting import signalled

log = logging.getLogger("cairn.moves")

BELIEVED_S = 2.0  # how long a report counts; masters repeat theirs
LOOK_S = 0.5
FROZEN_LOOK_S = 0.02  # while a range is frozen
PAUSE_S = 0.25  # after something went wrong
REFUSED_S = 60.0  # a target that gave a move up is given no other for so long
PLAN_SEEN = 1_000  # moves to come that are shown
FREEZE_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class MoveDriver:
    def __init__(
        self, state: GlobalState, runner: RaftRunner, proposer: Proposer, runtime: Runtime
    ) -> None:
        self._state, self._runner, self._proposer = state, runner, proposer
        self._runtime = runtime
        self._wake = asyncio.Event()
        self._reports: dict[tuple[int, str], tuple[float, MoveReport]] = {}
        self._frozen: dict[tuple[int, int], float] = {}  # (move, freeze) → when it was first seen
        self._thawed: dict[int, float] = {}
        self._refused: dict[str, tuple[float, str]] = {}  # target → when it gave up a move, and why
        self.freezes: deque[float] = deque(maxlen=1000)  # seconds that the last ones took
        #: How many freezes took at most so long; the last one: longer than all bounds.
        self.freeze_counts = [0] * (len(FREEZE_BOUNDS_S) + 1)
        self.frozen_s = 0.0  # all freezes together
        self.waits: tuple[str, ...] = ()  # what is not going on, for people
        self._of_moves: dict[int, str] = {}
        self._plan: list[tuple[str, Wanted]] = []
        self._outlook: Outlook | None = None
        self._last: dict[int, MoveReport] = {}  # the last word of each target, for people

    def wake(self) -> None:
        self._wake.set()

    def note(self, report: MoveReport) -> Empty:
        """A master told what it has reached."""
        if not self._runner.is_leader:
            raise NotLeader(leader=self._runner.leader_id or None)
        row = self._state.cluster.instances.get(report.instance)
        if row is not None:
            now = asyncio.get_running_loop().time()
            self._reports[(report.move, row.replicaset_name)] = (now, report)
            move = self._state.cluster.moves.get(report.move)
            if move is not None and move.target == row.replicaset_name and not report.is_empty:
                self._last[move.id] = report
            if report.is_hopeless:
                self._refused[row.replicaset_name] = (now, report.problem)
            self.wake()
        return Empty()

    def reports(self) -> dict[tuple[int, str], MoveReport]:
        """By move and replicaset, as far as they are believed."""
        now = asyncio.get_running_loop().time()
        self._reports = {
            key: found for key, found in self._reports.items() if now - found[0] < BELIEVED_S
        }
        return {key: report for key, (_, report) in self._reports.items()}

    def seen(self) -> tuple[MoveSeen, ...]:
        """What moves, and on the leader how far it is and what will follow."""
        moves = self._state.cluster.moves
        self._last = {number: last for number, last in self._last.items() if number in moves}
        found = {
            (tier, wanted.start): seen.planned(tier, wanted)
            for tier, wanted in self._plan[:PLAN_SEEN]
        }
        for move in moves.values():
            if move.is_open:
                told = seen.under_way(
                    move, self._last.get(move.id), self._of_moves.get(move.id, "")
                )
                found[(move.tier, move.start)] = told  # a plan is a moment older
        return tuple(found[key] for key in sorted(found))

    def _freeze_ended(self, seconds: float) -> None:
        self.freezes.append(seconds)
        self.freeze_counts[bisect_left(FREEZE_BOUNDS_S, seconds)] += 1
        self.frozen_s += seconds

    async def run(self) -> None:
        while True:
            if not self._runner.committed_in_term:
                self._reports.clear()
                self._frozen.clear()
                self._refused.clear()
                self.waits, self._of_moves, self._plan = (), {}, []
                self._last.clear()
                await self._pause(LOOK_S)
                continue
            if not await self._step():
                frozen = any(
                    move.phase is Phase.FROZEN for move in self._state.cluster.moves.values()
                )
                await self._pause(FROZEN_LOOK_S if frozen else LOOK_S)

    async def _step(self) -> bool:
        """Whether something was proposed."""
        view = self.view()
        try:
            found = decide(view)
        except BrokenCover as problem:
            log.error("no move is made: %s", problem)
            await self._pause(PAUSE_S)
            return False
        self._of_moves = found.of_moves
        if found.plan is not None:
            self.waits, self._plan = tuple(found.waits), found.plan
        for step in found.steps[:1]:  # the others are decided anew, from what this one leaves
            predicate = Predicate(view.cluster.position.index, self._runner.term, step.ranges)
            try:
                await self._proposer.cas(ops.Batch(step.ops), predicate, timeout_s=3.0)
                log.info("%s", step.say)
            except (CasRetry, NotLeader) as problem:
                log.debug("%s: %s", step.say, problem)
                await asyncio.sleep(0.005)
            except CairnError as problem:
                log.warning("%s: %s", step.say, problem)
                await self._pause(PAUSE_S)
            return True
        return False

    def view(self) -> MovesView:
        cluster = self._state.cluster
        now = asyncio.get_running_loop().time()
        frozen = {
            (move.id, move.frozen_at)
            for move in cluster.moves.values()
            if move.phase is Phase.FROZEN
        }
        for key in self._frozen.keys() - frozen:
            self._thawed[key[0]] = now
            self._freeze_ended(now - self._frozen[key])
        self._frozen = {key: self._frozen.get(key, now) for key in frozen}
        return MovesView(
            cluster=cluster,
            outlook=self._outlook_on(cluster),
            reports=self.reports(),
            frozen_s={key[0]: now - since for key, since in self._frozen.items()},
            resting_s={number: now - since for number, since in self._thawed.items()},
            refused={
                name: why for name, (at, why) in self._refused.items() if now - at < REFUSED_S
            },
            has_pending_ddl=self._state.pending_ddl() is not None,
            is_paused=bool(cluster.properties.get(PAUSED)),
            at_once=int(self._state.setting("rebalance_concurrency", 1)) or 1,
            now=timestamp(self._runtime),
        )

    def _outlook_on(self, cluster: Cluster) -> Outlook:
        tiers = self._state.catalog.sharded_tiers
        if self._outlook is None or not self._outlook.fits(cluster, tiers):
            self._outlook = Outlook(cluster, tiers)
        return self._outlook

    async def _pause(self, seconds: float) -> None:
        await signalled(self._wake, seconds)
        self._wake.clear()
