"""What passes over this instance's links: counted per peer and origin, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from cairn.model.log.records import Packed, Vclock


class Traffic(msgspec.Struct):
    """Records of one origin that crossed one link, in one direction."""

    records: int = 0
    bytes: int = 0
    twice: int = 0  # that came although they were here already

    def count(self, record: Packed) -> None:
        self.records += 1
        self.bytes += len(record.body)


class LinkStatus(msgspec.Struct):
    """One upstream, as `_cairn_link` and `cairn status` show it."""

    upstream: str = ""
    state: str = "off"  # off | follow | copying | stopped
    lag_rows: int = 0
    problem: str | None = None
    knows_lists: bool = True  # an older peer sends everything, and we drop what others give
    origins: dict[str, Traffic] = {}
    equal_at: float | None = None  # when we were last known to have all that the upstream had
    damaged_since: float | None = None  # since when a page of somebody keeps us from following

    @property
    def records(self) -> int:
        return sum(each.records for each in self.origins.values())

    @property
    def twice(self) -> int:
        return sum(each.twice for each in self.origins.values())

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.origins.values())

    def took(self, records: Iterable[Packed]) -> None:
        for record in records:
            self.origins.setdefault(record.origin, Traffic()).count(record)

    def dropped(self, records: Iterable[Packed]) -> None:
        """They were here already, by another link."""
        for record in records:
            self.origins[record.origin].twice += 1

    def compared(self, mine: Vclock, theirs: Vclock, asked_at: float) -> None:
        """How far behind the upstream we are, as of the moment of the question."""
        self.lag_rows = sum(max(lsn - mine.get(origin, 0), 0) for origin, lsn in theirs.items())
        if self.lag_rows == 0:
            self.equal_at = asked_at

    def lag_s(self, now: float) -> float | None:
        """Seconds since we last had everything; None: never yet."""
        return None if self.equal_at is None else max(now - self.equal_at, 0.0)


class KnownEpochs:
    """The epoch of the newest record of each origin: every pull tells it, few records move."""

    def __init__(self, look_up: Callable[[Vclock], Vclock]) -> None:
        self._look_up = look_up
        self._known: dict[str, tuple[int, int]] = {}  # origin → lsn and its epoch

    def at(self, vclock: Vclock) -> Vclock:
        known = self._known
        moved = {
            origin: lsn for origin, lsn in vclock.items() if known.get(origin, (0, 0))[0] != lsn
        }
        for origin in moved:
            known.pop(origin, None)
        for origin, epoch in (self._look_up(moved) if moved else {}).items():
            known[origin] = vclock[origin], epoch
        return {origin: known[origin][1] for origin in vclock if origin in known}

    def forget(self) -> None:
        """After a cut or a copy the same lsn may be another record."""
        self._known.clear()
