"""Keeps this instance's rows equal to those of its replicaset: the parts, and who is given what.

follower ──pulls──▶ relay of another member ──▶ its acknowledgements
   │ asks first: ballots; takes whole: copies; from whom: mesh
   ▼
the writer applies; `place` says in which history, and whether all rows are here
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.node.rows.ballots import Ballots
from cairn.node.rows.copies import Copies
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.follower import Follower
from cairn.node.rows.mesh import Mesh, Table
from cairn.node.rows.place import Place
from cairn.node.rows.relay import Relay
from cairn.node.runtime import Runtime
from cairn.storage.data_db.row_log import LogReader

MAINTAIN_S = 5.0
HOUR_S = 3600.0
#: For how many hours of this instance's life an operation that was done is remembered. Repeated
#: later it would be done again; chunks of a staged write, which is what is repeated, are swept
#: after a day.
OPERATIONS_HOURS = 7 * 24


class Replication:
    def __init__(
        self,
        name: str,
        uuid: str,
        state: GlobalState,
        runner: RaftRunner,
        peers: Peers,
        data: DataPlane,
        runtime: Runtime,
        *,
        on_diverged: Callable[[], None],
        on_routes: Callable[[Table], None],
        on_beat: Callable[[], None],
    ) -> None:
        self._data, self._runtime = data, runtime
        self._hour_since = runtime.boot_clock()
        self._reader = LogReader(data.store.path)
        incarnation = int(runtime.wall_clock().timestamp() * 1000)
        self.place = Place(name, uuid, state, data, on_diverged)
        self.acks = Acknowledgements(self.place, data, peers.is_linked)
        data.confirmed_by(self.acks)
        self.mesh = Mesh(self.place, data, incarnation, on_routes, on_beat)
        self.relay = Relay(self.place, data, self._reader, self.acks, self.mesh)
        self.ballots = Ballots(self.place, data, peers, self.mesh)
        self.copies = Copies(self.place, data, peers)
        self.follower = Follower(
            self.place,
            data,
            self._reader,
            runner,
            peers,
            runtime,
            self.acks,
            self.mesh,
            self.ballots,
            self.copies,
        )

    def close(self) -> None:
        self.relay.close()
        self._reader.close()
        self.copies.close()

    def follow(self) -> None:
        """Entries were applied: a new epoch begins before anything else goes on."""
        is_new_epoch = self.place.follow()
        if is_new_epoch:
            self.acks.begin_anew()
        self.follower.follow(is_new_epoch=is_new_epoch)
        self.acks.release()

    async def maintain(self) -> None:
        """Forget records that everybody has; past the bound, even those that somebody lacks."""
        while True:
            await asyncio.sleep(MAINTAIN_S)
            self.copies.drop_idle()
            await self._forget_operations()
            for origin, lsn in list(self._data.vclock.items()):
                upto = self.acks.prunable(origin, lsn, self._reader.mean_bytes(origin))
                if upto >= self._reader.oldest(origin) > 0:
                    await self._data.run(lambda o=origin, u=upto: self._data.store.prune(o, u))  # type: ignore[misc]

    async def _forget_operations(self) -> None:
        operations, now = self._data.store.operations, self._runtime.boot_clock()
        if now - self._hour_since >= HOUR_S:
            self._hour_since = now
            await self._data.run(operations.next_hour)
        before = self._reader.hour() - OPERATIONS_HOURS
        if self._reader.has_operations(before):
            await self._data.run(lambda: operations.forget(before))
