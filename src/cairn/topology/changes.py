"""From the rows that an applied entry changed to the events that smart clients are told.

The events of an entry are the same for every stream of a version: a client that has heard a
snapshot at any earlier position knows, for each told field, what the catalogue said before the
entry. So nothing has to be remembered about who was told what. In particular a 0.1 stream has
always told the owner of every range (`BucketRange.owner`), and an event goes out exactly where
the owner changes: as `copied` at the end of a move, as `active` at the first distribution.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from cairn.model.members.cluster import Cluster
from cairn.model.members.events import (
    AnyEvent,
    EventBuckets,
    EventInstance,
    EventReplicaset,
    EventTier,
    Range,
    Version,
)
from cairn.model.members.topology import (
    BucketRange,
    Instance,
    Position,
    Replicaset,
    Tier,
)
from cairn.model.tables import system_tables as system
from cairn.model.tables.pictures import readable
from cairn.topology.snapshot import (
    Piece,
    pieces,
    told_buckets,
    told_instance,
    told_replicaset,
    told_tier,
)

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class RowChange(Protocol):
    """One row before and after; None where there was or is none. As `storage` reports it."""

    @property
    def table(self) -> int: ...
    @property
    def old(self) -> Row | None: ...
    @property
    def new(self) -> Row | None: ...


class _Rows(msgspec.Struct):
    """The rows of one side, before or after, that an entry touched; by what clients know them."""

    replicasets: dict[str, Replicaset] = msgspec.field(default_factory=dict)  # by uuid
    instances: dict[str, Instance] = msgspec.field(default_factory=dict)  # by uuid
    tiers: dict[str, Tier] = msgspec.field(default_factory=dict)
    buckets: list[BucketRange] = msgspec.field(default_factory=list)


def events_of(
    changes: Iterable[RowChange],
    before: Cluster,
    after: Cluster,
    *,
    position: Position,
    timestamp: str,
    version: Version,
) -> list[AnyEvent]:
    """The events of one applied entry, in the order in which they are told.

    `before` and `after` are the pictures around this very entry (`advanced` makes the second from
    the first); an entry that changes nothing told gives no event.
    """
    touched = _folded(changes)
    if not touched:
        return []
    old, new = _Rows(), _Rows()
    _gather(touched, 0, old)
    _gather(touched, 1, new)
    _add_neighbours(touched, before, after, old, new)
    return _told(old, new, before, after, _Teller(position, timestamp, version))


def difference(
    before: Cluster, after: Cluster, *, position: Position, timestamp: str, version: Version
) -> list[AnyEvent]:
    """The events that lead from one picture to another: an installed Raft snapshot."""
    teller = _Teller(position, timestamp, version)
    return _told(_everything(before), _everything(after), before, after, teller)


# --- which rows ---------------------------------------------------------------------------------


_KEYS: dict[int, Callable[[Row], Any]] = {
    system.PICO_REPLICASET.id: lambda row: row[0],
    system.PICO_INSTANCE.id: lambda row: row[0],
    system.PICO_PEER_ADDRESS.id: lambda row: (row[0], row[2]),
    system.PICO_TIER.id: lambda row: row[0],
    system.PICO_BUCKET.id: lambda row: (row[0], row[1]),
    system.PICO_PROPERTY.id: lambda row: row[0],
    system.CAIRN_MOVE.id: lambda row: row[0],
}

_Touched: TypeAlias = dict[int, dict[Any, list[Row | None]]]


def _folded(changes: Iterable[RowChange]) -> _Touched:
    """By table and key: the first old row and the last new one, where they differ."""
    found: _Touched = {}
    for change in changes:
        key_of = _KEYS.get(change.table)
        row = change.new if change.new is not None else change.old
        if key_of is None or row is None:
            continue
        sides = found.setdefault(change.table, {}).setdefault(key_of(row), [change.old, None])
        sides[1] = change.new
    for by_key in found.values():
        for key in [key for key, (first, last) in by_key.items() if first == last]:
            del by_key[key]
    return found


def _gather(touched: _Touched, side: int, into: _Rows) -> None:
    def each(table: int) -> Iterator[Row]:
        for sides in touched.get(table, {}).values():
            row = sides[side]
            if row is not None:
                yield row

    for row in each(system.PICO_REPLICASET.id):
        into.replicasets[row[1]] = readable(system.PICO_REPLICASET.id, row)
    for row in each(system.PICO_INSTANCE.id):
        into.instances[row[1]] = readable(system.PICO_INSTANCE.id, row)
    for row in each(system.PICO_TIER.id):
        into.tiers[row[0]] = readable(system.PICO_TIER.id, row)
    into.buckets.extend(readable(system.PICO_BUCKET.id, row) for row in each(system.PICO_BUCKET.id))


def _add_neighbours(
    touched: _Touched, before: Cluster, after: Cluster, old: _Rows, new: _Rows
) -> None:
    """Rows that did not change themselves: the instance of a new address, a namesake's master."""
    for raft_id, _ in touched.get(system.PICO_PEER_ADDRESS.id, {}):
        for cluster, side in ((before, old), (after, new)):
            instance = cluster.by_raft_id(raft_id)
            if instance is not None:
                side.instances.setdefault(instance.uuid, instance)
    names = {instance.name for instance in new.instances.values()}
    names &= set(touched.get(system.PICO_INSTANCE.id, {}))
    masters = [after.replicasets[name] for name in sorted(after.replicasets)] if names else []
    for replicaset in masters:
        if replicaset.current_master_name not in names:
            continue
        earlier = before.replicasets.get(replicaset.name)
        new.replicasets.setdefault(replicaset.uuid, replicaset)
        if earlier is not None and earlier.uuid == replicaset.uuid:
            old.replicasets.setdefault(earlier.uuid, earlier)


