"""Drives the Raft core: ticks in, messages out, Readies to disk, committed entries to the tables.

The core is touched only here and only on the event loop. One turn drains everything that has
arrived; the disk works in its own thread and reports back by ready numbers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cairn.model.errors import CairnError, NotLeader, TimedOut
from cairn.model.log.applied import Applied
from cairn.model.members.topology import Position
from cairn.net.link import Link
from cairn.net.peers import Peers
from cairn.node.consensus.last_words import LastWords
from cairn.node.consensus.snapshots import SnapshotReceiver, SnapshotSender
from cairn.node.consensus.unapplied import Unapplied
from cairn.node.runtime import Runtime, spawn, timestamp
from cairn.raft.core import RaftCore
from cairn.raft.kinds import OF_LEADERS
from cairn.raft.types import (
    BadMessage,
    ConfChangeV2,
    Config,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MsgKind,
    RaftCorruption,
    Ready,
    Role,
)
from cairn.raft.wire import decode_message, encode_message
from cairn.storage.files.groups import Job
from cairn.storage.files.writer import Disk
from cairn.storage.raft_db.raft_store import LogView, RaftStore
from cairn.storage.raft_db.state_machine import StateMachine

log = logging.getLogger("cairn.raft")

TICK_S = 0.1
ELECTION_TICKS = 10
HEARTBEAT_TICKS = 2
SILENT_TICKS = 2 * ELECTION_TICKS  # without a word of the leader: then there is none for us
MAX_CATCH_UP = 2  # ticks made good after a stall; more would make a paused node campaign at once
LOG_ENTRIES_MAX, LOG_BYTES_MAX, LOG_TAIL = 16_384, 64 * 1024 * 1024, 2_000


class RaftRunner:
    """One member of the Raft group. `on_applied` hears of every applied entry, in order."""

    def __init__(
        self,
        raft_id: int,
        store: RaftStore,
        machine: StateMachine,
        disk: Disk,
        peers: Peers,
        runtime: Runtime,
        *,
        on_applied: Callable[[list[Applied]], None],
        on_installed: Callable[[list[str], list[str]], None],
        on_role: Callable[[], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self.raft_id = raft_id
        self._loop = asyncio.get_running_loop()  # peers may speak before it starts
        self._runtime = runtime
        self._store, self._machine, self._disk, self._peers = store, machine, disk, peers
        self._on_applied, self._on_installed, self._on_role = on_applied, on_installed, on_role
        self._on_broken = on_broken
        self.sender = SnapshotSender(store.path)
        self.receiver = SnapshotReceiver(peers)
        self.view = LogView(store, self.sender.make)
        self.applied_index, self.applied_term = store.applied
        config = Config(
            id=raft_id,
            election_tick=ELECTION_TICKS,
            heartbeat_tick=HEARTBEAT_TICKS,
            rng=runtime.chance,
        )
        self.core = RaftCore(config, self.view, applied=self.applied_index)
        self._waking = False
        self._in_flight = 0
        self._commit_to_save: HardState | None = None
        self._reads: dict[bytes, asyncio.Future[int]] = {}
        self._read_number = 0
        self._waiters: list[tuple[int, bool, asyncio.Future[None]]] = []
        self._unapplied = Unapplied()
        self.words = LastWords(runtime.boot_clock)
        self.ticks = 0
        self.heard: dict[int, int] = {}  # raft_id → our tick at which it was last heard
        self.stalled_until = 0  # ticks before which we judge nobody
        self.bad_messages = 0
        self.persisted_index = self.view.last_index()
        self._compacting = False
        self.entries_max, self.bytes_max = LOG_ENTRIES_MAX, LOG_BYTES_MAX  # see ALTER SYSTEM
        self._closed = False
        self._leader_is_silent = False

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._campaign_if_alone()
        self._ticker = spawn(self._tick_for_ever(), "raft ticks")
        self.wake()

    def _campaign_if_alone(self) -> None:
        """The sole voter need not wait for an election timeout."""
        if self.core.conf.voters == (self.raft_id,) and self.core.leader == 0:
            self.core.campaign()

    def close(self) -> None:
        self._closed = True
        self._ticker.cancel()
        for future in self._reads.values():
            future.cancel()

    async def _tick_for_ever(self) -> None:
        due = self._loop.time() + TICK_S
        while True:
            await asyncio.sleep(max(due - self._loop.time(), 0))
            late = self._loop.time() - due
            if late > ELECTION_TICKS * TICK_S:
                # We were stopped: whoever seems silent was not heard because we were deaf.
                self.stalled_until = self.ticks + 2 * ELECTION_TICKS
                log.warning("this process stood still for %.1f s", late)
            steps = 1 + min(int(late / TICK_S), MAX_CATCH_UP - 1)
            try:
                for _ in range(steps):
                    self.ticks += 1
                    self.core.tick()
                self._note_silence()
                for peer in self.sender.overdue(self.ticks):
                    self.core.report_snapshot(peer, False)
            except Exception as problem:
                self._on_broken(problem)
                return
            due = max(due + TICK_S, self._loop.time())
            self.wake()

    def _note_silence(self) -> None:
        core = self.core
        silent = core.role is not Role.LEADER and core.election_elapsed >= SILENT_TICKS
        if silent == self._leader_is_silent:
            return
        self._leader_is_silent = silent
        if core.leader:
            if silent:
                log.warning("instance %d, the Raft leader, is not heard any more", core.leader)
            self._on_role()

    # --- what the rest of the instance asks -----------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.core.role is Role.LEADER

    @property
    def leader_id(self) -> int:
        """Who leads, as far as this instance hears: 0 after two election timeouts of silence.

        A voter campaigns by then. A learner never does, and would name a dead leader for ever.
        """
        return 0 if self._leader_is_silent else self.core.leader

    @property
    def term(self) -> int:
        return self.core.term

    @property
    def conf(self) -> ConfState:
        return self.core.conf

    @property
    def committed_in_term(self) -> bool:
        """A new leader may decide nothing before an entry of its own is applied."""
        return self.is_leader and self.applied_term == self.core.term

    def propose(self, data: bytes) -> tuple[int, int]:
        index, term = self.core.propose([data])
        self.wake()
        return index, term

    def propose_conf_change(self, change: ConfChangeV2) -> tuple[int, int]:
        index, term = self.core.propose_conf_change(change)
        self.wake()
        return index, term

    def transfer_leader(self, to: int) -> None:
        self.core.transfer_leader(to)
        self.wake()

    async def read_index(self, timeout_s: float) -> int:
        """An index that covers every write acknowledged before this call."""
        self._read_number += 1
        token = b"%d.%d.%d" % (self.raft_id, self._store.path.stat().st_ino, self._read_number)
        future: asyncio.Future[int] = self._loop.create_future()
        self._reads[token] = future
        self.core.read_index(token)
        self.wake()
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TimedOut("no quorum confirmed the read in time") from None
        finally:
            self._reads.pop(token, None)

    async def wait_applied(self, index: int, timeout_s: float, *, but_rows: bool = False) -> None:
        """`but_rows`: entries that change rows of users' tables and nothing else may be missing.
        One of them can take seconds to apply."""
        if self._has(index, but_rows):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((index, but_rows, future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise TimedOut(
                f"entry {index} was not applied within {timeout_s:g} s",
                detail=f"applied up to {self.applied_index}",
            ) from None

    def _has(self, index: int, but_rows: bool) -> bool:
        return index <= self.applied_index or (but_rows and self._unapplied.are_rows(index))

    # --- messages -----------------------------------------------------------------------------

    def handle_message(self, link: Link, data: bytes) -> None:
        """The `raft` call of a peer: one message, validated at the edge."""
        try:
            message = decode_message(data)
        except BadMessage as problem:
            self.bad_messages += 1
            log.debug("dropped a message: %s", problem)
            return
        if link.peer is None or link.peer.raft_id != message.from_ or message.to != self.raft_id:
            self.bad_messages += 1
            return
        self.heard[message.from_] = self.ticks
        snapshot = message.snapshot if message.kind is MsgKind.SNAP else None
        if snapshot is not None and not self.receiver.has(snapshot.handle):
            spawn(self._fetch(message), "fetch snapshot")
            return
        if message.kind in OF_LEADERS and message.term >= self.core.term:
            self.words.answered(message.term)
        self._step(message)
        self._note_silence()
        self.wake()

    def _step(self, message: Message) -> None:
        was_short = self.core.log.is_short()
        try:
            self.core.step(message)
        except RaftCorruption as problem:  # to go on deaf would be worse, and nobody would know
            self._on_broken(problem)
            return
        if message.kind is MsgKind.HEARTBEAT_RESP and message.reject:
            log.warning(
                "instance %d lacks entries of Raft's log that it has acknowledged: it was started "
                "with old files, and gets them again",
                message.from_,
            )
        if self.core.log.is_short() and not was_short:
            log.warning(
                "this instance lacks entries of Raft's log that it has acknowledged: it was "
                "started with old files. It gets them again and votes for nobody until then; "
                "if it happens to a majority, entries are lost: never put back old files but "
                "with `cairn restore`"
            )

    async def _fetch(self, message: Message) -> None:
        assert message.snapshot is not None
        try:
            fetched = await self.receiver.fetch(message.from_, message.snapshot)
        except CairnError as problem:
            log.warning("snapshot from %s was not fetched: %s", message.from_, problem)
            return
        if fetched:
            self.core.step(message)
            self.wake()

    def _send(self, messages: list[Message]) -> None:
        for message in messages:
            body = msgspec.msgpack.encode(encode_message(message))
            sent = self._peers.tell(message.to, "raft", body)
            if message.kind is MsgKind.SNAP:
                self.sender.sent(message.to, self.ticks)
            if not sent:
                self.core.report_unreachable(message.to)
                if message.kind is MsgKind.SNAP:
                    self.core.report_snapshot(message.to, False)

    # --- the drive ----------------------------------------------------------------------------

    def wake(self) -> None:
        if not self._waking and not self._closed:
            self._waking = True
            self._loop.call_soon(self._drive)

    def _drive(self) -> None:
        self._waking = False
        if self._closed:
            return
        try:
            while self.core.has_ready():
                self._carry_out(self.core.ready())
        except Exception as problem:  # half of a Ready is done, and nobody knows which half
            self._on_broken(problem)

    def _carry_out(self, ready: Ready) -> None:
        self._send(ready.messages)
        if ready.hard_state is not None:
            self._commit_to_save = ready.hard_state
        if ready.must_sync or self._in_flight:
            self._in_flight += 1
            payload = None
            if ready.snapshot is not None:
                payload = self.receiver.take(ready.snapshot.handle)
            heard = self._commit_to_save
            job = Job(
                lambda: self._write(ready, payload, heard),
                lambda told: self._written(ready, told),
                must_sync=ready.must_sync,
            )
            self._disk.submit(job)
        else:
            self._persisted(ready)
        if ready.committed:
            self._apply(ready.committed)
        for state in ready.read_states:
            self._resolve_read(state.token, state.index)
        for token in ready.failed_reads:
            future = self._reads.pop(token, None)
            if future is not None and not future.done():
                future.set_exception(NotLeader("the read was not confirmed"))
        if ready.soft_state is not None:
            self._on_role()

    def _write(
        self, ready: Ready, payload: Any, heard: HardState | None
    ) -> tuple[list[str], list[str]]:
        """On the writer's thread: the whole Ready in the group's transaction.

        A commit that was heard alone is not written. It goes with the next entries: whoever
        acknowledges the end of a change of voters must know for good that the change has begun, or
        after a power cut it would campaign among the old voters alone.
        """
        told: tuple[list[str], list[str]] = ([], [])
        if ready.snapshot is not None:
            assert payload is not None, "a snapshot is installed only after it was fetched"
            meta = ready.snapshot.meta
            self._store.install(meta)
            self._machine.install(payload)
            position = Position(meta.term, meta.index)
            told = self._machine.events.installed(position, timestamp(self._runtime))
        self._store.write(ready)
        if heard is not None and ready.hard_state is None:
            self._store.put("commit", heard.commit)
        return told

    def _written(self, ready: Ready, told: tuple[list[str], list[str]]) -> None:
        self._in_flight -= 1
        if self._closed:
            return
        try:
            self._take_written(ready, told)
        except Exception as problem:
            self._on_broken(problem)

    def _take_written(self, ready: Ready, told: tuple[list[str], list[str]]) -> None:
        if ready.snapshot is not None:
            meta = ready.snapshot.meta
            self.view.installed(meta)
            self.applied_index, self.applied_term = meta.index, meta.term
            self._unapplied.forget(self.applied_index)
            self._on_installed(*told)
            self._release_waiters()
        self.view.written(ready.entries)
        self._persisted(ready)
        self.wake()

    def _persisted(self, ready: Ready) -> None:
        self.core.persisted(ready.number)
        self.persisted_index = self.view.last_index()
        self._send(ready.messages_after_persist)

    # --- applying -----------------------------------------------------------------------------

    def _apply(self, entries: list[Entry]) -> None:
        work: list[tuple[Entry, ConfState | None]] = []
        for entry in entries:
            conf = None
            if entry.type == EntryType.CONF_CHANGE:
                conf = self.core.apply_conf_change(ConfChangeV2.decode(entry.data))
            work.append((entry, conf))
        self._unapplied.add(entries)
        self._release_waiters()
        commit = self._commit_to_save
        job = Job(lambda: self._apply_on_disk(work, commit), self._applied, must_sync=False)
        self._disk.submit(job)

    def _apply_on_disk(
        self, work: list[tuple[Entry, ConfState | None]], commit: HardState | None
    ) -> list[Applied]:
        done: list[Applied] = []
        latest: ConfState | None = None
        for entry, conf in work:
            done.append(self._machine.apply(entry))
            latest = conf or latest
        last = done[-1]
        self._store.put_applied(last.index, last.term, latest)
        if commit is not None:
            self._store.put("commit", max(commit.commit, last.index))
        return done

    def _applied(self, done: list[Applied]) -> None:
        if self._closed:
            return
        try:
            self._take_applied(done)
        except Exception as problem:
            self._on_broken(problem)

    def _take_applied(self, done: list[Applied]) -> None:
        self.applied_index, self.applied_term = done[-1].index, done[-1].term
        self.core.applied(self.applied_index)
        self._unapplied.forget(self.applied_index)
        self._campaign_if_alone()
        self._on_applied(done)
        self._release_waiters()
        self._maybe_compact()
        self.wake()

    def silent(self, members: Iterable[int]) -> frozenset[int]:
        """Those that said nothing for an election's time in which we ourselves were awake and led,
        and those that did not answer when a change of voters depended on them.
        """
        tenure = self.core.tenure
        if tenure is None or self.ticks < self.stalled_until:
            return frozenset()
        unanswered = self.core.unanswered().intersection(members)
        if tenure.ticks < ELECTION_TICKS:
            return unanswered
        since = self.ticks - ELECTION_TICKS
        return unanswered.union(
            node for node in members if node != self.raft_id and self.heard.get(node, 0) < since
        )

    def _release_waiters(self) -> None:
        waiting, self._waiters = self._waiters, []
        for index, but_rows, future in waiting:
            if future.done():
                continue
            if self._has(index, but_rows):
                future.set_result(None)
            else:
                self._waiters.append((index, but_rows, future))

    def _resolve_read(self, token: bytes, index: int) -> None:
        future = self._reads.pop(token, None)
        if future is not None and not future.done():
            future.set_result(index)

    # --- compaction ---------------------------------------------------------------------------

    def _maybe_compact(self) -> None:
        kept = self.view.last_index() - self.view.first_index() + 1
        if self._compacting or (kept <= self.entries_max and self.view.bytes <= self.bytes_max):
            return
        tail = min(LOG_TAIL, self.entries_max // 2)  # for those who are a little behind
        upto = min(self.applied_index, self.view.last_index() - tail)
        if upto >= self.view.first_index():
            self.compact(upto)

    def compact(self, upto: int) -> None:
        """Forget applied entries up to `upto`; whoever needs them gets a snapshot."""
        self._compacting = True

        def done(_: Any) -> None:
            self._compacting = False
            self.view.compacted(upto)

        self._disk.submit(Job(lambda: self._store.compact(upto), done))
