"""Topology events: what a smart client is told, each one a JSON object in a notice
(docs/reference/topology-protocol.md).

Version 0.1 is what Picodata's clients know: `EventReplicaset`, `EventInstance`, `EventBuckets`.
Version 0.2 adds fields (absent in 0.1, and left out of the JSON) and the kinds at the end. A new
kind of event is one struct and one entry in `KINDS`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from cairn.model.members.topology import Position

Version: TypeAlias = Literal["0.1", "0.2"]
VERSIONS: tuple[Version, ...] = ("0.1", "0.2")
OPS = frozenset(("replace", "delete"))


class Range(msgspec.Struct, frozen=True):
    """Buckets `start`…`end`, both included."""

    start: int
    end: int


_NOWHERE = Range(0, -1)  # stands for a field that is missing


class _Placed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """0.2: the event's place among those of its entry. A resume position advances at `last`."""

    n: int | None = None
    last: bool = False


class Event(_Placed, frozen=True, omit_defaults=True):
    """A change of one row. Applying it twice does no harm; order comes from `raft` alone."""

    op: str  # replace | delete
    map: str
    timestamp: str  # for people
    raft: Position


class EventReplicaset(Event, frozen=True, omit_defaults=True):
    replicaset_uuid: str
    current_master_uuid: str | None = None  # None: not part of this event, left out of the JSON
    tier: str | None = None  # 0.2
    name: str | None = None  # 0.2


class EventInstance(Event, frozen=True, omit_defaults=True):
    tier: str | None = None
    replicaset_uuid: str | None = None
    instance_uuid: str = ""
    current_state: str | None = None
    address: str | None = None
    incarnation: int | None = None  # 0.2
    name: str | None = None  # 0.2


class EventBuckets(Event, frozen=True, omit_defaults=True):
    """Overwrites the interval `bucket_id`, whatever ranges were known there before."""

    tier: str
    state: str | None = None  # always there but for a delete (0.2)
    bucket_id: Range = _NOWHERE
    current_replicaset_uuid: str | None = None  # who serves the range from now on
    next_replicaset_uuid: str | None = None  # 0.2: who will, while it is being copied


class EventTier(Event, frozen=True, omit_defaults=True):
    """0.2: a tier that `hello` did not name, or one that is gone."""

    tier: str
    bucket_count: int | None = None
    hash_version: int | None = None


class TierFacts(msgspec.Struct, frozen=True):
    name: str
    bucket_count: int
    hash_version: int


class Hello(msgspec.Struct, frozen=True):
    """0.2: the first notice. A client that finds another `cluster_uuid` than before lets go."""

    map: str
    cluster_uuid: str
    version: str
    tiers: tuple[TierFacts, ...] = ()


class SnapshotEnd(msgspec.Struct, frozen=True):
    """0.2: all is told up to `raft`. `reset`: it was a snapshot; forget what came before it."""

    map: str
    raft: Position
    reset: bool


class Heartbeat(msgspec.Struct, frozen=True):
    """0.2: every event up to `raft` has been told, even if there were none."""

    map: str
    raft: Position


AnyEvent: TypeAlias = (
    EventReplicaset | EventInstance | EventBuckets | EventTier | Hello | SnapshotEnd | Heartbeat
)

#: `map` → what such an event looks like.
KINDS: dict[str, type[AnyEvent]] = {
    "replicaset": EventReplicaset,
    "instance": EventInstance,
    "bucket": EventBuckets,
    "tier": EventTier,
    "hello": Hello,
    "snapshot_end": SnapshotEnd,
    "heartbeat": Heartbeat,
}


class _Head(msgspec.Struct):
    map: str = ""
    op: str | None = None


_encoder = msgspec.json.Encoder()
_heads = msgspec.json.Decoder(_Head)
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


def encode(event: AnyEvent) -> str:
    """The notice's text: fields in the order of the protocol's page, absent ones left out."""
    return _encoder.encode(event).decode()


def decode(text: str | bytes) -> AnyEvent | None:
    """None for what is no event that we know: other JSON, an unknown `map` or `op`."""
    try:
        head = _heads.decode(text)
        decoder = _decoders.get(head.map)
        if decoder is None or (head.op is not None and head.op not in OPS):
            return None
        event = decoder.decode(text)
    except msgspec.MsgspecError:
        return None
    return event if _makes_sense(event) else None


def _makes_sense(event: AnyEvent) -> bool:
    """Whether the fields that its kind needs are there; types were checked before."""
    match event:
        case EventInstance():
            return bool(event.instance_uuid)
        case EventBuckets(op="replace"):
            buckets = event.bucket_id
            known = event.state is not None and event.current_replicaset_uuid is not None
            return known and 0 <= buckets.start <= buckets.end
        case EventBuckets():
            return 0 <= event.bucket_id.start <= event.bucket_id.end
    return True
