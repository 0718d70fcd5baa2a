"""Topology events to many subscribers at once, one of them stuck.

    python bench/clients_fanout.py [--subscribers 1000,10000] [--events 20]

One instance tells N service connections of a change; the connections live in other processes, as
raw asyncio protocols. Times are from when the statement that made the change was sent to when a
subscriber had the event: Raft's commit and the statement's own way are in them.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import multiprocessing
import os
import socket
import statistics
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

import psycopg
from clients_common import (
    PASSWORD,
    demo,
    head,
    instance_pids,
    load,
    percentile,
    raise_open_files,
    resident_mib,
    table,
)

from cairn.pgwire import scram
from cairn.pgwire.client.client import PgClient

WORKERS = 4
AT_ONCE = 40  # logins under way in one worker


def new_client() -> PgClient:
    return PgClient(
        "admin",
        random_bytes=os.urandom,
        password=PASSWORD,
        database="cairn",
        params={"smart_connector": "0.1"},
    )


class Subscriber(asyncio.Protocol):
    """Logs in by the book, then only notes when something came."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.pg = worker, new_client()
        self.ready = asyncio.get_running_loop().create_future()
        self.heard: Any = self.login

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.pg.connect())

    def data_received(self, data: bytes) -> None:
        self.heard(data)

    def login(self, data: bytes) -> None:
        answer = self.pg.receive(data)
        if answer:
            self.transport.write(answer)
        if self.pg.is_idle:
            self.heard = self.worker.heard
            self.pg = None  # type: ignore[assignment]
            self.ready.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.worker.lost += 1
        if not self.ready.done():
            self.ready.set_exception(OSError("the server hung up"))


class Worker:
    """A process with its share of the subscribers."""

    def __init__(self, port: int, count: int, pipe: Pipe) -> None:
        self.port, self.count, self.pipe = port, count, pipe
        self.arrivals: list[float] = []
        self.lost = 0

    def heard(self, data: bytes) -> None:
        self.arrivals.append(time.monotonic())
        if len(self.arrivals) == self.count:
            self.pipe.send(self.arrivals)
            self.arrivals = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        limit = asyncio.Semaphore(AT_ONCE)

        async def connect() -> None:
            async with limit:
                _, made = await loop.create_connection(
                    lambda: Subscriber(self), "127.0.0.1", self.port
                )
                await made.ready

        await asyncio.gather(*(connect() for _ in range(self.count)))
        self.pipe.send("ready")
        await loop.run_in_executor(None, self.pipe.recv)  # until it is told to stop


def work(port: int, count: int, pipe: Pipe) -> None:
    # The same password and salt for all: derived once, as a driver with a pool would do.
    scram.pbkdf2_hmac = functools.lru_cache(scram.pbkdf2_hmac)  # type: ignore[attr-defined]
    asyncio.run(Worker(port, count, pipe).run())
    os._exit(0)  # thousands of sockets: the kernel closes them faster


def stuck_subscriber(port: int) -> socket.socket:
    """Has its snapshot, and reads nothing from here on."""
    pg = new_client()
    link = socket.create_connection(("127.0.0.1", port), timeout=30)
    link.sendall(pg.connect())
    while not pg.is_idle:
        answer = pg.receive(link.recv(65536))
        if answer:
            link.sendall(answer)
    return link


class Crowd:
    """Subscribers in several processes."""

    def __init__(self, port: int, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Pipe] = []
        self.processes: list[Any] = []
        for _ in range(WORKERS):
            here, there = multiprocessing.Pipe()
            arguments = (port, count // WORKERS, there)
            self.processes.append(context.Process(target=work, args=arguments, daemon=True))
            self.pipes.append(here)
            self.processes[-1].start()
        for pipe in self.pipes:
            assert pipe.recv() == "ready"

    def arrivals(self) -> list[float]:
        found: list[float] = []
        for pipe in self.pipes:
            if not pipe.poll(30):
                raise AssertionError("some subscribers heard nothing")
            found += pipe.recv()
        return found

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send("stop")
        for process in self.processes:
            process.join(20)


def tell(port: int, crowd: Crowd, events: int) -> tuple[list[float], list[float]]:
    """Milliseconds to each subscriber, and to the last one of each event."""
    each: list[float] = []
    last: list[float] = []
    with psycopg.connect(
        host="127.0.0.1", port=port, user="admin", password=PASSWORD, autocommit=True
    ) as admin:
        admin.execute("SET unsafe_system_writes = on")
        for at in range(events + events % 2):  # even: the address ends as it began
            sent = time.monotonic()
            admin.execute(
                "UPDATE _pico_peer_address SET address = %s "
                "WHERE raft_id = 2 AND connection_type = 'pgproto'",
                (f"127.0.0.1:{port + 1 + (at + 1) % 2}",),
            )
            times = [(arrived - sent) * 1000 for arrived in crowd.arrivals()]
            each += times
            last.append(max(times))
    return each, last


def row(name: str, each: list[float], last: list[float]) -> tuple[str, ...]:
    return (
        name,
        f"{statistics.median(each):.1f}",
        f"{percentile(each, 0.99):.1f}",
        f"{statistics.median(last):.1f}",
        f"{max(last):.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", default="1000,10000")
    parser.add_argument("--events", type=int, default=20)
    options = parser.parse_args()
    files = raise_open_files()
    head(f"topology events to many subscribers ({WORKERS} client processes, {files} open files)")
    rows = [("milliseconds to", "a subscriber, median", "p99", "the last, median", "worst")]
    notes = []
    for text in options.subscribers.split(","):
        count = int(text)
        with demo(2, 1) as facts:
            port = int(facts["instances"][0]["pg"].rpartition(":")[2])
            pid = instance_pids(facts)[0]
            before, began = resident_mib(pid), time.monotonic()
            crowd = Crowd(port, count)
            took = time.monotonic() - began
            rows.append(row(f"{count:,} subscribers", *tell(port, crowd, options.events)))
            stuck = stuck_subscriber(port)
            rows.append(row("… and one that reads nothing", *tell(port, crowd, options.events)))
            grown = (resident_mib(pid) - before) * 1024 / count
            notes.append(f"{count:,} connected in {took:.1f} s, {grown:.1f} KiB of the server each")
            stuck.close()
            crowd.close()
    table(rows)
    print("\n".join(notes))
    print(load())


if __name__ == "__main__":
    main()
