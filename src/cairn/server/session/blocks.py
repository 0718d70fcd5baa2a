"""BEGIN to COMMIT: what a block of statements remembers, though each commits by itself."""

from __future__ import annotations

from collections.abc import Callable
from time import time

from cairn.model.errors import CairnError, InFailedTransaction
from cairn.sql.plans import Plan, SessionPlan

#: What ends or mends a block, and so is taken in a failed one too.
ENDINGS = frozenset({"commit", "rollback", "rollback_to"})
ACTIONS = ENDINGS | {"begin", "savepoint", "release"}


class Block:
    """`status` is what ReadyForQuery tells: I outside of a block, T in one, E in a failed one."""

    __slots__ = ("_ended", "_savepoints", "_written", "since", "status")

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self.status = "I"
        self.since: float | None = None  # when the open block began, by the clock of the wall
        self._written = 0  # statements committed inside the open block
        self._savepoints: list[tuple[str, int]] = []  # with how many were committed before

    def wrote(self) -> None:
        if self.status == "T":
            self._written += 1

    def fail(self) -> None:
        if self.status == "T":
            self.status = "E"

    def check(self, plan: Plan) -> None:
        """In a failed block only its end is taken, or what goes back before the failure."""
        if self.status != "E":
            return
        if isinstance(plan, SessionPlan) and plan.action in ENDINGS:
            return
        raise InFailedTransaction

    def change(self, plan: SessionPlan, tag: str) -> tuple[str, tuple[str, ...]]:
        """Carry it out; the tag to answer, and notices."""
        name = plan.name or ""
        match plan.action:
            case "begin" if self.status != "I":
                return tag, ("there is already a transaction in progress",)
            case "begin":
                self.status, self._written, self.since = "T", 0, time()
            case "commit":
                had_failed = self.status == "E"
                self._end()
                return ("ROLLBACK" if had_failed else tag), ()
            case "rollback":
                written = self._written
                self._end()
                if written:
                    raise _cannot_undo("ROLLBACK", written, "block")
            case "savepoint":
                self._check_open("SAVEPOINT")
                self._savepoints.append((name, self._written))
            case "release":
                self._check_open("RELEASE SAVEPOINT")
                del self._savepoints[self._place(name) :]
            case "rollback_to":
                self._check_open("ROLLBACK TO SAVEPOINT")
                self._return_to(self._place(name))
        return tag, ()

    def _end(self) -> None:
        self.status, self._written, self.since = "I", 0, None
        self._savepoints.clear()
        self._ended()

    def _return_to(self, at: int) -> None:
        """The savepoint itself stays. A block that failed goes on, unless it wrote in between."""
        written = self._written - self._savepoints[at][1]
        if written:
            raise _cannot_undo("ROLLBACK TO SAVEPOINT", written, "savepoint")
        del self._savepoints[at + 1 :]
        self.status = "T"

    def _check_open(self, what: str) -> None:
        if self.status == "I":
            raise CairnError(f"{what} can only be used in transaction blocks", sqlstate="25P01")

    def _place(self, name: str) -> int:
        for at in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[at][0] == name:
                return at
        raise CairnError(f'savepoint "{name}" does not exist', sqlstate="3B001")


def _cannot_undo(what: str, count: int, since: str) -> CairnError:
    return CairnError(
        f"{what} cannot undo: {count} statement(s) of this {since} stay committed",
        detail="each statement commits by itself",
        hint="undo them by statements of your own",
        sqlstate="25000",
    )
