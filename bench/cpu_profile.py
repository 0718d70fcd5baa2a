"""Where the CPU of one operation goes, layer by layer.

    make profile              (SECONDS=4 ROWS=500000 python bench/cpu_profile.py [--only "COPY in"])

Each load runs twice. Once alone: CPU per operation, user and kernel apart, as the system counts it,
so a busy machine matters less. Once under py-spy, which looks at the instance's stacks 100 times a
second: these say how its user part is divided. A sample belongs to the first frame, from the
innermost on, that names a layer; C code without a layer (the interpreter, libc) belongs to whoever
called it. What scan workers use is the layer `columns`: they do nothing else.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import sql as bench

SECONDS = os.environ.get("SECONDS", "4")
ROWS = int(os.environ.get("ROWS", "500000"))
RATE = "100"
LONGEST_S = 60.0
PY_SPY = Path(sys.executable).with_name("py-spy")
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")

KERNEL = "kernel"
LAYERS = (
    *("loop", "session", "codec", "plan", "rules", "log", "writer", "SQLite", "columns"),
    "other",
)
#: What a frame's file says of its layer; the first that fits counts.
_NAMED = [
    (re.compile(pattern), layer)
    for pattern, layer in (
        (r"^(loop|stream|core|linux|timer|loop-watcher)\.c$|uvloop|^asyncio/|_asyncio", "loop"),
        (r"^__init__\.cpython|apsw|cksumvfs|sqlite", "SQLite"),
        (r"arrow|numpy|_multiarray|cairn/server/scan/|cairn/storage/file_", "columns"),
        (r"mmh3|cairn/model/bucket", "plan"),
        (r"cairn/pgwire/|^<string>$", "codec"),  # the source of encoders is made
        (r"cairn/server/|cairn/node/watching/", "session"),
        (r"cairn/sql/|cairn/server/statements", "plan"),
        (r"cairn/model/records|cairn/storage/(row_log|shapes|data_store)", "log"),
        (r"cairn/storage/writer", "writer"),
        (r"cairn/storage/", "SQLite"),
        (r"cairn/node/|cairn/model/", "rules"),
        (r"cairn/|threading|concurrent|queue", "other"),
    )
]
_FRAME = re.compile(r"(.*) \(([^()]*?)(?::\d+)?\)$")
#: Innermost C functions that are calls of the kernel, whose time is counted apart.
_CALLS = re.compile(
    r"^(write|writev|send|sendmsg|recv|recvfrom|read|readv|epoll_p?wait\w*|pwrite(v)?(64)?|"
    r"pread(v)?(64)?|f(data)?sync|fcntl(64)?|poll|futex|clock_nanosleep|ftruncate(64)?)$"
)
_WAITS = re.compile(r"acquire_lock|take_gil|pthread_cond|sem_\w*wait|uv_cond|uv_sem|epoll_")


class Load(NamedTuple):
    name: str
    unit: str
    run: Callable[[], int]  # how many operations were done


class Cpu(NamedTuple):
    user: float
    kernel: float
    workers: float  # the user's part of the processes that scan

    @property
    def whole(self) -> float:
        return self.user + self.kernel + self.workers


def processes(pid: int) -> list[int]:
    """The instance and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in processes(int(child)))]


def cpu_us(pid: int) -> Cpu:
    user, kernel = Counter[bool](), 0
    for each in processes(pid):
        words = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        user[each == pid] += int(words[11])
        kernel += int(words[12])
    return Cpu(user[True] * TICK_US, kernel * TICK_US, user[False] * TICK_US)


def layer_of(stack: str) -> str | None:
    """None: the thread waited, or was in the kernel, which is counted apart."""
    frames = [_FRAME.match(each) for each in stack.split(";")]
    known = [(found[1], found[2]) for found in frames if found is not None]
    if not known:
        return "other"
    if _CALLS.match(known[-1][0]) or any(_WAITS.search(name) for name, _ in known[-3:]):
        return None
    for _, file in reversed(known):
        for pattern, layer in _NAMED:
            if pattern.search(file):
                return layer
    return "other"


