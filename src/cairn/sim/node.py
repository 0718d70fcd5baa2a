"""One simulated instance: a driver for the real core, with a disk, a state machine and waiters.

It does what a real driver does, and may be stopped dead between any two steps.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cairn.raft.cas import (
    Accepted,
    AlreadyAppended,
    CasLog,
    LogRecord,
    Standing,
)
from cairn.raft.core import RaftCore
from cairn.raft.types import (
    ConfChangeV2,
    Config,
    Entry,
    EntryType,
    Message,
    NotLeader,
    ProposalDropped,
    Ready,
    Role,
    SnapshotMeta,
)
from cairn.raft.types import Snapshot as RaftSnapshot
from cairn.sim.disk import Disk, Image, Record, State
from cairn.sim.oracles import Violation
from cairn.sim.profile import MS
from cairn.sim.requests import Op, apply_op

if TYPE_CHECKING:
    from cairn.sim.world import World


MAX_READIES = 100_000  # of one life: a core that always has something to do is broken


class Crashed(Exception):
    """The node was stopped at a named point."""


class SimNode:
    core: RaftCore

    def __init__(self, world: World, node: int, image: Image, rng: random.Random) -> None:
        self.world, self.id, self.rng = world, node, rng
        self.profile = world.profile
        self.disk = Disk(image)
        self.alive, self.ended_at = False, 0
        self.retired = False
        self.life = 0  # events of a former life are void
        self.paused = False
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.tick_us = int(self.profile.tick_us * rng.uniform(0.9, 1.1))
        self.disk_slow_until = 0
        self.disk_fails = False
        self.disk_full_until = 0
        self.start()

    @property
    def durable(self) -> Image:
        return self.disk.durable

    # --- life

    def start(self) -> None:
        self.life += 1
        self.alive, self.paused = True, False
        self.backlog = []
        image = self.disk.view
        self.state = image.state
        self.waiters: dict[int, tuple[int, Op]] = {}
        self.reads: dict[bytes, Op] = {}
        self.due_reads: list[tuple[int, Op]] = []
        self.to_apply: deque[Entry] = deque()
        self.apply_scheduled = False
        self.unacked = 0
        self.cas = CasLog()
        self.was_leader = False
        profile = self.profile
        config = Config(
            self.id,
            election_tick=10,
            heartbeat_tick=2,
            pre_vote=profile.pre_vote,
            check_quorum=profile.check_quorum,
            max_inflight=profile.max_inflight,
            max_msg_bytes=profile.max_msg_bytes,
            max_uncommitted_bytes=400,
            max_apply_bytes=64,
            rng=random.Random(self.rng.getrandbits(64)),
        )
        self.core = RaftCore(config, image, applied=image.applied_index)
        self.world.oracles.restarted(self)
        self._later(self.rng.randint(1, self.tick_us), self._tick)

    def crash(self) -> None:
        if self.alive:
            self.alive, self.ended_at = False, self.world.now
            self.life += 1
            kept = self.disk.crash(self.rng, keep_prefix=self.profile.keep_prefix)
            self.world.note("crash", self.id, kept)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Everything that came meanwhile comes at once; of missed ticks only two."""
        self.paused = False
        backlog, self.backlog = self.backlog, []
        self._guarded(self.core.tick)
        for handler, arguments in backlog:  # a waiting tick is among them
            self._guarded(handler, *arguments)

    def _later(self, delay: int, handler: Callable[..., None], *arguments: Any) -> None:
        self.world.at(self.world.now + delay, self._if_alive, self.life, handler, *arguments)

    def _if_alive(self, life: int, handler: Callable[..., None], *arguments: Any) -> None:
        if life == self.life:
            self._guarded(handler, *arguments)

    def _guarded(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Run one event here, then whatever it made necessary."""
        if not self.alive:
            return
        if self.paused:
            self.backlog.append((handler, arguments))
            return
        try:
            handler(*arguments)
            self._pump()
        except Crashed as point:
            self.world.crash_at_point(self, str(point))

    def point(self, name: str) -> None:
        chance = self.profile.crash_points.get(name)
        if chance and not self.world.calm and self.rng.random() < chance:
            raise Crashed(name)

    # --- what comes in

    def _tick(self) -> None:
        self._later(self.tick_us, self._tick)
        self.core.tick()

    def receive(self, message: Message) -> None:
        self._guarded(self.core.step, message)

    def call(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Have the driver do something to its core, as an event of its own."""
        self._guarded(handler, *arguments)

    # --- Ready

    def _pump(self) -> None:
        core = self.core
        self._look()
        while self.unacked < self.profile.max_readies and core.has_ready():
            ready = core.ready()
            if ready.number > MAX_READIES:
                raise Violation("liveness", f"{self.id} is never done")
            self.world.oracles.handed_out(self, ready)
            self.point("before_send")
            for message in ready.messages:
                self.world.transmit(self, message)
            self.point("after_send_before_append")
            self._write(ready)
            self._answer_reads(ready)
            if ready.committed:
                self.to_apply.extend(ready.committed)
                self._schedule_apply()
            self._look()

    def _look(self) -> None:
        """Let the oracles see what the last step did."""
        oracles, core = self.world.oracles, self.core
        leads = core.role is Role.LEADER
        if leads and not self.was_leader:
            self.was_leader = True
            oracles.became_leader(self)
            self._rebuild_cas()
            self.world.note("leader", self.id, core.term)
            self.point("on_become_leader")
        elif not leads:
            self.was_leader = False
        moved = oracles.looked_at(self)
        if moved and leads:
            oracles.leader_committed(self, self.world.nodes)
            self.point("on_commit")

    def _write(self, ready: Ready) -> None:
        if self.world.now < self.disk_full_until and ready.entries:
            raise Crashed("disk full")  # a write error is fail-stop
        installed = None
        if ready.snapshot is not None:
            installed = self._install(ready.snapshot)
        record = Record(
            ready.number,
            ready.entries,
            ready.hard_state,
            installed,
            answers=ready.messages_after_persist,
            needs_sync=ready.must_sync,
        )
        free = not ready.must_sync and self.unacked == 0  # Readies are acknowledged in order
        self.unacked += 1
        self.disk.write(record)
        if free:
            self._acknowledge(record)
            return
        self.point("after_append_before_fsync")
        if not self.disk.syncing:
            self._start_sync()

    def _start_sync(self) -> None:
        self.disk.start_sync()
        slow = self.world.now < self.disk_slow_until
        delay = self.rng.randint(50 * MS, 400 * MS) if slow else self.rng.randint(200, 3 * MS)
        self._later(delay, self._synced)

    def _synced(self) -> None:
        if self.disk_fails:
            self.disk_fails = False
            raise Crashed("fsync error")  # never retried: the process must read again
        done = self.disk.finish_sync()
        self.point("after_fsync_before_answer")
        for record in [*done, *self.disk.need_no_sync()]:
            if record.number and not record.acknowledged:
                self._acknowledge(record)
                self._look()
        if self.disk.waits_for_sync():
            self._start_sync()

    def _acknowledge(self, record: Record) -> None:
        record.acknowledged = True
        self.unacked -= 1
        for message in record.answers:
            self.world.transmit(self, message)
        self.core.persisted(record.number)

    def _install(self, snapshot: RaftSnapshot) -> tuple[RaftSnapshot, State]:
        state = self.world.payloads[snapshot.handle]
        index = snapshot.meta.index
        self.point("on_snapshot")
        self.world.oracles.installs(self, index, state, self.core.conf)
        self.world.note("snapshot", self.id, index)
        self.state = state
        self.waiters = {i: w for i, w in self.waiters.items() if i > index}
        return snapshot, state

    # --- applying

    def _schedule_apply(self) -> None:
        if self.profile.slow_apply and not self.apply_scheduled:
            self.apply_scheduled = True
            self._later(self.rng.randint(1 * MS, 60 * MS), self._apply)
        elif not self.profile.slow_apply:
            self._apply()

    def _apply(self) -> None:
        self.apply_scheduled = False
        if not self.to_apply:
            return
        self.point("before_apply")
        answers: list[tuple[Op, int, int]] = []
        index = 0
        while self.to_apply:
            entry = self.to_apply.popleft()
            index = entry.index
            self._apply_one(entry, answers)
        self.disk.write(Record(applied=(index, self.state, self.core.conf)))
        self.point("after_apply")
        self.core.applied(index)
        for op, ok, result in answers:
            self.world.answer(self, op, "ok" if ok else "superseded", result)
        self._serve_reads()

    def _apply_one(self, entry: Entry, answers: list[tuple[Op, int, int]]) -> None:
        oracles, result = self.world.oracles, 0
        if entry.type == EntryType.NORMAL and entry.data:
            op = self.world.ops[int.from_bytes(entry.data, "big")]
            self.state, result = apply_op(self.state, op)
            if oracles.applies(self, entry, self.state):
                self.world.replay.applied(op, entry.index)
        else:
            oracles.applies(self, entry, self.state)
        if entry.type == EntryType.CONF_CHANGE:
            self.core.apply_conf_change(ConfChangeV2.decode(entry.data))
            oracles.same_conf(self, entry.index, self.core.conf)
            self.world.note("conf", self.id, entry.index)
        waiter = self.waiters.pop(entry.index, None)
        if waiter is not None:
            answers.append((waiter[1], waiter[0] == entry.term, result))

    def compact(self, keep: int) -> None:
        """Take a snapshot of what is applied, and drop the log up to it except for a tail."""
        view, index = self.disk.view, self.core.log.applied
        if index <= view.snap.meta.index or self.core.log.snapshot is not None:
            return
        if self.to_apply:
            return  # the configuration in force must be the one as of `index`
        handle = b"%d/%d/%d" % (self.id, self.life, index)
        snapshot = RaftSnapshot(SnapshotMeta(index, view.term(index), self.core.conf), handle)
        self.world.payloads[handle] = self.state
        upto = max(view.compacted_index, index - keep)
        self.disk.write(Record(compacted=(snapshot, self.state, upto)))
        self.cas.compact(upto)

    # --- clients

    def request(self, op: Op) -> None:
        if op.kind == "r":
            token = b"%d/%d" % (self.life, len(self.reads) + op.id * 1000)
            self.reads[token] = op
            op.floor = self.world.oracles.last_committed
            self.core.read_index(token)
        elif op.kind == "p":
            self._request_cas(op)
        else:
            self._propose(op)

    def _propose(self, op: Op) -> None:
        try:
            index, term = self.core.propose([op.data])
        except (NotLeader, ProposalDropped):
            self.world.answer(self, op, "refused", 0)
            return
        self.waiters[index] = (term, op)
        self.cas.append(LogRecord(index, term, op.data, op.touched))

    def _request_cas(self, op: Op) -> None:
        assert op.predicate is not None
        core = self.core
        leads = core.role is Role.LEADER
        committed_in_term = core.log.has(core.log.committed, core.term)
        standing = Standing(leads, core.leader or None, core.term, committed_in_term)
        outcome = self.cas.check(op.predicate, op.data, op.touched, standing)
        if isinstance(outcome, Accepted):
            self._propose(op)
        elif isinstance(outcome, AlreadyAppended) and outcome.index > core.log.applied:
            self.waiters[outcome.index] = (outcome.term, op)
        elif isinstance(outcome, AlreadyAppended):
            self.world.answer(self, op, "ok", 1)
        else:
            self.world.answer(self, op, "refused", 0)

    def _rebuild_cas(self) -> None:
        log = self.core.log
        first = log.first_index()
        records = []
        for entry in log.slice(first, log.last + 1):
            if entry.type == EntryType.NORMAL and entry.data:
                op = self.world.ops[int.from_bytes(entry.data, "big")]
                records.append(LogRecord(entry.index, entry.term, op.data, op.touched))
        self.cas.rebuild(first - 1, records)

    def _answer_reads(self, ready: Ready) -> None:
        for token in ready.failed_reads:
            op = self.reads.pop(token, None)
            if op is not None:
                self.world.answer(self, op, "refused", 0)
        for read in ready.read_states:
            op = self.reads.pop(read.token, None)
            if op is not None:
                self.world.oracles.read_is_fresh(self, read.index, op.floor)
                self.due_reads.append((read.index, op))
        if ready.read_states:
            self._serve_reads()

    def _serve_reads(self) -> None:
        applied = self.core.log.applied
        if self.to_apply:
            return  # the state is ahead of what is acknowledged as applied
        waiting = []
        for index, op in self.due_reads:
            if index <= applied:
                self.world.answer(self, op, "ok", self.state[op.register])
            else:
                waiting.append((index, op))
        self.due_reads = waiting
