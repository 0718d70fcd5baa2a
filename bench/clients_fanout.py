"""Topology events to many subscribers, and what the extra hop costs.

    SUBSCRIBERS=1000 python bench/clients_fanout.py

One instance tells N service connections of an event; the time is from the statement's answer to
the last of them, and the same again with one subscriber that reads nothing.
"""

from __future__ import annotations

import os
import platform
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from postgres import free_port

from cairn.pgwire.client import PgClient

SUBSCRIBERS = int(os.environ.get("SUBSCRIBERS", "1000"))
EVENTS = int(os.environ.get("EVENTS", "16"))  # even: the address ends as it began
PASSWORD = "T0psecret1"


def demo(*arguments: str) -> None:
    command = [sys.executable, "-m", "cairn.cli.main", "demo", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def subscribe(port: int) -> socket.socket:
    """A service connection that has had its snapshot."""
    pg = PgClient(
        "admin",
        random_bytes=os.urandom,
        password=PASSWORD,
        database="cairn",
        params={"smart_connector": "0.1"},
    )
    link = socket.create_connection(("127.0.0.1", port), timeout=30)
    link.sendall(pg.connect())
    while not pg.is_idle:
        answer = pg.receive(link.recv(65536))
        if answer:
            link.sendall(answer)
    return link


def fan_out(
    port: int, links: list[socket.socket], admin: psycopg.Connection[object]
) -> list[float]:
    """Milliseconds until the last subscriber has each event."""
    picker = selectors.DefaultSelector()
    for link in links:
        link.setblocking(False)
        picker.register(link, selectors.EVENT_READ)
    found = []
    for at in range(EVENTS):
        waiting = set(links)
        admin.execute(
            "UPDATE _pico_peer_address SET address = %s "
            "WHERE raft_id = 1 AND connection_type = 'pgproto'",
            (f"127.0.0.1:{port + (at + 1) % 2}",),
        )
        begun = time.monotonic()
        while waiting and time.monotonic() - begun < 10:
            for key, _ in picker.select(1):
                link = key.fileobj
                assert isinstance(link, socket.socket)
                link.recv(65536)
                waiting.discard(link)
        found.append((time.monotonic() - begun) * 1000)
        assert not waiting, f"{len(waiting)} subscribers heard nothing"
    picker.close()
    return found


def show(name: str, times: list[float]) -> None:
    ordered = sorted(times)
    print(
        f"{name:48} median {statistics.median(ordered):6.1f} ms   "
        f"worst of {len(ordered)} {ordered[-1]:6.1f} ms"
    )


def hop(ports: list[int]) -> None:
    """One client, a key of r1: asked at its owner and at another instance."""
    took: dict[str, float] = {}
    with psycopg.connect(_dsn(ports[0]), autocommit=True) as first:
        first.execute("CREATE TABLE hop (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (a)")
        for at in range(200):
            first.execute("INSERT INTO hop VALUES (%s, 1)", (at,))
        rows = first.execute("SELECT a FROM hop WHERE bucket_id <= 1500 LIMIT 50").fetchall()
        keys = [row[0] for row in rows]
    for name, port in (("owner", ports[0]), ("hop", ports[1])):
        with psycopg.connect(_dsn(port), autocommit=True) as connection:
            cursor = connection.cursor()
            rounds = []
            for _ in range(9):
                begun = time.perf_counter()
                for key in keys * 10:
                    cursor.execute("SELECT b FROM hop WHERE a = %s", (key,), prepare=True)
                rounds.append((time.perf_counter() - begun) / (len(keys) * 10) * 1e6)
            took[name] = statistics.median(rounds)
    print(
        f"point SELECT at the owner {took['owner']:.0f} µs, through one hop {took['hop']:.0f} µs: "
        f"{took['hop'] / took['owner']:.2f}×"
    )


def _dsn(port: int) -> str:
    return f"host=127.0.0.1 port={port} user=admin password={PASSWORD} dbname=cairn"


def main() -> None:
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    work = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    base = free_port() % 20000 + 20000
    try:
        demo(
            "--instances",
            "2",
            "--replication-factor",
            "1",
            "--detach",
            "--base-port",
            str(base),
            "--dir",
            str(work),
        )
        hop([base, base + 1])
        with psycopg.connect(_dsn(base), autocommit=True) as admin:
            begun = time.monotonic()
            links = [subscribe(base) for _ in range(SUBSCRIBERS)]
            print(f"{SUBSCRIBERS} subscribers connected in {time.monotonic() - begun:.1f} s")
            show(f"event to {SUBSCRIBERS} subscribers", fan_out(base, links, admin))
            stuck = subscribe(base)  # reads nothing from here on
            show("the same with one that reads nothing", fan_out(base, links, admin))
            stuck.close()
            for link in links:
                link.close()
    finally:
        demo("--stop", "--dir", str(work))
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
