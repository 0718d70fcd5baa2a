"""Short SELECTs whose rows several replicasets have, against PostgreSQL 15; two versions by turns.

    ROUNDS=3 SECONDS=1 python bench/sql_short.py
    BEFORE=/path/to/another/src python bench/sql_short.py --only page

pgbench with prepared statements, 1 and 8 clients, one and two replicasets of one instance each.
Medians of rounds; each round asks all sides in turn. CPU is that of all instances, for one
statement. Ratios: above 1 we are quicker.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import psycopg
from postgres import Postgres
from sql_more import PASSWORD, Demo

ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("SECONDS", "1"))
ROWS, KEYS = 100_000, 10
BEFORE = os.environ.get("BEFORE", "")
TICKS = os.sysconf("SC_CLK_TCK")
_DICE = rf"\set id random(1, {ROWS - 1_000})"
_KEYS = "\n".join(rf"\set k{at} random(1, {ROWS})" for at in range(KEYS))
_LISTED = ", ".join(f":k{at}" for at in range(KEYS))
_RANGE = "FROM t WHERE made BETWEEN :id AND :id + 50"
_AFTER = "ORDER BY made LIMIT 20"
READS = {
    "secondary index": f"{_DICE}\nSELECT id, note FROM t WHERE owner = :id / 10;",
    "page by an index": f"{_DICE}\nSELECT id, made FROM t WHERE made > :id {_AFTER};",
    "page by the key": f"{_DICE}\nSELECT id, note FROM t WHERE id > :id ORDER BY id LIMIT 20;",
    "count of a range": f"{_DICE}\nSELECT count(*), sum(made) {_RANGE};",
    "ten keys": f"{_KEYS}\nSELECT id, note FROM t WHERE id IN ({_LISTED});",
    "small groups": f"{_DICE}\nSELECT owner, count(*) {_RANGE} GROUP BY owner;",
    "one row": f"{_DICE}\nSELECT id, note FROM t WHERE id = :id;",
}


class Side:
    """One cluster, or PostgreSQL."""

    def __init__(self, name: str, dsn: str, pids: list[int]) -> None:
        self.name, self.dsn, self.pids = name, dsn, pids
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE t (id BIGINT PRIMARY KEY, owner BIGINT, made BIGINT, note TEXT)"
            )
            connection.execute("CREATE INDEX t_owner ON t (owner)")
            connection.execute("CREATE INDEX t_made ON t (made)")
            with connection.cursor().copy("COPY t FROM STDIN") as copy:
                for at in range(ROWS):
                    copy.write(f"{at}\t{at // 10}\t{at * 7919 % ROWS}\tnote of row {at}\n")
            connection.execute("ANALYZE")

    def cpu_s(self) -> float:
        """Threads that have ended, children that were waited for: all of it."""
        stats = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids
        )
        return sum(int(each[11]) + int(each[12]) for each in stats) / TICKS

    def asked(self, script: str, clients: int) -> tuple[float, float]:
        """Milliseconds that a client waits for one, and µs of CPU for it."""
        begun = self.cpu_s()
        told = subprocess.run(
            [*("pgbench", "-n", "-f", script, "-M", "prepared", "-c", str(clients), "-j", "1"),
             *("-T", str(SECONDS), self.dsn)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        [count] = re.findall(r"actually processed: (\d+)", told)
        [latency] = re.findall(r"latency average = ([\d.]+)", told)
        return float(latency), (self.cpu_s() - begun) * 1e6 / max(int(count), 1)


class Cluster(Demo):
    def __init__(self, replicasets: int, source: str) -> None:
        self._source, self.count = source, replicasets
        super().__init__(replicasets)

    def _call(self, *arguments: str) -> None:
        before = os.environ.get("PYTHONPATH")
        if self._source:
            os.environ["PYTHONPATH"] = self._source
        try:
            super()._call(*arguments)
        finally:
            os.environ.pop("PYTHONPATH", None)
            if before is not None:
                os.environ["PYTHONPATH"] = before

    @property
    def pids(self) -> list[int]:
        folders = (self.dir / f"i{at}" / "cairn.pid" for at in range(1, self.count + 1))
        return [int(each.read_text().split()[1]) for each in folders]

    def url(self) -> str:
        return f"postgresql://admin:{PASSWORD}@127.0.0.1:{self.base}/cairn"


def compare(sides: list[Side], replicasets: int, only: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        for name, text in READS.items():
            if only not in name:
                continue
            script.seek(0)
            script.truncate()
            script.write(text)
            script.flush()
            for clients in (1, 8):
                rounds = [
                    [each.asked(script.name, clients) for each in sides] for _ in range(ROUNDS)
                ]
                told = []
                for at, side in enumerate(sides):
                    latency = statistics.median(each[at][0] for each in rounds)
                    ratio = statistics.median(each[-1][0] / each[at][0] for each in rounds)
                    cpu = statistics.median(each[at][1] for each in rounds)
                    told.append(f"{side.name} {latency:6.2f} ms {ratio:5.2f}× {cpu:6.0f} µs")
                print(
                    f"{replicasets} replicasets, {clients} clients: {name:17} {', '.join(told)}",
                    flush=True,
                )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="what has this in its name")
    options.add_argument("--replicasets", type=int, nargs="*", default=[1, 2])
    given = options.parse_args()
    peer = Postgres()
    clusters: list[Cluster] = []
    try:
        theirs = Side("PostgreSQL", peer.dsn(), [])
        print(
            f"{platform.platform()}, {peer.version()}, {ROWS} rows, load {os.getloadavg()[0]:.1f}\n"
        )
        for replicasets in given.replicasets:
            sides = []
            for name, source in (("before", BEFORE), ("now", "")):
                if name == "now" or source:
                    clusters.append(Cluster(replicasets, source))
                    sides.append(Side(name, clusters[-1].url(), clusters[-1].pids))
            compare([*sides, theirs], replicasets, given.only)
            while clusters:
                clusters.pop().stop()
    finally:
        while clusters:
            clusters.pop().stop()
        peer.stop()


if __name__ == "__main__":
    main()
