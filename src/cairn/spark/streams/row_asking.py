"""Asking replicasets for changes and rows, and where they all stand at one moment."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from cairn.model.errors import CairnError, LimitExceeded, Unreachable
from cairn.model.quoting import literal
from cairn.spark import cluster
from cairn.spark.cluster import MOVED, REPLAN_S
from cairn.spark.options import Options
from cairn.spark.streams.hand_overs import HandOver, Ranges, Seen, Standing

CHUNK = 5_000
BUCKETS_AT_ONCE = 20  # of a snapshot, in one answer
LOST = "PC005"  # the row log does not have the position any more


class Gone(Unreachable):
    """The replicaset is no longer in the cluster: there is nobody to ask and to wait for."""


class RowAsker:
    """Talks to masters about one table. Holds no connection: it is pickled to every task."""

    def __init__(self, options: Options, table: str, tier: str) -> None:
        self._options, self._table, self._tier = options, table, tier

    def replicasets(self) -> list[str]:
        """The owners; and who owns nothing any more, but may have changes to tell."""
        topology = cluster.pool(self._options.dsn).topology
        owners = [owner.uuid for owner in cluster.owners(self._options.dsn, self._tier)]
        others = [
            uuid
            for uuid, each in topology.view.replicasets.items()
            if each.tier in (None, self._tier) and topology.master(uuid) is not None
        ]
        return sorted({*owners, *others})

    def has_left(self, uuid: str) -> bool:
        return uuid not in cluster.pool(self._options.dsn).topology.view.replicasets

    def silent(self) -> list[str]:
        """Replicasets that could not be asked: they own nothing and have no master."""
        view, asked = cluster.pool(self._options.dsn).topology.view, self.replicasets()
        return [
            uuid
            for uuid, each in view.replicasets.items()
            if each.tier in (None, self._tier) and uuid not in asked
        ]

    def owned(self, uuid: str) -> Ranges:
        owners = cluster.owners(self._options.dsn, self._tier)
        return next((owner.ranges for owner in owners if owner.uuid == uuid), ())

    def standing(self, where: str = "latest") -> Standing:
        """Where everybody's log ends, or begins. Asked again while two claim the same bucket.

        Else one asked before a move and one asked after it would tell the later changes of a
        bucket without the earlier ones.
        """
        until = time.monotonic() + REPLAN_S
        while True:
            try:
                answers = {uuid: self.ask(uuid, where) for uuid in self.replicasets()}
            except Gone:  # since it was listed: the next list does not have it
                if time.monotonic() > until:
                    raise
                continue
            owners: dict[str, Ranges] = {
                uuid: tuple((low, high) for low, high in answer["buckets"])
                for uuid, answer in answers.items()
            }
            if not _overlap(owners):
                positions = {uuid: each["after"] for uuid, each in answers.items()}
                epochs = {uuid: each["epochs"] for uuid, each in answers.items()}
                moves, seen = _hand_overs(answers.values())
                forgotten = max((each["forgotten"] for each in answers.values()), default=0)
                return Standing(positions, owners, epochs, seen, moves, forgotten)
            if time.monotonic() > until:
                raise Unreachable("two replicasets claim the same buckets; is one of them behind?")
            cluster.wait_for_news(self._options.dsn, 0.1)

    def ask(self, uuid: str, after: Any, limit: int = CHUNK) -> Any:
        """Changes after a position, from the replicaset's master."""
        return self._call(uuid, f"cairn_rows({literal(self._table)}, {_json(after)}, {limit})")

    def rows_at(self, uuid: str, at: dict[str, Any], ranges: Ranges) -> Iterator[Any]:
        """Rows of these buckets as of a position, some at a time, and what their key is."""
        at_once = BUCKETS_AT_ONCE
        for low, high in ranges:
            while low <= high:
                end = min(low + at_once - 1, high)
                text = f"cairn_rows_at({literal(self._table)}, {_json(at)}, {low}, {end})"
                try:
                    answer = self._call(uuid, text)
                except CairnError as problem:
                    if problem.sqlstate != LimitExceeded.sqlstate or end == low:
                        raise
                    at_once = (end - low + 1) // 2
                    continue
                yield answer
                low = end + 1

    def _call(self, uuid: str, text: str) -> Any:
        """Of the replicaset's master, waiting for a new one for a while."""
        until = time.monotonic() + REPLAN_S
        while True:
            master = cluster.pool(self._options.dsn).topology.master(uuid)
            try:
                if master is None or not master.address:
                    raise Unreachable(f"replicaset {uuid} has no master")
                return cluster.call(self._options.dsn, f"CALL {text}", master.address)
            except CairnError as problem:
                if problem.sqlstate not in MOVED:
                    raise
                if self.has_left(uuid):
                    raise Gone(f"replicaset {uuid} has left the cluster") from None
                if time.monotonic() > until:
                    raise
            cluster.wait_for_news(self._options.dsn, 0.3)


def _hand_overs(answers: Collection[Any]) -> tuple[tuple[HandOver, ...], Seen]:
    """What all of them know together; one may be behind the others."""
    found: dict[int, HandOver] = {}
    for each in answers:
        found.update({one.id: one for one in msgspec.convert(each["moves"], list[HandOver])})
    moves = tuple(sorted(found.values(), key=lambda move: move.id))
    upto = min((each["settled"] for each in answers), default=0)
    return moves, Seen(upto, tuple(move.id for move in moves if move.id > upto))


def _overlap(owners: dict[str, Ranges]) -> bool:
    ordered = sorted(each for ranges in owners.values() for each in ranges)
    return any(one[1] >= other[0] for one, other in pairwise(ordered))


def _json(value: Any) -> str:
    return literal(json.dumps(value))
