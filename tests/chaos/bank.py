"""A bank under blows: `python -m tests.chaos.bank --seconds 120 --seed 1 --mode sync`.

Money goes from one account of a customer to another, in blocks, in DO and in single statements,
while buckets move, tables get columns and indexes, masters switch, and instances are killed, paused
and stopped. A customer's accounts are in one bucket, so whoever asks for all the money, in whatever
way and whenever, has to be told the same sum. Numbers of identity columns and sequences come once.
No error may be a mistake of the database, and what was acknowledged in sync mode is there.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.cluster.harness import Cluster, Node, eventually

CUSTOMERS, ACCOUNTS, EACH = 40, 5, 100
MONEY = CUSTOMERS * ACCOUNTS * EACH
NAMES = tuple(f"i{number}" for number in range(1, 7))
#: What a client may be told under blows; anything else is a mistake of the database.
TOLD = frozenset({"40001", "40003", "57P01", "57P03", "PC002", "PC003", "PC004", "PC006", "08006"})
WAYS = (
    "SELECT sum(bal), count(*) FROM acc",
    "SELECT sum(s), sum(n) FROM (SELECT cust, sum(bal) s, count(*) n FROM acc GROUP BY cust) q",
    "SELECT sum(s), sum(n) FROM per_cust",
    "SELECT sum(a.bal), count(*) FROM acc a JOIN cust c ON c.id = a.cust",
    "SELECT sum(a.bal), count(*) FROM acc a JOIN owner o ON o.cust = a.cust",
    "SELECT sum(bal), count(*) FROM (SELECT bal, cust, no FROM acc ORDER BY bal, cust, no) z",
)
SCHEMA = (
    "CREATE TABLE acc (cust INT, no INT, bal INT, PRIMARY KEY (cust, no)) DISTRIBUTED BY (cust)",
    "CREATE TABLE owner (cust INT PRIMARY KEY, name TEXT) DISTRIBUTED BY (cust)",
    "CREATE TABLE cust (id INT PRIMARY KEY, name TEXT) DISTRIBUTED GLOBALLY",
    "CREATE TABLE ev (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t TEXT)",
    "CREATE TABLE many (id BIGINT PRIMARY KEY, t TEXT) DISTRIBUTED BY (id)",
    "CREATE SEQUENCE numbers INCREMENT 3",
    "CREATE VIEW per_cust AS SELECT cust, sum(bal) AS s, count(*) AS n FROM acc GROUP BY cust",
)
CHANGES = (
    "CREATE INDEX i{n} ON acc (bal)",
    "ALTER TABLE acc ADD COLUMN c{n} INT DEFAULT 7",
    "ALTER TABLE many ADD COLUMN c{n} INT DEFAULT 7",
    "CREATE INDEX j{n} ON ev (t)",
    "ALTER TABLE cust ADD COLUMN c{n} INT",
    "CREATE TABLE other{n} (a INT PRIMARY KEY)",
)
BLOWS = ("weights", "weights", "weights", "kill", "kill", "leader", "pause", "switch", "stop")
Connection = psycopg.Connection[Any]


class Bank:
    def __init__(self, directory: Path, mode: str, seed: int) -> None:
        config = directory / "cairn.yaml"
        config.write_text(
            "cluster:\n  name: test\n  tier:\n    default:\n      replication_factor: 2\n"
            f"      replication_mode: {mode}\n"
        )
        self.cluster = Cluster(directory, "test", "--config", str(config))
        self.mode, self.seed, self.chance = mode, seed, random.Random(seed)
        self.over = threading.Event()
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._guard = threading.Lock()
        self._numbers: set[tuple[str, int]] = set()
        self._kept: dict[str, set[Any]] = {"ev": set(), "many": set()}

    # --- clients ----------------------------------------------------------------------------------

    def transfer(self, sql: Connection, chance: random.Random) -> None:
        customer, source, target, money = self._transfer(chance)
        change = "UPDATE acc SET bal = bal + %s WHERE cust = %s AND no = %s"
        sql.execute("BEGIN")
        sql.execute(change, (-money, customer, source))
        if chance.random() < 0.3:
            sql.execute("SELECT sum(bal) FROM acc WHERE cust = %s", (customer,))
        sql.execute(change, (money, customer, target))
        sql.execute("ROLLBACK" if chance.random() < 0.1 else "COMMIT")

    def transfer_at_once(self, sql: Connection, chance: random.Random) -> None:
        customer, source, target, money = self._transfer(chance)
        one = f"UPDATE acc SET bal = bal - {money} WHERE cust = {customer} AND no = {source}"
        two = f"UPDATE acc SET bal = bal + {money} WHERE cust = {customer} AND no = {target}"
        sql.execute(f"DO $$ BEGIN {one}; {two}; END $$".encode())

    def transfer_in_one(self, sql: Connection, chance: random.Random) -> None:
        customer, source, target, money = self._transfer(chance)
        sql.execute(
            "UPDATE acc SET bal = CASE no WHEN %s THEN bal - %s ELSE bal + %s END "
            "WHERE cust = %s AND no IN (%s, %s)",
            (source, money, money, customer, source, target),
        )

    @staticmethod
    def _transfer(chance: random.Random) -> tuple[int, int, int, int]:
        source, target = chance.sample(range(ACCOUNTS), 2)
        return chance.randrange(CUSTOMERS), source, target, chance.randrange(1, 20)

    def count(self, sql: Connection, chance: random.Random) -> None:
        way = chance.choice(WAYS)
        found = sql.execute(way.encode()).fetchone()
        assert found is not None
        self._judge(way, int(found[0] or 0), int(found[1] or 0))

    def count_copied(self, sql: Connection, chance: random.Random) -> None:
        with sql.cursor().copy("COPY (SELECT bal FROM acc) TO STDOUT") as copy:
            found = [int(each) for each in b"".join(bytes(piece) for piece in copy).split()]
        self._judge("COPY", sum(found), len(found))

    def _judge(self, way: str, money: int, accounts: int) -> None:
        if (money, accounts) != (MONEY, CUSTOMERS * ACCOUNTS):
            self.wrong.append(f"{way}: {money} in {accounts} accounts")

    def events(self, sql: Connection, chance: random.Random) -> None:
        texts = [f"{chance.getrandbits(60):x}" for _ in range(chance.choice((1, 20)))]
        values = ", ".join(f"('{text}')" for text in texts)
        insert = f"INSERT INTO ev (t) VALUES {values} RETURNING id, t"
        rows = sql.execute(insert.encode()).fetchall()
        with self._guard:
            self._kept["ev"] |= set(rows)
            for number, _ in rows:
                self._note("ev", number)

    def numbers(self, sql: Connection, chance: random.Random) -> None:
        found = sql.execute("SELECT nextval('numbers')").fetchone()
        assert found is not None
        with self._guard:
            self._note("numbers", found[0])

    def _note(self, of: str, number: int) -> None:
        if (of, number) in self._numbers:
            self.wrong.append(f"{of} gave {number} twice")
        self._numbers.add((of, number))

    def copied_in(self, sql: Connection, chance: random.Random) -> None:
        first = chance.getrandbits(50) * 1000
        with sql.cursor().copy("COPY many (id, t) FROM STDIN") as copy:
            for key in range(first, first + 300):
                copy.write_row((key, "c"))
        with self._guard:
            self._kept["many"] |= set(range(first, first + 300))

    def global_rows(self, sql: Connection, chance: random.Random) -> None:
        name, key = f"n{chance.randrange(100)}", chance.randrange(CUSTOMERS)
        sql.execute("UPDATE cust SET name = %s WHERE id = %s", (name, key))

    def change_schema(self, sql: Connection, chance: random.Random) -> None:
        sql.execute(chance.choice(CHANGES).format(n=chance.getrandbits(40)).encode())
        self.over.wait(1.0)

    def _work(self, work: Callable[[Connection, random.Random], None], seed: int) -> None:
        chance, sql = random.Random(seed), None
        while not self.over.is_set():
            try:
                if sql is None or sql.closed or chance.random() < 0.02:
                    if sql is not None:
                        sql.close()
                    sql = chance.choice(self._alive()).connect()
                work(sql, chance)
                self.done[work.__name__] += 1
            except (psycopg.Error, OSError, IndexError) as problem:
                code = getattr(problem, "sqlstate", None)
                self.done[f"{work.__name__} {code or 'hung up'}"] += 1
                if code is not None and code not in TOLD:
                    self.wrong.append(f"{work.__name__}: {code} {problem}")
                if sql is not None:
                    sql.close()  # a block that was begun is over
                sql = None
                self.over.wait(0.02)

    def _alive(self) -> list[Node]:
        nodes = self.cluster.nodes.values()
        return [node for node in nodes if node.process and node.process.poll() is None]

    # --- blows ------------------------------------------------------------------------------------

    def _blow(self) -> None:
        chance, kind = self.chance, self.chance.choice(BLOWS)
        node = chance.choice(self._alive())
        if kind == "leader":
            node = self.cluster[node.status()["raft"]["leader"]]
        match kind:
            case "weights":
                [name] = chance.choice(node.sql("SELECT name FROM _pico_replicaset ORDER BY 1"))
                weight = chance.choice([0.25, 0.5, 1.0, 2.0, 4.0])
                node.sql("UPDATE _pico_replicaset SET weight = %s WHERE name = %s", (weight, name))
                time.sleep(chance.uniform(0.5, 4.0))
            case "kill" | "leader":
                node.kill()
                time.sleep(chance.choice([0.1, 1.0, 4.0]))
                self._start(node)
            case "pause":
                node.pause()
                time.sleep(chance.choice([0.5, 2.0, 5.0]))
                node.resume()
            case "stop":
                node.stop(60)
                self._start(node)
            case "switch":
                rows = node.sql(
                    "SELECT r.name, i.name FROM _pico_replicaset r JOIN _pico_instance i "
                    "ON i.replicaset_name = r.name WHERE i.name <> r.current_master_name "
                    "ORDER BY 1, 2"
                )
                name, heir = chance.choice(rows)
                node.sql(
                    "UPDATE _pico_replicaset SET target_master_name = %s WHERE name = %s",
                    (heir, name),
                )
        self.done[f"blow {kind}"] += 1

    def _start(self, node: Node) -> None:
        node.start()
        eventually(
            lambda: self.cluster.states(node.name).get(node.name) == "Online",
            f"{node.name} is back",
            90.0,
        )

    # --- all of it --------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        self.cluster.start(*NAMES)
        self._open()
        works = (
            self.transfer, self.transfer, self.transfer_at_once, self.transfer_in_one, self.count,
            self.count, self.count_copied, self.events, self.numbers, self.copied_in,
            self.global_rows, self.change_schema,
        )  # fmt: skip
        threads = [
            threading.Thread(target=self._work, args=(work, self.seed * 100 + at), daemon=True)
            for at, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until and not self.wrong:
                try:
                    self._blow()
                except (psycopg.Error, OSError):
                    self.done["blow missed"] += 1  # whoever was asked could not do it just then
                time.sleep(self.chance.uniform(0.2, 1.5))
        finally:
            self.over.set()
            for thread in threads:
                thread.join(60)
        self._judge_end()

    def _open(self) -> None:
        node = self.cluster["i1"]
        for text in SCHEMA:
            node.sql(text)
        for table, name in (("cust", "id"), ("owner", "cust")):
            rows = ", ".join(f"({each}, 'x')" for each in range(CUSTOMERS))
            node.sql(f"INSERT INTO {table} ({name}, name) VALUES {rows}")
        for customer in range(CUSTOMERS):
            rows = ", ".join(f"({customer}, {no}, {EACH})" for no in range(ACCOUNTS))
            node.sql(f"INSERT INTO acc VALUES {rows}")

    def _judge_end(self) -> None:
        node = self.cluster["i1"]
        eventually(
            lambda: set(self.cluster.states("i1").values()) == {"Online"}, "all Online", 90.0
        )
        for way in WAYS:
            [(money, accounts)] = node.sql(way)
            self._judge(f"at the end, {way}", int(money), int(accounts))
        lost = {
            "ev": self._kept["ev"] - set(node.sql("SELECT id, t FROM ev")),
            "many": self._kept["many"] - {key for (key,) in node.sql("SELECT id FROM many")},
        }
        for table, rows in lost.items():
            self.done[f"acknowledged in {table}"] = len(self._kept[table])
            self.done[f"lost of {table}"] = len(rows)
            if rows and self.mode == "sync":
                self.wrong.append(f"{len(rows)} acknowledged rows of {table} are lost")

    def close(self) -> None:
        self.over.set()
        self.cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.bank", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1_000_000))
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    asked = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="cairn-bank-"))
    print(f"seed {asked.seed}, {asked.mode}, files in {directory}", flush=True)
    bank = Bank(directory, asked.mode, asked.seed)
    try:
        bank.run(asked.seconds)
    except AssertionError as problem:
        bank.wrong.append(str(problem))
    finally:
        bank.close()
    for name, count in sorted(bank.done.items()):
        print(f"  {name}: {count}")
    for each in bank.wrong:
        print(f"WRONG: {each}")
    if not bank.wrong:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if bank.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
