"""A recorded run: a cluster grows and shrinks under load while its masters are killed.

`python bench/growing.py --picture run.svg`: two replicasets of three (sync), plain clients, smart
clients and a Spark stream of the table they write. A third replicaset is added, weights are
changed, the first replicaset is drained and expelled. In the middle of the moves the master that
gives, the master that takes and the leader of Raft are killed with -9 and started again.
At the end every row is compared with what its client was told, every row that nobody touched with
what was loaded, and the stream with the rows: each change exactly once.
The exit code is 1 if anything was lost, doubled, out of order, or refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from clients_common import head, load, percentile
from growing_load import Client, plain, smart
from growing_plot import Event, Second, picture
from tests.cluster.harness import PASSWORD, Cluster, eventually

FIRST = ("i1", "i2", "i3", "i4", "i5", "i6")
MORE = ("i7", "i8", "i9")
TIERS = """
cluster:
  name: growing
  tier:
    default:
      replication_factor: 3
      replication_mode: sync
"""
KEYS = 300  # the rows that clients append to; the ids above them are loaded and never touched
PATIENCE_S = 600.0


class Run:
    """The cluster, what was done to it and when, and what was seen each second."""

    def __init__(self, directory: Path, *, is_calm_run: bool = False) -> None:
        self.is_calm_run = is_calm_run  # buckets move, and nobody is killed
        (directory / "tiers.yaml").write_text(TIERS)
        flags = ("--config", str(directory / "tiers.yaml"))
        self.cluster = Cluster(directory, "growing", *flags)
        self.begun = time.monotonic()
        self.events: list[Event] = []
        self.buckets: list[tuple[float, dict[str, int]]] = []
        self.freezes_ms: list[float] = []
        self.ending = threading.Event()

    def now(self) -> float:
        return time.monotonic() - self.begun

    def note(self, words: str) -> None:
        self.events.append(Event(self.now(), words))
        print(f"{self.now():6.1f} s  {words}", flush=True)

    def ask(self, question: Callable[[Any], Any]) -> Any:
        """Of anybody who answers: any of them may be down."""

        def answer() -> tuple[Any]:
            for node in [*self.cluster.nodes.values()]:
                if node.process is None or node.process.poll() is not None:
                    continue
                try:
                    return (question(node),)
                except (psycopg.Error, OSError):
                    continue
            raise AssertionError("nobody answers")

        return eventually(answer, "an answer", 60.0)[0]

    def status(self) -> dict[str, Any]:
        return dict(self.ask(lambda node: node.status()))

    def rebalance(self, *words: object) -> dict[str, Any]:
        call = f"CALL cairn_rebalance({', '.join(map(repr, words))})"
        return dict(self.ask(lambda node: node.sql(call))[0][0])

    def master(self, replicaset: str) -> str:
        rows = {row["name"]: row["master"] for row in self.status()["replicasets"]}
        return str(rows[replicaset])

    def is_calm(self) -> bool:
        status = self.rebalance()
        self.freezes_ms = list(status["freezes_ms"])
        return not status["moves"] and not any(tier["wanted"] for tier in status["tiers"])

    def wait_calm(self) -> None:
        time.sleep(1.0)
        eventually(self.is_calm, "the moves to end", PATIENCE_S)
        self.note("all buckets are where they should be")

    def wait_moving(self, source: str) -> None:
        def some() -> bool:
            return any(move["source"] == source for move in self.rebalance()["moves"])

        eventually(some, f"buckets of {source} to move", 60.0)

    def kill(self, name: str, who: str) -> None:
        if self.is_calm_run:
            return
        self.note(f"kill -9 of {name}, {who}")
        self.cluster[name].kill()
        time.sleep(4.0)
        self.cluster[name].start()
        others = [node for node in self.cluster.nodes if node != name]
        self.cluster.wait_online(name, via=others[-1])
        self.note(f"{name} is back")

    def watch(self) -> None:
        """Once a second, in a thread of its own."""
        while not self.ending.wait(1.0):
            try:
                rows = self.status()["replicasets"]
            except AssertionError:
                continue
            self.buckets.append((self.now(), {row["name"]: row["buckets"] for row in rows}))


class Stream:
    """A Spark stream of the table, from before the first move; `numbers` are the changes told."""

    def __init__(self, dsn: str, directory: Path) -> None:
        from cairn.spark import session

        self.spark = session(
            "local[1]", settings={"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false"}
        )
        self.numbers: dict[int, list[int]] = {key: [] for key in range(KEYS)}
        reader = self.spark.readStream.format("cairn").option("dsn", dsn)
        frame = reader.option("stream", "table:t").option("startingOffset", "latest").load()
        self.query = (
            frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        eventually(lambda: self.query.lastProgress, "the first batch of the stream", 60.0)

    def _take(self, frame: Any, _: int) -> None:
        for row in frame.collect():
            if row.op == "update":
                new = json.loads(row.new)
                self.numbers[new["id"]].append(new["n"])

    def wrong(self, counts: dict[int, int]) -> list[str]:
        """What is missing, told twice or out of order, when all has been told."""

        def all_told() -> bool:
            return sum(map(len, self.numbers.values())) >= sum(counts.values())

        if self.query.exception() is None:
            try:
                eventually(all_told, "the stream to tell all changes", 60.0)
            except AssertionError as problem:
                print(problem)
        found = []
        for key, numbers in self.numbers.items():
            wanted = [*range(1, counts[key] + 1)]
            if numbers != wanted:
                missing = sorted({*wanted} - {*numbers})
                twice = sorted({each for each in numbers if numbers.count(each) > 1})
                found.append(f"stream of key {key}: {missing} missing, {twice} told twice")
        problem = self.query.exception()
        return found if problem is None else [f"the stream ended: {problem}", *found]

    def close(self) -> None:
        self.query.stop()
        self.spark.stop()


def fill(run: Run, rows: int) -> str:
    """The table with its rows; the hash of those that nobody touches."""
    with run.cluster["i1"].connect() as connection:
        connection.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, n INT, told TEXT) DISTRIBUTED BY (id)"
        )
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for key in range(KEYS + rows):
                copy.write(f"{key}\t0\t{'' if key < KEYS else f'row {key} that stays as it is'}\n")
    return content(run)


def content(run: Run) -> str:
    def ask(node: Any) -> str:
        found = hashlib.sha256()
        sql = f"SELECT id, n, told FROM t WHERE id >= {KEYS} ORDER BY id"
        with node.connect() as connection:
            for row in connection.cursor().stream(sql):
                found.update(repr(row).encode())
        return found.hexdigest()

    return str(run.ask(ask))


def script(run: Run) -> None:
    """What is done to the cluster, in this order."""
    time.sleep(8.0)
    run.note("a third replicaset is added (i7, i8, i9)")
    peers = ",".join(run.cluster[name].peer for name in FIRST[:3])
    for name in MORE:
        run.cluster.add(name).start(peers=peers)
    run.cluster.wait_online(*MORE, via="i1")
    run.wait_moving("default_1")
    run.kill(run.master("default_1"), "the master that gives")
    run.wait_calm()
    run.note("default_3 gets weight 2")
    run.rebalance("weight", "default_3", 2.0)
    run.wait_moving("default_2")
    run.kill(run.master("default_3"), "the master that takes")
    run.wait_calm()
    run.note("default_1 is drained")
    run.rebalance("drain", "default_1")
    run.wait_moving("default_1")
    run.kill(str(run.status()["raft"]["leader"]), "the leader of Raft")
    run.wait_calm()
    rows = run.ask(
        lambda node: node.sql("SELECT name FROM _pico_instance WHERE replicaset_name = 'default_1'")
    )
    for (name,) in rows:
        run.note(f"{name} is expelled")
        run.cluster[MORE[-1]].sql(f"CALL cairn_expel('{name}')")
        run.cluster[name].wait_exit(60.0)
    time.sleep(8.0)


def seconds(run: Run, clients: list[Client]) -> list[Second]:
    """What all clients saw, second by second."""
    slots: dict[int, list[float]] = {}
    for client in clients:
        for at, took in client.seen:
            slots.setdefault(int(at - run.begun), []).append(1000 * took)
    found = []
    for at, buckets in run.buckets:
        took = slots.get(int(at), [])
        figures = [percentile(took, each) if took else 0.0 for each in (0.5, 0.99, 1.0)]
        found.append(Second(at, *figures, buckets))
    return found


def judge(run: Run, clients: list[Client], stream: Stream | None, before: str) -> list[str]:
    rows = {key: (n, told) for key, n, told in run.ask(_own_rows)}
    wrong = [words for client in clients for words in client.wrong]
    for client in clients:
        wrong += [
            f"{client.name} was refused at {at - run.begun:.1f} s: {words}"
            for at, words in client.failed
        ]
        for key, row in client.rows.items():
            if (problem := row.wrong(rows[key][1])) or len(rows[key][1].split()) != rows[key][0]:
                wrong.append(f"key {key} of {client.name}: {problem or rows[key]}")
    if content(run) != before:
        wrong.append("rows that nobody touched are not what was loaded")
    if stream is not None:
        wrong += stream.wrong({key: n for key, (n, _) in rows.items()})
    return wrong


def _own_rows(node: Any) -> list[Any]:
    return list(node.sql(f"SELECT id, n, told FROM t WHERE id < {KEYS}"))


def report(run: Run, clients: list[Client], stream: Stream | None) -> None:
    took = [each for client in clients for _, each in client.seen]
    for client in clients:
        mine = [each for _, each in client.seen]
        print(
            f"{client.name}: {len(mine)} statements answered, longest {max(mine):.2f} s, "
            f"{len(client.failed)} refused, {len(client.lost)} on their way to a killed process, "
            f"{len(client.goodbyes)} goodbyes"
        )
        for at, words in (*client.lost, *client.goodbyes):
            print(f"    {at - run.begun:6.1f} s  {words[:150]}")
    p50, p99 = (1000 * percentile(took, each) for each in (0.5, 0.99))
    print(f"all: p50 {p50:.1f} ms, p99 {p99:.0f} ms, longest {max(took):.2f} s of {len(took)}")
    longest = sorted((wait, at) for client in clients for at, wait in client.seen)[-8:]
    for wait, at in reversed(longest):
        begun = at - wait - run.begun
        last = max((each for each in run.events if each.at <= at - run.begun), key=lambda e: e.at)
        print(f"    {wait:.2f} s from {begun:.1f} s on, after {last.words} at {last.at:.1f} s")
    freezes = run.freezes_ms
    if freezes:
        print(f"{len(freezes)} last freezes: p99 {percentile(freezes, 0.99):.0f} ms")
    if stream is not None:
        print(f"Spark stream: {sum(map(len, stream.numbers.values()))} changes told")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="rows that are moved untouched")
    parser.add_argument("--picture", type=Path, help="where the SVG goes")
    parser.add_argument("--no-kills", action="store_true", help="only moves and expels")
    parser.add_argument("--no-spark", action="store_true", help="without the stream")
    arguments = parser.parse_args()
    head("a cluster grows and shrinks under load")
    with tempfile.TemporaryDirectory(prefix="cairn-growing-") as folder:
        run = Run(Path(folder), is_calm_run=arguments.no_kills)
        clients: list[Client] = []
        stream: Stream | None = None
        try:
            run.cluster.start(*FIRST)
            before = fill(run, arguments.rows)
            hosts = [run.cluster[name].pg_port for name in FIRST]
            dsn = f"postgresql://admin:{PASSWORD}@{','.join(f'127.0.0.1:{p}' for p in hosts)}/cairn"
            if not arguments.no_spark:
                stream = Stream(dsn, Path(folder))
            ways = [plain(hosts[at:] + hosts[:at], PASSWORD) for at in (0, 2, 4)]
            ways += [smart(dsn), smart(dsn)]
            names = ("plain 1", "plain 2", "plain 3", "smart 1", "smart 2")
            clients = [
                Client(name, [*range(at, KEYS, len(ways))], way, at)
                for at, (name, way) in enumerate(zip(names, ways, strict=True))
            ]
            watcher = threading.Thread(target=run.watch, daemon=True)
            run.begun = time.monotonic()
            for thread in (*clients, watcher):
                thread.start()
            script(run)
            for client in clients:
                client.ending.set()
            for client in clients:
                client.join(60)
            run.ending.set()
            watcher.join(60)
            wrong = judge(run, clients, stream, before)
            report(run, clients, stream)
            if arguments.picture:
                title = f"{len(clients)} clients, {arguments.rows + KEYS} rows; {load()}"
                arguments.picture.write_text(picture(seconds(run, clients), run.events, title))
        finally:
            for client in clients:
                client.ending.set()
            run.ending.set()
            if stream is not None:
                stream.close()
            run.cluster.close()
    print(f"wrong: {len(wrong)}", *wrong[:20], sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
