"""Whether a record from the row log may be applied here, and in which order (sans-IO).

Inside an epoch there is one writer, so its lsn order is the whole causal order; between epochs
the cuts decide (docs/explanation-rows.md). A record is judged by the cut of its own epoch, which
has to be covered before it, and by all later ones, of which none may leave it out. This check runs
inside the write transaction, for whichever link the record came by.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from cairn.model.errors import CairnError
from cairn.model.log.records import Packed, Record, Vclock, covers


class History(msgspec.Struct, frozen=True):
    """What Raft says of a replicaset: the present epoch, and where all earlier ones end."""

    epoch: int = 0
    cut: Vclock = {}
    past: dict[int, Vclock] = {}  # the cuts of earlier epochs; the oldest are forgotten
    promised: int = 0  # epochs below this one are acknowledged only inside the cut

    def cut_of(self, epoch: int) -> Vclock | None:
        """Where `epoch` begins; None when that is not remembered."""
        return self.cut if epoch == self.epoch else self.past.get(epoch)

    def limit(self, origin: str, epoch: int) -> int:
        """The last lsn of an origin's records of an earlier epoch that no later cut leaves out."""
        later = [cut for number, cut in self.past.items() if number > epoch]
        return min(cut.get(origin, 0) for cut in (*later, self.cut))

    def knows_all_after(self, epoch: int) -> bool:
        """Whether no cut after that of `epoch` is forgotten."""
        return all(self.cut_of(number) is not None for number in range(epoch + 1, self.epoch))


class Verdict(enum.Enum):
    APPLY = "apply"
    SKIP = "skip"  # seen before, by another link
    WAIT = "wait"  # not yet: Raft or another origin has to catch up first


class LogRefused(CairnError):
    """What a peer sent must not be applied: this instance stops following it and says why."""

    sqlstate = "XX001"


class LogGap(LogRefused):
    """Rows are missing between what is here and what came."""

    def __init__(self, *, origin: str, expected: int, received: int) -> None:
        super().__init__(f"row log of {origin}: expected lsn {expected}, received {received}")
        self.origin, self.expected, self.received = origin, expected, received


class NotHistory(LogRefused):
    """The record was written by a master that had been replaced: it belongs to no history."""

    def __init__(self, record: Record | Packed, history: History) -> None:
        super().__init__(
            f"record {record.origin}:{record.lsn} of epoch {record.epoch} is past the cut of "
            f"epoch {history.epoch}"
        )


class CutForgotten(LogRefused):
    """The record is of an epoch so long ago that its place among others is not known any more.

    Only a full copy helps.
    """

    def __init__(self, record: Record | Packed) -> None:
        super().__init__(
            f"record {record.origin}:{record.lsn} is of epoch {record.epoch}, whose cut is "
            "forgotten"
        )


class WrongOrigin(LogRefused):
    """Nobody asked this peer for rows of that origin."""

    def __init__(self, record: Record | Packed) -> None:
        super().__init__(
            f"record {record.origin}:{record.lsn} is of an origin that was not asked for"
        )


class OtherReplicaset(LogRefused):
    """Said by a relay: rows never cross replicasets."""


class Damaged(LogRefused):
    """A record cannot be read, or does not fit the rows it is about."""

    def __init__(self, origin: str, lsn: int, why: str) -> None:
        super().__init__(f"record {origin}:{lsn} {why}")


class NoRoom(LogRefused):
    """A part of a long statement cannot be held until the others are here."""

    sqlstate = "53100"

    def __init__(self, record: Packed, why: CairnError) -> None:
        super().__init__(f"record {record.origin}:{record.lsn} cannot be held: {why.message}")


class OtherHistory(LogRefused):
    """Two instances hold different records under one (origin, lsn): a cut was missed here.

    Only a full copy helps: what the records before it did to the rows cannot be told either.
    """

    def __init__(self, *, origin: str, lsn: int, here: int, there: int) -> None:
        super().__init__(
            f"record {origin}:{lsn} is of epoch {here} at the upstream, the subscriber has it of "
            f"epoch {there}",
            detail=origin,
        )

    @property
    def origin(self) -> str:
        """From the detail, which is what crosses the wire."""
        return self.detail or ""


def judge(record: Record | Packed, vclock: Vclock, history: History) -> Verdict:
    """What to do with `record`; raises for what must not happen."""
    have = vclock.get(record.origin, 0)
    if record.lsn <= have:
        return Verdict.SKIP
    if record.epoch > history.epoch:
        return Verdict.WAIT  # its naming has not been applied here yet
    if record.epoch < history.epoch:
        if record.lsn > history.limit(record.origin, record.epoch):
            raise NotHistory(record, history)
    elif record.epoch < history.promised:
        return Verdict.WAIT  # sealed: acknowledged by nobody until a new epoch is named
    begin = history.cut_of(record.epoch)
    if begin is None:
        raise CutForgotten(record)
    if not covers(vclock, begin):
        return Verdict.WAIT  # the epoch begins where the earlier ones end
    if record.lsn > have + 1:
        raise LogGap(origin=record.origin, expected=have + 1, received=record.lsn)
    return Verdict.APPLY


def why_waits(record: Record | Packed, vclock: Vclock, history: History) -> str:
    """What has to come before a record that `judge` lets wait, for people."""
    name = f"record {record.origin}:{record.lsn} of epoch {record.epoch}"
    lacking = [
        f"{origin}:{lsn}"
        for origin, lsn in sorted((history.cut_of(record.epoch) or {}).items())
        if vclock.get(origin, 0) < lsn
    ]
    if record.epoch > history.epoch or not lacking:
        return f"{name} waits for the naming of a master"
    return f"{name} waits for {', '.join(lacking)}"


def check_origins(records: Iterable[Packed], asked: tuple[str, ...], me: str) -> None:
    """Only what was asked for is taken; our own rows from nobody."""
    for record in records:
        if record.origin == me or (asked and record.origin not in asked):
            raise WrongOrigin(record)


def diverged(vclock: Vclock, history: History, own_epochs: dict[str, int]) -> Vclock:
    """Per origin the last lsn that may stay, where what is here goes past the cut.

    `own_epochs` is the epoch of the newest record held of each origin: records of the present
    epoch are never past its cut.
    """
    found: Vclock = {}
    for origin, lsn in vclock.items():
        epoch = own_epochs.get(origin, history.epoch)
        if epoch < history.epoch and lsn > (limit := history.limit(origin, epoch)):
            found[origin] = limit
    return found
