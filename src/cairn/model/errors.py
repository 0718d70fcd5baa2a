"""The one error tree. Each error has a SQLSTATE, carries facts and says what to do next."""

from __future__ import annotations

from typing import NamedTuple, Self


class About(NamedTuple):
    """What refused a row, by name: drivers ask for these and not for the words."""

    table: str
    column: str | None = None
    constraint: str | None = None


class CairnError(Exception):
    """What others get wrong. What we promised ourselves is an `assert`."""

    sqlstate = "XX000"
    hint: str | None = None
    about: About | None = None

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
        sqlstate: str | None = None,
        about: About | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.position = position  # 1-based character in the statement, when known
        if hint is not None:
            self.hint = hint
        if sqlstate is not None:
            self.sqlstate = sqlstate
        if about is not None:
            self.about = about

    @property
    def sentence(self) -> str:
        """What happened, and what to do about it, for people who are told one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def without_frames(self) -> Self:
        """For who hands it on from one thread to another: frames hold the values that it was about,
        which may be giants, and often it themselves, so that they stay until garbage is collected.
        """
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class InternalError(CairnError):
    """A mistake of ours. The log of the instance has the rest under the same reference."""

    def __init__(self, reference: str) -> None:
        super().__init__(
            f"internal error (reference {reference})",
            hint=f"please report it, with what the instance's log says at {reference}",
        )
        self.reference = reference


# --- what the cluster cannot do now -------------------------------------------------------------


class NotOwner(CairnError):
    """The bucket lives elsewhere."""

    sqlstate = "PC001"


class NotLeader(CairnError):
    """Only the Raft leader may do this; `leader` is whom to ask, when known."""

    sqlstate = "PC002"

    def __init__(self, message: str = "not a leader", *, leader: int | None = None) -> None:
        text = f"{message}, actual leader: {leader}" if leader else f"{message}, leader is unknown"
        super().__init__(text, hint="the request is retried on the leader once one is known")
        self.leader = leader


class NoQuorum(CairnError):
    """Nobody leads Raft; `missing` are the voters that cannot be reached, as far as is known."""

    sqlstate = "PC002"

    def __init__(self, *, voters: tuple[str, ...], missing: tuple[str, ...]) -> None:
        needed = len(voters) // 2 + 1
        of = f"{needed} of the voters {', '.join(voters)} must run"
        if missing:
            text, hint = f"{', '.join(missing)} cannot be reached", f"start what is missing: {of}"
        else:
            text, hint = "an election has not ended", f"repeat the statement; {of}"
        super().__init__(f"there is no Raft leader: {text}", hint=hint)
        self.voters, self.missing = voters, missing


class CasRetry(CairnError):
    """A compare-and-swap definitely did not happen: read again at a newer position and retry."""

    sqlstate = "40001"


class CasConflict(CasRetry):
    """Another entry touched what was read or written here."""


class NoMaster(CairnError):
    """The replicaset has no master that may answer now."""

    sqlstate = "PC003"


class TableUnderDdl(CairnError):
    """The table is being changed."""

    sqlstate = "PC004"


class BlockConflict(CairnError):
    """Somebody changed what a block has seen: it was not carried out, and may be repeated."""

    sqlstate = "40001"

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__(
            message, detail=detail, hint="nothing was written; repeat the block from its BEGIN"
        )


class BlockLeaves(CairnError):
    """A block needs rows of more than one replicaset: nothing of it was done."""

    sqlstate = "0A000"
    hint = (
        "let its rows have the same distribution key, use statements outside of a block, "
        "or SET atomic_blocks = off"
    )


class NumbersNeeded(CairnError):
    """No numbers of a table's identity are at hand: nothing was done, try again with more."""

    sqlstate = "55000"

    def __init__(self, table: int, start: int) -> None:
        super().__init__("the numbers at hand are used up")
        self.table, self.start = table, start


class GeneratedAlways(CairnError):
    sqlstate = "428C9"


class PlanOutdated(CairnError):
    """The statement was planned for an older schema: nothing was done, plan it again."""

    sqlstate = "PC004"


class BehindPosition(CairnError):
    """This instance has not applied the position that was asked for."""

    sqlstate = "PC005"


class PositionLost(CairnError):
    """What came after the position that was asked for is not kept any more, or was never here."""

    sqlstate = "PC005"


class PartialWrite(CairnError):
    """A write was done on some replicasets only; the detail lists each of them."""

    sqlstate = "PC006"


class OutcomeUnknown(CairnError):
    """The statement may or may not have taken effect. Never retried silently."""

    sqlstate = "40003"


class StatementInvalidated(CairnError):
    """The schema moved under a prepared statement. Preparing it again will work."""

    sqlstate = "42999"

    def __init__(
        self, *, prepared_version: int, current_version: int, name: str | None = None
    ) -> None:
        super().__init__(
            f"prepared statement {name} has been invalidated"
            if name is not None
            else "prepared statement has been invalidated, reprepare is required",
            detail=f"prepared at schema {prepared_version}, now {current_version}",
        )
        self.prepared_version, self.current_version = prepared_version, current_version


class MotionLimit(CairnError):
    """More rows had to be gathered than `sql_motion_row_max` allows."""

    sqlstate = "54000"


class ReadInterrupted(CairnError):
    """Rows of a longer answer were told, and the rest of it cannot be had any more."""

    sqlstate = "40001"


