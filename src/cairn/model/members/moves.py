"""A range of buckets on its way from one replicaset to another, as a row of `_cairn_move`."""

from __future__ import annotations

import enum

import msgspec

#: Where a log stands: origin uuid → (lsn, epoch of that record). The epoch tells histories apart.
Stamp = dict[str, tuple[int, int]]

#: How far rows are copied: () nothing, then (table id, bucket, key…), then END.
Mark = tuple[object, ...]
END: Mark = (1 << 62,)


DoneIn = tuple[str, int, tuple[tuple[int, int], ...]]

#: Rows, and bytes of their values.
Amount = tuple[int, int]


class Phase(enum.StrEnum):
    COPYING = "copying"  # the source serves; the target copies and follows the source's log
    FROZEN = "frozen"  # nobody writes the range nor reads it as leader: the last records travel
    COPIED = "copied"  # the target owns it, no way back; the source drops its old rows
    ABORTING = "aborting"  # the source has it back; the target drops what it copied
    DONE = "done"
    ABORTED = "aborted"


#: Phases in which somebody still has to do something.
OPEN = frozenset({Phase.COPYING, Phase.FROZEN, Phase.COPIED, Phase.ABORTING})
#: Phases in which the target may take rows.
TAKES = frozenset({Phase.COPYING, Phase.FROZEN})


class Move(msgspec.Struct, frozen=True):
    """Buckets `start`…`end` of a tier, both included."""

    id: int
    tier: str
    start: int
    end: int
    source: str  # names of replicasets
    target: str
    phase: Phase = Phase.COPYING
    source_epoch: int = 0  # of the freeze: a change of master in between voids the hand-over
    target_epoch: int = 0
    frozen_at: int = 0  # which freeze this is: the position at which the governor decided it
    thaws: int = 0  # how often a freeze took too long
    source_final: Stamp = {}  # the last record of the source that concerns the range
    target_first: Stamp = {}  # where the target's log stood when it had everything
    reason: str = ""  # why it was begun, or given up
    started: str = ""
    changed: str = ""

    @property
    def is_open(self) -> bool:
        return self.phase in OPEN

    @property
    def buckets(self) -> int:
        return self.end - self.start + 1

    def __str__(self) -> str:
        return f"{self.start}–{self.end} of {self.tier} from {self.source} to {self.target}"


class MoveReport(msgspec.Struct, frozen=True):
    """What a master tells the governor about a move it takes part in; nothing of it is durable."""

    move: int
    instance: str
    attempt: int = 0
    rows: int = 0  # copied so far in this attempt
    bytes: int = 0
    total: Amount | None = None  # what the source had when the attempt began; None: not counted
    rows_per_s: float = 0.0  # over the last seconds
    lag: int = 0  # records of the source that were not here at the last answer
    is_near: bool = False  # so little is missing that a freeze will be short
    frozen_at: int = 0  # the freeze that the two positions below belong to
    source_epoch: int = 0
    target_epoch: int = 0
    final: Stamp | None = None
    first: Stamp | None = None
    is_empty: bool = False  # the rows that had to go are gone, on those who count
    problem: str = ""
    is_hopeless: bool = False  # the move should be given up


class MovePart(msgspec.Struct, frozen=True, array_like=True):
    """What a record of kind MOVE does; replicas of the master that wrote it do the same.

    Every action can be repeated: it names ranges and positions, not what it expects to find.
    """

    move: int
    attempt: int
    action: str  # empty | delta | drop | end | sweep
    start: int
    end: int
    at: Stamp = {}
    after: Mark = ()
    #: (table, schema version, packed rows) that were copied; changes of copied rows are in the
    #: record.
    rows: tuple[tuple[int, int, msgspec.Raw], ...] = ()
    #: Operations that were done at the source: (id, rows, ranges of buckets).
    operations: tuple[DoneIn, ...] = ()
    done: Amount = (0, 0)  # copied so far, with this part
    total: Amount | None = None  # what there was to copy when the attempt began


class MoveSeen(msgspec.Struct, frozen=True):
    """A move that is planned or under way, for people: a row of `_cairn_rebalance`."""

    tier: str
    start: int
    end: int
    source: str
    target: str
    phase: str  # `planned`, or a phase
    id: int | None = None
    started: str = ""
    attempt: int = 0
    rows: int = 0  # copied
    rows_to_do: int | None = None  # None: not known
    bytes: int = 0
    bytes_to_do: int | None = None
    rows_per_s: float | None = None
    eta_s: float | None = None
    records_behind: int | None = None
    thaws: int = 0
    waits_for: str = ""
