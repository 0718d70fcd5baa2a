"""SQL through pgbench, PostgreSQL 15 beside it in the same run: paired slices, ratios, CPU.

    make bench-sql            (ROUNDS=7 SECONDS=1 python bench/sql.py)

Under pgbench, server and client are pinned to a core each, for both sides; COPY runs unpinned, as
psql \\copy would. The machine is noisy: a ratio of the same shuffled round counts, not a rate.
"""

from __future__ import annotations

import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from postgres import Postgres, free_port

SLICES = 3  # of a load: on a busy machine one may end with nothing done
ROUNDS = int(os.environ.get("ROUNDS", "7"))
SECONDS = os.environ.get("SECONDS", "1")
ROWS = int(os.environ.get("ROWS", "500000"))
SERVER_CPU, CLIENT_CPU = 0, 1
PASSWORD = "T0psecret1"

SELECT = "\\set aid random(1, 100000)\nSELECT abalance FROM accounts WHERE aid = :aid;\n"
INSERT = (
    "\\set id random(1000000, 2000000000)\n"
    "INSERT INTO accounts VALUES (:id, 1, 'abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz') "
    "ON CONFLICT DO NOTHING;\n"
)
CREATE = "CREATE TABLE accounts (aid {int} PRIMARY KEY, abalance {int}, filler TEXT)"


