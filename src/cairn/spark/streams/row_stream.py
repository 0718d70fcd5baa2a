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
from cairn.spark.streams.hand_overs import (
    HandOver,
    Ranges,
    Seen,
    Standing,
    Vclock,
    held_back,
    not_behind,
    stamped,
    told_all,
    untold,
    with_newcomers,
)
from cairn.spark.streams.row_asking import LOST, Gone, RowAsker
from cairn.spark.streams.stream import CairnStream, row_limit
from cairn.spark.tables import describe

ASKED_AGAIN = 20  # for records of moves, which are told to nobody
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

    def _at(
        self,
        standing: Standing,
        snapshot: dict[str, Ranges] | None = None,
        begun: dict[str, Vclock] | None = None,
    ) -> Offset:
        """Offsets are compared as text: everything in one order.

        `begun`: where those begin that the offset before this one does not have.
        """
        facts: dict[str, Any] = {
            "rs": {u: dict(sorted(of.items())) for u, of in sorted(standing.positions.items())},
            "owners": {u: [list(r) for r in of] for u, of in sorted(standing.owners.items())},
            "epochs": {u: dict(sorted(of.items())) for u, of in sorted(standing.epochs.items())},
        }
        if standing.seen is not None:
            facts["moves"] = [standing.seen.upto, *standing.seen.more]
        if begun:
            facts["begun"] = {u: dict(sorted(of.items())) for u, of in sorted(begun.items())}
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
        if self._target:  # an offset does not say who took over what
            now = self._asker.standing()
            target = msgspec.structs.replace(target, moves=now.moves, forgotten=now.forgotten)
        target = not_behind(target, known)
        had = set(known.positions)
        known = with_newcomers(known, target)
        lost = self._missed(known, target)
        known, target, left = self._without_leavers(known, target)
        lost = lost or left or self._lost(known, target)
        begun = {uuid: at for uuid, at in known.positions.items() if uuid not in had}
        if lost:
            return self._at(
                Standing({**known.positions, **{u: target.positions[u] for u in lost}},
                         {**known.owners, **{u: target.owners.get(u, ()) for u in lost}},
                         {**known.epochs, **{u: target.epochs.get(u, {}) for u in lost}},
                         target.seen),
                {uuid: target.owners.get(uuid, ()) for uuid in lost},
                begun,
            )  # fmt: skip
        ready = {
            uuid: held_back(at, known, target.moves, known.positions.get(uuid, {}))
            for uuid, at in target.positions.items()
        }
        end = Standing(dict(known.positions), dict(target.owners), dict(known.epochs), target.seen)
        self._limited(end, target, ready, row_limit(limit))
        return self._at(end, begun=begun)

    def _missed(self, known: Standing, target: Standing) -> list[str]:
        """Whom to tell anew, because somebody took buckets, gave them on and left unread.

        The same if it cannot be told any more who took what.
        """
        if known.seen is None:
            return []
        if known.seen.upto < target.forgotten:
            return self._all_anew(target, "too many buckets have moved since the position")
        everybody = [*known.positions.values(), *target.positions.values()]
        strangers = [
            move
            for move in target.moves
            if move not in known.seen and not any(move.is_into(each) for each in everybody)
        ]
        if strangers and self._asker.silent():
            raise Unreachable("a replicaset that has taken buckets over has no master")
        if strangers:
            return self._all_anew(
                target, "a replicaset that took buckets over has left with changes unread"
            )
        return []

    def _all_anew(self, target: Standing, why: str) -> list[str]:
        if self._options.fail_on_data_loss:
            raise _explained(CairnError(why, sqlstate=LOST))
        return [uuid for uuid, ranges in target.owners.items() if ranges]

    def _without_leavers(
        self, known: Standing, target: Standing
    ) -> tuple[Standing, Standing, list[str]]:
        """Forget replicasets that own nothing and have told all: nobody has to ask them again,
        whatever becomes of their logs. They begin anew where they take something over.

        Who has left without having told all is an error, or, if that shall be none, who has their
        buckets now is told anew.
        """
        lost: list[str] = []
        for uuid in list(known.positions):
            has_left = self._asker.has_left(uuid)
            if not has_left and (uuid not in target.positions or target.owners.get(uuid)):
                continue
            if not has_left:
                known = self._past_moves(known, uuid, target.moves)
            if not told_all(known, uuid, target.moves):
                if not has_left:
                    continue
                why = f"replicaset {uuid} has left the cluster with changes that were not read"
                lost = self._all_anew(target, why)
            known, target = known.without(uuid), target.without(uuid)
        return known, target, [uuid for uuid in lost if uuid in target.positions]

    def _past_moves(self, known: Standing, uuid: str, moves: Sequence[HandOver]) -> Standing:
        """Go on to the end of all it gave if nothing is told on the way: records of moves are not.

        Else whoever reads the next batch would have to find it still there.
        """
        last = untold(known.positions[uuid], moves)
        for _ in range(ASKED_AGAIN):
            if last is None or last.is_told(known.positions[uuid]):
                break
            answer = self._asker.ask(uuid, known.stamped(uuid), 1)
            if answer["changes"]:
                break
            known = msgspec.structs.replace(
                known,
                positions={**known.positions, uuid: answer["after"]},
                epochs={**known.epochs, uuid: answer["epochs"]},
            )
        return known

    def _lost(self, known: Standing, target: Standing) -> list[str]:
        """Replicasets whose log has forgotten the position; an error, if that shall be one.

        A giver whose last records of a range went with its master cannot tell them: it is told
        anew, and so is who took the range.
        """
        found: dict[str, None] = {}
        for uuid in [each for each in known.positions if each in target.positions]:
            given = untold(known.positions[uuid], target.moves)
            if not self._has(uuid, known.stamped(uuid)):
                found[uuid] = None
            elif given is not None and not self._has(uuid, stamped(given.final, given.epochs)):
                takers = [each for each, at in target.positions.items() if given.is_into(at)]
                found.update(dict.fromkeys([uuid, *takers]))
        return list(found)

    def _has(self, uuid: str, position: dict[str, Any]) -> bool:
        try:
            self._asker.ask(uuid, position, 0)
        except Gone:
            return True  # since it was listed: the next batch forgets it
        except CairnError as problem:
            if problem.sqlstate != LOST or self._options.fail_on_data_loss:
                raise _explained(problem) from None
            return False
        return True

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
            if uuid not in first.positions:
                first.positions[uuid] = end.get("begun", {}).get(uuid, {})
            if uuid not in snapshot and upto != first.positions[uuid]:
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
            except Gone as problem:
                why = f"{problem} with changes that were not read"
                raise _explained(CairnError(why, sqlstate=LOST)) from None
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
    moves = offset.get("moves")
    seen = Seen(moves[0], tuple(moves[1:])) if moves else None
    return Standing(dict(offset["rs"]), owners, dict(offset.get("epochs", {})), seen)


def _lsns(asked: dict[str, Any]) -> Vclock:
    return {origin: at[0] if isinstance(at, list) else at for origin, at in asked.items()}


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
