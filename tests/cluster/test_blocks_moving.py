"""BEGIN … COMMIT and DO while ranges move, masters are killed and stand still: real processes.

Money goes from one account of a person to another, and the same block writes it into a journal. So
what a block did is all there or not at all, and the journal explains every account.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually
from tests.cluster.test_moves import SYNC, _who, buckets, is_calm

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
Make = Callable[..., Cluster]
PEOPLE, ACCOUNTS, MONEY = 40, 3, 100
_UNKNOWN = (None, "40003", "57P01", "57P02", "57P03")  # of an end; None: the connection is gone


class Payer(threading.Thread):
    """One client. Each payment has a number of its own, and one of three outcomes."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(daemon=True)
        self.cluster, self.number = cluster, number
        self.chance = random.Random(number)
        self.paid: dict[str, str] = {}  # number of a payment → done, undone or unknown
        self.reasons: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            node = self.chance.choice(list(self.cluster.nodes.values()))
            with suppress(psycopg.Error), node.connect() as connection:
                while not self.ending.is_set():
                    self._pay(connection)
                    self._look(connection)

    def _pay(self, connection: psycopg.Connection[Any]) -> None:
        tag = f"{self.number}.{len(self.paid)}"
        person = self.chance.randrange(PEOPLE)
        one, other = self.chance.sample(range(ACCOUNTS), 2)
        self.paid[tag] = "undone"
        statements = (
            ("UPDATE account SET money = money - 1 WHERE person = {} AND id = {}", person, one),
            ("UPDATE account SET money = money + 1 WHERE person = {} AND id = {}", person, other),
            ("INSERT INTO journal VALUES ({}, '{}', {}, {})", person, tag, one, other),
        )
        texts = [text.format(*values) for text, *values in statements]
        try:
            if self.chance.random() < 0.4:
                self.paid[tag] = "unknown"
                connection.execute(f"DO $$ BEGIN {'; '.join(texts)}; END $$")
                self.paid[tag] = "done"
                return
            connection.execute("BEGIN")
            for text in texts:
                connection.execute(text)
                time.sleep(self.chance.choice((0.0, 0.0, 0.02)))
            if self.chance.random() < 0.1:
                connection.execute("ROLLBACK")
                return
            self.paid[tag] = "unknown"
            connection.execute("COMMIT")
            self.paid[tag] = "done"
        except psycopg.Error as problem:
            self.reasons[str(problem.sqlstate)] += 1
            if self.paid[tag] == "unknown" and problem.sqlstate not in _UNKNOWN:
                self.paid[tag] = "undone"
            connection.execute("ROLLBACK")

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        person = self.chance.randrange(PEOPLE)
        found = connection.execute(
            f"SELECT count(*), sum(money) FROM account WHERE person = {person}"
        ).fetchone()
        if found != (ACCOUNTS, ACCOUNTS * MONEY):
            self.wrong.append(f"person {person} has {found}")


def prepare(node: Node) -> None:
    node.sql(
        "CREATE TABLE account (person INT, id INT, money INT, PRIMARY KEY (person, id)) "
        "DISTRIBUTED BY (person)"
    )
    node.sql(
        "CREATE TABLE journal (person INT, tag TEXT, one INT, other INT, "
        "PRIMARY KEY (person, tag)) DISTRIBUTED BY (person)"
    )
    node.sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    rows = [f"({who}, {at}, {MONEY})" for who in range(PEOPLE) for at in range(ACCOUNTS)]
    node.sql(f"INSERT INTO account VALUES {', '.join(rows)}")


def why_wrong(node: Node, paid: dict[str, str]) -> list[str]:
    """What the rows say, beside what clients were told."""
    accounts = {(who, at): money for who, at, money in node.sql("SELECT * FROM account")}
    journal = node.sql("SELECT * FROM journal")
    expected = {(who, at): MONEY for who in range(PEOPLE) for at in range(ACCOUNTS)}
    for person, _, one, other in journal:
        expected[person, one] -= 1
        expected[person, other] += 1
    tags = Counter(tag for _, tag, _, _ in journal)
    return [
        *(f"{key}: {accounts.get(key)}, the journal says {expected[key]}"
          for key in expected if accounts.get(key) != expected[key]),
        *(f"{len(accounts)} accounts" for _ in range(1) if len(accounts) != len(expected)),
        *(f"payment {tag} is there {count} times" for tag, count in tags.items() if count > 1),
        *(f"payment {tag} was done and is lost"
          for tag, how in paid.items() if how == "done" and not tags[tag]),
        *(f"payment {tag} was undone and is there"
          for tag, how in paid.items() if how == "undone" and tags[tag]),
    ]  # fmt: skip


def test_blocks_while_ranges_move_and_masters_are_killed(new_cluster: Make) -> None:
    cluster = new_cluster()
    (cluster.dir / "tiers.yaml").write_text(SYNC)
    cluster.flags += ["--config", str(cluster.dir / "tiers.yaml")]
    cluster.start("i1", "i2", "i3")
    first = cluster["i1"]
    prepare(first)
    payers = [Payer(cluster, number) for number in range(4)]
    for payer in payers:
        payer.start()
    try:
        for name in ("i4", "i5", "i6"):
            cluster.add(name).start(peers=",".join(cluster[n].peer for n in ("i1", "i2", "i3")))
        eventually(lambda: len(buckets(first)) == 2, "a second replicaset", 60.0)
        for role, how in BLOWS:
            name = _who(cluster, role)
            if name is None:
                continue
            others = [node for node in cluster.nodes.values() if node.name != name]
            if how == "kill":
                cluster[name].kill()
                eventually(lambda o=others: _who(cluster, "default_1", o), "a master", 60.0)  # type: ignore[misc]
                cluster[name].start()
            else:
                cluster[name].pause()
                time.sleep(4.0)
                cluster[name].resume()
            eventually(lambda n=name: cluster.states(n).get(n) == "Online", name, 60.0)  # type: ignore[misc]
        eventually(
            lambda: buckets(first) == {"default_1": 1500, "default_2": 1500} and is_calm(first),
            "half of the buckets to move",
            120.0,
        )
    finally:
        for payer in payers:
            payer.ending.set()
        for payer in payers:
            payer.join(40)
    outcomes = Counter(how for payer in payers for how in payer.paid.values())
    print(outcomes, sum((payer.reasons for payer in payers), Counter()))
    assert [wrong for payer in payers for wrong in payer.wrong] == []
    assert why_wrong(first, {t: how for payer in payers for t, how in payer.paid.items()}) == []
    assert outcomes["done"] > 100, outcomes


BLOWS = (
    *(("default_1", "kill"), ("default_2", "pause"), ("leader", "kill")),
    *(("default_2", "kill"), ("default_1", "pause")),
)
