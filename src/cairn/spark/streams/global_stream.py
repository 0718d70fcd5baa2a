"""Changes of a global table as a stream: offsets are Raft positions, each change is told once.

Every instance keeps what applied entries did to global tables, so any that reaches from the
beginning of a micro-batch to its end can tell it, and tells the same. An offset with `snapshot`
ends a micro-batch in which the rows are told as they were at its position.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import InputPartition

from cairn.model.errors import CairnError, InvalidParameter, PositionLost, Unreachable
from cairn.model.quoting import literal
from cairn.spark import cluster
from cairn.spark.options import Options, starting_position
from cairn.spark.streams.stream import CairnStream, row_limit

CATCH_UP_S = 20.0
CHUNK = 5_000
Place = tuple[int, int]  # term, index
Offset = dict[str, Any]


class GlobalStream(CairnStream):
    """One partition per micro-batch: what Raft has ordered stays in order."""

    def __init__(self, options: Options, table: str, wanted: Any) -> None:
        super().__init__(options, wanted)
        self._table = table

    # --- planning -------------------------------------------------------------------------------

    def _initial(self) -> Offset:
        text = self._options.starting_offset
        given = starting_position(text)
        if given is not None:
            if not isinstance(given.get("index"), int):
                raise InvalidParameter(
                    f"startingOffset {text} is no position of a global table",
                    hint='{"term": 1, "index": 2}, as in a checkpoint',
                )
            return self.check({"v": 1, "term": 0, **given})
        if text == "snapshot":
            return self.offset(term=0, index=0, start="snapshot")
        if text == "latest":
            return self._newest_offset()
        return self.offset(term=0, index=min(answer["begins"] for answer in self._standing()))

    def _newest_offset(self) -> Offset:
        return self._at(max(_place(answer["last"]) for answer in self._standing()))

    def _at(self, place: Place, **facts: Any) -> Offset:
        return self.offset(term=place[0], index=place[1], **facts)

    def _latest(self, start: Offset, limit: Any) -> Offset:
        first = self.check(start)["index"]
        target = self._target or self._newest_offset()
        last: Place = (target["term"], target["index"])
        if start.get("start") == "snapshot":
            return self._at(last, snapshot="start")
        if last[1] <= first:
            return start
        try:
            most = row_limit(limit)
            answer = self._answer(f"{first}, {most or 1}", first, last[1])
        except PositionLost:
            if self._options.fail_on_data_loss:
                raise
            return self._at(last, snapshot="reset")
        return self._at(min(last, _place(answer["after"]), key=_index) if most else last)

    def _partitions(self, start: Offset, end: Offset) -> list[Any]:
        first, last = self.check(start)["index"], self.check(end)["index"]
        if "snapshot" in end and start != end:
            return [InputPartition((end["snapshot"], first, last))]
        return [InputPartition(("changes", first, last))] if first < last else []

    # --- in a task ------------------------------------------------------------------------------

    def _read(self, partition: Any) -> Iterator[Any]:
        if partition.value is None:
            return
        kind, first, last = partition.value
        if kind == "changes":
            yield from self._read_changes(first, last)
            return
        if kind == "reset":
            yield self.batch([("reset", *[None] * 7)])
        answer = self._answer(f"{last}", last, last, "cairn_changes_at")
        told = [
            ("snapshot", _key(row, answer["key"]), None, _json(row), *[None] * 4)
            for row in answer["rows"]
        ]
        if told:
            yield self.batch(told)

    def _read_changes(self, first: int, last: int) -> Iterator[Any]:
        while first < last:
            answer = self._answer(f"{first}, {CHUNK}", first, last)
            told = [
                _row(change, answer["key"])
                for change in answer["changes"]
                if change["index"] <= last
            ]
            if told:
                yield self.batch(told)
            first = answer["after"][1]

    # --- asking ---------------------------------------------------------------------------------

    def _answer(self, words: str, first: int, last: int, call: str = "cairn_changes") -> Any:
        """Of an instance that keeps what came after `first` and has applied `last`."""
        until = time.monotonic() + CATCH_UP_S
        text = f"CALL {call}({literal(self._table)}, {words})"
        while True:
            standing = self._standing()
            for answer in standing:
                if answer["begins"] <= first and answer["last"][1] >= last:
                    try:
                        return cluster.call(self._options.dsn, text, answer["address"])
                    except CairnError as problem:
                        if problem.sqlstate not in (*cluster.MOVED, PositionLost.sqlstate):
                            raise
            begins = min(answer["begins"] for answer in standing)
            if begins > first:
                raise PositionLost(
                    f"the history of {self._table} after entry {first} is not kept any more: it "
                    f"begins after entry {begins}",
                    hint='another checkpoint with startingOffset "snapshot" starts anew; '
                    'failOnDataLoss "false" goes on with a snapshot by itself; global_log_max sets '
                    "how many changes are kept",
                )
            if time.monotonic() > until:
                raise Unreachable(f"no instance that answers has the entries {first} to {last}")
            cluster.wait_for_news(self._options.dsn, 0.2)

    def _standing(self) -> list[dict[str, Any]]:
        """What each instance that answers has kept, and where to ask it."""
        found: list[dict[str, Any]] = []
        problem: CairnError = Unreachable("no instance is Online")
        text = f"CALL cairn_changes({literal(self._table)})"
        for each in cluster.pool(self._options.dsn).topology.online():
            try:
                answer = cluster.call(self._options.dsn, text, each.address)
            except CairnError as met:
                problem = met
                continue
            found.append({**answer, "address": each.address})
        if not found:
            raise problem
        return found


def _place(pair: Any) -> Place:
    return int(pair[0]), int(pair[1])


def _index(place: Place) -> int:
    return place[1]


def _key(row: dict[str, Any], names: Any) -> str:
    return json.dumps({name: row.get(name) for name in names}, ensure_ascii=False)


def _row(change: dict[str, Any], key: Any) -> tuple[Any, ...]:
    row = change["new"] or change["old"]
    return (
        change["op"], None if row is None else _key(row, key), _json(change["old"]),
        _json(change["new"]), change["term"], change["index"], change["n"],
        datetime.fromisoformat(change["timestamp"]),
    )  # fmt: skip


def _json(row: Any) -> str | None:
    return None if row is None else json.dumps(row, ensure_ascii=False)