def _everything(cluster: Cluster) -> _Rows:
    return _Rows(
        replicasets={found.uuid: found for found in cluster.replicasets.values()},
        instances={found.uuid: found for found in cluster.instances.values()},
        tiers=dict(cluster.tiers),
        buckets=list(cluster.buckets),
    )


# --- making the events --------------------------------------------------------------------------


class _Teller(msgspec.Struct, frozen=True):
    position: Position
    timestamp: str
    version: Version

    @property
    def is_full(self) -> bool:
        return self.version != "0.1"


def _told(
    old: _Rows, new: _Rows, before: Cluster, after: Cluster, teller: _Teller
) -> list[AnyEvent]:
    """Replaces: tiers, replicasets, instances, buckets. Then deletes, the other way round."""
    at = (teller.timestamp, teller.position)
    version = teller.version
    events: list[AnyEvent] = []
    if teller.is_full:
        for name, fields in _changed(old.tiers, new.tiers, told_tier, told_tier):
            events.append(EventTier("replace", "tier", *at, name, **fields))
    replicasets = _changed(
        old.replicasets,
        new.replicasets,
        lambda row: told_replicaset(row, before, version),
        lambda row: told_replicaset(row, after, version),
    )
    for uuid, fields in replicasets:
        master = told_replicaset(new.replicasets[uuid], after, version)["current_master_uuid"]
        fields["current_master_uuid"] = master  # in every replace of a row that has one
        events.append(EventReplicaset("replace", "replicaset", *at, uuid, **fields))
    instances = _changed(
        old.instances,
        new.instances,
        lambda row: told_instance(row, before, version),
        lambda row: told_instance(row, after, version),
    )
    for uuid, fields in instances:
        events.append(EventInstance("replace", "instance", *at, instance_uuid=uuid, **fields))
    replaced, deleted = _bucket_events(old, new, before, after, teller)
    events += replaced
    events += deleted
    for uuid in _missing(old.instances, new.instances):
        events.append(EventInstance("delete", "instance", *at, instance_uuid=uuid))
    for uuid in _missing(old.replicasets, new.replicasets):
        events.append(EventReplicaset("delete", "replicaset", *at, uuid))
    if teller.is_full:
        for name in _missing(old.tiers, new.tiers):
            events.append(EventTier("delete", "tier", *at, name))
    return numbered(events) if teller.is_full else events


