"""What a statement did, for EXPLAIN ANALYZE: by stage, and in each stage by instance.

A stage is a part of a plan. Whoever runs that part notes here what it asked of whom. Statements
that are not measured have no stage, and note nothing.
"""

from __future__ import annotations

import msgspec


class Work(msgspec.Struct):
    """One instance in one stage, as the instance that was asked by the client saw it."""

    instance: str
    replicaset: str
    is_here: bool  # the asker itself: nothing went over the network
    asked: int = 0  # requests
    rows: int = 0
    bytes: int = 0  # of rows that came from there or went there
    time_s: float = 0.0  # waited for its answers

    def waited(self, time_s: float) -> None:
        self.asked += 1
        self.time_s += time_s

    def came(self, rows: int, size: int) -> None:
        self.rows += rows
        self.bytes += size


class Stage:
    """A part of a plan at work. All stages of a statement are found by their part of its plan."""

    def __init__(self, known: dict[int, Stage] | None = None) -> None:
        self.works: dict[tuple[str, str], Work] = {}
        self.merge_s = 0.0  # spent on the gathered rows by the instance that was asked
        self.merged_rows: int | None = None
        self.sends = 0  # of the last values of its requests are rows of other stages
        self._known = {} if known is None else known

    def of(self, part: object) -> Stage:
        """The stage of one part of the plan, which lives as long as its statement."""
        return self._known.setdefault(id(part), Stage(self._known))

    def found(self, part: object) -> Stage | None:
        return self._known.get(id(part))

    def at(self, instance: str, replicaset: str, *, is_here: bool) -> Work:
        work = self.works.get((instance, replicaset))
        if work is None:
            work = self.works[instance, replicaset] = Work(instance, replicaset, is_here)
        return work

    @property
    def rows(self) -> int:
        return sum(work.rows for work in self.works.values())

    @property
    def bytes(self) -> int:
        return sum(work.bytes for work in self.works.values())

    @property
    def time_s(self) -> float:
        """The owners work at the same time: it took as long as the slowest."""
        return max((work.time_s for work in self.works.values()), default=0.0)


class Run(msgspec.Struct, frozen=True):
    """A statement that was carried out to be measured."""

    stage: Stage
    rows: int
    hops: int
    time_s: float
    instance: str  # that the client asked
