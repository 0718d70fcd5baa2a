"""What must hold at every moment, whatever fails: told by every node, compared across them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from cairn.model.log.applied import Applied
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, Instance, Replicaset, State
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.net.handshake import Identity
from cairn.storage.raft_db.event_log import read_cluster

_LADDER = (
    Grade.OFFLINE,
    Grade.RAFT_SYNCED,
    Grade.REPLICATED,
    Grade.SHARDING_INITIALIZED,
    Grade.ONLINE,
)
_LOCAL = {table.physical_name for table in system.LOCAL_TABLES}


class Violation(AssertionError):
    """A promise was broken."""


class Checks:
    """The memory of one run. The first node to reach a position says how it looks there."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self.namings: list[float] = []  # when masters were named, in any replicaset
        self.modes: list[tuple[float, str]] = []  # when a tier's mode was changed, and to what
        self.cluster_uuids: dict[str, str] = {}  # cluster uuid → who said so first
        self.raft_ids: dict[int, str] = {}  # raft_id → instance uuid, for ever
        self.tables: dict[int, tuple[str, bytes]] = {}  # applied index → (node, digest)
        self.entries: dict[int, tuple[str, bytes]] = {}
        self.last_index = 0
        self.violation: str | None = None  # the first one; nodes must not see it
        self.put_back: set[str] = set()  # nodes that were given old files

    def _guarded(self, check: Callable[..., None], *arguments: Any) -> None:
        try:
            check(*arguments)
        except Violation as broken:
            self.violation = self.violation or str(broken)

    def founded(self, node: str, who: Identity) -> None:
        self._guarded(self._founded, node, who)

    def applied(self, node: str, done: list[Applied]) -> None:
        self._guarded(self._applied, node, done)

    def remembers(self, node: str, owed: tuple[int, int]) -> None:
        """What was acknowledged outlives everything but a disk that goes back in time."""
        if owed != (0, 0) and node not in self.put_back:
            self.violation = self.violation or f"{node} has forgotten Raft's entry {owed}"

    def observe(self, file: str, connection: apsw.Connection) -> None:
        """After a commit of a Raft file: at equal positions all tables are equal."""
        if file == "raft writer":
            self._guarded(self._observe, connection)

    # --- identity ---------------------------------------------------------------------------------

    def _founded(self, node: str, who: Identity) -> None:
        self.cluster_uuids.setdefault(who.cluster_uuid, node)
        if len(self.cluster_uuids) > 1:
            raise Violation(f"two clusters were founded: {self.cluster_uuids}")
        known = self.raft_ids.setdefault(who.raft_id, who.instance_uuid)
        if known != who.instance_uuid:
            raise Violation(f"raft_id {who.raft_id} is {node}'s and was given to {known}")

    # --- applied entries --------------------------------------------------------------------------

    def _applied(self, node: str, done: list[Applied]) -> None:
        for each in done:
            digest = _digest((each.term, each.request_id, each.changes, str(each.error)))
            first = self.entries.setdefault(each.index, (node, digest))
            if first[1] != digest:
                raise Violation(
                    f"entry {each.index} did one thing at {first[0]}, another at {node}"
                )
            if first[0] == node and each.index > self.last_index:
                self.last_index = each.index
                self._check_changes(each)

    def _check_changes(self, done: Applied) -> None:
        for change in done.changes:
            where = f"entry {done.index}"
            if change.table == system.PICO_INSTANCE.id and change.new is not None:
                new = rows.instance_of(change.new)
                old = None if change.old is None else rows.instance_of(change.old)
                self._check_instance(where, old, new)
            elif change.table == system.PICO_REPLICASET.id and change.new is not None:
                after = rows.replicaset_of(change.new)
                before = None if change.old is None else rows.replicaset_of(change.old)
                check_replicaset(where, before, after)
                if before is None or before.epoch != after.epoch:
                    self.namings.append(self._clock())
            elif change.table == system.PICO_TIER.id and change.old and change.new:
                self.modes.append((self._clock(), rows.tier_of(change.new).replication_mode))

    def _check_instance(self, where: str, old: Instance | None, new: Instance) -> None:
        known = self.raft_ids.setdefault(new.raft_id, new.uuid)
        if known != new.uuid:
            raise Violation(f"{where}: raft_id {new.raft_id} of {known} is given to {new.uuid}")
        if old is None:
            if new.current_state != State(Grade.OFFLINE):
                raise Violation(f"{where}: {new.name} joins as {new.current_state}")
            return
        if (old.uuid, old.raft_id, old.replicaset_name, old.tier) != (
            new.uuid,
            new.raft_id,
            new.replicaset_name,
            new.tier,
        ):
            raise Violation(f"{where}: {new.name} changed what is for life")
        check_grades(where, old, new)

    # --- whole tables -----------------------------------------------------------------------------

    def _observe(self, connection: apsw.Connection) -> None:
        row: Any = connection.execute(
            "SELECT value FROM raft_state WHERE key = 'applied'"
        ).fetchone()
        index = 0 if row is None else row[0]
        node = connection.filename.split("/")[-2]
        if not index or self.tables.get(index, ("", b""))[0] == node:
            return
        digest = _digest(_content(connection))
        first = self.tables.setdefault(index, (node, digest))
        if first[1] != digest:
            raise Violation(f"tables at entry {index} differ between {first[0]} and {node}")
        if first[0] == node:
            check_picture(f"entry {index}", read_cluster(connection))