class Cairn:
    """One instance, pinned, with durable commits."""

    name = "cairn"

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
        base = free_port() % 20000 + 20000
        command = [
            *("taskset", "-c", str(SERVER_CPU), sys.executable, "-m", "cairn.cli.main"),
            *("demo", "--instances", "1", "--replication-factor", "1", "--detach"),
            *("--base-port", str(base), "--dir", str(self.dir)),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.port = base
        self.env = {**os.environ, "PGPASSWORD": PASSWORD}
        self.database = "cairn"
        self.create = CREATE.format(int="INT") + " DISTRIBUTED BY (aid)"

    @property
    def pids(self) -> list[int]:
        return [int((self.dir / "i1" / "cairn.pid").read_text().split()[1])]

    def stop(self) -> None:
        command = [sys.executable, "-m", "cairn.cli.main", "demo", "--stop", "--dir", str(self.dir)]
        subprocess.run(command, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


class Peer:
    name = "postgresql"

    def __init__(self) -> None:
        self._server = Postgres(cpu=SERVER_CPU)
        self.port = self._server.port
        self.env = dict(os.environ)
        self.database = "postgres"
        self.create = CREATE.format(int="BIGINT")

    @property
    def pids(self) -> list[int]:
        return self._server.pids

    def stop(self) -> None:
        self._server.stop()


Side = Cairn | Peer


def psql(side: Side, *arguments: str, text: str | None = None) -> str:
    command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "admin"]
    command += ["-p", str(side.port), side.database, *arguments]
    done = subprocess.run(
        command, check=True, env=side.env, input=text, capture_output=True, text=True
    )
    return done.stdout


def cpu_ticks(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(words[at]) for at in (11, 12, 13, 14))
    return total


def pgbench(side: Side, script: Path, clients: int) -> tuple[float, float]:
    """Transactions a second, and server CPU µs for each."""
    command = [
        *("taskset", "-c", str(CLIENT_CPU), "pgbench", "-n", "-f", str(script), "-M", "prepared"),
        *("-c", str(clients), "-j", "1", "-T", SECONDS, "-h", "127.0.0.1", "-U", "admin"),
        *("-p", str(side.port), side.database),
    ]
    for _ in range(SLICES):
        before = cpu_ticks(side.pids)
        done = subprocess.run(command, check=True, env=side.env, capture_output=True, text=True)
        used = (cpu_ticks(side.pids) - before) / os.sysconf("SC_CLK_TCK")
        rate = re.search(r"tps = ([\d.]+)", done.stdout)
        count = re.search(r"actually processed: (\d+)", done.stdout)
        if rate and count and int(count[1]):
            return float(rate[1]), used / int(count[1]) * 1e6
    raise SystemExit(f"{side.name}: pgbench finished nothing in {SLICES} slices of {SECONDS} s")


def pin(side: Side, cpus: str) -> None:
    for pid in side.pids:
        command = ["taskset", "-a", "-c", "-p", cpus, str(pid)]
        subprocess.run(command, check=False, capture_output=True)


def copy_in(side: Side, data: Path) -> float:
    psql(side, "-c", "TRUNCATE accounts")
    return ROWS / timed(side, f"\\copy accounts from '{data}'")


def copy_out(side: Side) -> float:
    return ROWS / timed(side, "\\copy accounts to '/dev/null'")


def timed(side: Side, command: str) -> float:
    """Seconds, as psql itself counts them: without its own start and the login."""
    told = psql(side, "-c", "\\timing on", "-c", command)
    found = re.search(r"Time: ([\d.]+) ms", told)
    assert found is not None, told
    return float(found[1]) / 1000


def paired(
    name: str, sides: list[Side], measure: object, rounds: int = ROUNDS
) -> dict[str, object]:
    found: dict[str, list[object]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        order = list(sides)
        random.shuffle(order)
        for side in order:
            found[side.name].append(measure(side))  # type: ignore[operator]
    ours, theirs = found["cairn"], found["postgresql"]

    def rate(value: object) -> float:
        return value[0] if isinstance(value, tuple) else float(value)  # type: ignore[arg-type]

    ratios = sorted(rate(a) / rate(b) for a, b in zip(ours, theirs, strict=True))
    row = {
        "what": name,
        "ratio": round(statistics.median(ratios), 2),
        "quartiles": [round(ratios[len(ratios) // 4], 2), round(ratios[-len(ratios) // 4], 2)],
        "cairn": round(statistics.median(map(rate, ours))),
        "postgresql": round(statistics.median(map(rate, theirs))),
    }
    if isinstance(ours[0], tuple):
        row["cpu_us"] = [
            round(statistics.median(value[1] for value in side), 1)  # type: ignore[index]
            for side in (ours, theirs)
        ]
    print(
        f"{name:34} {row['ratio']:5.2f}×  {row['quartiles']!s:14} "
        f"{row['cairn']:>9} vs {row['postgresql']:>9} /s   CPU µs {row.get('cpu_us', '')}",
        flush=True,
    )
    return row


def main() -> None:
    work = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    data = work / "accounts.txt"
    data.write_text("".join(f"{at}\t{at * 3}\tfiller of row {at}\n" for at in range(1, ROWS + 1)))
    select, insert = work / "select.sql", work / "insert.sql"
    select.write_text(SELECT)
    insert.write_text(INSERT)
    sides: list[Side] = []
    try:
        sides.append(Cairn())
        sides.append(Peer())
        import apsw

        print(
            f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"apsw {apsw.apsw_version()}, {sides[1]._server.version()}; "  # type: ignore[union-attr]
            f"{ROUNDS} paired rounds of {SECONDS} s\n"
        )
        for side in sides:
            psql(side, "-c", side.create)
        for side in sides:
            pin(side, f"0-{(os.cpu_count() or 2) - 1}")
        rows = [
            paired("COPY in", sides, lambda side: copy_in(side, data), max(ROUNDS // 2, 3)),
            paired("COPY text out", sides, copy_out, max(ROUNDS // 2, 3)),
        ]
        for side in sides:
            pin(side, str(SERVER_CPU))
        for what, script, counts in (
            ("point SELECT", select, (1, 8)),
            ("durable INSERT", insert, (1, 8, 32)),
        ):
            rows += [
                paired(f"{what}, {n} client(s)", sides, lambda s, n=n, q=script: pgbench(s, q, n))
                for n in counts
            ]
        if "--json" in sys.argv:
            print(json.dumps(rows, indent=2))
    finally:
        for side in sides:
            side.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
