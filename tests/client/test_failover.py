"""The driver under load while masters, leaders and its own provider are killed (kill -9).

Two replicasets of three in sync mode. Every acknowledged row must be there, no statement may have
taken effect twice, and whatever else is there was reported as unknown.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.client import Pool, connect
from cairn.model.errors import CairnError, OutcomeUnknown
from tests.cluster.harness import PASSWORD, Cluster, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
ROUNDS = int(os.environ.get("FAILOVER_ROUNDS", "3"))
SEED = int(os.environ.get("FAILOVER_SEED", "7"))
INSERT = "INSERT INTO kept VALUES ($1, $2)"
COUNT_UP = "UPDATE counted SET n = n + 1 WHERE id = $1"
COUNTERS = 50


class Load:
    """Tasks that write and read through one pool, and what they were told."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.stopping = False
        self.acked: set[int] = set()
        self.unknown: set[int] = set()
        self.refused: dict[int, str] = {}
        self.raised: Counter[int] = Counter()  # counter → acknowledged updates
        self.perhaps: Counter[int] = Counter()  # counter → updates of unknown outcome
        self.reads = 0
        self.wrong: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for number in range(3):
            self.tasks.append(asyncio.create_task(self._insert((number + 1) * 1_000_000)))
        self.tasks.append(asyncio.create_task(self._count(random.Random(SEED))))
        self.tasks.append(asyncio.create_task(self._read(random.Random(SEED + 1))))

    async def stop(self) -> None:
        self.stopping = True
        await asyncio.gather(*self.tasks)

    async def _insert(self, key: int) -> None:
        while not self.stopping:
            key += 1
            try:
                await self.pool.execute(INSERT, key, str(key))
                self.acked.add(key)
            except OutcomeUnknown:
                self.unknown.add(key)
            except CairnError as error:
                self.refused[key] = f"{error.sqlstate} {error}"
            await asyncio.sleep(0.005)

    async def _count(self, chance: random.Random) -> None:
        while not self.stopping:
            counter = chance.randrange(COUNTERS)
            try:
                await self.pool.execute(COUNT_UP, counter)
                self.raised[counter] += 1
            except OutcomeUnknown:
                self.perhaps[counter] += 1
            except CairnError:
                pass  # certainly not executed
            await asyncio.sleep(0.005)

    async def _read(self, chance: random.Random) -> None:
        while not self.stopping:
            if self.acked:
                key = chance.choice(tuple(self.acked))
                try:
                    found = await self.pool.fetch("SELECT b FROM kept WHERE a = $1", key)
                except CairnError:
                    continue  # not answered in time is no wrong answer
                self.reads += 1
                if found != [(str(key),)]:
                    self.wrong.append(f"{key}: {found}")
            await asyncio.sleep(0.005)


class Killer:
    """Chooses whom to kill by what the cluster says of itself."""

    def __init__(self, cluster: Cluster, pool: Pool) -> None:
        self.cluster, self.pool = cluster, pool

    def facts(self) -> dict[str, Any]:
        for node in self.cluster.nodes.values():
            try:
                return node.status()
            except Exception:
                continue
        raise AssertionError("nobody answers")

    def master(self, replicaset: str) -> str:
        rows = {each["name"]: each["master"] for each in self.facts()["replicasets"]}
        return str(rows[replicaset])

    def leader(self) -> str:
        return str(self.facts()["raft"]["leader"])

    def provider(self) -> str:
        ports = {f"127.0.0.1:{node.pg_port}": name for name, node in self.cluster.nodes.items()}
        return ports[eventually(lambda: self.pool._service.address, "a provider") or ""]


def start(directory: Path) -> Cluster:
    config = directory / "tiers.yaml"
    config.write_text(
        "cluster:\n  name: test\n  tier:\n    default:\n      replication_factor: 3\n"
        "      replication_mode: sync\n"
    )
    cluster = Cluster(directory, "test", "--config", str(config))
    cluster.start(*(f"i{number}" for number in range(1, 7)))
    owners = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
    eventually(lambda: len(cluster["i1"].sql(owners)) == 2, "buckets on both replicasets")
    cluster["i1"].sql("CREATE TABLE kept (a INT PRIMARY KEY, b TEXT) WAIT APPLIED GLOBALLY")
    cluster["i1"].sql("CREATE TABLE counted (id INT PRIMARY KEY, n INT) WAIT APPLIED GLOBALLY")
    return cluster


async def eventually_here(condition: Callable[[], Any], what: str) -> Any:
    return await asyncio.to_thread(eventually, condition, what, 60.0)


