"""Statements that change all rows of a table, each of several records: whole or not at all.

Whatever dies in the middle of one, a read of one replicaset finds one number in all rows.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence

import psycopg

from tests.chaos.registers import Gate, outcome_of
from tests.cluster.harness import Cluster

ROWS = 7_000  # an UPDATE of all is two records
CREATE = (
    "CREATE TABLE wide (id INT PRIMARY KEY, n INT, text TEXT) DISTRIBUTED BY (id)",
    f"INSERT INTO wide SELECT g, 0, repeat('x', 80) FROM generate_series(1, {ROWS}) g",
)
NUMBERS = "SELECT n, count(*) FROM wide GROUP BY n"
PAUSE_S = 2.0


class WideWriter(threading.Thread):
    """`problem` says what was read and cannot be."""

    def __init__(self, cluster: Cluster, seed: int, gate: Gate) -> None:
        super().__init__(daemon=True)
        self._cluster, self._gate = cluster, gate
        self._chance = random.Random(seed)
        self.stop = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self.known = {0}  # numbers that may be there
        self.unknown: set[int] = set()  # and may come later than others
        self._number = 0
        self.last = 0  # that is known to have been written
        self.is_strict = True  # nothing acknowledged is lost
        self.problem: str | None = None

    def run(self) -> None:
        while not self.stop.is_set() and self.problem is None:
            node = self._cluster[self._chance.choice(sorted(self._cluster.nodes))]
            try:
                with node.connect() as connection:
                    if self._chance.random() < 0.3:  # some end in the middle
                        limit = self._chance.choice((50, 200))
                        connection.execute(f"SET statement_timeout = {limit}")
                    with self._gate.writing(node.name) as may_write:
                        if may_write:
                            self._write(connection)
                    connection.execute("RESET statement_timeout")
                    self._read(connection)
            except (psycopg.Error, OSError):
                time.sleep(0.05)
            time.sleep(PAUSE_S * self._chance.random())

    def _write(self, connection: psycopg.Connection[object]) -> None:
        self._number += 1
        self.known.add(self._number)
        try:
            connection.execute(f"UPDATE wide SET n = {self._number}")
        except psycopg.Error as problem:
            outcome = outcome_of(problem)
            self.outcomes[outcome] += 1
            if outcome == "refused":
                self.known.remove(self._number)
            else:
                self.unknown.add(self._number)
            return
        self.outcomes["done"] += 1
        self.last = self._number

    def _read(self, connection: psycopg.Connection[object]) -> None:
        last = self.last if self.is_strict else 0
        rows: Sequence[tuple[int, int]] = connection.execute(NUMBERS).fetchall()  # type: ignore[assignment]
        self.problem = why_wrong(rows, self.known, self.unknown, last)
        self.outcomes["read"] += 1


def why_wrong(
    rows: Sequence[tuple[int, int]], known: set[int], unknown: set[int], last: int
) -> str | None:
    """`rows`: each number that was found, and how often. `last`: at least that one was written."""
    if len(rows) != 1 or rows[0][1] != ROWS:
        return f"half of a statement is there: {rows}"
    if rows[0][0] not in known:
        return f"{rows[0][0]} was never written, or refused"
    if rows[0][0] < last and rows[0][0] not in unknown:
        return f"{last} was written and is gone: {rows[0][0]}"
    return None
