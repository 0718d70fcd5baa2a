"""Several fake instances in one process, for the driver's tests: real sockets, scripted answers.

They share a table `t (id INT, v TEXT)` and a catalogue; each keeps a list of what it executed. A
statement that arrives at the wrong instance is executed all the same, and seen to be a hop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from cairn.model.members.cluster import Cluster
from cairn.model.members.events import AnyEvent, Version
from cairn.model.members.topology import (
    BucketRange,
    BucketState,
    Grade,
    Instance,
    Position,
    Replicaset,
    ReplicasetState,
    State,
    Tier,
)
from cairn.model.sharding.buckets import bucket_of
from cairn.model.types.values import ColumnType
from cairn.topology.changes import difference
from cairn.topology.snapshot import heartbeat, hello, snapshot_end, snapshot_events

from .fake_instance import FakeInstance, FakeSession

NOW = "2026-01-02T03:04:05+00:00"


class FakeCluster:
    """i1 is master of r1 and i3 its replica; i2 is master of r2. Subscribers hear of changes."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.instances: dict[str, FakeInstance] = {}
        self.rows: dict[int, str] = {}
        self.schema_version = 1
        self.picture = Cluster(properties={"cluster_uuid": "fake"})
        self.told: list[tuple[Position, dict[str, list[AnyEvent]]]] = []

    # --- the catalogue ------------------------------------------------------------------------

    async def start(self) -> None:
        for name in ("i1", "i2", "i3"):
            await self.listen(name)
        self.picture = Cluster(
            position=Position(1, 10),
            instances={
                name: self.row(name, replicaset)
                for name, replicaset in (("i1", "r1"), ("i2", "r2"), ("i3", "r1"))
            },
            replicasets={
                name: Replicaset(
                    name, f"u-{name}", master, master, "default", 1.0, "auto", ReplicasetState.READY
                )
                for name, master in (("r1", "i1"), ("r2", "i2"))
            },
            tiers={"default": Tier("default", 2)},
            addresses={(each.port, "pgproto"): each.address for each in self.instances.values()},
            buckets=(
                BucketRange("default", 1, 1500, BucketState.ACTIVE, "r1"),
                BucketRange("default", 1501, 3000, BucketState.ACTIVE, "r2"),
            ),
            properties={"cluster_uuid": "fake"},
        )

    async def listen(self, name: str, port: int = 0) -> FakeInstance:
        instance = self.instances[name] = FakeInstance(self, name, port)
        server = await self.loop.create_server(lambda: FakeSession(instance), "127.0.0.1", port)
        instance.server = server
        instance.port = server.sockets[0].getsockname()[1]
        return instance

    def row(self, name: str, replicaset: str, grade: Grade = Grade.ONLINE) -> Instance:
        port = self.instances[name].port
        state = State(grade, 1)
        return Instance(
            name, f"u-{name}", port, replicaset, f"u-{replicaset}", state, state, {}, "default", "1"
        )

    def opening(self, version: Version, after: str | None) -> list[AnyEvent]:
        position = self.picture.position
        if after is None or version == "0.1":
            return snapshot_events(self.picture, position=position, timestamp=NOW, version=version)
        term, _, index = after.partition(":")
        known = Position(int(term), int(index))
        later = [event for at, told in self.told if at > known for event in told["0.2"]]
        return [hello(self.picture), *later, snapshot_end(position, reset=False)]

    def on_loop(self, action: Callable[[], Any]) -> Any:
        """Run in the servers' thread and wait for it."""

        async def run() -> Any:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def change(self, **fields: Any) -> None:
        """A new picture of the cluster, told to everybody who listens."""
        self.on_loop(lambda: self._change(fields))

    def _change(self, fields: dict[str, Any]) -> None:
        before = self.picture
        position = Position(before.position.term, before.position.index + 1)
        self.picture = msgspec.structs.replace(before, position=position, **fields)
        versions: tuple[Version, ...] = ("0.1", "0.2")
        told = {
            version: difference(
                before, self.picture, position=position, timestamp=NOW, version=version
            )
            for version in versions
        }
        self.told.append((position, told))
        for instance in self.instances.values():
            for session in instance.sessions:
                if session.version is not None:
                    session.push(told[session.version])

    def heartbeat(self) -> None:
        self.on_loop(
            lambda: [
                session.push([heartbeat(self.picture.position)])
                for instance in self.instances.values()
                for session in instance.sessions
                if session.version == "0.2"
            ]
        )

    def set_grade(self, name: str, grade: Grade) -> None:
        row = self.picture.instances[name]
        changed = msgspec.structs.replace(row, current_state=State(grade, 2))
        self.change(instances={**self.picture.instances, name: changed})

    def set_master(self, replicaset: str, master: str) -> None:
        row = self.picture.replicasets[replicaset]
        changed = msgspec.structs.replace(row, current_master_name=master)
        self.change(replicasets={**self.picture.replicasets, replicaset: changed})

    def give_all_buckets_to(self, replicaset: str) -> None:
        self.change(buckets=(BucketRange("default", 1, 3000, BucketState.ACTIVE, replicaset),))

    def stop(self, name: str) -> None:
        self.on_loop(self.instances[name].stop)

    # --- what tests ask -----------------------------------------------------------------------

    def dsn(self, *names: str) -> str:
        hosts = ",".join(self.instances[name].address for name in names or ("i1",))
        return f"postgresql://admin@{hosts}/cairn?sslmode=disable"

    def key_of(self, master: str) -> int:
        """A key whose bucket is the given master's at the start."""
        return next(key for key in range(1000) if self.home(key) == master)

    def home(self, key: int) -> str:
        return "i1" if bucket_of([ColumnType.INTEGER], [key]) <= 1500 else "i2"

    def services(self) -> list[str]:
        """Instances that somebody has a service connection to."""
        return [
            name
            for name, instance in self.instances.items()
            for session in list(instance.sessions)
            if session.version is not None
        ]


@contextmanager
def fake_cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster()
    thread = threading.Thread(target=cluster.loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(cluster.start(), cluster.loop).result(10)
    try:
        yield cluster
    finally:
        for name in list(cluster.instances):
            cluster.stop(name)
        cluster.loop.call_soon_threadsafe(cluster.loop.stop)
        thread.join(10)
        cluster.loop.close()
