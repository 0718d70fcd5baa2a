"""BEGIN to COMMIT: what a block of statements remembers, though each commits by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.model.errors import CairnError
from cairn.sql.plans import SessionPlan

if TYPE_CHECKING:
    from cairn.server.connection import Connection

#: What ends or mends a block, and so is taken in a failed one too.
ENDINGS = frozenset({"commit", "rollback", "rollback_to"})
ACTIONS = ENDINGS | {"begin", "savepoint", "release"}


def change_block(session: Connection, plan: SessionPlan, tag: str) -> tuple[str, tuple[str, ...]]:
    """Carry it out; the tag to answer, and notices."""
    name = plan.name or ""
    match plan.action:
        case "begin" if session.status != "I":
            return tag, ("there is already a transaction in progress",)
        case "begin":
            session.begin()
        case "commit":
            had_failed = session.status == "E"
            session.end_transaction()
            return ("ROLLBACK" if had_failed else tag), ()
        case "rollback":
            written = session.written
            session.end_transaction()
            if written:
                raise _cannot_undo("ROLLBACK", written, "block")
        case "savepoint":
            _check_open(session, "SAVEPOINT")
            session.savepoints.append((name, session.written))
        case "release":
            _check_open(session, "RELEASE SAVEPOINT")
            del session.savepoints[_place(session, name) :]
        case "rollback_to":
            _check_open(session, "ROLLBACK TO SAVEPOINT")
            _return_to(session, _place(session, name))
    return tag, ()


def _return_to(session: Connection, at: int) -> None:
    """The savepoint itself stays. A block that failed goes on, unless it wrote in between."""
    written = session.written - session.savepoints[at][1]
    if written:
        raise _cannot_undo("ROLLBACK TO SAVEPOINT", written, "savepoint")
    del session.savepoints[at + 1 :]
    session.status = "T"


def _check_open(session: Connection, what: str) -> None:
    if session.status == "I":
        raise CairnError(f"{what} can only be used in transaction blocks", sqlstate="25P01")


def _place(session: Connection, name: str) -> int:
    for at in range(len(session.savepoints) - 1, -1, -1):
        if session.savepoints[at][0] == name:
            return at
    raise CairnError(f'savepoint "{name}" does not exist', sqlstate="3B001")


def _cannot_undo(what: str, count: int, since: str) -> CairnError:
    return CairnError(
        f"{what} cannot undo: {count} statement(s) of this {since} stay committed",
        detail="each statement commits by itself",
        hint="undo them by statements of your own",
        sqlstate="25000",
    )
