"""Smart routing against round robin, through the same driver, on four instances.

    python bench/clients_routing.py [--operations 4000] [--seconds 4]

Two replicasets of two. One client for latency and for CPU over all processes; eight clients, each a
process of its own, for throughput. Blocks of both kinds take turns, so that a busy machine spoils
both alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

import psycopg
from clients_common import (
    PASSWORD,
    cpu_s,
    demo,
    head,
    instance_pids,
    load,
    table,
    together,
)

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool

KEYS = 2000
BLOCK = 250
READ = "SELECT v FROM routed WHERE id = $1"
WRITE = "UPDATE routed SET v = $2 WHERE id = $1"
Operation = Callable[[SyncPool, int], Any]
OPERATIONS: dict[str, Operation] = {
    "key read": lambda pool, key: pool.fetch(READ, key),
    "key write": lambda pool, key: pool.execute(WRITE, key, "y"),
}


def opened(dsn: str, smart: bool) -> SyncPool:
    return SyncPool(parse_dsn(dsn, routing=smart)).open()


class Side:
    """One of the two ways, and what it cost."""

    def __init__(self, dsn: str, smart: bool) -> None:
        self.pool = opened(dsn, smart)
        self.latency_us: list[float] = []
        self.cpu_us = 0.0
        self.done = 0

    def block(self, run: Operation, pids: list[int], start: int) -> None:
        before = cpu_s(pids) + time.process_time()
        began = time.perf_counter()
        for key in range(start, start + BLOCK):
            run(self.pool, key % KEYS)
        self.latency_us.append((time.perf_counter() - began) / BLOCK * 1e6)
        self.cpu_us += (cpu_s(pids) + time.process_time() - before) * 1e6
        self.done += BLOCK


def one_client(facts: dict[str, Any], operations: int) -> list[tuple[str, ...]]:
    pids = instance_pids(facts)
    rows = []
    for name, run in OPERATIONS.items():
        smart, spread = Side(facts["dsns"], True), Side(facts["dsns"], False)
        for side in (smart, spread):  # statements are prepared everywhere before the clock runs
            for key in range(200):
                run(side.pool, key)
        for start in range(0, operations, BLOCK):
            for side in (smart, spread):
                side.block(run, pids, start)
        fast, slow = (statistics.median(side.latency_us) for side in (smart, spread))
        cheap, dear = (side.cpu_us / side.done for side in (smart, spread))
        rows.append((f"{name}: latency, µs", f"{fast:.0f}", f"{slow:.0f}", f"{slow / fast:.2f}×"))
        rows.append(
            (
                f"{name}: CPU, all processes, µs",
                f"{cheap:.0f}",
                f"{dear:.0f}",
                f"{dear / cheap:.2f}×",
            )
        )
        stats = smart.pool.stats
        told = sum(stats.hints.values())
        share = 100 * stats.routed / stats.statements
        rows.append((f"{name}: sent to the owner", f"{share:.1f} %, {told} hops told", "", ""))
        for side in (smart, spread):
            side.pool.close()
    return rows


def client(dsn: str, smart: bool, name: str, seconds: float, seed: int, pipe: Pipe) -> None:
    """One of the eight: as many operations as it can."""
    pool = opened(dsn, smart)
    run, key = OPERATIONS[name], seed * 37
    for warm in range(100):
        run(pool, warm)
    pipe.send("ready")
    pipe.recv()
    until = time.monotonic() + seconds
    done = 0
    while time.monotonic() < until:
        key = (key + 7) % KEYS
        run(pool, key)
        done += 1
    pipe.send(done)
    pool.close()


def throughput(dsn: str, smart: bool, name: str, seconds: float, clients: int = 8) -> float:
    return together(clients, client, dsn, smart, name, seconds) / seconds


def eight_clients(dsn: str, seconds: float) -> list[tuple[str, ...]]:
    rows = []
    for name in OPERATIONS:
        smart, spread = (throughput(dsn, way, name, seconds) for way in (True, False))
        ratio = f"{smart / spread:.2f}×"
        rows.append((f"{name}: 8 clients, /s", f"{smart:,.0f}", f"{spread:,.0f}", ratio))
    return rows


def first_queries(dsn: str) -> str:
    """A fresh driver: is its very first statement already at the owner?"""
    with opened(dsn, True) as pool:
        for key in range(1000):
            pool.fetch(READ, key)
        stats = pool.stats
        return (
            f"first-try locality: {stats.routed} of {stats.statements} from the first query on, "
            f"{sum(stats.hints.values())} hops told by the servers, "
            f"fallbacks {dict(stats.fallbacks)}"
        )


def beside_psycopg(facts: dict[str, Any], operations: int) -> list[tuple[str, ...]]:
    """The same key reads at the same owners, by psycopg that was told where to go."""
    with opened(facts["dsns"], True) as pool:
        homes = {key: pool.explain_route(READ, key).address for key in range(500)}
        text = READ.replace("$1", "%s")
        links = {
            address: psycopg.connect(
                host=address.partition(":")[0],
                port=address.partition(":")[2],
                user="admin",
                password=PASSWORD,
                autocommit=True,
            )
            for address in set(homes.values())
        }

        def theirs(key: int) -> None:
            links[homes[key]].execute(text, (key,), prepare=True).fetchall()

        sides: dict[str, tuple[Callable[[int], Any], list[float], list[float]]] = {
            "cairn.client": (lambda key: pool.fetch(READ, key), [], []),
            "psycopg": (theirs, [], []),
        }
        for start in range(0, operations, BLOCK):
            for run, times, costs in sides.values():
                began, spent = time.perf_counter(), time.process_time()
                for key in range(start, start + BLOCK):
                    run(key % 500)
                times.append((time.perf_counter() - began) / BLOCK * 1e6)
                costs.append((time.process_time() - spent) / BLOCK * 1e6)
        for link in links.values():
            link.close()
    return [
        (name, f"{statistics.median(times):.0f}", f"{statistics.median(costs):.0f}")
        for name, (_, times, costs) in sides.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    head("smart routing against round robin: 4 instances, 2 replicasets of 2, one driver")
    with demo(4, 2) as facts:
        with opened(facts["dsns"], True) as pool:
            pool.execute("CREATE TABLE routed (id INT PRIMARY KEY, v TEXT)")
            pool.executemany("INSERT INTO routed VALUES ($1, $2)", [(n, "x") for n in range(KEYS)])
        print(first_queries(facts["dsns"]) + "\n")
        rows = one_client(facts, options.operations)
        rows += eight_clients(facts["dsns"], options.seconds)
        table([("", "smart", "round robin", "ratio"), *rows])
        print("a routed key read beside psycopg at the same owner, 1 client, µs")
        table([("", "latency", "client CPU"), *beside_psycopg(facts, options.operations)])
    print(load(), f"(pid {os.getpid()})")


if __name__ == "__main__":
    main()
