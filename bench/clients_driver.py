"""What the driver costs: a routed query against the plain protocol, and keys hashed per second.

    .venv/bin/python bench/clients_driver.py [--queries 20000]

The server is a fake in another process, so that only the client's work differs between runs.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import statistics
import sys
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clients_common import head, load

from cairn.client import connect
from cairn.client.aio_wire import open_wire
from cairn.client.logic import flows
from cairn.client.logic.effects import Ready
from cairn.client.logic.quick import Quick
from cairn.client.settings import METADATA, parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.model.members.events import decode, encode
from cairn.model.members.topology import BucketRange, BucketState, Grade, Position, State
from cairn.model.sharding.buckets import bucket_function
from cairn.model.types.values import ColumnType

SELECT = "SELECT id, v FROM t WHERE id = $1"


def serve(pipe: Pipe) -> None:
    from tests.client.fake_cluster import fake_cluster

    with fake_cluster() as cluster:
        cluster.rows.update({1: "one"})
        for instance in cluster.instances.values():
            instance.executed = _Nothing()  # type: ignore[assignment]
        pipe.send(cluster.dsn("i1"))
        pipe.recv()


class _Nothing(list[Any]):
    def append(self, item: Any) -> None:
        pass


async def plain_and_routed(dsn: str, queries: int) -> None:
    pool = await connect(dsn)
    shortcuts: list[Quick] = []
    wires = []  # to both masters: a round robin by hand, so that both sides use as many sockets
    for replicaset in list(pool.topology.view.replicasets):
        master = pool.topology.master(replicaset)
        assert master is not None and master.address is not None
        wires.append(await open_wire(parse_dsn(dsn), master.address, METADATA))
        await wires[-1].talk(flows.prepare(wires[-1].pg, "s", SELECT), 5)
        shortcuts.append(Quick("s", wires[-1].pg.statements["s"]))
    plain: list[float] = []
    routed: list[float] = []
    block = 100

    async def by_hand(key: int) -> None:
        wire = wires[key % 2]
        await wire.talk(flows.execute(wire.pg, "s", (key,), shortcuts[key % 2]), 30)

    for _ in range(queries // block):  # in turns, so that a busy machine spoils both alike
        for times, run in ((plain, by_hand), (routed, lambda key: pool.fetch(SELECT, key))):
            began = time.process_time()
            for key in range(block):
                await run(key)
            times.append((time.process_time() - began) / block * 1e6)
    report("async", plain, routed)
    print(f"routed {pool.stats.routed}, fallbacks {dict(pool.stats.fallbacks)}")
    await pool.close()
    for wire in wires:
        wire.close()


def report(face: str, plain: list[float], routed: list[float]) -> None:
    """Medians, and the median of the pairs' differences."""
    over = statistics.median(two - one for one, two in zip(plain, routed, strict=True))
    print(
        f"{face:>5} client CPU per query: plain {statistics.median(plain):6.1f} µs, "
        f"routed {statistics.median(routed):6.1f} µs, overhead {over:.1f} µs"
    )


def blocking(dsn: str, queries: int) -> None:
    plain: list[float] = []
    routed: list[float] = []
    block = 100
    with SyncPool(parse_dsn(dsn)).open() as pool, ExitStack() as stack:
        wires = []
        for replicaset in list(pool.topology.view.replicasets):
            master = pool.topology.master(replicaset)
            assert master is not None
            wire = stack.enter_context(pool.wire(master.address))
            wire.talk(flows.prepare(wire.pg, "s", SELECT), 5)
            wires.append((wire, Ready("s", 0, Quick("s", wire.pg.statements["s"]))))
        for _ in range(queries // block):
            began = time.process_time()
            for key in range(block):
                wire, ready = wires[key % 2]
                wire.execute(ready, (key,), 30)
            middle = time.process_time()
            for key in range(block):
                pool.fetch(SELECT, key)
            plain.append((middle - began) / block * 1e6)
            routed.append((time.process_time() - middle) / block * 1e6)
    report("sync", plain, routed)


def keys_per_second() -> None:
    count = 300_000
    for type_, values in (
        (ColumnType.INTEGER, [(n,) for n in range(count)]),
        (ColumnType.STRING, [(f"key-{n}",) for n in range(count)]),
    ):
        bucket = bucket_function([type_])
        best = 0.0
        for _ in range(3):
            began = time.perf_counter()
            for each in values:
                bucket(each)
            best = max(best, count / (time.perf_counter() - began))
        print(f"bucket_of {type_.value:>8}: {best:12,.0f} keys/s")


def snapshot(instances: int = 1000, buckets: int = 30_000) -> None:
    """From the bytes of a snapshot to a ready routing table."""
    from cairn.model.members.cluster import Cluster
    from cairn.model.members.topology import Instance, Replicaset, ReplicasetState, Tier
    from cairn.topology.routing_table import RoutingTable
    from cairn.topology.snapshot import snapshot_events

    up = State(Grade.ONLINE, 1)
    half = instances // 2
    chance = random.Random(1)
    cluster = Cluster(
        instances={
            f"i{n}": Instance(
                f"i{n}",
                f"u{n}",
                n,
                f"r{n % half}",
                f"s{n % half}",
                up,
                up,
                {},
                "default",
                "1",
            )
            for n in range(instances)
        },
        replicasets={
            f"r{n}": Replicaset(
                f"r{n}", f"s{n}", f"i{n}", f"i{n}", "default", 1, "auto", ReplicasetState.READY
            )
            for n in range(half)
        },
        tiers={"default": Tier("default", 2, bucket_count=buckets)},
        addresses={(n, "pgproto"): f"10.0.{n // 256}.{n % 256}:4327" for n in range(instances)},
        buckets=tuple(
            BucketRange("default", n, n, BucketState.ACTIVE, f"r{chance.randrange(half)}")
            for n in range(1, buckets + 1)
        ),
    )
    began = time.perf_counter()
    events = snapshot_events(cluster, position=Position(1, 1), timestamp="", version="0.2")
    texts = [encode(event) for event in events]
    made = time.perf_counter()
    table = RoutingTable()
    table.connecting()
    for text in texts:
        event = decode(text)
        assert event is not None
        table.receive(event, 0.0)
    table.ready(0.0)
    done = time.perf_counter()
    print(
        f"snapshot of {instances} instances, {len(texts)} events: made in {made - began:.2f} s, "
        f"a ready routing table {done - made:.2f} s later"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20_000)
    queries = parser.parse_args().queries
    head("what the driver itself costs (the server is a fake in another process)")
    keys_per_second()
    snapshot()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    dsn = here.recv()
    asyncio.run(plain_and_routed(dsn, queries))
    blocking(dsn, queries // 2)
    here.send("stop")
    server.join(10)
    print(load())


if __name__ == "__main__":
    main()
