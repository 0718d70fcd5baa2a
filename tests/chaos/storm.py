"""One cluster, its clients and the blows that it gets; what must hold after each of them."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg

from tests.chaos import staged, wide
from tests.chaos.blows import (
    BLACKOUT,
    DAMAGED,
    FULL_DISK,
    LEFT,
    OF_ALL,
    OF_ONE,
    ROT,
    WEIGHTS,
    Blows,
    SmallDisks,
)
from tests.chaos.registers import CREATE, Gate, Registers, way_to_talk
from tests.chaos.wide import WideWriter
from tests.cluster.harness import Cluster, Node, eventually
from tests.cluster.proxy import ProxiedCluster

FRESH = "CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)"
ALL = "SELECT a, b FROM t OPTION (read_preference = any, sql_motion_row_max = 0)"
SUMS = tuple(
    f"SELECT count(*), sum({key}), min({text}), max({text}) FROM {table} "
    "OPTION (read_preference = any)"
    for table, key, text in (("t", "a", "b"), ("reg", "grp", "text"), ("wide", "n", "text"))
)
NAMED_S = 3.0  # another master is there and has written, after one was cut off
NOT_SENT_S = 3.0  # async: what a replica may lack of its master
ONLINE_S = 90.0  # after a blow; a machine may be busy


class Storm:
    """`size` instances in replicasets of `factor`, behind a proxy."""

    def __init__(
        self,
        directory: Path,
        mode: str,
        seed: int,
        *,
        size: int = 3,
        factor: int = 3,
        full_disks: bool = False,
        longest_s: float = 5.0,  # of a blow; a failover takes about one and a half
    ) -> None:
        self.mode, self.chance, self._longest_s = mode, random.Random(seed), longest_s
        self.names = tuple(f"i{number}" for number in range(1, size + 1))
        self.done: Counter[str] = Counter()
        self._deck: list[str] = []
        self._aside: set[int] = set()  # was in `_cairn_diverged` of a file that was then damaged
        self._gone: list[tuple[float, float]] = []  # when only a damaged file may have had a row
        self.writers: list[FreshKeys] = []
        self.registers: Registers | None = None
        self._disks = SmallDisks()
        self.staged: staged.StagedWriter | None = None
        self.wide: WideWriter | None = None  # where all rows are of one replicaset
        gate = self._gate = Gate()
        self._kinds = (*OF_ONE, *OF_ALL, ROT, DAMAGED, *((FULL_DISK,) if full_disks else ()))
        self._kinds += (WEIGHTS,) if size > factor else ()
        config = directory / "tiers.yaml"
        config.write_text(
            f"cluster:\n  name: test\n  tier:\n    default:\n      replication_factor: {factor}\n"
            f"      replication_mode: {mode}\n"
        )
        self.cluster = ProxiedCluster(directory, "test", "--config", str(config))
        self.blows = Blows(self.cluster, self.chance, gate)
        try:
            if full_disks:
                for name in self.names:
                    self._disks.mount(directory / name)
            self.cluster.start(*self.names)
            voters = min(size, 5) - (min(size, 5) + 1) % 2
            eventually(
                lambda: len(self.cluster["i1"].status()["raft"]["voters"]) >= voters, "voters"
            )
            self.cluster["i1"].sql(FRESH)
            for text in (CREATE, *staged.CREATE, *wide.CREATE):
                self.cluster["i1"].sql(text)
        except BaseException:
            self.close()
            raise
        self.registers = Registers(self.cluster, seed, self.revive, gate)
        self.writers = [
            FreshKeys(self.cluster, number, seed + number, gate) for number in range(1, 4)
        ]
        self.staged = staged.StagedWriter(self.cluster, seed)
        if size == factor:
            self.wide = WideWriter(self.cluster, seed, gate)

    def close(self) -> None:
        for writer in self.writers:
            writer.stop.set()
        if self.registers is not None:
            self.registers.stop.set()
        for other in (self.staged, self.wide):
            if other is not None:
                other.stop.set()
        self.cluster.close()
        self._disks.close()

    @property
    def load(self) -> Registers:
        assert self.registers is not None
        return self.registers

    # --- looking ----------------------------------------------------------------------------------

    def seen_by_somebody(self, what: Callable[[Node], str]) -> str:
        for node in self.cluster.nodes.values():
            try:
                return what(node)
            except (psycopg.Error, OSError, AssertionError):
                continue
        raise AssertionError("nobody answers")

    def a_master(self) -> str:
        """As the majority sees it: an instance that is cut off knows no better."""

        def one(node: Node) -> str:
            found = [each["master"] for each in node.status()["replicasets"] if each["master"]]
            return str(self.chance.choice(found))

        return eventually(lambda: self.seen_by_somebody(one), "a master")

    def a_living_one(self) -> str:
        return self.seen_by_somebody(lambda node: node.name if node.status() else "")

    # --- blows ------------------------------------------------------------------------------------

    def blow(self, kinds: Sequence[str] | None = None) -> str:
        """One, now and then two at a time; mended after a while."""
        chance = self.chance
        count = 2 if len(self.names) > 3 and chance.random() < 0.4 else 1
        told, mending = [], []
        for at in range(count):
            kind = self._next(kinds or self._kinds)
            if at and kind in ("all at once", BLACKOUT, "stop", ROT, DAMAGED, LEFT):
                kind = "pause"
            master = self.a_master() if not at else ""
            is_hit = kind == LEFT or chance.random() < 0.7
            name = master if master and is_hit else chance.choice(self.names)
            if any(name == before for _, before in told):
                continue
            told.append((kind, name))
            self.done[kind] += 1
            if kind == DAMAGED:
                self._aside |= self.put_aside()  # goes with its file
            begun = time.monotonic()
            mending.append(self.blows.strike(kind, name))
            if kind in ("all at once", BLACKOUT):
                break  # nobody is left for another blow
        least_s = NAMED_S if any(kind == LEFT for kind, _ in told) else 0.3
        time.sleep(chance.uniform(least_s, least_s + self._longest_s))
        self.cluster.proxy.heal()
        for mend in mending:
            mend()
        if any(kind == DAMAGED for kind, _ in told):
            self._gone.append((begun - NOT_SENT_S, time.monotonic()))
        return ", ".join(f"{kind} {name}" for kind, name in told)

    def _next(self, kinds: Sequence[str]) -> str:
        """Every kind equally often, in an order of chance."""
        if not self._deck:
            self._deck = self.chance.sample(list(kinds), len(kinds))
        return self._deck.pop()

    def run(
        self,
        rounds: int,
        *,
        kinds: Sequence[str] | None = None,
        until: float = float("inf"),
        tell: Callable[[str], None] = print,
    ) -> None:
        """Blow by blow; what clients were told is judged after each. `until`: by the clock."""
        may_lose = self.mode == "async" and set(kinds or self._kinds) - {"stop", "switch"}
        for writer in self.writers:
            writer.start()
        self.load.start()
        assert self.staged is not None
        self.staged.start()
        if self.wide is not None:
            self.wide.is_strict = not may_lose
            self.wide.start()
        for number in range(1, rounds + 1):
            if time.monotonic() > until:
                break
            before, written = self.load.outcomes["done"], self.count_acked()
            eventually(
                lambda b=before, w=written: (  # type: ignore[misc]
                    self.load.outcomes["done"] > b + 30 and self.count_acked() > w + 30
                ),
                "writes to go on",
                ONLINE_S,
            )
            what = self.blow(kinds)
            self._wait_online()
            self.load.end_round(self.names, is_strict=not may_lose)
            self.load.check_sealed(self.chance.choice(self.names))
            if BLACKOUT in what:
                self._compare()
            if self.staged.failed is not None:
                raise self.staged.failed
            if self.wide is not None:
                assert self.wide.problem is None, self.wide.problem
            told = {**self.load.problems, **self.staged.problems}
            tell(f"{number} {what}: {dict(self.load.outcomes)} {told}")
        for writer in self.writers:
            writer.stop.set()
        for writer in self.writers:
            writer.join(60)
        self.load.close()
        self.staged.stop.set()
        self.staged.join(240.0)
        assert not self.staged.is_alive(), "a staged write ends"
        if self.wide is not None:
            self.wide.stop.set()
            self.wide.join(60)
            print(f"statements that change all rows: {dict(self.wide.outcomes)}")
            assert self.wide.problem is None, self.wide.problem
        self.check(may_lose=bool(may_lose))
        self._check_staged(self.staged)

    def _compare(self) -> None:
        """While nobody writes, every replica has the same rows."""

        def equal() -> bool:
            found = [self.cluster[name].sql(each) for each in SUMS for name in self.names]
            size = len(self.names)
            by_table = [found[at : at + size] for at in range(0, len(found), size)]
            assert all(each[0] == other for each in by_table for other in each), found
            return True

        with self._gate.silent():
            eventually(equal, "equal replicas", ONLINE_S)

    def _check_staged(self, writer: staged.StagedWriter) -> None:
        words = "SELECT word, count(*) FROM {} GROUP BY word"
        added, replaced = (
            self.cluster["i1"].sql(words.format(name)) for name in (staged.ADDED, staged.REPLACED)
        )
        done = sum(writer.ended.values())
        print(f"{len(writer.ended)} staged writes, {done} done: {dict(writer.problems)}")
        why = staged.why_wrong(writer.ended, added, replaced)
        assert why is None, why

    def _wait_online(self) -> None:
        def online() -> bool:
            self.revive()
            states = self.cluster.states(self.a_living_one())
            assert all(states.get(name) == "Online" for name in self.names), states
            problems = self.cluster[self.a_living_one()].status()["problems"]
            damaged = [line for line in problems if "damaged" in line]
            assert not damaged, damaged
            return True

        eventually(online, "all Online", ONLINE_S)

    def revive(self) -> None:
        """One that lost its disk ends, and whoever runs it starts it again."""
        for node in self.cluster.nodes.values():
            if node.process is not None and node.process.poll() is not None:
                node.start()

    # --- the end ----------------------------------------------------------------------------------

    def count_acked(self) -> int:
        return sum(len(writer.acked) for writer in self.writers)

    def check(self, *, may_lose: bool) -> None:
        def equal() -> dict[int, str]:
            found = [{-1: "", **dict(self.cluster[name].sql(ALL))} for name in self.names]
            assert all(each == found[0] for each in found), [len(each) for each in found]
            return found[0]

        rows = eventually(equal, "equal replicas", ONLINE_S)
        for name in self.names:
            self.load.check_sealed(name)
        have = set(rows) - {-1}
        when = {key: at for writer in self.writers for key, at in writer.acked.items()}
        acked = set(when)
        sent = set().union(*(writer.sent for writer in self.writers))
        refused = set().union(*(writer.refused for writer in self.writers))
        lost, unknown = acked - have, sent - acked - refused
        print(f"{sum(self.done.values())} blows: {dict(self.done)}")
        print(
            f"{len(sent)} sent, {len(acked)} acknowledged, {len(refused)} refused, "
            f"{len(unknown)} unknown, {len(have)} there, {len(lost)} lost"
        )
        wrong = [key for key in have if rows[key] != f"chaos {key}"]
        assert not wrong, f"rows with a wrong value: {wrong[:10]}"
        assert have <= sent, f"never written: {sorted(have - sent)[:10]}"
        assert not have & refused, f"refused and there: {sorted(have & refused)[:10]}"
        assert may_lose or not lost, f"acknowledged and lost: {sorted(lost)[:20]}"
        gone = {key for key in lost if any(low <= when[key] <= high for low, high in self._gone)}
        untold = lost - self.put_aside() - self._aside - gone
        assert not untold, f"lost and not in _cairn_diverged: {sorted(untold)[:20]}"

    def put_aside(self) -> set[int]:
        """What async mode loses is kept for people, on the instance that wrote it."""
        found: set[int] = set()
        for name in self.names:
            query = (
                "SELECT key FROM _cairn_diverged WHERE table_name = 't' "
                "OPTION (sql_motion_row_max = 0)"
            )
            found |= {json.loads(key)["a"] for (key,) in self.cluster[name].sql(query)}
        return found


class FreshKeys(threading.Thread):
    """Unique keys, each sent once, through instances chosen at random: who is lost has a name."""

    def __init__(self, cluster: Cluster, number: int, seed: int, gate: Gate) -> None:
        super().__init__(daemon=True)
        self._gate = gate
        self._cluster, self._chance = cluster, random.Random(seed)
        self._key = number * 10_000_000
        self.sent: set[int] = set()
        self.acked: dict[int, float] = {}  # when
        self.refused: set[int] = set()
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            node = self._cluster[self._chance.choice(sorted(self._cluster.nodes))]
            _, options = way_to_talk(self._chance)
            try:
                with node.connect(**options) as connection:
                    if self._chance.random() < 0.5:
                        connection.execute("SET statement_timeout = 3000")
                    for _ in range(self._chance.randint(1, 200)):
                        with self._gate.writing(node.name) as may_write:
                            if not may_write:
                                break
                            self._write(connection)
            except (psycopg.Error, OSError):
                time.sleep(0.02)

    def _write(self, connection: psycopg.Connection[object]) -> None:
        if self.stop.is_set():
            return
        self._key += 1
        self.sent.add(self._key)
        try:
            connection.execute("INSERT INTO t VALUES (%s, %s)", (self._key, f"chaos {self._key}"))
        except psycopg.Error as problem:
            if (problem.sqlstate or "").startswith(("PC", "57P03")):
                self.refused.add(self._key)
            raise
        self.acked[self._key] = time.monotonic()
        time.sleep(0.003)  # the machine has more to do than this
