"""What all streams have in common: offsets that carry their cluster, limits, plain errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

from cairn.model.errors import CairnError
from cairn.spark import cluster
from cairn.spark.options import Options
from cairn.spark.plainly import plainly
from cairn.spark.tables import as_wanted, wanted_schema

VERSION = 1


class CairnStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Offsets carry the cluster: a checkpoint of another one is refused, not misread."""

    def __init__(self, options: Options, wanted: Any) -> None:
        self._options, self._schema = options, wanted
        self._cluster = cluster.pool(options.dsn).topology.cluster_uuid
        self._target: dict[str, Any] | None = None  # of a run that ends with what is there now

    # --- what Spark calls: errors leave as one sentence -------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        with plainly():
            return self._initial()

    def prepareForTriggerAvailableNow(self) -> None:
        with plainly():
            self._target = self._newest_offset()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        with plainly():
            return self._latest(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        with plainly():
            return self._partitions(start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        with plainly():  # a task may begin long after it was planned
            self._check_cluster(
                self._cluster, cluster.pool(self._options.dsn).topology.cluster_uuid
            )
            yield from self._read(partition)

    # --- what each stream says --------------------------------------------------------------------

    def _initial(self) -> dict[str, Any]:
        raise NotImplementedError

    def _newest_offset(self) -> dict[str, Any]:
        raise NotImplementedError

    def _latest(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        raise NotImplementedError

    def _read(self, partition: Any) -> Iterator[Any]:
        raise NotImplementedError

    def offset(self, **position: Any) -> dict[str, Any]:
        return {"v": VERSION, "cluster": self._cluster, **position}

    def check(self, offset: dict[str, Any]) -> dict[str, Any]:
        if offset.get("v") != VERSION:
            raise CairnError(f"the checkpoint has offsets of version {offset.get('v')}")
        self._check_cluster(offset.get("cluster"), self._cluster)
        return offset

    @staticmethod
    def _check_cluster(known: str | None, now: str | None) -> None:
        if None not in (known, now) and known != now:
            raise CairnError(
                f"the checkpoint belongs to cluster {known}, this is {now}: another one, or the "
                "same after it was restored from a copy",
                hint='use another checkpointLocation with startingOffset "snapshot", or the other '
                "DSN",
            )

    def getDefaultReadLimit(self) -> Any:
        if self._options.max_rows:
            return ReadMaxRows(self._options.max_rows)
        return super().getDefaultReadLimit()

    def batch(self, rows: list[tuple[Any, ...]]) -> Any:
        want = wanted_schema(self._schema)
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(v, type=f.type) for v, f in zip(columns, want, strict=True)]
        return as_wanted(pa.RecordBatch.from_arrays(arrays, names=want.names), want)

    def commit(self, end: dict[str, Any]) -> None:
        """The servers keep their logs by their own settings."""


def row_limit(limit: Any) -> int:
    """Rows a micro-batch may have; 0: any number."""
    return int(limit.max_rows) if isinstance(limit, ReadMaxRows) else 0