async def rounds(cluster: Cluster, pool: Pool, load: Load) -> None:
    killer = Killer(cluster, pool)
    kinds: list[Callable[[], str]] = [
        lambda: killer.master("default_1"),
        killer.leader,
        killer.provider,
        lambda: killer.master("default_2"),
    ]
    for number in range(ROUNDS):
        victim = await eventually_here(kinds[number % len(kinds)], "a victim")
        print(f"round {number + 1}: kill {victim}", flush=True)
        cluster[victim].kill()
        before, reads = len(load.acked), load.reads
        await eventually_here(lambda at=before: len(load.acked) > at + 100, "writes to go on")  # type: ignore[misc]
        await eventually_here(lambda at=reads: load.reads > at + 50, "reads to go on")  # type: ignore[misc]
        other = next(name for name in cluster.nodes if name != victim)
        cluster[victim].start()
        await asyncio.to_thread(cluster.wait_online, *cluster.nodes, via=other)


def catalogue(cluster: Cluster) -> dict[str, Any]:
    node = cluster["i1"]
    instances = node.sql("SELECT uuid, name, current_state FROM _pico_instance")
    masters = node.sql(
        "SELECT r.uuid, i.uuid FROM _pico_replicaset r "
        "JOIN _pico_instance i ON r.current_master_name = i.name"
    )
    buckets = node.sql(
        "SELECT bucket_id_start, bucket_id_end, b.state, r.uuid FROM _pico_bucket b "
        "JOIN _pico_replicaset r ON b.current_replicaset_name = r.name"
    )
    return {
        "instances": {uuid: (name, *state) for uuid, name, state in instances},
        "masters": dict(masters),
        "buckets": sorted(buckets),
    }


def client_view(pool: Pool) -> dict[str, Any]:
    view = pool.topology.view
    return {
        "instances": {
            uuid: (each.name, each.state, each.incarnation) for uuid, each in view.instances.items()
        },
        "masters": {uuid: each.master_uuid for uuid, each in view.replicasets.items()},
        "buckets": [
            (start, end, value.state, value.owner)
            for start, end, value in view.buckets["default"].ranges()
        ],
    }


def test_nothing_is_lost_doubled_or_made_up(tmp_path: Path) -> None:
    cluster = start(tmp_path)
    hosts = ",".join(f"127.0.0.1:{node.pg_port}" for node in cluster.nodes.values())
    dsn = f"postgresql://admin:{PASSWORD}@{hosts}/cairn?sslmode=disable"

    async def test() -> None:
        async with await connect(dsn, timeout_s=5.0, retry_for_s=15.0, batch_records=1) as pool:
            rows = [(counter, 0) for counter in range(COUNTERS)]
            assert await pool.executemany("INSERT INTO counted VALUES ($1, $2)", rows) == COUNTERS
            load = Load(pool)
            load.start()
            await rounds(cluster, pool, load)
            await load.stop()
            await check(cluster, pool, load)

    try:
        asyncio.run(asyncio.wait_for(test(), 600))
    finally:
        cluster.close()


async def check(cluster: Cluster, pool: Pool, load: Load) -> None:
    have = {row[0] for row in await asyncio.to_thread(all_rows, cluster, "SELECT a FROM kept")}
    counts = dict(await asyncio.to_thread(all_rows, cluster, "SELECT id, n FROM counted"))
    stats = pool.stats
    print(
        f"{len(load.acked)} acknowledged, {len(load.unknown)} unknown, "
        f"{len(load.refused)} refused, {len(have)} there; "
        f"{load.raised.total()} updates, {load.perhaps.total()} unknown; "
        f"{load.reads} reads; retries {dict(stats.retries)}, hints {dict(stats.hints)}, "
        f"resumes {stats.topology_resumes}, snapshots {stats.topology_snapshots}"
    )
    print("refused:", load.refused)
    assert load.acked <= have, f"lost: {sorted(load.acked - have)[:10]}"
    assert have <= load.acked | load.unknown, "there and never reported as such"
    assert not load.wrong
    for counter, count in counts.items():
        least = load.raised[counter]
        assert least <= count <= least + load.perhaps[counter], f"counter {counter}"
    assert stats.topology_connects >= 2  # its provider was killed at least once

    def equal() -> bool:
        assert client_view(pool) == catalogue(cluster)
        return True

    await eventually_here(equal, "the client's table to equal the catalogue")


def all_rows(cluster: Cluster, sql: str) -> list[Any]:
    return eventually(lambda: cluster["i1"].sql(f"{sql} OPTION (sql_motion_row_max = 0)"), sql)
