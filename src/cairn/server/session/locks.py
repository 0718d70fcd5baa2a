"""The advisory locks of one session: how often it took each, and until when it has them.

As in PostgreSQL: a lock may be taken again by who has it, and is given up as often as it was taken;
those of a transaction end with it, the others with the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cairn.model.errors import CairnError, OutcomeUnknown, OutOfRange
from cairn.model.settings import limits
from cairn.model.tables.locks import ONE, TWO, LockKey
from cairn.node.statements.advisory_locks import AdvisoryLocks, Holder, What
from cairn.node.statements.context import Context
from cairn.server.session.blocks import Block
from cairn.sql.session_plans import LockCall, SessionPlan

NAMES = {"exclusive": "ExclusiveLock", "shared": "ShareLock"}
Warn = Callable[[str], None]


class SessionLocks:
    def __init__(
        self, locks: AdvisoryLocks, block: Block, lost: Callable[[CairnError], None], warn: Warn
    ) -> None:
        self._locks, self._block, self._lost, self._warn = locks, block, lost, warn
        self._holder: Holder | None = None  # from the first call on
        self._counts: Counter[What] = Counter()  # of the session
        self._of_block: list[What] = []  # of its transaction, in their order
        self._marks: list[int] = []  # how many of these there were at each savepoint

    # --- before a statement -----------------------------------------------------------------------

    def is_sure(self) -> bool:
        """Whether what it has was not given to anybody else, as far as may be."""
        return self._holder is None or self._locks.is_sure(self._holder)

    async def make_sure(self) -> None:
        if self._holder is not None:
            await self._locks.make_sure(self._holder)

    # --- calls ------------------------------------------------------------------------------------

    async def call(self, item: LockCall, given: Sequence[Any], context: Context) -> Any:
        """What the function returns."""
        if item.action == "unlock all":
            await self._give_up(list(self._counts.elements()), context)
            return ""
        if None in given:
            return None
        what = What(_key(given), item.mode)
        if item.action == "unlock":
            return await self._unlock(what, context)
        if not self._has(what):
            self._check_room()
            waits = item.action == "lock"
            asking = self._locks.acquire(
                self._made(context.pid), what, waits=waits, limit_s=context.lock_timeout_s
            )
            if not await context.watched(asking):
                return False
        if not item.of_block:
            self._counts[what] += 1
        elif what not in self._of_block:
            self._of_block.append(what)
        return "" if item.is_void else True

    def _made(self, session: int) -> Holder:
        if self._holder is None:
            self._holder = self._locks.holder(session, self._lost)
        return self._holder

    def _has(self, what: What) -> bool:
        return self._counts[what] > 0 or what in self._of_block

    def _check_room(self) -> None:
        most = limits.SESSION_LOCKS
        if self._holder is not None and len(self._holder.held) >= most:
            raise CairnError(
                f"a session has at most {most} advisory locks",
                hint="give up those that are not needed: pg_advisory_unlock",
                sqlstate="53200",
            )

    async def _unlock(self, what: What, context: Context) -> bool:
        if not self._counts[what]:
            self._warn(f"you don't own a lock of type {NAMES[what.mode]}")
            return False
        await self._give_up([what], context)
        return True

    async def _give_up(self, whats: Iterable[What], context: Context) -> None:
        """Of the session, each once for each time that it is named."""
        gone = set()
        for what in whats:
            self._counts[what] -= 1
            if not self._has(what):
                del self._counts[what]
                gone.add(what)
        if gone and self._holder is not None:
            await context.watched(self._locks.release(self._holder, gone))

    # --- with the transaction ---------------------------------------------------------------------

    def waits_for(self, plan: SessionPlan) -> bool:
        """Whether it ends a transaction that has locks, or the session's own."""
        ends = plan.action in ("commit", "rollback", "rollback_to")
        is_all = plan.action == "discard" and plan.name == "all"
        return (ends and bool(self._of_block)) or (is_all and self._holder is not None)

    def has_ended(self) -> bool:
        """Whether a transaction is over that had locks: outside of a block, with its request."""
        return bool(self._of_block) and self._block.status == "I"

    def changed(self, plan: SessionPlan) -> None:
        """The block has carried it out."""
        depth = self._block.depth
        del self._marks[depth:]
        if plan.action == "savepoint" and len(self._marks) < depth:
            self._marks.append(len(self._of_block))

    async def end(self, plan: SessionPlan | None, context: Context) -> None:
        """What the transaction had. It is over whatever comes of this: who has committed is told
        so, although others may have to wait for the locks."""
        if plan is not None and plan.action == "rollback_to" and self._marks:
            ended = self._of_block[self._marks[-1] :]
            del self._of_block[self._marks[-1] :]
        elif self._block.status == "I":
            ended, self._of_block = self._of_block, []
            self._marks.clear()
        else:
            return
        if plan is not None and plan.action == "discard":
            ended += self._counts.elements()
            self._counts.clear()
        gone = {what for what in ended if not self._has(what)}
        if gone and self._holder is not None:
            try:
                await self._locks.release(self._holder, gone)
            except OutcomeUnknown as problem:
                self._warn(problem.message)

    def close(self) -> None:
        if self._holder is not None:
            self._locks.close(self._holder)


def _key(given: Sequence[int]) -> LockKey:
    if len(given) == 1:
        return LockKey(ONE, given[0])
    if any(not -(2**31) <= each < 2**31 for each in given):
        raise OutOfRange("integer out of range", hint="each of two keys has 32 bits")
    return LockKey(TWO, (given[0] << 32) + (given[1] & 0xFFFFFFFF))
