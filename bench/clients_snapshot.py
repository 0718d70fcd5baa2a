"""How long a client needs to know a large cluster: 1,000 instances, 30,000 fragmented buckets.

    python bench/clients_snapshot.py [--instances 1000] [--buckets 30000]

One real instance, whose catalogue is filled while it is stopped: SQL cannot make instances, and a
thousand real ones do not fit this machine. All but itself are Offline, every bucket is a range of
its own. Then the driver connects over a real socket until its routing table is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw
from clients_common import PASSWORD, free_base_port, head, load, table

from cairn.client import connect
from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.model.tables import system_tables as system

CONFIG = """cluster:
  name: large
  tier:
    default:
      replication_factor: 1
      bucket_count: {buckets}
"""


class Instance:
    """`cairn run`, started and stopped in one directory."""

    def __init__(self, directory: Path, buckets: int) -> None:
        self.dir, self.port = directory, free_base_port(1)
        self.dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{self.port}/cairn?sslmode=disable"
        (directory / "cairn.yaml").write_text(CONFIG.format(buckets=buckets))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "cairn.cli.main", "run"]
        command += ["--config", str(self.dir / "cairn.yaml"), "--instance-name", "i1"]
        command += ["--instance-dir", str(self.dir / "i1")]
        command += ["--listen", f"127.0.0.1:{self.port + 2000}"]
        command += ["--pg-listen", f"127.0.0.1:{self.port}"]
        log = (self.dir / "log").open("ab")
        environment = {
            **os.environ,
            "CAIRN_ADMIN_PASSWORD": PASSWORD,
            "CAIRN_SERVICE_PASSWORD": "shared",
        }
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with SyncPool(parse_dsn(self.dsn, connect_timeout_s=30)).open() as pool:
                    if pool.fetch("SELECT count(*) FROM _pico_bucket") != [(0,)]:
                        return
            except Exception:
                time.sleep(0.1)
        raise AssertionError((self.dir / "log").read_text()[-2000:])

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)


def fill(directory: Path, instances: int, buckets: int) -> None:
    """Rows that a cluster of that size would have, beside those of the one instance."""
    chance = random.Random(1)
    file = apsw.Connection(str(directory / "i1" / "raft.db"))
    names = [table.physical_name for table in (system.PICO_INSTANCE, system.PICO_REPLICASET)]
    (own,) = file.execute(f"SELECT * FROM {names[0]}").fetchall()
    (first,) = file.execute(f"SELECT * FROM {names[1]}").fetchall()
    down = '["Offline",1]'
    members, replicasets, addresses = [], [], []
    for number in range(2, instances + 1):
        replicaset = f"r{number // 2}"
        uuid = f"00000000-0000-4000-9000-{number // 2:012d}"
        name = f"i{number}"
        row = (name, f"00000000-0000-4000-8000-{number:012d}", number, replicaset, uuid, down, down)
        members.append((*row, *own[7:]))
        addresses.append((number, f"127.0.{number // 250}.{number % 250}:4327", "pgproto"))
        if number % 2 == 0:
            rest = (name, name, *first[4:12], f'["{name}","i{number + 1}"]')
            replicasets.append((replicaset, uuid, *rest))
    ranges = [
        ("default", at, at, "active", chance.choice(replicasets)[0], None, None)
        for at in range(1, buckets + 1)
    ]
    with file:
        file.execute(f"DELETE FROM {system.PICO_BUCKET.physical_name}")
        for about, rows in (
            (system.PICO_INSTANCE, members),
            (system.PICO_REPLICASET, replicasets),
            (system.PICO_PEER_ADDRESS, addresses),
            (system.PICO_BUCKET, ranges),
        ):
            marks = ", ".join("?" * len(rows[0]))
            file.executemany(f"INSERT INTO {about.physical_name} VALUES ({marks})", rows)
    file.close()


def measure(dsn: str, tries: int = 5) -> tuple[list[float], list[float], str]:
    """Seconds from nothing to a ready table, by each face."""
    blocking, waiting = [], []
    known = ""

    async def once() -> None:
        began = time.perf_counter()
        pool = await connect(dsn)
        waiting.append(time.perf_counter() - began)
        await pool.close()

    for _ in range(tries):
        began = time.perf_counter()
        with SyncPool(parse_dsn(dsn)).open() as pool:
            blocking.append(time.perf_counter() - began)
            view = pool.topology.view
            known = (
                f"{len(view.instances)} instances, {len(view.replicasets)} replicasets, "
                f"{len(view.buckets['default'])} ranges, {pool.stats.topology_events} events"
            )
        asyncio.run(once())
    return blocking, waiting, known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--buckets", type=int, default=30_000)
    options = parser.parse_args()
    head("from nothing to a ready routing table")
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as work:
        instance = Instance(Path(work), options.buckets)
        try:
            instance.start()
            with SyncPool(
                parse_dsn(instance.dsn)
            ).open() as pool:  # buckets then stay where they are
                pool.execute("CREATE TABLE t (id INT PRIMARY KEY)")
            instance.stop()
            fill(Path(work), options.instances, options.buckets)
            instance.start()
            blocking, waiting, known = measure(instance.dsn)
        finally:
            instance.stop()
    print(known)
    rows = [("seconds", "median", "worst")]
    for name, times in (("blocking face", blocking), ("asyncio face", waiting)):
        rows.append((name, f"{statistics.median(times):.2f}", f"{max(times):.2f}"))
    table(rows)
    print(load())


if __name__ == "__main__":
    main()
