"""Blocks of statements: how many a second, and what CPU of the instance each of them takes.

    SECONDS=4 ROUNDS=3 python bench/blocks.py [--only 20] [--peer]
    python bench/blocks.py --beside OTHER    (the sources of another version, by turns with these)

One instance, pgbench with prepared statements. `web`: BEGIN, UPDATE, SELECT, INSERT, COMMIT on one
key of many. `n updates`: of ten rows of one bucket, one after the other.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import psycopg
from cpu_profile import cpu_us
from postgres import Postgres
from sql_more import PASSWORD, Demo

SECONDS = os.environ.get("SECONDS", "4")
ROUNDS = int(os.environ.get("ROUNDS", "3"))
ROWS = 2_000

_UPDATE = "UPDATE account SET n = n + 1 WHERE id = :id AND no = {no};\n"
_KEY = f"\\set id random(1, {ROWS})\n\\set note random(1, 1000000000000000)\n"
WEB = (
    f"{_KEY}BEGIN;\n{_UPDATE.format(no=1)}SELECT n FROM account WHERE id = :id AND no = 1;\n"
    "INSERT INTO entry VALUES (:id, :note, 1);\nCOMMIT;\n"
)


def updates(count: int) -> str:
    return (
        f"{_KEY}BEGIN;\n{''.join(_UPDATE.format(no=1 + at % 10) for at in range(count))}COMMIT;\n"
    )


LOADS = {
    "web, 1 client": (WEB, 1),
    "web, 8 clients": (WEB, 8),
    "20 updates, 1 client": (updates(20), 1),
    "20 updates, 8 clients": (updates(20), 8),
    "50 updates, 1 client": (updates(50), 1),
}
TABLES = (
    "CREATE TABLE account (id INT, no INT, n INT, PRIMARY KEY (id, no)){by_id}",
    "CREATE TABLE entry (id INT, note BIGINT, n INT, PRIMARY KEY (id, note)){by_id}",
)


class Side:
    """One server with the tables."""

    def __init__(self, sources: str = "", peer: Postgres | None = None) -> None:
        had = os.environ.get("PYTHONPATH", "")
        if sources:
            os.environ["PYTHONPATH"] = sources
        self.demo = None if peer else Demo(1)
        os.environ["PYTHONPATH"] = had
        if peer:
            self.dsn, by_id = peer.dsn(), ""
        else:
            assert self.demo is not None
            self.dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{self.demo.base}/cairn"
            by_id = " DISTRIBUTED BY (id)"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for text in TABLES:
                connection.execute(text.format(by_id=by_id).encode())
            with connection.cursor().copy("COPY account FROM STDIN") as copy:
                for at in range(ROWS * 10):
                    copy.write(f"{1 + at // 10}\t{1 + at % 10}\t0\n")

    def rate(self, script: Path, clients: int) -> tuple[float, float, float]:
        """Blocks a second, and microseconds of CPU for each: of the user, and of the kernel."""
        before = self._used()
        told = subprocess.run(
            (
                *("pgbench", "-n", "-f", str(script), "-M", "prepared", "-c", str(clients)),
                *("-j", "1", "-T", SECONDS, "--max-tries=100", self.dsn),
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        after = self._used()
        done = re.search(r"actually processed: (\d+)", told.stdout)
        rate = re.search(r"tps = ([\d.]+)", told.stdout)
        assert done is not None and rate is not None, told.stdout
        user, kernel = ((b - a) / int(done[1]) for a, b in zip(before, after, strict=True))
        return float(rate[1]), user, kernel

    def _used(self) -> tuple[float, float]:
        return (0.0, 0.0) if self.demo is None else cpu_us(self.demo.pid)[:2]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="what has this in its name")
    options.add_argument("--beside", default="", help="sources of another version")
    options.add_argument("--peer", action="store_true", help="PostgreSQL as well")
    given = options.parse_args()
    peer = Postgres() if given.peer else None
    sides: dict[str, Side] = {}
    try:
        if given.beside:
            sides["before"] = Side(given.beside)
        sides["now"] = Side()
        if peer is not None:
            sides["PostgreSQL"] = Side(peer=peer)
        with tempfile.TemporaryDirectory() as work:
            for name, (text, clients) in LOADS.items():
                if given.only not in name:
                    continue
                script = Path(work) / "block.sql"
                script.write_text(text)
                found: dict[str, list[tuple[float, float, float]]] = {side: [] for side in sides}
                for _ in range(ROUNDS):
                    for side in sides:
                        found[side].append(sides[side].rate(script, clients))
                for side, each in found.items():
                    rate, user, kernel = (
                        statistics.median(column) for column in zip(*each, strict=True)
                    )
                    print(
                        f"{name:24} {side:10} {rate:8.0f}/s {user:8.0f} µs of CPU a block, "
                        f"{kernel:6.0f} of the kernel, load {os.getloadavg()[0]:.1f}",
                        flush=True,
                    )
    finally:
        for each in sides.values():
            if each.demo is not None:
                each.demo.stop()
        if peer is not None:
            peer.stop()


if __name__ == "__main__":
    main()