def _changed(
    old: Mapping[str, T],
    new: Mapping[str, T],
    told_before: Callable[[T], dict[str, Any]],
    told_after: Callable[[T], dict[str, Any]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """New rows with all their fields, known ones with those that changed to something."""
    for key, row in new.items():
        fields = told_after(row)
        if key in old:
            known = told_before(old[key])
            fields = {
                name: value
                for name, value in fields.items()
                if value is not None and value != known[name]
            }
            if not fields:
                continue
        yield key, fields


def _missing(old: Mapping[str, T], new: Mapping[str, T]) -> list[str]:
    return [key for key in old if key not in new]


def numbered(events: list[AnyEvent]) -> list[AnyEvent]:
    """0.2: each event's place in its entry, and the mark on the last."""
    count = len(events)
    return [
        msgspec.structs.replace(event, n=n, last=n == count) for n, event in enumerate(events, 1)
    ]


# --- buckets ------------------------------------------------------------------------------------


def _bucket_events(
    old: _Rows, new: _Rows, before: Cluster, after: Cluster, teller: _Teller
) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Replaced and deleted intervals. A 0.1 stream tells owners only, and no deletes."""
    at = (teller.timestamp, teller.position)
    replaced: list[AnyEvent] = []
    deleted: list[AnyEvent] = []
    for tier in sorted({each.tier for each in (*old.buckets, *new.buckets)}):
        was = pieces(old.buckets, tier, lambda row: told_buckets(row, before, teller.version))
        now = pieces(new.buckets, tier, lambda row: told_buckets(row, after, teller.version))
        for start, end, earlier, fields in overlaid(was, now):
            if fields is None:
                if teller.is_full:
                    gone = EventBuckets("delete", "bucket", *at, tier, bucket_id=Range(start, end))
                    deleted.append(gone)
            elif earlier is None or _differs(earlier, fields, teller):
                replaced.append(
                    EventBuckets(
                        "replace", "bucket", *at, tier, bucket_id=Range(start, end), **fields
                    )
                )
    return replaced, deleted


def _differs(earlier: dict[str, Any], fields: dict[str, Any], teller: _Teller) -> bool:
    if teller.is_full:
        return earlier != fields
    return bool(earlier["current_replicaset_uuid"] != fields["current_replicaset_uuid"])


def overlaid(
    was: Sequence[Piece], now: Sequence[Piece]
) -> Iterator[tuple[int, int, dict[str, Any] | None, dict[str, Any] | None]]:
    """Intervals on which both are constant; None where one has nothing. Two sorted lists in."""
    borders = sorted({edge for start, end, _ in (*was, *now) for edge in (start, end + 1)})
    i = j = 0
    merged: tuple[int, int, dict[str, Any] | None, dict[str, Any] | None] | None = None
    for start, stop in pairwise(borders):
        while i < len(was) and was[i][1] < start:
            i += 1
        while j < len(now) and now[j][1] < start:
            j += 1
        earlier = was[i][2] if i < len(was) and was[i][0] <= start else None
        later = now[j][2] if j < len(now) and now[j][0] <= start else None
        if earlier is None and later is None:
            continue
        if merged and merged[1] + 1 == start and merged[2] == earlier and merged[3] == later:
            merged = (merged[0], stop - 1, earlier, later)
            continue
        if merged:
            yield merged
        merged = (start, stop - 1, earlier, later)
    if merged:
        yield merged


# --- the picture after an entry -----------------------------------------------------------------


def advanced(cluster: Cluster, changes: Iterable[RowChange], position: Position) -> Cluster:
    """`cluster` with an entry's row changes in it: the `after` of `events_of`.

    When several entries are applied at once, the catalogue is read once at the end; this gives
    the pictures in between.
    """
    touched = _folded(changes)
    replaced: dict[str, Any] = {"position": position}
    for table, field in _PICTURES.items():
        if table not in touched:
            continue
        content = dict(getattr(cluster, field))
        for key, (_, new) in touched[table].items():
            if new is None:
                content.pop(key, None)
            else:
                content[key] = readable(table, new)
        replaced[field] = content
    if system.PICO_BUCKET.id in touched:
        ranges = list(cluster.buckets)
        for key, (_, new) in touched[system.PICO_BUCKET.id].items():
            at = bisect_left(ranges, key, key=lambda each: (each.tier, each.start))
            is_there = at < len(ranges) and (ranges[at].tier, ranges[at].start) == key
            made = [] if new is None else [readable(system.PICO_BUCKET.id, new)]
            ranges[at : at + is_there] = made
        replaced["buckets"] = tuple(ranges)
    return msgspec.structs.replace(cluster, **replaced)


_PICTURES: dict[int, str] = {
    system.PICO_REPLICASET.id: "replicasets",
    system.PICO_INSTANCE.id: "instances",
    system.PICO_PEER_ADDRESS.id: "addresses",
    system.PICO_TIER.id: "tiers",
    system.PICO_PROPERTY.id: "properties",
    system.CAIRN_MOVE.id: "moves",
}
