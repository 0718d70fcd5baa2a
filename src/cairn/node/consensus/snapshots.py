"""Raft snapshots between instances: made in one read transaction, fetched in chunks."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cairn.model.errors import CairnError
from cairn.model.rpc import SnapshotChunk, SnapshotChunkRequest
from cairn.net.peers import Peers
from cairn.raft.types import ConfState, Snapshot, SnapshotMeta
from cairn.storage.files.sqlite import open_reader
from cairn.storage.raft_db.global_tables import TableDump, dump_tables

CHUNK = 1024 * 1024
FETCH_TIMEOUT_S = 10.0
PATIENCE_TICKS = 100  # without a request for a chunk, the receiver is taken for gone

Contents = list[TableDump]


class SnapshotSender:
    """Makes snapshots of the global tables and hands them out piece by piece."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._payloads: dict[bytes, bytes] = {}
        self._latest: Snapshot | None = None
        self._asked: dict[int, int] = {}  # receiver → tick of its last sign of life

    def make(self) -> Snapshot | None:
        """A snapshot as of the applied index; the last one again if nothing was applied since."""
        reader = open_reader(self._path)
        try:
            reader.execute("BEGIN")
            facts = dict(reader.execute("SELECT key, value FROM raft_state"))
            conf = msgspec.msgpack.decode(facts["conf_state"], type=ConfState)
            meta = SnapshotMeta(facts["applied"], facts["applied_term"], conf)
            if self._latest is not None and self._latest.meta == meta:
                return self._latest
            payload = msgspec.msgpack.encode(dump_tables(reader))
        finally:
            reader.close()
        handle = b"%d.%d" % (meta.term, meta.index)
        while len(self._payloads) >= 2:
            self._payloads.pop(next(iter(self._payloads)))
        self._payloads[handle] = payload
        self._latest = Snapshot(meta, handle)
        return self._latest

    def sent(self, to: int, tick: int) -> None:
        self._asked[to] = tick

    def chunk(self, request: SnapshotChunkRequest, asker: int, tick: int) -> SnapshotChunk:
        payload = self._payloads.get(request.handle)
        if payload is None:
            text = "this snapshot is no longer kept; a newer one will be offered"
            raise CairnError(text, sqlstate="55000")
        start = request.chunk * CHUNK
        data = payload[start : start + CHUNK]
        # Also after the last chunk: a receiver that dies before it has installed it must be tried
        # again. Raft ignores the report if it was installed.
        self._asked[asker] = tick
        return SnapshotChunk(data, start + CHUNK >= len(payload))

    def overdue(self, tick: int) -> list[int]:
        """Receivers that stopped asking: Raft must be told, or they stay paused for ever."""
        late = [peer for peer, since in self._asked.items() if tick - since > PATIENCE_TICKS]
        for peer in late:
            del self._asked[peer]
        return late


class SnapshotReceiver:
    """Fetches a snapshot's payload before the core hears of it."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._fetched: dict[bytes, Contents] = {}
        self._busy = False

    def has(self, handle: bytes) -> bool:
        return handle in self._fetched

    def take(self, handle: bytes) -> Contents | None:
        return self._fetched.pop(handle, None)

    async def fetch(self, source: int, snapshot: Snapshot) -> bool:
        """True when the payload is here; False when another fetch is under way."""
        if self._busy:
            return False
        self._busy = True
        try:
            parts: list[bytes] = []
            while True:
                request = SnapshotChunkRequest(snapshot.handle, len(parts))
                chunk = await self._peers.call(
                    source, "snapshot_chunk", request, SnapshotChunk, FETCH_TIMEOUT_S
                )
                parts.append(chunk.data)
                if chunk.last:
                    break
            contents = msgspec.msgpack.decode(b"".join(parts), type=Contents)
            self._fetched.clear()
            self._fetched[snapshot.handle] = contents
            return True
        finally:
            self._busy = False
