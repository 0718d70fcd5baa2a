"""Changes of a table as a stream: one position per replicaset, read from its row log.

A position is the last lsn taken of each origin and that record's epoch, so a failover continues
where the old master ended, or says that the position was lost. An offset also remembers who owned
which buckets when it was made: when some have moved since, those who gave them away are read to
the end before those who got them, so each key's changes come in order. An offset that names ranges
in `snapshot` ends a micro-batch in which those rows are told as they were at its position.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import InputPartition

from cairn.model.errors import CairnError, InvalidParameter, Unreachable
from cairn.spark.options import Options, starting_position
from cairn.spark.row_asking import LOST, Ranges, RowAsker, Standing, Vclock, stamped
from cairn.spark.streams import CairnStream, row_limit
from cairn.spark.tables import describe

SNAPSHOT_SPLITS = 4  # partitions per replicaset
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Offset = dict[str, Any]


class RowStream(CairnStream):
    def __init__(self, options: Options, table: str, wanted: Any) -> None:
        super().__init__(options, wanted)
        self._table = describe(options.dsn, table)
        if self._table.tier is None:
            raise InvalidParameter(f"{table} is a global table: only sharded ones have a row log")
        self._asker = RowAsker(options, table, self._table.tier)

    # --- planning -------------------------------------------------------------------------------

    def _initial(self) -> Offset:
        text = self._options.starting_offset
        given = starting_position(text)
        if given is not None:
            if not isinstance(given.get("rs"), dict):
                raise InvalidParameter(
                    f"startingOffset {text} is no position of a table",
                    hint='{"rs": {"replicaset uuid": {"origin uuid": lsn}}}, as in a checkpoint',
                )
            return self.check({"v": 1, **given})
        if text == "snapshot":
            return self.offset(rs={}, start="snapshot")
        return self._at(self._asker.standing("latest" if text == "latest" else "earliest"))

    def _at(self, standing: Standing, snapshot: dict[str, Ranges] | None = None) -> Offset:
        """Offsets are compared as text: everything in one order."""
        facts: dict[str, Any] = {
            "rs": {u: dict(sorted(of.items())) for u, of in sorted(standing.positions.items())},
            "owners": {u: [list(r) for r in of] for u, of in sorted(standing.owners.items())},
            "epochs": {u: dict(sorted(of.items())) for u, of in sorted(standing.epochs.items())},
        }
        if snapshot:
            facts["snapshot"] = {u: [list(r) for r in of] for u, of in sorted(snapshot.items())}
        return self.offset(**facts)

    def _newest_offset(self) -> dict[str, Any]:
        return self._at(self._asker.standing())

    def _latest(self, start: Offset, limit: Any) -> Offset:
        known = _standing(self.check(start))
        target = _standing(self._target) if self._target else self._asker.standing()
        if start.get("start") == "snapshot":
            return self._at(target, target.owners)
        lost = self._lost(known)
        if lost:
            return self._at(
                Standing({**known.positions, **{u: target.positions[u] for u in lost}},
                         {**known.owners, **{u: target.owners.get(u, ()) for u in lost}},
                         {**known.epochs, **{u: target.epochs.get(u, {}) for u in lost}}),
                {uuid: target.owners.get(uuid, ()) for uuid in lost},
            )  # fmt: skip
        waiting = _gainers(known, target)
        ready = {uuid: at for uuid, at in target.positions.items() if uuid not in waiting}
        end = Standing(dict(known.positions), {}, dict(known.epochs))
        self._limited(end, target, ready, row_limit(limit))
        is_done = all(end.positions.get(uuid) == at for uuid, at in ready.items())
        # While the givers are not read to the end, the receivers stay where they are.
        end.owners.update(target.owners if is_done or not known.owners else known.owners)
        return self._at(end)

    def _lost(self, known: Standing) -> list[str]:
        """Replicasets whose log has forgotten the position; an error, if that shall be one."""
        found = []
        for uuid in self._asker.replicasets():
            try:
                self._asker.ask(uuid, known.stamped(uuid), 0)
            except CairnError as problem:
                if problem.sqlstate != LOST or self._options.fail_on_data_loss:
                    raise _explained(problem) from None
                found.append(uuid)
        return found

    def _limited(
        self, end: Standing, target: Standing, ready: dict[str, Vclock], most: int
    ) -> None:
        """Move `end` on by a micro-batch of about `most` rows; 0: all the way."""
        left = most
        for uuid, last in ready.items():
            reached, epochs = last, dict(target.epochs.get(uuid, {}))
            if most:
                answer = self._asker.ask(uuid, end.stamped(uuid), left)
                left -= len(answer["changes"])
                after = answer["after"]
                reached = {origin: min(lsn, last.get(origin, 0)) for origin, lsn in after.items()}
                short = [origin for origin, lsn in reached.items() if lsn != last.get(origin, 0)]
                epochs.update({o: e for o, e in answer["epochs"].items() if o in short})
            end.positions[uuid], end.epochs[uuid] = reached, epochs
            if most and left <= 0:
                break

    def _partitions(self, start: Offset, end: Offset) -> list[Any]:
        first, last = _standing(self.check(start)), _standing(self.check(end))
        snapshot = end.get("snapshot", {}) if start != end else {}
        is_reset = start.get("start") != "snapshot"
        found = []
        for uuid, ranges in snapshot.items():
            for at, part in enumerate(_cut(ranges)):
                reset = ranges if is_reset and at == 0 else None
                found.append(InputPartition(("snapshot", uuid, last.stamped(uuid), part, reset)))
        for uuid, upto in last.positions.items():
            if uuid not in snapshot and upto != first.positions.get(uuid, {}):
                ends = (upto, last.epochs.get(uuid, {}))
                found.append(InputPartition(("changes", uuid, first.stamped(uuid), ends, None)))
        return found

    # --- in a task ------------------------------------------------------------------------------

    def _read(self, partition: Any) -> Iterator[Any]:
        if partition.value is None:
            return
        kind, uuid, position, rest, reset = partition.value
        if kind == "snapshot":
            yield from self._read_snapshot(uuid, position, rest, reset)
        else:
            yield from self._read_changes(uuid, position, *rest)

    def _read_changes(
        self, uuid: str, asked: dict[str, Any], upto: Vclock, epochs: Vclock
    ) -> Iterator[Any]:
        is_begun = False
        position = _lsns(asked)
        while any(position.get(origin, 0) < lsn for origin, lsn in upto.items()):
            try:
                answer = self._asker.ask(uuid, asked)
            except CairnError as problem:
                if problem.sqlstate != LOST or self._options.fail_on_data_loss or is_begun:
                    raise _explained(problem) from None
                # Forgotten since it was planned: what it would have led to is still known.
                ranges = self._asker.owned(uuid)
                yield from self._read_snapshot(uuid, stamped(upto, epochs), ranges, ranges)
                return
            told = [
                self._row(uuid, change)
                for change in answer["changes"]
                if change["lsn"] <= upto.get(change["origin"], 0)
            ]
            if told:
                is_begun = True
                yield self.batch(told)
            if answer["after"] == position:
                raise CairnError(f"the row log of replicaset {uuid} ends before {upto}")
            position = answer["after"]
            asked = stamped(position, answer["epochs"])

    def _read_snapshot(
        self, uuid: str, at: dict[str, Any], ranges: Ranges, reset: Ranges | None
    ) -> Iterator[Any]:
        """Rows as of a position; `reset` says first that what was known of them is void."""
        if reset is not None:
            body = json.dumps({"buckets": [list(each) for each in reset]})
            yield self.batch([("reset", None, None, None, body, uuid, *[None] * 5)])
        for rows in self._asker.rows_at(uuid, at, ranges):
            told = [
                ("snapshot", self._key(row), bucket, None, _json(row), uuid, *[None] * 5)
                for bucket, row in rows
            ]
            if told:
                yield self.batch(told)

    def _key(self, row: dict[str, Any]) -> str:
        return json.dumps({name: row.get(name) for name in self._table.key})

    def _row(self, uuid: str, change: dict[str, Any]) -> tuple[Any, ...]:
        row = change["new"] or change["old"]
        told = _EPOCH + timedelta(microseconds=change["timestamp"])
        return (
            change["op"], None if row is None else self._key(row), change["bucket"],
            _json(change["old"]), _json(change["new"]), uuid,
            change["epoch"], change["origin"], change["lsn"], change["n"], told,
        )  # fmt: skip


# --- parts of offsets -----------------------------------------------------------------------------


def _standing(offset: Offset) -> Standing:
    owners = {
        uuid: tuple((low, high) for low, high in ranges)
        for uuid, ranges in offset.get("owners", {}).items()
    }
    return Standing(dict(offset["rs"]), owners, dict(offset.get("epochs", {})))


def _lsns(asked: dict[str, Any]) -> Vclock:
    return {origin: at[0] if isinstance(at, list) else at for origin, at in asked.items()}


def _gainers(known: Standing, target: Standing) -> set[str]:
    """Who owns buckets that somebody else owned at the earlier offset, and gave none away.

    In a swap everybody would wait for everybody: then nobody does.
    """
    if not known.owners:
        return set()
    more = {u for u, ranges in target.owners.items() if _buckets(ranges) - _of(known, u)}
    less = {u for u in known.owners if _of(known, u) - _of(target, u)}
    givers_left = [uuid for uuid in less if known.positions.get(uuid) != target.positions.get(uuid)]
    return more - less if givers_left else set()


def _of(standing: Standing, uuid: str) -> set[int]:
    return _buckets(standing.owners.get(uuid, ()))


def _buckets(ranges: Ranges) -> set[int]:
    return {bucket for low, high in ranges for bucket in range(low, high + 1)}


def _cut(ranges: Any) -> list[Ranges]:
    from cairn.spark.reader import cut

    return cut(tuple((low, high) for low, high in ranges), SNAPSHOT_SPLITS)


def _json(row: Any) -> str | None:
    return None if row is None else json.dumps(row, ensure_ascii=False)


def _explained(problem: CairnError) -> CairnError:
    if problem.sqlstate == LOST:
        problem.hint = (
            'another checkpoint with startingOffset "snapshot" starts anew; failOnDataLoss "false" '
            "goes on with a snapshot by itself; row_log_max sets how much is kept"
        )
    elif isinstance(problem, Unreachable):
        problem.hint = problem.hint or "see `cairn status`"
    return problem
