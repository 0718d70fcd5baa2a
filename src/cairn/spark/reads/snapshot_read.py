"""Reads of one moment of the whole cluster, and the position at which a stream goes on behind it.

A moment is the position of every replicaset's row log while all masters were held (for some
milliseconds). Each partition asks its master for the rows as of that position: what is there now,
with what the log has since then taken back. Nobody waits while it is read. The same text is a
`startingOffset`: the stream tells exactly the changes after the moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cairn.model.errors import CairnError, InvalidParameter, Unreachable, Unsupported
from cairn.model.quoting import literal
from cairn.model.types.byte_text import parse_bytes
from cairn.spark import cluster
from cairn.spark.options import Options
from cairn.spark.plainly import plainly
from cairn.spark.reads.reader import cut
from cairn.spark.streams.hand_overs import stamped
from cairn.spark.streams.row_asking import LOST, RowAsker
from cairn.spark.streams.stream import VERSION
from cairn.spark.tables import TableInfo, describe, wanted_schema

SPLITS = 4  # partitions per replicaset, unless option `splits` says otherwise
ATTEMPTS = 20


def moment(dsn: str, table: str) -> str:
    """One moment of all tables, as text for the options `snapshot` and `startingOffset`."""
    return json.dumps(_taken(Options(dsn=dsn, table=table), describe(dsn, table)), sort_keys=True)


def _taken(options: Options, table: TableInfo) -> dict[str, Any]:
    """With the positions of those that own nothing: asked before, so that nothing is skipped.

    If one of them owned something by then, its changes up to the moment would be told twice.
    """
    if table.tier is None:
        raise Unsupported(f"{table.name} is not sharded: it has no row log to read a moment from")
    asker = RowAsker(options, table.name, table.tier)
    for _ in range(ATTEMPTS):
        before = asker.standing()
        found = cluster.persistently(options.dsn, lambda _: _asked(options, table))
        others = [uuid for uuid in before.positions if uuid not in found["rs"]]
        if any(before.owners.get(uuid) for uuid in others):
            continue
        for uuid in others:
            found["rs"][uuid] = before.positions[uuid]
            found["epochs"][uuid] = before.epochs.get(uuid, {})
            found["owners"][uuid] = []
        return {"v": VERSION, **found}
    raise Unreachable("buckets moved again and again while a moment was looked for")


def _asked(options: Options, table: TableInfo) -> dict[str, Any]:
    found: dict[str, Any] = cluster.call(options.dsn, f"CALL cairn_moment({literal(table.name)})")
    return found


def read_moment(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"rs", "owners", "epochs"} <= set(found):
        raise InvalidParameter(
            f'option("snapshot", "{text[:60]}") is not known',
            hint="true, or what cairn.spark.moment(dsn, table) gave",
        )
    return found


class SnapshotReader(DataSourceReader):  # type: ignore[misc]
    """All partitions at one moment. Holds no connection: it is pickled to every task."""

    def __init__(self, options: Options, table: TableInfo, schema: Any) -> None:
        self._options, self._table, self._schema = options, table, schema
        if table.tier is None:
            raise Unsupported(f"{table.name} is not sharded: a read of it is one moment anyway")
        if options.where:
            raise InvalidParameter("where and snapshot exclude each other: filter the frame")
        self._asker = RowAsker(options, table.name, table.tier)

    def partitions(self) -> list[Any]:
        with plainly():
            text = self._options.snapshot or ""
            found = read_moment(text) if text != "true" else _taken(self._options, self._table)
            now = cluster.pool(self._options.dsn).topology.cluster_uuid
            if found.get("cluster") not in (None, now):
                raise InvalidParameter(f"the moment is of another cluster, {found['cluster']}")
            return [
                InputPartition((uuid, stamped(found["rs"][uuid], found["epochs"][uuid]), part))
                for uuid, ranges in sorted(found["owners"].items())
                if self._is_of_tier(uuid)
                for part in cut(
                    tuple((low, high) for low, high in ranges), self._options.splits or SPLITS
                )
            ]

    def _is_of_tier(self, uuid: str) -> bool:
        known = cluster.pool(self._options.dsn).topology.view.replicasets.get(uuid)
        if known is None:
            raise CairnError(
                f"replicaset {uuid} has left the cluster since the moment", sqlstate=LOST
            )
        return known.tier in (None, self._table.tier)

    def read(self, partition: Any) -> Iterator[Any]:
        with plainly():
            if partition.value is not None:
                yield from self._read(*partition.value)

    def _read(self, uuid: str, at: dict[str, Any], ranges: Any) -> Iterator[Any]:
        want = wanted_schema(self._schema)
        try:
            for answer in self._asker.rows_at(uuid, at, ranges):
                rows = [row for _, row in answer["rows"]]
                if rows:
                    arrays = [array_of([row.get(f.name) for row in rows], f) for f in want]
                    yield pa.RecordBatch.from_arrays(arrays, schema=want)
        except CairnError as problem:
            if problem.sqlstate == LOST:
                problem.hint = "take another moment; row_log_max sets how long one can be read"
            raise


def array_of(values: list[Any], field: Any) -> Any:
    """JSON values as the column that Spark expects."""
    return pa.array([_value(each, field.type) for each in values], type=field.type)


def _value(value: Any, type_: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(type_):
        return datetime.fromisoformat(value)
    if pa.types.is_date(type_):
        return date.fromisoformat(value)
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_binary(type_):
        return parse_bytes(value)
    if pa.types.is_list(type_):
        return [_value(each, type_.value_type) for each in value]
    if pa.types.is_string(type_) and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value
