"""Positions of a stream when buckets change hands: pure rules over what replicasets answered.

A taker is read past the beginning of what it took only in a batch that begins behind the giver's
last record of it. Who owns nothing and has told all is left out of an offset; it comes in again
where it takes something over. So an offset outlives whatever becomes of a drained replicaset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

Vclock = dict[str, int]
Ranges = tuple[tuple[int, int], ...]
T = TypeVar("T")


class HandOver(msgspec.Struct, frozen=True):
    """Buckets that changed hands: the giver's last record of them, and where the taker began.

    Whose they were is told by origins: a replicaset that left has no name any more, or another
    one has it.
    """

    id: int
    buckets: tuple[int, int]
    final: Vclock
    first: Vclock
    epochs: Vclock = {}  # of the records of `final`

    def is_from(self, position: Vclock) -> bool:
        return not self.final.keys().isdisjoint(position)

    def is_into(self, position: Vclock) -> bool:
        return not self.first.keys().isdisjoint(position)

    def is_told(self, position: Vclock) -> bool:
        """Whether the giver was read to its last record of them."""
        return all(position.get(origin, 0) >= lsn for origin, lsn in self.final.items())


class Seen(msgspec.Struct, frozen=True):
    """Hand-overs that a position takes into account: all up to one, and some after it."""

    upto: int
    more: tuple[int, ...] = ()

    def __contains__(self, move: HandOver) -> bool:
        return move.id <= self.upto or move.id in self.more


class Standing(msgspec.Struct):
    """Positions of the replicasets, and who owned what when they were taken."""

    positions: dict[str, Vclock]
    owners: dict[str, Ranges]
    epochs: dict[str, Vclock] = {}  # of the records at the positions: an lsn may be used again
    seen: Seen | None = None  # None: an offset of an earlier version, or made by hand
    moves: tuple[HandOver, ...] = ()  # all that are known, in order
    forgotten: int = 0  # of moves up to this one, some are not known any more

    def without(self, uuid: str) -> Standing:
        """As if there had never been this replicaset."""

        def rest(of: dict[str, T]) -> dict[str, T]:
            return {key: value for key, value in of.items() if key != uuid}

        return msgspec.structs.replace(
            self,
            positions=rest(self.positions),
            owners=rest(self.owners),
            epochs=rest(self.epochs),
        )

    def stamped(self, uuid: str) -> dict[str, Any]:
        """A replicaset's position as it is asked for."""
        return stamped(self.positions.get(uuid, {}), self.epochs.get(uuid, {}))


def stamped(position: Vclock, epochs: Vclock) -> dict[str, Any]:
    """With the epochs that are known; a checkpoint of an earlier version has none."""
    return {
        origin: [lsn, epochs[origin]] if origin in epochs else lsn
        for origin, lsn in position.items()
    }


def not_behind(target: Standing, known: Standing) -> Standing:
    """Nobody is read to before where it was read to: its changes would be told again.

    A master of sync mode tells what a majority has, and may for a moment know of less than it
    told: one that joins has to confirm it, too. What was lost is asked for by itself.
    """
    positions, epochs = dict(target.positions), dict(target.epochs)
    for uuid in target.positions.keys() & known.positions.keys():
        past = {
            origin: lsn
            for origin, lsn in known.positions[uuid].items()
            if lsn > target.positions[uuid].get(origin, 0)
        }
        if past:
            had = known.epochs.get(uuid, {})
            positions[uuid] = {**positions[uuid], **past}
            now = {o: epoch for o, epoch in epochs.get(uuid, {}).items() if o not in past}
            epochs[uuid] = now | {origin: had[origin] for origin in past if origin in had}
    return msgspec.structs.replace(target, positions=positions, epochs=epochs)


def with_newcomers(known: Standing, target: Standing) -> Standing:
    """A replicaset that the offset does not have begins where it first took something over since.

    One that has taken nothing has nothing to tell yet: it begins where it stands.
    """
    begun: dict[str, Vclock] = {}
    for uuid, position in target.positions.items() if known.positions else ():
        if uuid in known.positions:
            continue
        for move in target.moves:
            if move.is_into(position) and (known.seen is None or move not in known.seen):
                begun[uuid] = move.first
                break
        else:
            if known.seen is not None:
                begun[uuid] = position
    return msgspec.structs.replace(known, positions={**known.positions, **begun})


def told_all(known: Standing, uuid: str, moves: Sequence[HandOver]) -> bool:
    """Whether a replicaset was read to its last record of every bucket that it had."""
    position = known.positions[uuid]
    given = [move for move in moves if move.is_from(position)]
    if not all(move.is_told(position) for move in given):
        return False
    left = {bucket for low, high in known.owners.get(uuid, ()) for bucket in range(low, high + 1)}
    for move in given:
        left.difference_update(range(move.buckets[0], move.buckets[1] + 1))
    return not left


def untold(position: Vclock, moves: Sequence[HandOver]) -> HandOver | None:
    """The last thing that a replicaset gave away and was not read to the end of."""
    given = [move for move in moves if move.is_from(position) and not move.is_told(position)]
    return given[-1] if given else None


def held_back(target: Vclock, known: Standing, moves: Sequence[HandOver], mine: Vclock) -> Vclock:
    """How far a replicaset may be read in a batch that begins at `known`.

    Not past the beginning of buckets whose former owner is not read to their end yet: partitions
    of one batch have no order. Each hand-over points back in time, so somebody can always go on.
    """
    limit = dict(target)
    for move in moves:
        if not move.is_into(target):
            continue
        giver = next((at for at in known.positions.values() if move.is_from(at)), None)
        if giver is None or move.is_told(giver):
            continue
        for origin, lsn in limit.items():
            limit[origin] = max(min(lsn, move.first.get(origin, 0)), mine.get(origin, 0))
    return limit