def _content(connection: apsw.Connection) -> list[Any]:
    """All global tables and the texts of their indexes, as they lie in the file."""
    execute: Any = connection.execute
    known = "FROM sqlite_master WHERE tbl_name GLOB 't[0-9]*' AND type ="
    indexes = execute(f"SELECT sql {known} 'index' AND sql NOT NULL ORDER BY name").fetchall()
    names = [name for (name,) in execute(f"SELECT name {known} 'table' ORDER BY name")]
    rows_of = [(n, execute(f"SELECT * FROM {n}").fetchall()) for n in names if n not in _LOCAL]
    return [indexes, rows_of]


def check_grades(where: str, old: Instance, new: Instance) -> None:
    """Up one step at a time in one incarnation; down to Offline; Expelled is the end."""
    was, now = old.current_state, new.current_state
    if new.target_state.incarnation < was.incarnation:
        raise Violation(f"{where}: target {new.target_state} of {new.name} is behind {was}")
    if was == now:
        return
    jump = f"{where}: {new.name} jumped from {was} to {now} (target {old.target_state})"
    if was.grade is Grade.EXPELLED or now.incarnation < was.incarnation:
        raise Violation(jump)
    if now.grade in (Grade.OFFLINE, Grade.EXPELLED):
        return
    if now.grade is Grade.RAFT_SYNCED:
        if was.grade is not Grade.OFFLINE and now.incarnation == was.incarnation:
            raise Violation(jump)
        return
    step = _LADDER.index(now.grade) - _LADDER.index(was.grade)
    if step != 1 or now.incarnation != was.incarnation:
        raise Violation(jump)


def check_replicaset(where: str, old: Replicaset | None, new: Replicaset) -> None:
    if old is None:
        return
    if new.epoch < old.epoch:
        raise Violation(f"{where}: epoch of {new.name} fell from {old.epoch} to {new.epoch}")
    is_named = new.current_master_name not in ("", old.current_master_name)
    if is_named and new.epoch != old.epoch + 1:
        raise Violation(f"{where}: {new.name} has another master in epoch {new.epoch}")
    if new.epoch == old.epoch and new.cut != old.cut:
        raise Violation(f"{where}: the cut of {new.name} moved inside epoch {new.epoch}")


def check_picture(where: str, cluster: Cluster) -> None:
    uuids = [instance.uuid for instance in cluster.instances.values()]
    ids = [instance.raft_id for instance in cluster.instances.values()]
    if len(set(uuids)) != len(uuids) or len(set(ids)) != len(ids):
        raise Violation(f"{where}: two rows for one instance: {sorted(cluster.instances)}")
    if ids and max(ids) > cluster.last_raft_id:
        raise Violation(f"{where}: last_raft_id {cluster.last_raft_id} is behind {max(ids)}")
    for tier in cluster.tiers.values():
        at = 0
        for bucket in cluster.tier_buckets(tier.name):
            if bucket.start != at + 1:
                raise Violation(f"{where}: buckets {at + 1}…{bucket.start} have no one owner")
            if bucket.owner not in cluster.replicasets:
                raise Violation(f"{where}: buckets from {bucket.start} are owned by nobody")
            at = bucket.end
        if at not in (0, tier.bucket_count):
            raise Violation(f"{where}: tier {tier.name} ends at bucket {at}")


def check_masters(nodes: list[Any]) -> None:
    """At any moment at most one process may act as the master of a replicaset."""
    acting: dict[str, str] = {}
    for node in nodes:
        instance = node.instance
        if instance is None or instance.row is None or not node.is_running:
            continue
        fence = instance.data.store.fence
        if not fence.is_master or not instance.lease.is_held(fence.epoch):
            continue
        name = instance.row.replicaset_name
        if name in acting:
            raise Violation(f"{acting[name]} and {node.name} both act as the master of {name}")
        acting[name] = node.name


def _digest(value: Any) -> bytes:
    data = msgspec.msgpack.encode(value)
    return hashlib.blake2b(data, digest_size=16).digest()
