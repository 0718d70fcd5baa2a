"""Whether a record from the row log may be applied here, and in which order (sans-IO).

Inside an epoch there is one writer, so its lsn order is the whole causal order; between epochs
the cut decides (data-plane rules 1–3). The same check runs inside the write transaction, for
whichever link the record came by.
"""

from __future__ import annotations

import enum

import msgspec

from cairn.model.errors import CairnError
from cairn.model.records import Record, Vclock, covers


class History(msgspec.Struct, frozen=True):
    """What Raft says of a replicaset: the present epoch, and where all earlier ones end."""

    epoch: int = 0
    cut: Vclock = {}
    promised: int = 0  # epochs below this one are acknowledged only inside the cut


class Verdict(enum.Enum):
    APPLY = "apply"
    SKIP = "skip"  # seen before, by another link
    WAIT = "wait"  # not yet: Raft or another origin has to catch up first


class LogGap(CairnError):
    """Rows are missing between what is here and what came."""

    sqlstate = "XX001"

    def __init__(self, *, origin: str, expected: int, received: int) -> None:
        super().__init__(f"row log of {origin}: expected lsn {expected}, received {received}")
        self.origin, self.expected, self.received = origin, expected, received


class NotHistory(CairnError):
    """The record was written by a master that had been replaced: it belongs to no history."""

    sqlstate = "XX001"

    def __init__(self, record: Record, history: History) -> None:
        super().__init__(
            f"record {record.origin}:{record.lsn} of epoch {record.epoch} is past the cut of "
            f"epoch {history.epoch}"
        )


class Damaged(CairnError):
    """A record does not fit the rows it is about."""

    sqlstate = "XX001"


def judge(record: Record, vclock: Vclock, history: History) -> Verdict:
    """What to do with `record`; raises for what must not happen."""
    have = vclock.get(record.origin, 0)
    if record.lsn <= have:
        return Verdict.SKIP
    if record.epoch > history.epoch:
        return Verdict.WAIT  # its naming has not been applied here yet
    if record.epoch < history.epoch:
        if record.lsn > history.cut.get(record.origin, 0):
            raise NotHistory(record, history)
    elif record.epoch < history.promised:
        return Verdict.WAIT  # sealed: acknowledged by nobody until a new epoch is named
    elif not covers(vclock, history.cut):
        return Verdict.WAIT  # the epoch begins where the earlier ones end
    if record.lsn > have + 1:
        raise LogGap(origin=record.origin, expected=have + 1, received=record.lsn)
    return Verdict.APPLY


def diverged(vclock: Vclock, history: History, own_epochs: dict[str, int]) -> Vclock:
    """Per origin the last lsn that may stay, where what is here goes past the cut.

    `own_epochs` is the epoch of the newest record held of each origin: records of the present
    epoch are never past its cut.
    """
    return {
        origin: history.cut.get(origin, 0)
        for origin, lsn in vclock.items()
        if own_epochs.get(origin, history.epoch) < history.epoch
        and lsn > history.cut.get(origin, 0)
    }
