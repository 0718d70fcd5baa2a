"""Records, histories and stores for tests of the row log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from cairn.model.log.records import (
    Body,
    Kind,
    Packed,
    RowChange,
    RowOp,
    Shape,
    Vclock,
    encode_body,
)
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, Column, Index, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.replication.applier import History
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.row_log import Applier, LogReader, Taken

TABLE = Table(
    id=FIRST_USER_TABLE_ID,
    name="t",
    columns=(Column("a", ColumnType.INTEGER, nullable=False), Column("b", ColumnType.STRING)),
    primary_key=("a",),
    sharding=Sharded(("a",), "default"),
    schema_version=1,
)
WIDER = msgspec.structs.replace(
    TABLE, columns=(*TABLE.columns, Column("c", ColumnType.INTEGER)), schema_version=2
)
BY_B = Index(TABLE.id, 1, "by_b", ("b",))


def packed(
    origin: str, epoch: int, lsn: int, *changes: RowChange, kind: Kind = Kind.ROWS, **more: Any
) -> Packed:
    return Packed(origin, epoch, lsn, encode_body(Body(kind, 0, changes, **more)))


def inserted(key: int, text: str = "x", *, version: int = 1, table: int = TABLE.id) -> RowChange:
    return RowChange(table, version, RowOp.INSERT, None, (1, key, text))


class Site:
    """One instance's `data.db`, written without threads: each call is a group of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self.path = name, directory / f"{name}.db"
        self.open()

    def open(self) -> None:
        self.store = DataStore(self.path, self.name, now_micros=lambda: 0)
        self.applier = Applier(self.store)
        self.reader = LogReader(self.path)

    def reopen(self) -> None:
        self.close()
        self.open()

    def close(self) -> None:
        self.reader.close()
        self.store.close()

    def group(self, work: Callable[[], Any]) -> Any:
        """As the writer runs it: committed even if the work was refused."""
        execute = self.store.connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            return work()
        finally:
            execute("COMMIT")

    def master(self, epoch: int) -> None:
        self.store.fence = Fence(epoch, is_master=True, master=self.name, ranges=((1, 10),))

    def run(self, sql: str, *values: Any) -> tuple[int, int]:
        """A statement of a client: rows and lsn."""

        def work() -> int:
            self.store.connection.execute(sql, values)
            return self.store.count_rows()

        found: tuple[int, int] = self.group(lambda: self.store.statement(work))
        return found

    def insert(self, key: int, text: str = "x") -> int:
        return self.run(
            f"INSERT INTO {TABLE.physical_name}(bucket_id, c0, c1) VALUES (1, ?, ?)", key, text
        )[1]

    def reshape(self, shape: Shape) -> None:
        def work() -> int:
            self.store.reshape(shape)
            return 0

        self.group(lambda: self.store.statement(work))

    def create(self) -> None:
        self.reshape(Shape(TABLE.id, TABLE))

    def enter(self, epoch: int, past: dict[int, Vclock] | None = None, **cut: int) -> Any:
        """`past`: the cuts of earlier epochs, for a site that was not there when they began."""
        known = self.applier.history
        before = {**known.past, known.epoch: known.cut} if past is None else past
        return self.group(lambda: self.applier.enter_epoch(History(epoch, cut, before)))

    def take(self, records: Iterable[Packed]) -> int:
        done: Taken = self.group(lambda: self.applier.apply(list(records), self.applier.history))
        return done.applied

    def log_of(self, origin: str, after: int = 0) -> list[Packed]:
        return self.reader.packed(origin, after, 1000, 1 << 30)

    def follow(self, upstream: Site, origin: str | None = None) -> int:
        origin = origin or upstream.name
        return self.take(upstream.log_of(origin, self.store.vclock.get(origin, 0)))

    def rows(self) -> list[Any]:
        columns = self.store.tables[TABLE.id].physical_columns[1:]
        query = f"SELECT {', '.join(columns)} FROM {TABLE.physical_name} ORDER BY c0"
        return self.reader.connection.execute(query).fetchall()

    def diverged(self) -> list[Any]:
        query = "SELECT origin, epoch, lsn FROM _cairn_diverged ORDER BY 2, 1, 3"
        return self.reader.connection.execute(query).fetchall()
