"""Two replicasets with real stores, and a move between their masters: no threads, no network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from cairn.model.log.packed_rows import unpacked
from cairn.model.log.records import Operation, Shape, Vclock
from cairn.model.members.moves import END, Move
from cairn.model.tables.schema import Table
from cairn.moves.delta import Delta, Progress
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.moving_in import begin, drop_some, progress_of, sweep_some, take
from cairn.storage.data_db.moving_out import MoveReader
from tests.replication.builders import TABLE, Site

T = TABLE.physical_name
LARGE = 1 << 30
#: Buckets 3…6 of ten go from S to T.
MOVE = Move(1, "default", 3, 6, "s", "t")


class MoveSite(Site):
    """A store that also gives and takes buckets."""

    def open(self) -> None:
        super().open()
        self.store.connection.pragma("synchronous", 0)  # nobody pulls a plug here
        self.gives = MoveReader(self.path)
        self.tables: dict[int, Table] = {TABLE.id: TABLE}  # as the catalogue has them

    def close(self) -> None:
        self.gives.close()
        super().close()

    def become(self, epoch: int = 1, **fields: Any) -> None:
        made = {"is_master": True, "master": self.name, "ranges": (), "owned": (), **fields}
        self.store.fence = Fence(epoch, **made)

    def owns(self, epoch: int = 1, *ranges: tuple[int, int], **fields: Any) -> None:
        found = ranges or ((1, 10),)
        self.become(epoch, ranges=found, owned=found, **fields)

    def put(self, bucket: int, key: int, text: str) -> int:
        return self.run(f"INSERT OR REPLACE INTO {T} VALUES (?, ?, ?)", bucket, key, text)[1]

    def change(self, text: str, *values: Any) -> None:
        self.run(text.replace(" t ", f" {T} "), *values)

    def bulk(self, rows: list[tuple[Any, ...]]) -> None:
        text = f"INSERT INTO {T} VALUES (?, ?, ?)"
        self.group(
            lambda: self.store.statement(lambda: self.store.bulk_insert(TABLE.id, text, rows))
        )

    def operation(self, name: str, buckets: Iterable[int], rows: list[tuple[Any, ...]]) -> None:
        """Rows written once, under a name."""

        def work() -> int:
            for row in rows:
                self.store.connection.execute(f"INSERT OR REPLACE INTO {T} VALUES (?, ?, ?)", row)
            ranges = tuple((bucket, bucket) for bucket in buckets)
            self.store.put_operation(Operation(name, len(rows), ranges))
            return len(rows)

        self.group(lambda: self.store.statement(work))

    def done(self) -> dict[str, Any]:
        query = "SELECT id FROM done_operation"
        names = [row[0] for row in self.reader.connection.execute(query)]
        found = [self.store.operation(name) for name in names]
        return {each.id: each.buckets for each in found if each is not None}

    def shaped(self, shape: Shape) -> None:
        """A schema change, made here and known to the catalogue."""
        self.reshape(shape)
        if shape.table is None:
            self.tables.pop(shape.table_id, None)
        else:
            self.tables[shape.table_id] = shape.table

    def content(self, start: int = 3, end: int = 6, table: Table = TABLE) -> list[Any]:
        query = (
            f"SELECT * FROM {table.physical_name} WHERE bucket_id BETWEEN ? AND ? "
            "ORDER BY bucket_id, c0"
        )
        return self.reader.connection.execute(query, (start, end)).fetchall()

    # --- a move ---------------------------------------------------------------------------------

    def progress(self, move: Move = MOVE) -> Progress | None:
        return progress_of(self.store.connection, move.id)

    def begin(self, giver: MoveSite, move: Move = MOVE, attempt: int = 1) -> None:
        at, total = giver.gives.stamp(), giver.gives.total(move.start, move.end)
        self.group(lambda: begin(self.store, move, attempt, at, total))

    def ask(self, giver: MoveSite, move: Move = MOVE, max_bytes: int = LARGE) -> Delta:
        """The next delta, not taken yet."""
        known = self.progress(move)
        assert known is not None
        epoch = giver.store.fence.epoch
        return giver.gives.delta(move.start, move.end, known.at, known.after, max_bytes, epoch)

    def take_delta(self, known: Progress, delta: Delta, move: Move = MOVE) -> int:
        truncated = {table.id: table.truncated_at for table in self.tables.values()}
        lsn: int = self.group(lambda: take(self.store, move, known, delta, truncated))
        return lsn

    def pull(self, giver: MoveSite, max_bytes: int = LARGE, move: Move = MOVE) -> Delta:
        known = self.progress(move)
        assert known is not None
        delta = self.ask(giver, move, max_bytes)
        self.take_delta(known, delta, move)
        return delta

    def pull_all(self, giver: MoveSite, max_bytes: int = LARGE, move: Move = MOVE) -> None:
        for _ in range(10_000):
            delta = self.pull(giver, max_bytes, move)
            if delta.after == END and not delta.lag:
                return
        raise AssertionError("no end")

    def sweep(self, start: int, end: int, limit: int = 1_000) -> int:
        lsn: int = self.group(lambda: sweep_some(self.store, start, end, limit))
        return lsn

    def drop(self, limit: int = 1_000, move: Move = MOVE) -> int:
        lsn: int = self.group(lambda: drop_some(self.store, move, limit))
        return lsn


class Pair:
    """S owns everything, T takes buckets 3…6; each has a replica."""

    def __init__(self, directory: Path) -> None:
        self.s, self.t = MoveSite(directory, "s1"), MoveSite(directory, "t1")
        self.s2, self.t2 = MoveSite(directory, "s2"), MoveSite(directory, "t2")
        self.sites = (self.s, self.s2, self.t, self.t2)
        self.s.owns(1)
        self.t.become(1, incoming=((MOVE.id, MOVE.start, MOVE.end),))
        self.s.create()
        self.t.create()
        cut: Vclock = {}
        for site in self.sites:
            site.enter(1, **cut)
        for replica in (self.s2, self.t2):
            replica.store.fence = Fence(1)
        self.replicate()

    def close(self) -> None:
        for site in self.sites:
            site.close()

    def replicate(self) -> None:
        self.s2.follow(self.s)
        self.t2.follow(self.t)

    def catalogue(self, shape: Shape) -> None:
        for site in (self.s, self.t):
            site.shaped(shape)


def filled(pair: Pair, count: int = 8) -> None:
    """A key for each bucket from 1 on, key = 10 × bucket."""
    for bucket in range(1, count + 1):
        pair.s.put(bucket, 10 * bucket, f"v{bucket}")


def rows_of(delta: Delta) -> list[tuple[int, int, list[Any]]]:
    return [(table, version, unpacked(packed)) for table, version, packed in delta.rows]


def wider(table: Table, version: int, **fields: Any) -> Table:
    return msgspec.structs.replace(table, schema_version=version, **fields)
