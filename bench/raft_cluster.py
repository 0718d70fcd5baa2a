"""Committed changes per second of a real Raft group: three processes on loopback, real disks.

`python bench/raft_cluster.py [seconds] [directory]`: 64 proposers insert distinct keys into a
global table by compare-and-swap, spread over the three instances, then all at the leader. Printed:
committed entries per second, and how many synced commits (fsync) and commits an entry costs.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw

PROPOSERS = 64
NAMES = ("i1", "i2", "i3")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def child(at: int, directory: str, ports: list[int], pipe: Connection) -> None:
    """One instance without a face for clients; answers the parent's questions over `pipe`."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live(at, Path(directory), ports, pipe))


async def live(at: int, directory: Path, ports: list[int], pipe: Connection) -> None:
    from cairn.model.errors import CairnError
    from cairn.model.members.topology import Tier
    from cairn.node.boot.config import InstanceConfig
    from cairn.node.boot.steps import Boot
    from cairn.node.runtime import RealRuntime
    from cairn.storage.files.groups import Job, run_group
    from cairn.storage.files.writer import Disk, WriterThread

    counts = {"synced": 0, "commits": 0}

    class Counting(RealRuntime):
        def disk(
            self,
            connection: apsw.Connection,
            name: str,
            on_fatal: Callable[[BaseException], None],
            group: Callable[[apsw.Connection, list[Job]], None] = run_group,
        ) -> Disk:
            def counted(connection: apsw.Connection, jobs: list[Job]) -> None:
                if name == "raft writer":
                    counts["commits"] += 1
                    counts["synced"] += any(job.must_sync for job in jobs)
                group(connection, jobs)

            return WriterThread(connection, name, on_fatal, counted)

    address = f"127.0.0.1:{ports[at]}"
    config = InstanceConfig(
        instance_name=NAMES[at],
        instance_dir=directory,
        listen=address,
        advertise=address,
        peers=tuple(f"127.0.0.1:{port}" for port in ports),
        tiers=(Tier("default", 3, is_default=True),),
    )
    directory.mkdir(parents=True)
    boot = Boot(config, Counting(directory, address))
    instance = await boot.start()
    instance.governor.steps.operate = lambda action: settled(instance, action)
    await boot.activate(instance, "bench")
    loop = asyncio.get_running_loop()
    while True:
        question, argument = await loop.run_in_executor(None, pipe.recv)
        if question == "stop":
            os._exit(0)
        try:
            answer = await answer_to(question, argument, instance, counts, at)
        except CairnError as problem:
            answer = f"{type(problem).__name__}: {problem}"
        pipe.send(answer)


async def settled(instance: Any, action: Any) -> None:
    """Operations of the queue need SQL, which is not here: they are simply done."""
    from cairn.node.steering.queue_runner import settle

    proposer = instance.proposer
    await proposer.cas(settle(action.op_id, "done"), proposer.predicate(()))


async def answer_to(question: str, argument: Any, instance: Any, counts: Any, at: int) -> Any:
    from cairn.model.log import ops
    from cairn.model.members.topology import Grade

    match question:
        case "state":
            row = instance.row
            return (
                row is not None and row.current_state.grade is Grade.ONLINE,
                instance.runner.is_leader,
                len(instance.runner.conf.voters),
                bool((table := instance.state.catalog.table("bench")) and table.operable),
            )
        case "create":
            prepared = ops.DdlPrepare(1, ops.CreateTable(bench_table()))
            await instance.proposer.cas(prepared, instance.proposer.predicate((ops.SCHEMA_RANGE,)))
            return True
        case "propose":
            proposers, seconds, first = argument
            before = dict(counts)
            done = await propose(instance, proposers, seconds, f"{first}.{at}")
            return done, {key: counts[key] - before[key] for key in counts}
    return None