def shares(pid: int, load: Load, work: Path) -> dict[str, float]:
    """Which part of the user's CPU each layer has."""
    found = work / "stacks"
    command = [str(PY_SPY), "record", "--native", "-r", RATE]
    command += ["-d", "60", "-f", "raw", "-o", str(found), "-p", str(pid)]
    watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        time.sleep(2)  # it reads the symbols of every library first
        load.run()
    finally:
        watcher.send_signal(signal.SIGINT)
        _, said = watcher.communicate(timeout=60)
    if not found.exists():
        raise SystemExit(f"py-spy said: {said.decode()}")
    counted: Counter[str] = Counter()
    stacks = [line.rpartition(" ") for line in found.read_text().splitlines()]
    # Who waits for a lock and who waits for the interpreter end at the same place of libc.
    waiting = {stack.rpartition(";")[2] for stack, _, _ in stacks if "acquire_lock" in stack}
    for stack, _, count in stacks:
        layer = None if stack.rpartition(";")[2] in waiting else layer_of(stack)
        if layer is not None:
            counted[layer] += int(count)
    if keep := os.environ.get("STACKS"):
        shutil.copy(found, Path(keep) / f"{load.name.replace(' ', '-')}.stacks")
    found.unlink()
    total = sum(counted.values()) or 1
    return {layer: counted[layer] / total for layer in LAYERS}


def measured(pid: int, load: Load) -> Cpu:
    load.run()  # statements are understood, workers started
    before = cpu_us(pid)
    count = load.run()
    after = cpu_us(pid)
    return Cpu(*((late - early) / count for early, late in zip(before, after, strict=True)))


def loads(side: bench.Cairn, work: Path) -> list[Load]:
    select, insert, data = work / "select.sql", work / "insert.sql", work / "accounts.txt"
    select.write_text(bench.SELECT.replace("100000", str(ROWS)))
    insert.write_text(bench.INSERT)
    data.write_text("".join(f"{at}\t{at * 3}\tfiller of row {at}\n" for at in range(1, ROWS + 1)))

    def pgbench(script: Path, clients: int) -> Callable[[], int]:
        def run() -> int:
            command = ["pgbench", "-n", "-f", str(script), "-M", "prepared", "-c", str(clients)]
            command += ["-j", "1", "-T", SECONDS, "-h", "127.0.0.1", "-U", "admin"]
            command += ["-p", str(side.port), side.database]
            done = subprocess.run(
                command, check=True, env=side.env, capture_output=True, text=True
            ).stdout
            return int(re.search(r"actually processed: (\d+)", done)[1])  # type: ignore[index]

        return run

    def of_rows(*commands: str) -> Callable[[], int]:
        def run() -> int:
            for command in commands:
                bench.psql(side, "-A", "-t", "-o", "/dev/null", "-c", command)
            return ROWS

        return run

    def nothing() -> int:
        time.sleep(float(SECONDS))
        return int(SECONDS)

    copy_in = f"\\copy accounts from '{data}'"
    return [
        Load("nothing", "second", nothing),
        Load("COPY in", "row", of_rows("TRUNCATE accounts", copy_in)),
        Load("COPY text out", "row", of_rows("\\copy accounts to '/dev/null'")),
        Load("COPY csv out", "row", of_rows("\\copy accounts to '/dev/null' csv")),
        Load("SELECT * of all", "row", of_rows("SELECT * FROM accounts")),
        Load("sum() of all", "row", of_rows("SELECT sum(abalance + 0) FROM accounts")),
        Load("point SELECT, 1 client", "statement", pgbench(select, 1)),
        Load("point SELECT, 8 clients", "statement", pgbench(select, 8)),
        Load("durable INSERT, 1 client", "statement", pgbench(insert, 1)),
        Load("durable INSERT, 8 clients", "statement", pgbench(insert, 8)),
    ]


def show(load: Load, cpu: Cpu, parts: dict[str, float]) -> str:
    fields = [load.name, load.unit, f"{cpu.whole:.2f}", f"{cpu.kernel:.2f}"]
    used = {layer: cpu.user * parts[layer] for layer in LAYERS}
    used["columns"] += cpu.workers
    fields += [f"{each:.2f}" for each in used.values()]
    return "| " + " | ".join(fields) + " |"


def main() -> None:
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    work = Path(tempfile.mkdtemp(prefix="cairn-profile-"))
    side = bench.Cairn()
    try:
        bench.pin(side, f"0-{(os.cpu_count() or 2) - 1}")
        bench.psql(side, "-c", side.create)
        import apsw

        print(
            f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"apsw {apsw.apsw_version()}; {ROWS} rows, {SECONDS} s; "
            f"load {' '.join(f'{each:.1f}' for each in os.getloadavg())}\n"
        )
        print("CPU µs per operation of the instance and its workers\n")
        print("| load | per | all | " + " | ".join((KERNEL, *LAYERS)) + " |")
        print("|---|---|" + "---|" * (len(LAYERS) + 2), flush=True)
        [pid] = side.pids
        every = loads(side, work)
        every[1].run()
        for load in every:
            if only in load.name:
                cpu = measured(pid, load)
                print(show(load, cpu, shares(pid, load, work)), flush=True)
        print(f"\nload at the end {' '.join(f'{each:.1f}' for each in os.getloadavg())}")
    finally:
        side.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
