"""BEGIN to COMMIT, as a session sees it: its state, its savepoints, and what its end does.

What a block writes is kept by an `OpenBlock` until COMMIT. With `atomic_blocks = off` there is
none: each statement commits by itself, and ROLLBACK can only say what stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from time import time
from typing import Any

import msgspec

from cairn.model.errors import CairnError, InFailedTransaction, LimitExceeded, Unsupported
from cairn.model.settings import limits
from cairn.model.tables.catalog import WRITES
from cairn.node.statements.asker.hops import Hop
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.blocks.alone import MAKING
from cairn.node.statements.blocks.open_block import OpenBlock
from cairn.node.statements.blocks.parts import Done, Mark
from cairn.node.statements.context import Context
from cairn.node.statements.executor import Executor
from cairn.node.statements.temporary.tables import Temps
from cairn.server.statements import Cached
from cairn.sql.plans import PointRead, Prepared, SessionPlan, is_writing

#: What ends or mends a block, and so is taken in a failed one too.
ENDINGS = frozenset({"commit", "rollback", "rollback_to"})
ACTIONS = ENDINGS | {"begin", "savepoint", "release", "set_transaction"}
_LEVEL = re.compile(
    r"isolation\s+level\s+(serializable|repeatable\s+read|read\s+(?:un)?committed)", re.IGNORECASE
)
_READ_ONLY = re.compile(r"\bread\s+(only|write)\b", re.IGNORECASE)


class Modes:
    """How a transaction was asked for; None: nothing was said."""

    def __init__(self, text: str | None) -> None:
        level = _LEVEL.search(text or "")
        access = _READ_ONLY.search(text or "")
        self.level = None if level is None else " ".join(level[1].lower().split())
        self.is_read_only = None if access is None else access[1].lower() == "only"


class Block:
    """`status` is what ReadyForQuery tells: I outside of a block, T in one, E in a failed one."""

    def __init__(
        self, executor: Executor, ended: Callable[[bool], None], hold: Callable[[int], None]
    ) -> None:
        self._executor, self._ended, self.hold = executor, ended, hold
        self._temps: Temps | None = None  # whose changes are part of a block too
        self.status = "I"
        self.open: OpenBlock | None = None
        self.level = ""  # of isolation, in the open block
        self.is_read_only = False  # the open block
        self.since: float | None = None  # when the open block began, by the clock of the wall
        self._written = self._made = 0  # committed by themselves, where blocks are not atomic
        self._has_asked = False  # whether a statement has been run in the open block
        self._savepoints: list[
            tuple[str, Mark | None, int, int, bool]
        ] = []  # with their marks, what was committed, what of it only made something, READ ONLY

    @property
    def committed(self) -> int:
        """Statements of the open block that cannot be undone."""
        return self._written if self.open is None else self.open.alone.committed

    @property
    def made(self) -> int:
        """Those of them that only made something new."""
        return self._made if self.open is None else self.open.alone.made

    @property
    def depth(self) -> int:
        """Of savepoints."""
        return len(self._savepoints)

    def wrote(self, tag: str = "") -> None:
        """A statement committed by itself."""
        if self.status != "T":
            return
        if self.open is not None:
            self.open.alone.note()
        else:
            self._written += 1
            self._made += tag in MAKING

    def check_alone(self, tag: str) -> None:
        """Before a statement that commits by itself."""
        if self.open is not None:
            self.open.check_alone(tag)

    def fail(self) -> None:
        if self.status == "T":
            self.status = "E"

    def told(self, problem: CairnError) -> CairnError:
        """In a failed block nobody is told what else is wrong with a statement, but its syntax."""
        is_of_text = problem.sqlstate[:2] in ("22", "42") and problem.sqlstate != "42601"
        return InFailedTransaction() if self.status == "E" and is_of_text else problem

    def check(self, prepared: Prepared) -> None:
        """In a failed block only its end is taken, or what goes back before the failure."""
        plan = prepared.plan
        if prepared.locks and self.open is None:
            raise Unsupported(
                "FOR UPDATE has no meaning while each statement of a block commits by itself",
                hint="SET atomic_blocks = on",
            )
        if self.is_read_only:
            check_reading(prepared)
        if self.status != "E":
            self._has_asked |= not isinstance(plan, SessionPlan)
            return
        if isinstance(plan, SessionPlan) and plan.action in ENDINGS:
            return
        raise InFailedTransaction

    # --- statements inside ------------------------------------------------------------------------

    def now(self, cached: Cached, values: Sequence[Any], context: Context) -> Outcome | None:
        """The outcome of a read in this turn, if it needs nothing of what the block has written."""
        assert self.open is not None
        if not self.open.reads_outside(cached):
            return None
        if cached.prepared.hidden:
            context = msgspec.structs.replace(context, now=self.open.now)
        outcome = self._executor.now(cached, values, context)
        if outcome is not None:
            self.open.note(cached, values, context, outcome)
        return outcome

    def mode(self, name: str) -> str:
        """What `SHOW transaction_…` tells of the open block, if that says something of it."""
        if name == "transaction_isolation":
            return self.level
        is_open = self.status != "I"
        return "" if not is_open else "on" if self.is_read_only else "off"

    def check_discard(self, plan: SessionPlan) -> None:
        if plan.name == "all" and self.status != "I":
            text = "DISCARD ALL cannot run inside a transaction block"
            raise CairnError(text, sqlstate="25001")

    def may_hop(self, cached: Cached) -> bool:
        """Whether it may be asked of its owner as outside of a block; `noted` has the answer."""
        if self.open is None:
            return True
        is_plain = type(cached.prepared.plan) is PointRead and not cached.prepared.hidden
        return is_plain and self.open.reads_outside(cached)

    def start(
        self, cached: Cached, values: Sequence[Any], context: Context, done: Done
    ) -> Hop | None:
        """A statement that becomes part of the block, without a task, if it can do without one."""
        assert self.open is not None
        return self.open.start(cached, values, context, done)

    def start_commit(self, context: Context, done: Done, ended: Callable[[], Any]) -> Hop | None:
        """`commit` without a task; `ended` is what follows when all of it is done."""
        if self.open is None or self._temps is not None:
            return None

        def finished(finish: Callable[[], bool]) -> None:
            done(lambda: self._committed(finish, ended))

        return self.open.start_commit(context, finished)

    def _committed(self, finish: Callable[[], bool], ended: Callable[[], Any]) -> Any:
        try:
            return ended() if finish() else None
        except BaseException:
            if self.open is not None:
                self._end()
            raise

    def noted(
        self, cached: Cached, values: Sequence[Any], context: Context, outcome: Outcome
    ) -> None:
        if self.open is not None:
            self.open.note(cached, values, context, outcome)

    # --- its beginning and its end ----------------------------------------------------------------

    def waits_to_commit(self, plan: SessionPlan) -> bool:
        """Whether COMMIT takes longer than saying so."""
        is_whole = plan.action == "commit" and self.status == "T" and self.open is not None
        return is_whole and self.open is not None and self.open.has_work

    async def commit(self, context: Context) -> None:
        """What the block wrote; whatever comes of it, the block is over."""
        assert self.open is not None
        try:
            await self.open.commit(context)
        except BaseException:
            self._end()
            raise

    def change(
        self, plan: SessionPlan, tag: str, context: Context, default: Modes
    ) -> tuple[str, tuple[str, ...]]:
        """Carry it out; the tag to answer, and notices. COMMIT was done by `commit` before."""
        name = plan.name or ""
        match plan.action:
            case "begin" if self.status != "I":
                return tag, ("there is already a transaction in progress",)
            case "begin":
                self._begin(Modes(plan.value), context, default)
            case "set_transaction":
                modes = Modes(plan.value)
                if modes.level not in (None, self.level) and self._has_asked:
                    raise CairnError(
                        "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                        sqlstate="25001",
                    )
                self._set_modes(modes)
            case "commit":
                had_failed, written = self.status == "E", self.committed
                self._end(is_committed=not had_failed)
                if had_failed and written:
                    raise _cannot_undo("COMMIT of a failed block", written, "block")
                return ("ROLLBACK" if had_failed else tag), ()
            case "rollback":
                written, made = self.committed, self.made
                self._end()
                return tag, _what_stays("ROLLBACK", written, made, "block")
            case "savepoint":
                self.check_open("SAVEPOINT")
                if len(self._savepoints) >= limits.BLOCK_STATEMENTS:
                    raise LimitExceeded(
                        f"a block has at most {limits.BLOCK_STATEMENTS} savepoints",
                        hint="RELEASE SAVEPOINT those that are done",
                    )
                mark = None if self.open is None else self.open.mark
                self._savepoints.append((name, mark, self.committed, self.made, self.is_read_only))
                if self._temps is not None:
                    self._temps.enter()
            case "release":
                self.check_open("RELEASE SAVEPOINT")
                at = self._place(name)
                del self._savepoints[at:]
                if self._temps is not None:
                    self._temps.release(at + 1)  # the block itself is the first
            case "rollback_to":
                self.check_open("ROLLBACK TO SAVEPOINT")
                return tag, self._return_to(self._place(name))
        return tag, ()

    def has_temps(self, temps: Temps) -> None:
        """The session has temporary tables from now on."""
        self._temps = temps
        for _ in range(0 if self.status == "I" else 1 + len(self._savepoints)):
            temps.enter()

    def _begin(self, modes: Modes, context: Context, default: Modes) -> None:
        self.status, self._written, self._made, self.since = "T", 0, 0, time()
        if self._temps is not None:
            self._temps.enter()
        if context.has_atomic_blocks:
            self.open = OpenBlock(self._executor, self.hold)
        self._set_modes(default)
        self._set_modes(modes)

    def _set_modes(self, modes: Modes) -> None:
        if modes.is_read_only is not None:
            self.be_read_only(modes.is_read_only)
        if modes.level is not None and self.open is not None:
            self.level = modes.level
            self.open.set_strict(modes.level in ("serializable", "repeatable read"))

    def be_read_only(self, is_so: bool) -> None:
        """Outside of a block it is said of a block that is over at once, as in PostgreSQL."""
        if self.is_read_only and not is_so and (self._has_asked or self._savepoints):
            raise CairnError(
                "transaction read-write mode must be set before any query", sqlstate="25001"
            )
        self.is_read_only = is_so and self.status != "I"

    def _end(self, *, is_committed: bool = False) -> None:
        self.status, self._written, self._made, self.since = "I", 0, 0, None
        if self.open is not None:
            self.open.end()
        if self._temps is not None:
            self._temps.end(is_committed=is_committed)
        self.open, self.level, self.is_read_only, self._has_asked = None, "", False, False
        self._savepoints.clear()
        self._ended(is_committed)

    def _return_to(self, at: int) -> tuple[str, ...]:
        """The savepoint itself stays. A failed block goes on."""
        _, mark, committed, made, was_read_only = self._savepoints[at]
        since = self.committed - committed, self.made - made
        told = _what_stays("ROLLBACK TO SAVEPOINT", *since, "savepoint")
        if self.open is not None and mark is not None:
            self.open.return_to(mark)
        del self._savepoints[at + 1 :]
        if self._temps is not None:
            self._temps.roll_back(at + 1)
        self.status, self.is_read_only = "T", was_read_only
        return told

    def check_open(self, what: str) -> None:
        if self.status == "I":
            raise CairnError(f"{what} can only be used in transaction blocks", sqlstate="25P01")

    def _place(self, name: str) -> int:
        for at in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[at][0] == name:
                return at
        raise CairnError(f'savepoint "{name}" does not exist', sqlstate="3B001")


def check_reading(prepared: Prepared) -> None:
    what = prepared.tag if is_writing(prepared.plan) else ""
    if prepared.tag == "SELECT" and any(each[0] in WRITES for each in prepared.rights):
        what = "nextval()"  # what else would a query need such a right for
    if what:
        raise CairnError(f"cannot execute {what} in a read-only transaction", sqlstate="25006")


def _what_stays(what: str, written: int, made: int, since: str) -> tuple[str, ...]:
    """Raises if rows, or what was there before, stay changed. New things that are left behind are
    told: whoever looks whether a ROLLBACK takes back a table finds that it does not."""
    if written > made:
        raise _cannot_undo(what, written, since)
    if not made:
        return ()
    return (
        f"{what} does not undo {made} CREATE statement(s) of this {since}: what they made stays",
    )


def _cannot_undo(what: str, count: int, since: str) -> CairnError:
    return CairnError(
        f"{what} cannot undo: {count} statement(s) of this {since} stay committed",
        detail="they committed by themselves",
        hint="undo them by statements of your own",
        sqlstate="25000",
    )