class NotOnlineYet(CairnError):
    """The instance has not reached Online."""

    sqlstate = "57P03"


class QueryCanceled(CairnError):
    """Cancelled by the user or by a time limit."""

    sqlstate = "57014"


class TimedOut(CairnError):
    """The time limit passed; nothing is known to have happened."""

    sqlstate = "57014"


# --- what the statement gets wrong --------------------------------------------------------------


class SyntaxProblem(CairnError):
    sqlstate = "42601"


class Unsupported(CairnError):
    """Refused by name."""

    sqlstate = "0A000"


class UndefinedTable(CairnError):
    sqlstate = "42P01"


class UndefinedColumn(CairnError):
    sqlstate = "42703"


class AmbiguousColumn(CairnError):
    sqlstate = "42702"


class UndefinedFunction(CairnError):
    sqlstate = "42883"


class InvalidGrant(CairnError):
    sqlstate = "0LP01"


class UndefinedObject(CairnError):
    sqlstate = "42704"


class DuplicateTable(CairnError):
    sqlstate = "42P07"


class DuplicateObject(CairnError):
    sqlstate = "42710"


class DuplicateColumn(CairnError):
    sqlstate = "42701"


class InvalidTableDefinition(CairnError):
    sqlstate = "42P16"


class GroupingProblem(CairnError):
    sqlstate = "42803"


class DatatypeMismatch(CairnError):
    sqlstate = "42804"


class IndeterminateType(CairnError):
    sqlstate = "42P18"


class InvalidText(CairnError):
    """A value that is no value of its type."""

    sqlstate = "22P02"


class InvalidBinary(CairnError):
    sqlstate = "22P03"


class OutOfRange(CairnError):
    sqlstate = "22003"


class DivisionByZero(CairnError):
    sqlstate = "22012"

    def __init__(self, message: str = "division by zero") -> None:
        super().__init__(message)


class CardinalityViolation(CairnError):
    sqlstate = "21000"


class UniqueViolation(CairnError):
    sqlstate = "23505"


class NotNullViolation(CairnError):
    sqlstate = "23502"


class ForeignKeyViolation(CairnError):
    """A row that another one names is not there."""

    sqlstate = "23503"


class CheckViolation(CairnError):
    sqlstate = "23514"


class InvalidParameter(CairnError):
    sqlstate = "22023"


class TooComplex(CairnError):
    sqlstate = "54001"


class LimitExceeded(CairnError):
    sqlstate = "54000"


class DdlAborted(CairnError):
    """A schema change was given up everywhere; nothing of it stays."""

    sqlstate = "55000"


class NotInPrerequisiteState(CairnError):
    sqlstate = "55000"


class AccessDenied(CairnError):
    sqlstate = "42501"


# --- what the protocol gets wrong ---------------------------------------------------------------


class AuthenticationFailed(CairnError):
    sqlstate = "28P01"

    def __init__(self, user: str) -> None:
        # The same for everybody: nobody learns by it who exists, and who is locked out.
        super().__init__(
            f"authentication failed for user '{user}'",
            hint="after some wrong passwords the right one is refused too, for a minute: "
            "`cairn unlock` on the machine of the instance ends that",
        )


class InvalidAuthorization(CairnError):
    sqlstate = "28000"


class ProtocolViolation(CairnError):
    sqlstate = "08P01"


class TooManyConnections(CairnError):
    sqlstate = "53300"


class MemoryLimit(CairnError):
    """A session or a user may not keep more than the settings say."""

    sqlstate = "53400"


class DiskFull(CairnError):
    sqlstate = "53100"


class UndefinedStatement(CairnError):
    sqlstate = "26000"


class UndefinedCursor(CairnError):
    sqlstate = "34000"


class DuplicateStatement(CairnError):
    sqlstate = "42P05"


class DuplicateCursor(CairnError):
    sqlstate = "42P03"


class InFailedTransaction(CairnError):
    sqlstate = "25P02"

    def __init__(self) -> None:
        super().__init__(
            "current transaction is aborted, commands ignored until end of transaction block"
        )


# --- the cluster's own life ---------------------------------------------------------------------


class JoinRefused(CairnError):
    """The sentence says why, so that an administrator can act on it."""

    sqlstate = "55000"


class Expelled(CairnError):
    """This instance was expelled: it stops and never comes back under its raft_id."""

    sqlstate = "57P01"


class StorageDamaged(CairnError):
    """A file cannot be trusted. The instance refuses to start rather than serve wrong rows."""

    sqlstate = "XX001"


class PeerRefused(CairnError):
    """A handshake between instances failed; the text says what did not match."""

    sqlstate = "28000"


class WrongCluster(PeerRefused):
    """As both sides are configured they never get together: trying again does not help."""


class UnknownCall(PeerRefused):
    """The peer is of another version: it does not have what was asked for."""

    def __init__(self, method: str) -> None:
        super().__init__(f"this instance does not know the call {method}")


class Unreachable(CairnError):
    """No answer from a peer; whether it acted is unknown unless the request was read-only."""

    sqlstate = "58000"


class NotSent(Unreachable):
    """The request never left: whatever it asked for certainly did not happen."""


class ConfigProblem(CairnError):
    """A flag, an environment variable or a line of the file is wrong; the text names it."""

    sqlstate = "F0000"
