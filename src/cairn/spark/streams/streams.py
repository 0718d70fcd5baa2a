"""Streaming sources: which one an option asks for."""

from __future__ import annotations

from typing import Any

from cairn.model.errors import CairnError, InvalidParameter
from cairn.spark.options import Options
from cairn.spark.streams.global_stream import GlobalStream
from cairn.spark.streams.row_stream import RowStream
from cairn.spark.streams.stream import CairnStream
from cairn.spark.streams.topology_stream import TopologyStream
from cairn.spark.tables import describe

TOPOLOGY = "term bigint, index bigint, n int, map string, op string, timestamp string, body string"
ROWS = (
    "op string, key string, bucket int, old string, new string, replicaset string, epoch bigint, "
    "origin string, lsn bigint, n int, timestamp timestamp"
)
GLOBAL_ROWS = (
    "op string, key string, old string, new string, term bigint, index bigint, n int, "
    "timestamp timestamp"
)


def schema(options: Options) -> Any:
    if options.stream == "topology":
        return TOPOLOGY
    kind, _, table = (options.stream or "").partition(":")
    try:
        return GLOBAL_ROWS if kind == "table" and _is_global(options, table) else ROWS
    except CairnError:
        return ROWS  # what is wrong is told by the reader


def _is_global(options: Options, name: str) -> bool:
    table = describe(options.dsn, name)
    return table.tier is None and not table.told_by and not table.is_made


def reader(options: Options, wanted: Any) -> Any:
    """What is wrong with the options is told by its first answer.

    Spark 4.3 stops a reader that was never made, and tells of that instead of why.
    """
    try:
        return _reader(options, wanted)
    except CairnError as problem:
        return Refused(problem)


def _reader(options: Options, wanted: Any) -> Any:
    stream = options.stream or ""
    if stream == "topology":
        return TopologyStream(options, wanted)
    kind, _, table = stream.partition(":")
    if kind == "table" and table and _is_global(options, table):
        return GlobalStream(options, table, wanted)
    if kind == "table" and table:
        return RowStream(options, table, wanted)
    raise InvalidParameter(
        f'option("stream", "{stream}") is not known', hint="topology or table:NAME"
    )


class Refused(CairnStream):
    """In place of a reader that cannot be made."""

    def __init__(self, problem: CairnError) -> None:
        self._problem, self._options = problem, Options(dsn="")

    def _initial(self) -> dict[str, Any]:
        raise self._problem

    def _newest_offset(self) -> dict[str, Any]:
        raise self._problem

    def _latest(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        raise self._problem

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        raise self._problem
