"""Changes that SQL refuses, proposed as an instance proposes them: one compare-and-swap."""

from __future__ import annotations

import asyncio
import random
import time
import uuid

from cairn.model.errors import CairnError, CasRetry, NotLeader
from cairn.model.log.ops import Batch, Dml, Replace, Update
from cairn.model.log.ranges import Predicate
from cairn.model.rpc import CasAccepted, CasRequest, Empty, IndexResponse, StatusResponse
from cairn.model.rpc import WaitIndexRequest as WaitIndex
from cairn.model.tables import system_tables as system
from cairn.moves.steps import PAUSED
from cairn.net.handshake import Identity
from cairn.net.peers import Peers, SocketNetwork

SECRET = "shared secret"  # the harness's
WAIT_S = 20.0


def _peers(who: Identity, secret: str) -> Peers:
    network = SocketNetwork("127.0.0.1:0")
    return Peers(network, lambda: who, secret.encode(), {}, random.Random(1))


async def member(address: str, cluster_name: str, secret: str = SECRET) -> Identity:
    """Who listens there: with the secret, whoever wants to be taken for it is."""
    peers = _peers(Identity(cluster_name), secret)
    try:
        link = await peers._connected(address, WAIT_S)
        assert link.peer is not None
        return link.peer
    finally:
        peers.close()


class AsPeer:
    """Knows the service password and where the instances listen for each other."""

    def __init__(self, addresses: list[str], cluster_name: str, secret: str = SECRET) -> None:
        self._addresses, self._name, self._secret = addresses, cluster_name, secret

    def give_buckets(self, replicaset: str, start: int = 1, tier: str = "default") -> None:
        """The range that begins at `start` is owned by `replicaset` from now on, without its rows.

        Buckets do not move by themselves any more: they would go back to where they should be.
        """
        at = system.PICO_BUCKET.position("current_replicaset_name")
        self.propose(
            Replace(system.PICO_PROPERTY.id, (PAUSED, "true")),
            Update(system.PICO_BUCKET.id, (tier, start), ((at, replicaset),)),
        )

    def set_address(self, raft_id: int, address: str, connection_type: str = "pgproto") -> None:
        at = system.PICO_PEER_ADDRESS.position("address")
        key = (raft_id, connection_type)
        self.propose(Update(system.PICO_PEER_ADDRESS.id, key, ((at, address),)))

    def propose(self, *changes: Dml) -> None:
        """Until it is applied on every instance."""
        asyncio.run(self._propose(changes))

    async def _propose(self, changes: tuple[Dml, ...]) -> None:
        who = await member(self._addresses[0], self._name, self._secret)
        peers = _peers(who, self._secret)
        try:
            deadline = time.monotonic() + WAIT_S
            request_id = str(uuid.uuid4())
            while True:
                try:
                    index = await self._append(peers, request_id, changes)
                    break
                except (CasRetry, NotLeader):
                    assert time.monotonic() < deadline, "nobody took the change"
                    await asyncio.sleep(0.05)
            for address in self._addresses:
                await peers.call(
                    address, "wait_index", WaitIndex(index, WAIT_S), IndexResponse, WAIT_S
                )
        finally:
            peers.close()

    async def _append(self, peers: Peers, request_id: str, changes: tuple[Dml, ...]) -> int:
        for address in self._addresses:
            try:
                said = await peers.call(address, "status", Empty(), StatusResponse, 3.0)
            except CairnError:
                continue
            if said.role == "leader":
                request = CasRequest(
                    "",
                    request_id,
                    Predicate(said.applied, said.term, ()),
                    Batch(changes),
                    is_unsafe=True,
                )
                return (await peers.call(address, "cas", request, CasAccepted, 3.0)).index
        raise NotLeader
