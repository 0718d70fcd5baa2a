"""Who an instance is: what of it outlives a restart, and even a dropped database."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from cairn.model.errors import ConfigProblem
from cairn.model.members.topology import ConnectionType
from cairn.model.tables.system_tables import PICO_PEER_ADDRESS
from cairn.net.handshake import Identity
from cairn.node.boot.config import InstanceConfig
from cairn.node.runtime import Runtime
from cairn.storage.files.sqlite import sync_directory
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.topology.discovery import DiscoveryState


class Kept:
    """Small files beside the database: the uuid, and what discovery learnt."""

    def __init__(self, directory: Path, runtime: Runtime) -> None:
        self._directory, self._runtime = directory, runtime

    def own_uuid(self) -> str:
        """Made once, durable before the first request: joining is idempotent by it."""
        path = self._directory / "instance_uuid"
        if path.exists():
            return path.read_text().strip()
        uuid = self._runtime.uuid()
        write_durably(path, uuid.encode())
        return uuid

    def load_discovery(self) -> DiscoveryState:
        path = self._directory / "discovery.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=DiscoveryState)
        return DiscoveryState(self._runtime.uuid(), ())

    def save_discovery(self, state: DiscoveryState) -> None:
        path = self._directory / "discovery.json"
        data = msgspec.json.encode(state)
        if not path.exists() or path.read_bytes() != data:
            write_durably(path, data)

    def note_founded(self) -> None:
        """The verdict to found a cluster is carried out, and must not be once more."""
        state = self.load_discovery()
        if state.founder:
            self.save_discovery(msgspec.structs.replace(state, founder=False, founded=True))


def stored_identity(store: RaftStore) -> Identity:
    return Identity(
        store.get("cluster_name"),
        store.get("cluster_uuid"),
        store.get("instance_uuid"),
        store.get("instance_name"),
        store.get("raft_id"),
    )


def put_identity(store: RaftStore, who: Identity, replicaset: str, tier: str) -> None:
    store.put("cluster_name", who.cluster_name)
    store.put("cluster_uuid", who.cluster_uuid)
    store.put("instance_uuid", who.instance_uuid)
    store.put("instance_name", who.instance_name)
    store.put("replicaset_name", replicaset)
    store.put("tier", tier)
    store.put("raft_id", who.raft_id)


def check_restart(config: InstanceConfig, store: RaftStore) -> None:
    """Names are for life; addresses and failure domains may change."""
    for word, now in (
        ("cluster_name", config.cluster_name),
        ("instance_name", config.instance_name),
        ("replicaset_name", config.replicaset_name),
        ("tier", config.tier),
    ):
        was = store.get(word)
        if now is not None and was != now:
            raise ConfigProblem(
                f"instance restarted with a different {word}, which is not allowed, "
                f"was: '{was}' became: '{now}'"
            )


def recorded_address(store: RaftStore) -> str | None:
    """Where the others reached this instance when it last heard of it."""
    table = PICO_PEER_ADDRESS
    known = store.connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name = ?", (table.physical_name,)
    )
    if known.fetchone() is None:  # it ended before its first entry
        return None
    found = store.connection.execute(
        f"SELECT c{table.position('address')} FROM {table.physical_name} "
        f"WHERE c{table.position('raft_id')} = ? AND c{table.position('connection_type')} = ?",
        (store.get("raft_id"), ConnectionType.PEER.value),
    ).fetchone()
    return None if found is None else str(found[0])


def write_durably(path: Path, data: bytes) -> None:
    """Whole or not at all, and on disk when this returns."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)
