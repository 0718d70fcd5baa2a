"""Compare-and-swap on the log: may this operation be appended after all that was appended since?

The only way into the Raft log. The leader asks `CasLog.check` and appends in one synchronous turn,
so nothing can come between. The tail that is not committed yet counts as well. Keys are opaque
bytes whose order is the order of the keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from cairn.model.log.ranges import KeyRange as KeyRange
from cairn.model.log.ranges import Predicate as Predicate

MOST_RANGES = (
    65_536  # of entries that are remembered: bulk loads of global tables have thousands each
)


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """What the check needs to know of one log entry."""

    index: int
    term: int
    request_id: bytes
    touched: tuple[KeyRange, ...]


# --- what a check says, and what a waiter is told: each a type of its own -----------------------


class Accepted(msgspec.Struct, frozen=True):
    """Append now, in the same turn."""


class AlreadyAppended(msgspec.Struct, frozen=True):
    """This very request is in the log: wait for that entry, do not append again."""

    index: int
    term: int


class ConflictFound(msgspec.Struct, frozen=True):
    """Another request touched a range. Read again, then retry."""

    index: int
    term: int
    request_id: bytes


class CompactedAway(msgspec.Struct, frozen=True):
    """What happened after the predicate's index can no longer be told. Read again."""

    compacted_index: int


class LeaderElsewhere(msgspec.Struct, frozen=True):
    """Nothing was appended here. `leader` is whom to ask, when known."""

    leader: int | None


class WrongTerm(msgspec.Struct, frozen=True):
    """Leadership changed since the predicate was made. Nothing was appended."""

    requested: int
    current: int


class NotReady(msgspec.Struct, frozen=True):
    """A new leader has not committed in its term yet. Nothing was appended; retry soon."""


CheckOutcome = (
    Accepted
    | AlreadyAppended
    | ConflictFound
    | CompactedAway
    | LeaderElsewhere
    | WrongTerm
    | NotReady
)


class Standing(msgspec.Struct, frozen=True):
    """The leader's own situation at the moment of a check."""

    is_leader: bool
    leader: int | None
    term: int
    committed_in_term: bool


class CasLog:
    """The tail of the log as ranges, uncommitted entries included; rebuilt on becoming leader."""

    def __init__(self, compacted_index: int = 0) -> None:
        self.compacted_index = compacted_index  # nothing is known up to here
        self._records: deque[LogRecord] = deque()
        self._ranges = 0  # of all records
        self._by_request: dict[bytes, LogRecord] = {}

    def rebuild(self, compacted_index: int, records: Iterable[LogRecord]) -> None:
        self.compacted_index = compacted_index
        self._records.clear()
        self._by_request.clear()
        self._ranges = 0
        for record in records:
            self.append(record)

    def append(self, record: LogRecord) -> None:
        """An entry came to the log; one at or after its index is replaced by it."""
        self.truncate_from(record.index)
        self._records.append(record)
        self._ranges += len(record.touched)
        if record.request_id:
            self._by_request[record.request_id] = record
        while self._ranges > MOST_RANGES and len(self._records) > 1:
            self.compact(self._records[0].index)

    def truncate_from(self, index: int) -> None:
        while self._records and self._records[-1].index >= index:
            self._forget(self._records.pop())

    def compact(self, index: int) -> None:
        """Forget everything up to `index`."""
        while self._records and self._records[0].index <= index:
            self._forget(self._records.popleft())
        self.compacted_index = max(self.compacted_index, index)

    def _forget(self, record: LogRecord) -> None:
        self._ranges -= len(record.touched)
        if self._by_request.get(record.request_id) is record:
            del self._by_request[record.request_id]

    def check(
        self,
        predicate: Predicate,
        request_id: bytes,
        op_ranges: tuple[KeyRange, ...],
        standing: Standing,
    ) -> CheckOutcome:
        """May an operation on `op_ranges` be appended? Every refusal means nothing was appended.

        One's own entry is looked for first: a request that was appended before passed its check
        then, and must not be told of conflicts with what came after it.
        """
        if not standing.is_leader:
            return LeaderElsewhere(standing.leader)
        if not standing.committed_in_term:
            return NotReady()
        own = self._by_request.get(request_id) if request_id else None
        if own is not None:
            return AlreadyAppended(own.index, own.term)
        if predicate.term != standing.term:
            return WrongTerm(predicate.term, standing.term)
        if predicate.index < self.compacted_index:
            return CompactedAway(self.compacted_index)
        return self.first_conflict(predicate, op_ranges) or Accepted()

    def first_conflict(
        self, predicate: Predicate, op_ranges: tuple[KeyRange, ...]
    ) -> ConflictFound | None:
        wanted = predicate.ranges + op_ranges
        found = None
        for record in reversed(self._records):
            if record.index <= predicate.index:
                break
            if any(touched.intersects(ours) for touched in record.touched for ours in wanted):
                found = ConflictFound(record.index, record.term, record.request_id)
        return found
