"""A copy of a table in files, kept current from its change stream.

Each micro-batch becomes one version of the copy: the newest row of every key that it tells of.
Where that cannot be known from the changes alone (the table was emptied or has other columns, a key
was told of by two owners) the copy is made anew from the rows as they were at the end of the batch.
A version knows the number of its batch, and Spark repeats a batch with the same number and the same
changes: one that is there is not made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from cairn.model.errors import InvalidParameter, Unsupported
from cairn.spark.files.lake_files import Copy, DeltaCopy, ParquetCopy
from cairn.spark.options import Options
from cairn.spark.reads.snapshot_read import array_of
from cairn.spark.streams.row_asking import RowAsker
from cairn.spark.tables import TableInfo, describe, spark_schema, wanted_schema

CHECKPOINT, LABEL = "_checkpoint", "_cairn.json"
FORMATS: dict[str, Callable[[Path, str], Copy]] = {"parquet": ParquetCopy, "delta": DeltaCopy}
_ANEW = {"truncate", "reset"}
Row = dict[str, Any]


def keep_copy(
    spark: Any, dsn: str, table: str, into: str, kind: str, *, every_s: float, once: bool
) -> Any:
    """The query that does it, started: from where the last one to the same place has ended."""
    info = describe(dsn, table)
    if info.tier is None:
        raise Unsupported(f"{table} is not sharded: only sharded tables are copied yet")
    place = Path(into).absolute()
    copy = FORMATS[kind](place, table)
    _check_place(place, copy, {"table": table, "format": kind})
    stream = spark.readStream.format("cairn").option("dsn", dsn).option("stream", f"table:{table}")
    writer = (
        stream.option("startingOffset", "snapshot")
        .option("failOnDataLoss", "false")  # then the copy is made anew
        .load()
        .writeStream.foreachBatch(Batches(spark, dsn, table, place, copy).apply)
        .option("checkpointLocation", str(place / CHECKPOINT))
    )
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()


def _check_place(place: Path, copy: Copy, label: dict[str, str]) -> None:
    """Batches are counted by the checkpoint: without it their numbers would begin anew."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / LABEL
    if path.exists() and json.loads(path.read_text()) != label:
        raise InvalidParameter(
            f"{place} has a copy of another table or in another format: {path.read_text().strip()}",
            hint="choose another directory",
        )
    if copy.number() >= 0 and not (place / CHECKPOINT).exists():
        raise InvalidParameter(
            f"{place} has a copy, but not its {CHECKPOINT}",
            hint="choose another directory, or empty this one to start anew",
        )
    if not path.exists():
        if any(place.iterdir()):
            raise InvalidParameter(f"{place} has other files", hint="choose an empty directory")
        path.write_text(json.dumps(label) + "\n")


class Batches:
    """Makes a version of the copy from each micro-batch."""

    def __init__(self, spark: Any, dsn: str, table: str, place: Path, copy: Copy) -> None:
        self._spark, self._dsn, self._table = spark, dsn, table
        self._place, self._copy = place, copy

    def apply(self, frame: Any, number: int) -> None:
        if self._copy.number() >= number:
            return  # made, and its end not noted by Spark
        told = frame.select("op", "key", "old", "new", "replicaset", "epoch", "lsn", "n")
        while not self._apply(told, number):
            pass  # the table got other columns meanwhile

    def _apply(self, told: Any, number: int) -> bool:
        table, known = describe(self._dsn, self._table), self._copy.schema()
        schema, keys = _schema(table), self._keys(table)
        changes = told.toArrow().to_pylist()
        if not changes and known == schema:
            return True  # other tables have moved the position
        found = newest(changes, keys) if known in (None, schema) else None
        rows = self._rows_at_the_end(number) if found is None else None
        now = describe(self._dsn, self._table)
        if _schema(now) != schema or self._keys(now) != keys:
            return False
        if found is None:
            self._copy.replace(number, keys, rows)
        else:
            self._copy.change(number, keys, *(_arrow(each, schema) for each in found))
        return True

    def _keys(self, table: TableInfo) -> list[str]:
        """What tells rows apart. A primary key may be in the table twice, in two buckets."""
        assert table.tier is not None
        asker = RowAsker(Options(dsn=self._dsn), table.name, table.tier)
        primary = asker.ask(asker.replicasets()[0], "latest")["key"]
        return [*primary, *(name for name in table.key if name not in primary)]

    def _rows_at_the_end(self, number: int) -> Any:
        """As they were there; or as they are, if nobody can tell that any more.

        Then some changes are told that are in them already. To put a row twice does no harm.
        """
        lines = (self._place / CHECKPOINT / "offsets" / str(number)).read_text().splitlines()
        reader = self._spark.read.format("cairn").option("dsn", self._dsn)
        reader = reader.option("table", self._table)
        try:
            frame = reader.option("snapshot", lines[-1]).load()
            return _plain(frame.toArrow(), frame)
        except Exception as problem:
            if not any(code in str(problem) for code in ("[PC005]", "[PC001]")):
                raise
        frame = reader.option("snapshot", "false").load()
        return _plain(frame.toArrow(), frame)


def newest(changes: list[Row], keys: list[str]) -> tuple[list[Row], list[Row]] | None:
    """The rows to put, and those to take away.

    None: the changes alone do not tell. Epochs of two replicasets cannot be compared, so a key
    that two have told of in one batch has no newest row here.
    """
    if any(change["op"] in _ANEW for change in changes):
        return None
    teller: dict[str, str] = {}
    last: dict[str, tuple[bool, Row]] = {}
    for change in sorted(changes, key=_order):
        for side in ("old", "new"):
            if change[side] is None:
                continue
            row = json.loads(change[side])
            which = json.dumps([row.get(name) for name in keys])
            if teller.setdefault(which, change["replicaset"]) != change["replicaset"]:
                return None
            last[which] = (side == "new", row)
    put = [row for is_there, row in last.values() if is_there]
    return put, [row for is_there, row in last.values() if not is_there]


def _order(change: Row) -> tuple[int, int, int]:
    """Within a replicaset; rows of a snapshot have no position, and come alone."""
    return change["epoch"] or 0, change["lsn"] or 0, change["n"] or 0


def _schema(table: TableInfo) -> Any:
    want = wanted_schema(spark_schema(table, (), 18))
    return pa.schema([pa.field(each.name, each.type) for each in want])


def _plain(rows: Any, frame: Any) -> Any:
    """With the columns' types as they are told; whether NULL is allowed is not part of a copy."""
    want = wanted_schema(frame.schema)
    return rows.cast(pa.schema([pa.field(each.name, each.type) for each in want]))


def _arrow(rows: list[dict[str, Any]], schema: Any) -> Any:
    arrays = [array_of([row.get(field.name) for row in rows], field) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
