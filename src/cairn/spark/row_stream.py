"""Changes of a table as a stream: one position per replicaset, read from its row log.

A position is the last lsn taken of each origin, so a failover continues where the old master
ended, or says that the position was lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import InputPartition

from cairn.model.errors import CairnError, InvalidParameter, Unreachable
from cairn.spark import cluster
from cairn.spark.cluster import MOVED, REPLAN_S
from cairn.spark.options import Options, starting_position
from cairn.spark.streams import CairnStream, row_limit
from cairn.spark.tables import describe

CHUNK = 5_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Vclock = dict[str, int]


class RowStream(CairnStream):
    def __init__(self, options: Options, table: str, wanted: Any) -> None:
        super().__init__(options, wanted)
        self._table = describe(options.dsn, table)
        if self._table.tier is None:
            raise InvalidParameter(f"{table} is a global table: only sharded ones have a row log")

    # --- planning -------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        text = self._options.starting_offset
        given = starting_position(text)
        if given is not None:
            return self.check(given)
        if text == "snapshot":
            raise InvalidParameter(
                "startingOffset snapshot is not there yet",
                hint="read the table in a batch, then start a stream at latest",
            )
        return self._at(self._newest() if text == "latest" else {})

    def _at(self, positions: dict[str, Vclock]) -> dict[str, Any]:
        ordered = {uuid: dict(sorted(of.items())) for uuid, of in sorted(positions.items())}
        return self.offset(rs=ordered)

    def _newest(self) -> dict[str, Vclock]:
        return {uuid: self._ask(uuid, "latest", 0)["after"] for uuid in self._replicasets()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._at(self._newest())

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        first: dict[str, Vclock] = self.check(start)["rs"]
        target = self._target["rs"] if self._target is not None else self._newest()
        most = row_limit(limit)
        if not most:
            return self._at({**first, **target})
        found = dict(first)
        for uuid, last in target.items():
            answer = self._ask(uuid, first.get(uuid, {}), most)
            found[uuid] = {
                origin: min(lsn, last.get(origin, 0)) for origin, lsn in answer["after"].items()
            }
            most -= len(answer["changes"])
            if most <= 0:
                break
        return self._at(found)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        first, last = self.check(start)["rs"], self.check(end)["rs"]
        return [
            InputPartition((uuid, first.get(uuid, {}), upto))
            for uuid, upto in last.items()
            if upto != first.get(uuid, {})
        ]

    # --- in a task ------------------------------------------------------------------------------

    def read(self, partition: Any) -> Iterator[Any]:
        if partition.value is None:
            return
        uuid, position, upto = partition.value
        while any(position.get(origin, 0) < lsn for origin, lsn in upto.items()):
            answer = self._ask(uuid, position, CHUNK)
            told = [
                self._row(uuid, change)
                for change in answer["changes"]
                if change["lsn"] <= upto.get(change["origin"], 0)
            ]
            if told:
                yield self.batch(told)
            if answer["after"] == position:
                raise CairnError(f"the row log of replicaset {uuid} ends before {upto}")
            position = answer["after"]

    def _row(self, uuid: str, change: dict[str, Any]) -> tuple[Any, ...]:
        row = change["new"] or change["old"]
        key = json.dumps({name: row.get(name) for name in self._table.key})
        old, new = (
            None if each is None else json.dumps(each, ensure_ascii=False)
            for each in (change["old"], change["new"])
        )
        told = _EPOCH + timedelta(microseconds=change["timestamp"])
        return (
            change["op"], key, change["bucket"], old, new, uuid,
            change["epoch"], change["origin"], change["lsn"], change["n"], told,
        )  # fmt: skip

    # --- asking ---------------------------------------------------------------------------------

    def _replicasets(self) -> list[str]:
        assert self._table.tier is not None
        return [owner.uuid for owner in cluster.owners(self._options.dsn, self._table.tier)]

    def _ask(self, uuid: str, after: Any, limit: int) -> Any:
        """Of the replicaset's master, waiting for a new one for a while."""
        position = json.dumps(after).replace("'", "''")
        text = f"CALL cairn_rows('{self._table.name}', '{position}', {limit or CHUNK})"
        until = time.monotonic() + REPLAN_S
        while True:
            master = cluster.pool(self._options.dsn).topology.master(uuid)
            try:
                if master is None or not master.address:
                    raise Unreachable(f"replicaset {uuid} has no master")
                return cluster.call(self._options.dsn, text, master.address)
            except CairnError as problem:
                if problem.sqlstate not in MOVED or time.monotonic() > until:
                    raise
            cluster.wait_for_news(self._options.dsn, 0.3)
