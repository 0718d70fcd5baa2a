"""What a "you are one hop away" notice is good for: it makes us look, it never makes us believe.

A server that had to pass a statement on names the owner it knows. If our table says otherwise,
bucket events that wait are applied at once; if that does not settle it and the server knows a later
position than we do, our provider gets a while to catch up and is then left for another one.
Nothing of a hint ever enters the table, so one that SQL has forged changes nothing there.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from cairn.client.stats import Stats
from cairn.model.members.topology import Position
from cairn.topology.routing_table import RoutingTable

GRACE_S: Final = 2.5  # a provider that is well says where it is every 2 s
_LONGEST_GRACE_S: Final = 300.0


class Hint(msgspec.Struct, frozen=True):
    """`{"map": "hop", …}` as the server sends it; other fields are for people."""

    map: str
    tier: str
    bucket_id: int
    replicaset_uuid: str
    instance_uuid: str
    raft: Position


class Hints:
    """At most one doubt at a time; a provider left in vain doubles the wait before the next."""

    def __init__(self, table: RoutingTable, stats: Stats, chance: random.Random) -> None:
        self._table, self._stats, self._chance = table, stats, chance
        self._doubt: Hint | None = None
        self._grace_s = GRACE_S

    def heard(self, message: str) -> float | None:
        """In how many seconds to ask `is_behind`, when this is a new doubt."""
        try:
            hint = msgspec.json.decode(message, type=Hint)
        except msgspec.MsgspecError:
            return None
        if hint.map != "hop":
            return None
        verdict = self._judge(hint)
        self._stats.hints[verdict] += 1
        if verdict != "doubted" or self._doubt is not None:
            return None
        self._doubt = hint
        return self._grace_s * (1 + self._chance.random())  # not all clients at once

    def _judge(self, hint: Hint) -> str:
        if not self._differs(hint):
            return "known"
        if self._table.batch:
            self._table.flush()
            if not self._differs(hint):
                return "flushed"
        return "stale" if hint.raft <= self._table.position else "doubted"

    def _differs(self, hint: Hint) -> bool:
        owner = self._table.owner(hint.tier, hint.bucket_id)
        replicaset = self._table.view.replicasets.get(owner or "")
        known = None if replicaset is None else replicaset.master_uuid
        return (owner, known) != (hint.replicaset_uuid, hint.instance_uuid)

    def is_behind(self) -> bool:
        """The wait is over: whether the provider still has not told what the hint's sender knew."""
        doubt, self._doubt = self._doubt, None
        if doubt is None:
            return False
        if not self._differs(doubt) or doubt.raft <= self._table.position:
            self._grace_s = GRACE_S
            return False
        self._grace_s = min(self._grace_s * 2, _LONGEST_GRACE_S)
        self._stats.topology_refreshes += 1
        return True
