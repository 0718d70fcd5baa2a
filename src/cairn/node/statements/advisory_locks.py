"""Advisory locks of the sessions of this instance: taken and given up through Raft.

What a session has is what `_cairn_lock` says, and nothing else. A row of ours that no session wants
is deleted, however it came there: a session that ended, a wait that was cancelled, an answer that
was lost. A session whose row goes without its asking has lost its lock, and is ended.

Between two statements an instance may have stood still for long, and its sessions may have lost
their locks without its knowing. So a session that has locks runs a statement only while the leader
has said that they stay theirs (`is_sure`); the leader takes nothing away before that time is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from cairn.model.errors import (
    CairnError,
    CasRetry,
    NotLeader,
    OutcomeUnknown,
    TimedOut,
    UniqueViolation,
)
from cairn.model.log import ops
from cairn.model.log.applied import Applied
from cairn.model.log.ranges import KeyRange, Predicate, one_key
from cairn.model.members.topology import Grade
from cairn.model.rpc import KeepLocksRequest, LeaseResponse
from cairn.model.tables.locks import (
    MOST,
    Lock,
    LockKey,
    Mode,
    Owner,
    asked,
    deadlock,
    given_up,
    lock_of,
    rows_of,
    taken,
    victim,
)
from cairn.model.tables.system_tables import CAIRN_LOCK, PICO_INSTANCE
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.leader import Leader
from cairn.node.consensus.proposals import Proposer
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.rows.leases import MARGIN
from cairn.node.runtime import Runtime
from cairn.node.waiting import signalled

log = logging.getLogger("cairn.locks")

ANSWER_S = 10.0  # until a change that Raft does not take is given up
AGAIN_S, LATER_S = 0.01, 0.3
DEADLOCK_S = 1.0  # as PostgreSQL's deadlock_timeout
AT_ONCE = 200  # rows in one entry


class What(NamedTuple):
    key: LockKey
    mode: Mode


def lost_locks() -> CairnError:
    return CairnError(
        "terminating connection because its advisory locks were lost",
        detail="this instance was taken for gone, and others may have the locks by now",
        hint="connect again, and take the locks anew before going on",
        sqlstate="57P01",
    )


class Holder:
    """What one session wants and has."""

    def __init__(self, session: int, lost: Callable[[CairnError], None]) -> None:
        self.session, self.lost = session, lost
        self.incarnation = 0  # of the instance when its locks were taken
        self.wanted: set[What] = set()  # asked for, or held
        self.held: set[What] = set()
        self.is_lost = False  # and nothing may be run any more


class AdvisoryLocks:
    """`is_awake` says whether what the tables say of this instance is about its present life."""

    def __init__(
        self,
        name: str,
        raft_id: int,
        state: GlobalState,
        runner: RaftRunner,
        proposer: Proposer,
        leader: Leader,
        runtime: Runtime,
        is_awake: Callable[[], bool],
    ) -> None:
        self._name, self._raft_id, self._state, self._runner = name, raft_id, state, runner
        self._proposer, self._leader, self._runtime = proposer, leader, runtime
        self._is_awake = is_awake
        self._holders: dict[int, Holder] = {}
        self._unwanted: set[Lock] = set()  # rows of ours that are to go
        self._work = asyncio.Event()
        self._news: dict[tuple[int, What], list[asyncio.Future[None]]] = {}
        self._sure_of, self._sure_until = 0, 0.0
        self._asking: dict[int, asyncio.Task[CairnError | None]] = {}  # by incarnation

    # --- what sessions ask ------------------------------------------------------------------------

    def holder(self, session: int, lost: Callable[[CairnError], None]) -> Holder:
        found = self._holders[session] = Holder(session, lost)
        return found

    async def acquire(self, holder: Holder, what: What, *, waits: bool, limit_s: float) -> bool:
        """Whether it has it; False only for who does not wait. One that it has is not asked for
        again."""
        has_it = False
        try:
            async with asyncio.timeout(limit_s or None):
                if not await self._gone(holder, what):  # it was given up a moment ago
                    raise _not_in_time()
                holder.wanted.add(what)
                if await self._acquire(holder, what, waits=waits):
                    await self.make_sure(holder)
                    has_it = True
        except TimeoutError:
            text = "canceling statement due to lock timeout"
            raise CairnError(text, sqlstate="55P03") from None
        finally:
            if not has_it:
                self._drop(holder, {what})
        return has_it

    def release(self, holder: Holder, whats: set[What]) -> Coroutine[Any, Any, None]:
        """They are given up at once, whether the answer is waited for or not: until others can have
        them."""
        self._drop(holder, whats)
        return self._released(holder, whats)

    async def _released(self, holder: Holder, whats: set[What]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + ANSWER_S
        for what in whats:
            if not await self._gone(holder, what, until - loop.time()):
                raise OutcomeUnknown(
                    "the lock is given up, but it is not decided yet when others can have it",
                    hint="it is released as soon as a majority of the voters is there",
                )

    def close(self, holder: Holder) -> None:
        """The session is over."""
        self._drop(holder, holder.wanted | holder.held)
        self._holders.pop(holder.session, None)

    def is_sure(self, holder: Holder) -> bool:
        """Whether nobody else can have been given a lock that it has."""
        if not holder.held:
            return not holder.is_lost
        now = self._runtime.boot_clock()
        return holder.incarnation == self._sure_of and now < self._sure_until

    async def make_sure(self, holder: Holder) -> None:
        """Ask until it is so. `lost_locks`: it is not, or nobody can say."""
        while not self.is_sure(holder):
            if holder.is_lost:
                raise lost_locks()
            life = holder.incarnation
            if life not in self._asking:
                self._asking[life] = asyncio.get_running_loop().create_task(self._ask(life))
            problem = await asyncio.shield(self._asking[life])
            if problem is not None:
                log.warning("session %d cannot be sure of its locks: %s", holder.session, problem)
                raise self._lose(holder)

    async def _ask(self, life: int) -> CairnError | None:
        """One question for all sessions. None: the leader said so."""
        begun = self._runtime.boot_clock()
        try:
            request = KeepLocksRequest(self._raft_id, life)
            answer = await self._leader.ask("keep_locks", request, LeaseResponse, ANSWER_S)
        except CairnError as problem:
            return problem
        finally:
            del self._asking[life]
        if not answer.granted:
            return CairnError(answer.why)
        self._sure_of, self._sure_until = life, begun + answer.lease_s * MARGIN
        return None

    def _lose(self, holder: Holder) -> CairnError:
        """The session is ended; what it may still have is given up."""
        problem, holder.is_lost = lost_locks(), True
        self.close(holder)
        holder.lost(problem)
        return problem

    # --- taking one -------------------------------------------------------------------------------

    async def _acquire(self, holder: Holder, what: What, *, waits: bool) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + ANSWER_S
        is_up_to_date = False
        while True:
            owner = self._owner(holder)
            locks = self._state.locks.of(what.key)
            mine = None if owner is None else self._state.locks.find(what.key, owner, what.mode)
            if mine is not None and mine.is_held:
                assert owner is not None
                holder.incarnation = owner.incarnation
                holder.held.add(what)
                return True
            if mine is not None:
                await self._turn(holder, what, mine)
                until = loop.time() + ANSWER_S
                continue
            if owner is not None:
                wanted = asked(locks, what.key, owner, what.mode, waits=waits)
                if wanted.is_held or waits:
                    await self._take(wanted)
                elif is_up_to_date:
                    return False
                else:  # what another session was told has been done counts here, too
                    await self._leader.catch_up(ANSWER_S)
                    is_up_to_date = True
                    continue
            if loop.time() > until:
                raise _not_in_time()
            if owner is None or self._state.locks.find(what.key, owner, what.mode) is None:
                await asyncio.sleep(AGAIN_S if owner is not None else LATER_S)

    def _owner(self, holder: Holder) -> Owner | None:
        """None: the cluster does not count on this life of the instance, now or not yet."""
        row = self._state.cluster.instances.get(self._name)
        if row is None or not self._is_awake() or row.raft_id != self._raft_id:
            return None
        if row.target_state != row.current_state or row.current_state.grade is not Grade.ONLINE:
            return None
        if holder.held and row.current_state.incarnation != holder.incarnation:
            raise self._lose(holder)
        return Owner(self._raft_id, row.current_state.incarnation, holder.session)

    async def _take(self, wanted: Lock) -> None:
        """It is there afterwards, or will be, or somebody was quicker."""
        if self._state.locks.count >= MOST:
            raise CairnError(
                f"there are {MOST} advisory locks in the cluster, no more are given",
                hint="give up those that are not needed: SELECT * FROM pg_locks",
                sqlstate="53200",
            )
        instance = one_key(PICO_INSTANCE.id, (self._name,))
        with suppress(CasRetry, NotLeader, OutcomeUnknown, UniqueViolation):
            await self._propose((taken(wanted),), (rows_of(wanted.key), instance))

    async def _propose(self, changes: tuple[ops.Dml, ...], ranges: tuple[KeyRange, ...]) -> None:
        """Unless anything of it has changed since the picture that it was planned from."""
        seen = Predicate(self._state.cluster.position.index, self._runner.term, ranges)
        await self._proposer.cas(ops.Batch(changes), seen)

    async def _turn(self, holder: Holder, what: What, mine: Lock) -> None:
        """Wait until something happens to its row. Now and then it looks for a deadlock."""
        if await self._told(holder.session, what, DEADLOCK_S) or not holder.held:
            return
        locks = self._state.locks
        if mine not in locks.of(what.key):
            return
        circle = deadlock(locks, mine)
        if circle and victim(circle) == mine:
            told = "; ".join(
                f"session {each.owner.session} of instance {each.owner.raft_id} waits for "
                f"{each.mode} advisory lock {each.key.number}"
                for each in circle
            )
            raise CairnError("deadlock detected", detail=told, sqlstate="40P01")

    async def _told(self, session: int, what: What, timeout_s: float) -> bool:
        """Whether its row changed in time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._news.setdefault((session, what), [])
        waiting.append(future)
        try:
            await asyncio.wait((future,), timeout=max(timeout_s, 0.0))
            return future.done()
        finally:
            future.cancel()
            waiting.remove(future)
            if not waiting:
                self._news.pop((session, what), None)

    # --- giving them up ---------------------------------------------------------------------------

    def _rows(self, holder: Holder, what: What) -> list[Lock]:
        """Of one session, in whichever life they were asked for."""
        return [
            each
            for each in self._state.locks.of(what.key)
            if (each.owner.raft_id, each.owner.session) == (self._raft_id, holder.session)
            and each.mode == what.mode
        ]

    def _drop(self, holder: Holder, whats: set[What]) -> None:
        holder.wanted -= whats
        holder.held -= whats
        for what in whats:
            self._unwanted.update(self._rows(holder, what))
        if self._unwanted:
            self._work.set()

    async def _gone(self, holder: Holder, what: What, timeout_s: float = ANSWER_S) -> bool:
        """Wait until no row of it is left that is to go."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while self._unwanted.intersection(self._rows(holder, what)):
            if loop.time() >= until:
                return False
            await self._told(holder.session, what, until - loop.time())
        return True

    async def run(self) -> None:
        """Deletes what is unwanted, many rows at a time."""
        while True:
            await signalled(self._work, 60.0)
            self._work.clear()
            there = [each for each in self._unwanted if each in self._state.locks.of(each.key)]
            self._unwanted = set(there)
            if not there:
                continue
            by_key: dict[LockKey, list[Lock]] = {}
            for each in there[:AT_ONCE]:
                by_key.setdefault(each.key, []).append(each)
            changes: list[ops.Dml] = []
            for key, gone in by_key.items():
                changes += given_up(self._state.locks.of(key), gone)
            self._work.set()
            try:
                await self._propose(tuple(changes), tuple(map(rows_of, by_key)))
            except (CasRetry, NotLeader) as problem:
                log.debug("locks are given up again: %s", problem)
                await asyncio.sleep(AGAIN_S)
            except CairnError as problem:
                log.warning("locks cannot be given up yet: %s", problem)
                await asyncio.sleep(LATER_S)

    # --- news from Raft ---------------------------------------------------------------------------

    def applied(self, done: list[Applied]) -> None:
        for each in done:
            for change in each.changes:
                if change.table == CAIRN_LOCK.id:
                    row = change.old if change.new is None else change.new
                    if row is not None and row[2] == self._raft_id:
                        self._changed(lock_of(row), is_gone=change.new is None)

    def installed(self, *_: list[str]) -> None:
        """Nobody told what happened: everything is looked at."""
        for lock in self._state.locks:
            if lock.owner.raft_id == self._raft_id:
                self._changed(lock, is_gone=False)
        for holder in list(self._holders.values()):
            if any(
                not any(each.is_held for each in self._rows(holder, what)) for what in holder.held
            ):
                self._lose(holder)
        for waiting in self._news.values():
            _wake(waiting)

    def _changed(self, lock: Lock, *, is_gone: bool) -> None:
        what, session = What(lock.key, lock.mode), lock.owner.session
        _wake(self._news.get((session, what), ()))
        holder = self._holders.get(session)
        if is_gone:
            is_same = holder is not None and holder.incarnation == lock.owner.incarnation
            if holder is not None and is_same and what in holder.held:
                self._lose(holder)
        elif self._is_awake() and (holder is None or what not in holder.wanted):
            self._unwanted.add(lock)
            self._work.set()


def _not_in_time() -> TimedOut:
    return TimedOut(
        "the lock could not be asked for in time",
        detail="this instance is not Online, or Raft takes no entries",
    )


def _wake(waiting: list[asyncio.Future[None]] | tuple[()]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
