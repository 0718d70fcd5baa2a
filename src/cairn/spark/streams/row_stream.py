"""Changes of a table as a stream: one position per replicaset, read from its row log.

A position is the last lsn taken of each origin and that record's epoch, so a failover continues
where the old master ended, or says that the position was lost. When buckets have moved, whoever
gave them away is read to its last record of them before the new owner is read past its first, so
each key's changes come in order. An offset that names ranges in `snapshot` ends a micro-batch in
which those rows are told as they were at its position.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql.datasource import InputPartition

from cairn.model.errors import CairnError, InvalidParameter, Unreachable
from cairn.spark.options import Options, starting_position
from cairn.spark.streams.row_asking import (
    LOST,
    Gone,
    Ranges,
    RowAsker,
    Standing,
    TakenOver,
    Vclock,
    stamped,
)
from cairn.spark.streams.stream import CairnStream, row_limit
from cairn.spark.tables import describe

SNAPSHOT_SPLITS = 4  # partitions per replicaset
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Offset = dict[str, Any]


class RowStream(CairnStream):
    def __init__(self, options: Options, table: str, wanted: Any) -> None:
        super().__init__(options, wanted)
        self._table = describe(options.dsn, table)
        if self._table.tier is None:
            raise InvalidParameter(
                f"{table} has no history: only sharded and global tables have one",
                hint='option("stream", "topology") tells of instances, replicasets and buckets',
            )
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
        taken = target.taken or self._asker.standing().taken
        known, target, lost = self._without_leavers(known, target, taken)
        lost += [uuid for uuid in self._lost(known) if uuid not in lost]
        if lost:
            return self._at(
                Standing({**known.positions, **{u: target.positions[u] for u in lost}},
                         {**known.owners, **{u: target.owners.get(u, ()) for u in lost}},
                         {**known.epochs, **{u: target.epochs.get(u, {}) for u in lost}}),
                {uuid: target.owners.get(uuid, ()) for uuid in lost},
            )  # fmt: skip
        known = _with_newcomers(known, taken)
        ready = {
            uuid: _held_back(at, known, taken.get(uuid, ()), known.positions.get(uuid, {}))
            for uuid, at in target.positions.items()
        }
        end = Standing(dict(known.positions), dict(target.owners), dict(known.epochs))
        self._limited(end, target, ready, row_limit(limit))
        return self._at(end)

    def _without_leavers(
        self, known: Standing, target: Standing, taken: dict[str, list[TakenOver]]
    ) -> tuple[Standing, Standing, list[str]]:
        """Forget replicasets that have left the cluster, if they had told all when they left.

        Else an error, or, if that shall be none, who has their buckets now is told anew.
        """
        lost: list[str] = []
        for uuid in [each for each in known.positions if self._asker.has_left(each)]:
            if not _told_all(known, uuid, taken):
                problem = CairnError(
                    f"replicaset {uuid} has left the cluster with changes that were not read",
                    sqlstate=LOST,
                )
                if self._options.fail_on_data_loss:
                    raise _explained(problem)
                lost = [each for each in target.owners if not self._asker.has_left(each)]
            known, target = known.without(uuid), target.without(uuid)
        return known, target, lost

    def _lost(self, known: Standing) -> list[str]:
        """Replicasets whose log has forgotten the position; an error, if that shall be one."""
        found = []
        for uuid in self._asker.replicasets():
            try:
                self._asker.ask(uuid, known.stamped(uuid), 0)
            except Gone:
                continue  # since it was listed: the next batch forgets it
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
            reached, ends = last, target.positions[uuid]
            epochs = {
                origin: epoch
                for origin, epoch in target.epochs.get(uuid, {}).items()
                if last.get(origin) == ends.get(origin)  # else it was held back before it
            }
            if most:
                answer = self._asker.ask(uuid, end.stamped(uuid), left)
                # What is held back is not taken, and must not keep the others from their turn.
                left -= sum(
                    change["lsn"] <= last.get(change["origin"], 0) for change in answer["changes"]
                )
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
                _row(uuid, change, answer["key"])
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
        for answer in self._asker.rows_at(uuid, at, ranges):
            told = [
                ("snapshot", _key(row, answer["key"]), bucket, None, _json(row), uuid, *[None] * 5)
                for bucket, row in answer["rows"]
            ]
            if told:
                yield self.batch(told)


def _key(row: dict[str, Any], names: Sequence[str]) -> str:
    """The primary key as JSON."""
    return json.dumps({name: row.get(name) for name in names}, ensure_ascii=False)


def _row(uuid: str, change: dict[str, Any], key: Sequence[str]) -> tuple[Any, ...]:
    row = change["new"] or change["old"]
    told = _EPOCH + timedelta(microseconds=change["timestamp"])
    return (
        change["op"], None if row is None else _key(row, key), change["bucket"],
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


def _with_newcomers(known: Standing, taken: dict[str, list[TakenOver]]) -> Standing:
    """A replicaset that the offset does not have begins where it first took something over."""
    begun = {
        uuid: moves[0].first
        for uuid, moves in taken.items()
        if moves and uuid not in known.positions and known.positions
    }
    return msgspec.structs.replace(known, positions={**known.positions, **begun})


def _told_all(known: Standing, uuid: str, taken: dict[str, list[TakenOver]]) -> bool:
    """Whether a replicaset that has left was read to its last record of every bucket it had.

    It has no name any more: what others took from it is known by the origins of its records.
    """
    position = known.positions[uuid]
    given = [
        move
        for moves in taken.values()
        for move in moves
        if move.final.keys() & position.keys() and not move.source
    ]
    if any(position.get(o, 0) < lsn for move in given for o, lsn in move.final.items()):
        return False
    left = {bucket for low, high in known.owners.get(uuid, ()) for bucket in range(low, high + 1)}
    for move in given:
        left.difference_update(range(move.buckets[0], move.buckets[1] + 1))
    return not left


def _held_back(target: Vclock, known: Standing, taken: Sequence[TakenOver], mine: Vclock) -> Vclock:
    """How far a replicaset may be read in a batch that begins at `known`.

    Not past the beginning of buckets whose former owner is not read to their end yet: partitions
    of one batch have no order. Each hand-over points back in time, so somebody can always go on.
    """
    limit = dict(target)
    for move in taken:
        giver = known.positions.get(move.source)
        if giver is None or all(giver.get(origin, 0) >= lsn for origin, lsn in move.final.items()):
            continue
        for origin, lsn in limit.items():
            limit[origin] = max(min(lsn, move.first.get(origin, 0)), mine.get(origin, 0))
    return limit


def _cut(ranges: Any) -> list[Ranges]:
    from cairn.spark.reads.reader import cut

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
