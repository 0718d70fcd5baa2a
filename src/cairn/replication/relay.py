"""What a relay sends to a subscriber: only listed origins, only what it lacks (sans-IO).

An empty list means everything but the subscriber's own rows. A subscriber's vclock is
what it has durably: it is the acknowledgement of all before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from cairn.model.errors import CairnError
from cairn.model.log.records import Packed, Vclock
from cairn.replication.applier import OtherHistory
from cairn.replication.routing import Publication

#: (origin, after lsn, at most) → records in lsn order
ReadLog = Callable[[str, int, int], list[Packed]]
#: (origin, lsn) → the epoch of that record; 0: not known any more
EpochAt = Callable[[str, int], int]


class Subscribe(msgspec.Struct, frozen=True):
    """One pull. Each one acknowledges what the one before brought."""

    subscriber: str  # uuid
    replicaset: str  # uuid: rows never cross replicasets
    vclock: Vclock
    origins: tuple[str, ...] = ()
    limit: int = 1000
    wait_s: float = 0.5
    acks: dict[str, Vclock] = {}  # what the subscriber's own subscribers have durably
    epoch: int = 0  # the subscriber's: an acknowledgement counts in its own epoch only
    seen_routes: int = 0  # version of the relay's routing rows that the subscriber has
    epochs: Vclock = {}  # of the newest record of each origin: an lsn is used again after a cut
    held: Vclock = {}  # of statements that are not whole yet: it has nothing of them, and asks on

    def asks_after(self, origin: str) -> int:
        return max(self.vclock.get(origin, 0), self.held.get(origin, 0))


class Rows(msgspec.Struct, frozen=True):
    """Records in an order that can be applied, and where the relay itself stands."""

    records: list[Packed]
    vclock: Vclock
    epoch: int
    routes_version: int = 0
    routes: list[Publication] | None = None  # None: as the subscriber has seen them
    entered: int = 0  # the epoch that the relay knows of: in an older one it may have a tail


class LogTooShort(CairnError):
    """The log no longer holds what the subscriber lacks: it needs a full copy."""

    sqlstate = "55000"

    def __init__(self, origin: str, wanted: int, oldest: int) -> None:
        super().__init__(
            f"the row log begins at {origin}:{oldest}, {wanted} was asked for",
            hint="a full copy follows",
        )


def wanted_origins(request: Subscribe, known: Iterable[str]) -> list[str]:
    """The white list; never the subscriber's own rows."""
    asked = request.origins or tuple(sorted(known))
    return [origin for origin in asked if origin != request.subscriber]


def has_news(request: Subscribe, vclock: Vclock) -> bool:
    return any(
        vclock.get(origin, 0) > request.asks_after(origin)
        for origin in wanted_origins(request, vclock)
    )


def select(
    request: Subscribe, vclock: Vclock, oldest: Callable[[str], int], read: ReadLog
) -> list[Packed]:
    """The next records for a subscriber, older epochs first; raises when the log is too short."""
    found: list[Packed] = []
    for origin in wanted_origins(request, vclock):
        have = request.asks_after(origin)
        if have >= vclock.get(origin, 0):
            continue
        first = oldest(origin)
        if first == 0 or have + 1 < first:
            raise LogTooShort(origin, have + 1, first)
        found += read(origin, have, request.limit)
    found.sort(key=lambda record: (record.epoch, record.origin, record.lsn))
    return found[: request.limit]


def check_history(request: Subscribe, vclock: Vclock, epoch_at: EpochAt) -> None:
    """Refuse a subscriber whose log is not the beginning of ours.

    An instance that was away for several epochs hears only of the last cut. What it holds below
    that one may have been written by a master that was replaced, under lsns that were used again
    since. Equal epochs at one (origin, lsn) mean equal logs up to there: an epoch has one writer.
    """
    for origin, theirs in request.epochs.items():
        lsn = request.vclock.get(origin, 0)
        if not theirs or not 0 < lsn <= vclock.get(origin, 0):
            continue
        ours = epoch_at(origin, lsn)
        if ours not in (0, theirs):
            raise OtherHistory(origin=origin, lsn=lsn, here=ours, there=theirs)
