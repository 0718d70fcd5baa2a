"""Topology events as a stream: offsets are Raft positions, one event is told once.

Events are pulled from `_cairn_event` of any instance that has them; an entry is never cut in two.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from cairn.client.logic import flows
from cairn.client.logic.effects import always
from cairn.model.errors import CairnError, Unreachable
from cairn.spark import cluster
from cairn.spark.options import starting_position
from cairn.spark.streams.stream import CairnStream, row_limit

CATCH_UP_S = 20.0
_AFTER = "(term > {0} OR (term = {0} AND index > {1}))"
_UPTO = "(term < {0} OR (term = {0} AND index <= {1}))"
Place = tuple[int, int]


class TopologyStream(CairnStream):
    """One partition per micro-batch: events are few."""

    # --- planning, in a long-lived process on the driver ----------------------------------------

    def _initial(self) -> dict[str, Any]:
        text = self._options.starting_offset
        given = starting_position(text)
        if given is not None:
            return self._at((int(given["term"]), int(given["index"])))
        if text == "latest":
            return self._at(self._newest())
        return self._at((0, 0))

    def _at(self, place: Place) -> dict[str, Any]:
        return self.offset(term=place[0], index=place[1])

    def _newest_offset(self) -> dict[str, Any]:
        return self._at(self._newest())

    def _latest(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        first = _place(self.check(start))
        last = _place(self._target) if self._target is not None else self._newest()
        if last <= first:
            return start
        most = row_limit(limit)
        return self._at(self._limited(first, last, most) if most else last)

    def _limited(self, first: Place, last: Place, most: int) -> Place:
        """The last whole entry among the next `most` events; at least one entry."""
        rows = self._events(first, last, f" LIMIT {most + 1}", "term, index")
        if len(rows) <= most:
            return last
        whole = [row for row in rows if row != rows[-1]]
        return tuple(whole[-1]) if whole else tuple(rows[0])

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        first, last = _place(self.check(start)), _place(self.check(end))
        return [InputPartition((first, last))] if first < last else []

    # --- in a task ------------------------------------------------------------------------------

    def _read(self, partition: Any) -> Iterator[Any]:
        if partition.value is None:
            return
        first, last = partition.value
        rows = self._events(first, last, "", "term, index, n, timestamp, body")
        told = []
        for term, index, n, timestamp, body in rows:
            event = json.loads(body)
            told.append((term, index, n, event.get("map"), event.get("op"), timestamp, body))
        if told:
            yield self.batch(told)

    # --- asking ---------------------------------------------------------------------------------

    def _newest(self) -> Place:
        """The newest position of the instance that is furthest."""
        found: Place = (0, 0)
        sql = "SELECT term, index FROM _cairn_event ORDER BY term DESC, index DESC LIMIT 1"
        for address in self._addresses():
            try:
                rows = self._ask(address, sql)
            except CairnError:
                continue
            if rows:
                found = max(found, (rows[0][0], rows[0][1]))
        return found

    def _addresses(self) -> list[str]:
        topology = cluster.pool(self._options.dsn).topology
        found = [str(each.address) for each in topology.online()]
        if not found:
            raise Unreachable("no instance is Online")
        return found

    def _ask(self, address: str, sql: str) -> list[Any]:
        with cluster.pool(self._options.dsn).wire(address) as wire:
            flow = flows.run_once(wire.pg, sql)
            result = wire.talk(flow, self._options.timeout_s, None, always)
        return [tuple(row) for row in result.rows]

    def _events(self, first: Place, last: Place, limit: str, columns: str) -> list[Any]:
        """Events after `first` up to `last`, from an instance that has both ends."""
        where = f"{_AFTER.format(*first)} AND {_UPTO.format(*last)}"
        sql = f"SELECT {columns} FROM _cairn_event WHERE {where} ORDER BY term, index, n{limit}"
        if columns == "term, index":
            sql = sql.replace("SELECT term, index", "SELECT term, index, n")
        until = time.monotonic() + CATCH_UP_S
        behind: CairnError = Unreachable("no instance has these events")
        while time.monotonic() < until:
            for address in self._addresses():
                try:
                    if not self._has(address, last) or not self._has(address, first):
                        continue
                    rows = self._ask(address, sql)
                except CairnError as problem:
                    behind = problem
                    continue
                return [row[:2] for row in rows] if columns == "term, index" else rows
            if self._is_lost(first):
                raise CairnError(
                    f"position {first[0]}:{first[1]} is no longer kept by any instance",
                    hint="start anew with another checkpoint; topology_events_max sets how many",
                )
            time.sleep(0.2)
        raise behind

    def _has(self, address: str, place: Place) -> bool:
        if place == (0, 0) or not self._options.fail_on_data_loss:
            return True
        sql = f"SELECT count(*) FROM _cairn_event WHERE term = {place[0]} AND index = {place[1]}"
        return bool(self._ask(address, sql)[0][0])

    def _is_lost(self, place: Place) -> bool:
        return not any(self._has(address, place) for address in self._addresses())


def _place(offset: dict[str, Any]) -> Place:
    return int(offset["term"]), int(offset["index"])
