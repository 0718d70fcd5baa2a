"""Small worlds for directed scripts: three instances, one replicaset, a master and a leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from cairn.model.members.topology import Tier
from cairn.node.instance import Instance
from cairn.node.peer_calls import handlers
from cairn.node.rows.copies import CopyPiece, CopyRequest
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

PEERS = ("a:3301", "b:3301", "c:3301")


def world_of(*names: str, factor: int = 1, mode: str = "async", seed: int = 1) -> World:
    logging.getLogger("cairn").setLevel("CRITICAL")
    tier = Tier("default", factor, bucket_count=30, is_default=True, replication_mode=mode)
    world = World(seed, (tier,))
    peers = tuple(f"{name}:3301" for name in names)
    for name in names:
        world.add(name, peers)
    return world


def answer_anew(instance: Instance) -> None:
    """Peers are answered by the functions that it has now: a test has replaced some."""
    instance._calls = instance._peer_calls()
    instance.peers.handlers.update(handlers(instance._calls, instance.guard.check))


async def founded(world: World) -> None:
    for node in world.nodes.values():
        node.start()
    await world.settled(60.0)


class Triple:
    """Three instances of one replicaset: `master` is neither `leader` nor `third`."""

    def __init__(self, mode: str, seed: int = 1) -> None:
        self.world = world_of("a", "b", "c", factor=3, mode=mode, seed=seed)
        self.load = Load(self.world)

    async def ready(self) -> None:
        await founded(self.world)
        await self.load.create_table()
        [self.master] = self.load.masters()
        others = [node for node in self.world.nodes.values() if node is not self.master]
        await self.lead(others[0])
        self.leader, self.third = others
        await self.world.settled(60.0)
        await self.write(1)

    async def lead(self, node: SimNode) -> None:
        """Hand Raft leadership to `node`."""
        world = self.world

        def leads() -> bool:
            if node.is_leader:
                return True
            now = world.leader()
            if now is not None and now.instance is not None and node.instance is not None:
                now.instance.runner.transfer_leader(node.instance.raft_id)
            return False

        await world.until(leads, f"{node} to lead", 20.0)

    async def write(self, key: int, node: SimNode | None = None) -> None:
        """A write that is acknowledged, waiting while the replicaset has to find itself."""
        while key not in self.load.acked:
            self.load.refused.discard(key)
            await self.load.write(node or self.master, key)
            await asyncio.sleep(0.05)

    def cut(self, one: SimNode, other: SimNode) -> None:
        self.world.wire.cut(one.name, other.name)
        self.world.wire.cut(other.name, one.name)

    def mend(self, one: SimNode, other: SimNode) -> None:
        self.world.wire.mend(one.name, other.name)
        self.world.wire.mend(other.name, one.name)

    async def renamed(self, timeout_s: float = 30.0) -> SimNode:
        """Once another master is named: who it is."""

        def found() -> bool:
            return any(node is not self.master for node in self.load.masters())

        await self.world.until(found, "another master", timeout_s)
        return next(node for node in self.load.masters() if node is not self.master)

    async def calm(self, *, may_lose: bool = False) -> None:
        self.world.wire.heal()
        for node in self.world.nodes.values():
            node.resume()
            if not node.is_running:
                node.start()
        await self.world.settled()
        await self.load.check(may_lose=may_lose)


def hold(node: SimNode) -> Callable[[], None]:
    """From now on nothing that is queued to the writer of rows is written; how to let it go on."""
    assert node.instance is not None and node.process is not None
    disk: Any = node.instance.data._disk
    context = node.process.context
    disk._begin = lambda: None

    def release() -> None:
        vars(disk).pop("_begin", None)
        context.run(disk._begin)

    return release


def played(mode: str, script: Callable[[Triple], Awaitable[None]]) -> None:
    scene = Triple(mode)

    async def run() -> None:
        await scene.ready()
        await script(scene)

    scene.world.run(run)


def inside(node: SimNode) -> Instance:
    assert node.instance is not None
    return node.instance


def copies_asked_of(node: SimNode) -> list[CopyRequest]:
    """Questions for full copies that come to it from now on."""
    instance, found = inside(node), []
    give = instance.health.handle_copy

    async def counted(request: CopyRequest) -> CopyPiece:
        found.append(request)
        return await give(request)

    instance.health.handle_copy = counted  # type: ignore[method-assign]
    answer_anew(instance)
    return found