def bench_table() -> Any:
    from cairn.model.tables.schema import FIRST_USER_TABLE_ID, Column, Table
    from cairn.model.types.values import ColumnType

    return Table(
        FIRST_USER_TABLE_ID,
        "bench",
        (Column("a", ColumnType.STRING, nullable=False), Column("b", ColumnType.STRING)),
        ("a",),
        schema_version=1,
    )


async def propose(instance: Any, proposers: int, seconds: float, prefix: str) -> int:
    from cairn.model.errors import CairnError
    from cairn.model.log import ops
    from cairn.model.log.ranges import one_key
    from cairn.model.tables.schema import FIRST_USER_TABLE_ID as TABLE

    end = time.monotonic() + seconds
    done = 0

    async def one(number: int) -> None:
        nonlocal done
        at = 0
        while time.monotonic() < end:
            at += 1
            key = f"{prefix}.{number}.{at}"
            predicate = instance.proposer.predicate((one_key(TABLE, (key,)),))
            try:
                await instance.proposer.cas(ops.Insert(TABLE, (key, "x" * 40)), predicate)
                done += 1
            except CairnError:
                await asyncio.sleep(0.01)

    await asyncio.gather(asyncio.sleep(seconds), *(one(number) for number in range(proposers)))
    return done


class Group:
    """The three processes and their pipes."""

    def __init__(self, directory: Path) -> None:
        context = multiprocessing.get_context("spawn")
        ports = free_ports(3)
        self.pipes: list[Connection] = []
        self.processes = []
        for at, name in enumerate(NAMES):
            mine, theirs = context.Pipe()
            work = (at, str(directory / name), ports, theirs)
            process = context.Process(target=child, args=work, daemon=True)
            process.start()
            self.pipes.append(mine)
            self.processes.append(process)

    def ask(self, at: int, question: str, argument: Any = None) -> Any:
        self.pipes[at].send((question, argument))
        return self.pipes[at].recv()

    def wait(self, what: Callable[[list[Any]], bool]) -> list[Any]:
        deadline = time.monotonic() + 60
        while True:
            states = [self.ask(at, "state") for at in range(3)]
            if what(states):
                return states
            assert time.monotonic() < deadline, states
            time.sleep(0.1)

    def close(self) -> None:
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(("stop", None))
            process.join(5)
            if process.is_alive():
                process.kill()


def measure(group: Group, shares: list[int], seconds: float, first: str) -> None:
    for at, share in enumerate(shares):
        group.pipes[at].send(("propose", (share, seconds, first)))
    answers = [pipe.recv() for pipe in group.pipes]
    total = sum(done for done, _ in answers)
    print(f"{total / seconds:8.0f} committed/s with proposers {shares}")
    for name, (done, counts) in zip(NAMES, answers, strict=True):
        entries = max(total, 1)
        print(
            f"         {name}: {done / seconds:6.0f} of them asked here; per entry "
            f"{counts['synced'] / entries:.3f} synced and {counts['commits'] / entries:.3f} "
            "commits in all"
        )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    base = sys.argv[2] if len(sys.argv) > 2 else None
    directory = Path(tempfile.mkdtemp(prefix="cairn-bench-", dir=base))
    print(
        f"raft_cluster: {platform.node()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, "
        f"load {os.getloadavg()[0]:.1f}, files in {directory.parent}"
    )
    print(json.dumps({"command": " ".join(sys.argv), "proposers": PROPOSERS}))
    group = Group(directory)
    try:
        states = group.wait(lambda all_: all(each[0] and each[2] == 3 for each in all_))
        leader = [state[1] for state in states].index(True)
        group.ask(leader, "create")
        group.wait(lambda all_: all(each[3] for each in all_))
        measure(group, [22, 21, 21], 1.0, "warm")
        measure(group, [22, 21, 21], seconds, "spread")
        alone = [PROPOSERS if at == leader else 0 for at in range(3)]
        measure(group, alone, seconds, "leader")
    finally:
        group.close()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
