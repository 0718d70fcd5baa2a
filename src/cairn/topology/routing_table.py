"""From events to a routing table: what a smart client knows about the cluster (sans-IO).

A new service connection begins with `connecting`; what comes until `ready` is gathered aside, so
that queries go on with the old view, which is then replaced as a whole (or, after a confirmed
0.2 resume, continued). Live events are applied at once, only bucket events in batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from cairn.model.errors import CairnError
from cairn.model.members.events import (
    AnyEvent,
    Event,
    EventBuckets,
    EventInstance,
    EventReplicaset,
    Heartbeat,
    Hello,
    SnapshotEnd,
)
from cairn.model.members.topology import Position
from cairn.topology.view import KnownInstance, View

log = logging.getLogger("cairn.client")

Listener: TypeAlias = Callable[[AnyEvent], None]


class OtherCluster(CairnError):
    """The service connection belongs to a cluster that is not ours."""

    sqlstate = "08004"


class BucketBatch:
    """Bucket events that wait: 2,000 of them or 15 seconds, whichever comes first (the seed)."""

    def __init__(self, max_records: int = 2000, max_age_s: float = 15.0) -> None:
        self.max_records, self.max_age_s = max_records, max_age_s
        self._waiting: list[EventBuckets] = []
        self._since = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: EventBuckets, now: float) -> None:
        if not self._waiting:
            self._since = now
        self._waiting.append(event)

    @property
    def deadline(self) -> float | None:
        """When `is_due` becomes true by itself."""
        return self._since + self.max_age_s if self._waiting else None

    def is_due(self, now: float) -> bool:
        if len(self._waiting) >= self.max_records:
            return True
        return bool(self._waiting) and now >= self._since + self.max_age_s

    def take(self) -> list[EventBuckets]:
        waiting, self._waiting = self._waiting, []
        return waiting


class RoutingTable:
    """Fed with the events of one service connection after another."""

    def __init__(self, *, batch_records: int = 2000, batch_age_s: float = 15.0) -> None:
        self.view = View()
        self.batch = BucketBatch(batch_records, batch_age_s)
        self.cluster_uuid: str | None = None
        self.resume_after: Position | None = None  # the last entry that we have whole (0.2)
        self.gone: set[str] = set()  # instances seen Expelled or deleted: never connected to
        self.gone_addresses: set[str] = set()
        self.listeners: list[Listener] = []
        self.snapshots = 0
        self.changes = 0  # grows with every change of the view: what was made from it is then stale
        self.dropped = 0  # events older than what we had
        self._opening: list[AnyEvent] | None = None
        self._entry: list[AnyEvent] = []  # 0.2: the events of an entry whose last is still to come

    # --- feeding ------------------------------------------------------------------------------

    def connecting(self) -> None:
        """A new service connection: what comes next is its snapshot, or the rest of a resume."""
        self._opening = []
        self._entry.clear()

    def receive(self, event: AnyEvent, now: float) -> None:
        if isinstance(event, Hello):
            self._check_cluster(event)
        if self._opening is not None:
            self._opening.append(event)
            return
        self._receive_live(event, now)

    def ready(self, now: float) -> bool:
        """ReadyForQuery: the view is swapped. False after a resume, when all was kept."""
        opening, self._opening = self._opening or [], None
        ends = [at for at, each in enumerate(opening) if isinstance(each, SnapshotEnd)]
        later = opening[ends[0] + 1 :] if ends else []  # live events that came with ReadyForQuery
        end = opening[ends[0]] if ends else None
        if isinstance(end, SnapshotEnd) and not end.reset:
            for event in opening:
                self._receive_live(event, now)
            self.flush()
            return False
        view = View()
        for event in opening[: len(opening) - len(later)]:
            view.apply(event)
            self._remember_gone(event, view)
        self.batch.take()
        self.view = view
        self.changes += 1
        self.resume_after = end.raft if isinstance(end, SnapshotEnd) else None
        self.snapshots += 1
        self._tell(end or SnapshotEnd("snapshot_end", view.position, True))
        for event in later:
            self._receive_live(event, now)
        return True

    def lost(self) -> None:
        """The service connection ended: an unfinished snapshot or entry is of no use."""
        self._opening = None
        self._entry.clear()

    def tick(self, now: float) -> None:
        if self.batch.is_due(now):
            self.flush()

    def flush(self) -> None:
        """Apply waiting bucket events: a wrong owner answered, or somebody wants to know now."""
        for event in self.batch.take():
            self._apply(event)

    def _check_cluster(self, hello: Hello) -> None:
        if self.cluster_uuid is None:
            self.cluster_uuid = hello.cluster_uuid
        elif self.cluster_uuid != hello.cluster_uuid:
            raise OtherCluster(
                f"this is cluster {hello.cluster_uuid}, we belong to {self.cluster_uuid}",
                hint="check the addresses given to the driver",
            )

    def _receive_live(self, event: AnyEvent, now: float) -> None:
        """0.2 entries take effect whole: the next provider may not have reached this one."""
        raft = getattr(event, "raft", None)
        if raft is not None and raft < self.view.position:
            self.dropped += 1
            return
        if not isinstance(event, Event) or event.n is None:
            self._take(event, now)
        else:
            self._entry.append(event)
            if not event.last:
                return
            entry, self._entry = self._entry, []
            for each in entry:
                self._take(each, now)
        if raft is not None and (not isinstance(event, Event) or event.last):
            self.resume_after = raft

    def _take(self, event: AnyEvent, now: float) -> None:
        if isinstance(event, EventBuckets):
            self.batch.add(event, now)
            self.view.position = max(self.view.position, event.raft)
            self.tick(now)
            return
        if isinstance(event, EventReplicaset) and event.op == "delete":
            self.flush()
        self._apply(event)

    def _apply(self, event: AnyEvent) -> None:
        self._remember_gone(event, self.view)
        self.view.apply(event)
        if not isinstance(event, Heartbeat):
            self.changes += 1
        self._tell(event)

    def _remember_gone(self, event: AnyEvent, view: View) -> None:
        if not isinstance(event, EventInstance):
            return
        if event.op == "delete" or event.current_state == "Expelled":
            self.gone.add(event.instance_uuid)
            known = view.instances.get(event.instance_uuid)
            if known is not None and known.address:
                self.gone_addresses.add(known.address)

    def _tell(self, event: AnyEvent) -> None:
        if isinstance(event, Heartbeat):
            return
        for listener in list(self.listeners):
            try:
                listener(event)
            except Exception:
                log.exception("a topology listener failed")

    # --- asking -------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """A snapshot has been seen."""
        return self.snapshots > 0

    @property
    def position(self) -> Position:
        return self.view.position

    def owner(self, tier: str, bucket: int) -> str | None:
        """uuid of the replicaset that serves the bucket."""
        ranges = self.view.buckets.get(tier)
        served = None if ranges is None else ranges.get(bucket)
        return None if served is None else served.owner

    def bucket_count(self, tier: str) -> int:
        """As `hello` told it; in 0.1 the highest bucket, since its snapshot covers them all."""
        facts = self.view.tiers.get(tier)
        if facts is not None and facts.bucket_count:
            return facts.bucket_count
        ranges = self.view.buckets.get(tier)
        return 0 if ranges is None else ranges.highest

    def hash_version(self, tier: str) -> int | None:
        facts = self.view.tiers.get(tier)
        return None if facts is None else facts.hash_version

    def may_connect(self, instance: KnownInstance) -> bool:
        return bool(instance.address) and instance.uuid not in self.gone

    def may_contact(self, address: str) -> bool:
        """A configured address is no longer good once its instance was expelled from there."""
        if address not in self.gone_addresses:
            return True
        return any(
            each.address == address and each.uuid not in self.gone
            for each in self.view.instances.values()
        )

    def addresses(self) -> set[str]:
        """Of all members that may be connected to, whether they are online or not."""
        return {
            each.address
            for each in self.view.instances.values()
            if each.address and each.uuid not in self.gone
        }

    def master(self, replicaset_uuid: str) -> KnownInstance | None:
        """The master, if it is one that may be connected to."""
        replicaset = self.view.replicasets.get(replicaset_uuid)
        if replicaset is None or replicaset.master_uuid is None:
            return None
        found = self.view.instances.get(replicaset.master_uuid)
        return found if found is not None and self.may_connect(found) else None

    def master_address(self, tier: str, bucket: int) -> str | None:
        owner = self.owner(tier, bucket)
        master = None if owner is None else self.master(owner)
        return None if master is None else master.address

    def online(self, replicaset_uuid: str | None = None) -> list[KnownInstance]:
        """Online instances, of one replicaset or of all."""
        return [
            each
            for each in self.view.instances.values()
            if each.is_online
            and self.may_connect(each)
            and replicaset_uuid in (None, each.replicaset_uuid)
        ]
