"""Reads of what each instance knows by itself, and of what is made when somebody asks.

A local table (`_routing`, `_cairn_event`, …) has other rows on every instance: each is a partition,
and a column says who told a row. Tables that are made (`_cairn_sessions`, `pg_stat_activity`, …)
are asked of one instance, which asks the others where that belongs to them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cairn.model.errors import CairnError, Unreachable
from cairn.model.quoting import identifier, literal
from cairn.spark import cluster
from cairn.spark.cluster import MOVED
from cairn.spark.options import Options
from cairn.spark.plainly import plainly
from cairn.spark.tables import TableInfo, as_wanted, qualified, wanted_schema

PATIENCE_S = 15.0  # with an instance that does not answer and is still said to be Online


class InstancePartition(InputPartition):  # type: ignore[misc]
    """One instance, with where it was when the read was planned."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self.value = (name, address)


class LocalReader(DataSourceReader):  # type: ignore[misc]
    """One partition per instance that is Online. Holds no connection: it is pickled."""

    def __init__(self, options: Options, table: TableInfo, schema: Any) -> None:
        self._options, self._table, self._schema = options, table, schema

    def partitions(self) -> list[Any]:
        with plainly():
            topology = cluster.pool(self._options.dsn).topology
            topology.flush()
            online = [(each.name, each.address) for each in topology.online()]
            found = [InstancePartition(name, at) for name, at in online if name and at]
            if not found:
                raise Unreachable("no instance is Online")
            return found

    def read(self, partition: Any) -> Iterator[Any]:
        with plainly():
            yield from self._read(partition)

    def _read(self, partition: InstancePartition) -> Iterator[Any]:
        """An instance that has gone since is left out, as if it had gone before."""
        want, until = wanted_schema(self._schema), time.monotonic() + PATIENCE_S
        address: str | None = partition.address
        is_begun = False
        while address is not None:
            try:
                for batch in self._copy(partition.name, address, want):
                    is_begun = True
                    yield batch
                return
            except CairnError as problem:
                if is_begun or problem.sqlstate not in MOVED:
                    raise
                if time.monotonic() > until:
                    raise Unreachable(
                        f"{partition.name} does not answer", detail=problem.message
                    ) from None
            cluster.wait_for_news(self._options.dsn, 0.2)
            address = self._address_of(partition.name)

    def _address_of(self, name: str) -> str | None:
        online = cluster.pool(self._options.dsn).topology.online()
        return next((each.address for each in online if each.name == name), None)

    def _copy(self, name: str, address: str, want: Any) -> Iterator[Any]:
        options, table = self._options, self._table
        own = ", ".join(identifier(each.name) for each in table.columns[1:])
        rows = f"SELECT {literal(name)} AS {identifier(table.told_by)}, {own} FROM {table.name}"
        sql = f"COPY ({_chosen(self._schema, f'({rows}) AS t', options)}) TO STDOUT (FORMAT arrow)"
        for data in cluster.copy_out(options.dsn, address, sql, options.timeout_s):
            for batch in pa.ipc.open_stream(pa.py_buffer(data)):
                if batch.num_rows:
                    yield as_wanted(batch, want)


class MadeReader(DataSourceReader):  # type: ignore[misc]
    """All rows in one partition: they are few."""

    def __init__(self, options: Options, table: TableInfo, schema: Any) -> None:
        self._options, self._table, self._schema = options, table, schema

    def partitions(self) -> list[Any]:
        return [InputPartition("made")]

    def read(self, partition: Any) -> Iterator[Any]:
        with plainly():
            yield from self._read()

    def _read(self) -> Iterator[Any]:
        options, want = self._options, wanted_schema(self._schema)
        sql = _chosen(self._schema, qualified(self._table.name), options)
        rows = cluster.persistently(options.dsn, lambda _: cluster.ask_at(options.dsn, None, sql))
        if rows:
            columns = list(zip(*rows, strict=True))
            given = zip(columns, want, strict=True)
            arrays = [pa.array(_plain(values, field), type=field.type) for values, field in given]
            yield pa.RecordBatch.from_arrays(arrays, schema=want)


def _chosen(schema: Any, source: str, options: Options) -> str:
    names = ", ".join(identifier(field.name) for field in schema.fields)
    return f"SELECT {names} FROM {source}" + (f" WHERE {options.where}" if options.where else "")


def _plain(values: Any, field: Any) -> list[Any]:
    """What the driver made a Python value of and Spark takes as text."""
    if not pa.types.is_string(field.type):
        return list(values)
    return [value if value is None or isinstance(value, str) else _text(value) for value in values]


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else str(value)
