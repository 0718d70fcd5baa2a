"""Direct writes: rows go to their owners as they come, and survive a lost answer.

One COPY per owner carries chunks, and those it has not acknowledged are kept. When it breaks (the
master was killed, buckets moved), they are sent again to whoever owns them now. The broken COPY
may have written some of them, so a row that is already there exactly as sent is accepted; one
with the same key and other values is still a conflict. The same holds for all rows of a task that
Spark runs again, unless its first run met a conflict. That a task has begun and that it met a
conflict is noted in the cluster: Spark does not tell a task that its whole stage is run again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from cairn.model.errors import CairnError, UniqueViolation, Unreachable
from cairn.model.quoting import identifier
from cairn.spark import cluster
from cairn.spark.cluster import REPLAN_S, UNSURE, CopyIn, Owner
from cairn.spark.options import Options
from cairn.spark.tables import TableInfo
from cairn.spark.writes import staging
from cairn.spark.writes.splitting import Splitter, gathered, to_stream

ACK_ROWS = 400_000  # rows of one COPY: what a lane has to keep until it is acknowledged


class Lane:
    """The COPY to one owner, and the chunks it has not acknowledged yet."""

    def __init__(self, options: Options, sql: str, owner: Owner) -> None:
        self._options, self._sql, self._owner = options, sql, owner
        self._copy: CopyIn | None = None
        self.kept: list[Any] = []
        self._rows = 0

    def send(self, part: Any) -> None:
        self.kept.append(part)
        if self._copy is None:
            if not self._owner.addresses:
                raise Unreachable("the replicaset has no master")
            address, timeout_s = self._owner.addresses[0], self._options.timeout_s
            self._copy = CopyIn(self._options.dsn, address, self._sql, timeout_s)
        self._copy.send(to_stream(part))
        self._rows += part.num_rows
        if self._rows >= ACK_ROWS:
            self.finish()

    def finish(self) -> None:
        if self._copy is not None:
            count = self._copy.finish()
            if count != self._rows:
                raise CairnError(f"the server took {count} of {self._rows} rows")
        self._copy, self._rows = None, 0
        self.kept.clear()

    def abandon(self) -> None:
        if self._copy is not None:
            self._copy.abandon()
        self._copy, self._rows = None, 0


class DirectWrite:
    """The rows of one task."""

    def __init__(
        self,
        options: Options,
        table: TableInfo,
        owners: Sequence[Owner],
        names: Sequence[str],
        write_id: str,
        part: int,
    ) -> None:
        self._options, self._table, self._names = options, table, list(names)
        self._owners = list(owners)
        listed = ", ".join(map(identifier, names))
        sql = f"COPY {identifier(table.name)} ({listed}) FROM STDIN (FORMAT arrow)"
        self._lanes = [Lane(options, sql, owner) for owner in owners]
        self._conflict = options.on_conflict
        self._write_id = write_id
        if self._conflict == "error" and staging.has_begun(options.dsn, write_id, part):
            self._conflict = "same"
            if (met := staging.noted_conflict(options.dsn, write_id)) is not None:
                raise UniqueViolation(met)

    def write(self, batches: Iterator[Any]) -> int:
        """The number of rows taken."""
        if self._conflict != "error":
            return sum(self._deliver(batch, self._conflict) for batch in batches)
        try:
            return self._copy(batches)
        except CairnError as problem:
            if problem.sqlstate == UniqueViolation.sqlstate:
                sentence = f"{problem.message} {problem.detail or ''}".strip()
                staging.note_conflict(self._options.dsn, self._write_id, sentence)
            raise
        finally:
            for lane in self._lanes:
                lane.abandon()

    def _copy(self, batches: Iterator[Any]) -> int:
        splitter, rows = Splitter(self._table, self._owners), 0
        for batch in gathered(batches, self._options.batch_bytes):
            for at, part in splitter.chunks(batch):
                self._through(self._lanes[at], part)
                rows += part.num_rows
        for lane in self._lanes:
            self._through(lane, None)
        return rows

    def _through(self, lane: Lane, part: Any) -> None:
        """Send a chunk, or end the COPY; what a broken one leaves goes the slow and sure way."""
        try:
            lane.finish() if part is None else lane.send(part)
        except CairnError as problem:
            if problem.sqlstate not in UNSURE:
                raise
            lane.abandon()
            kept, lane.kept = lane.kept, []
            for chunk in kept:
                self._deliver(chunk, "same")

    def _deliver(self, batch: Any, conflict: str) -> int:
        """Each chunk to its owner of now, again and again while the topology moves."""
        until = time.monotonic() + REPLAN_S
        waiting = [batch]
        while waiting:
            try:
                owners = cluster.owners(self._options.dsn, self._table.tier or "")
                parts = [
                    (owners[at], part)
                    for each in waiting
                    for at, part in Splitter(self._table, owners).chunks(each)
                ]
            except CairnError as problem:
                self._wait_after(problem, until)
                continue
            waiting = [part for owner, part in parts if not self._ingest(owner, part, conflict)]
            if waiting:
                self._wait_after(Unreachable("some rows have no owner that answers"), until)
        return int(batch.num_rows)

    def _ingest(self, owner: Owner, part: Any, conflict: str) -> bool:
        """False: certainly or possibly not written; to be repeated."""
        if not owner.addresses:
            return False
        try:
            staging.ingest(
                self._options, self._table.name, self._names, to_stream(part), conflict,
                owner.addresses[0],
            )  # fmt: skip
        except CairnError as problem:
            if problem.sqlstate not in UNSURE:
                raise
            return False
        return True

    def _wait_after(self, problem: CairnError, until: float) -> None:
        if problem.sqlstate not in UNSURE or time.monotonic() > until:
            raise problem
        cluster.wait_for_news(self._options.dsn, 0.3)
