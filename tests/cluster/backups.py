"""For tests of backups: the command, a load whose order shows, and what a backup has in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from cairn.cli.copies.rows import Rows, global_rows, pictures, rows_of
from tests.cluster.harness import PASSWORD, Cluster, Node

CHAINS = 8
_AGAIN = ("40003", "PC003")  # a busy machine: a lease was lost for a moment


def command(node: Node, *words: str, user: str = "admin") -> list[str]:
    dsn = f"postgresql://{user}:{PASSWORD}@127.0.0.1:{node.pg_port}/cairn"
    return [sys.executable, "-m", "cairn.cli.main", *words, "--dsn", dsn]


def cairn(node: Node, *words: str, user: str = "admin") -> tuple[int, str]:
    done = subprocess.run(
        command(node, *words, user=user), capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def backed_up(node: Node, folder: Path, *more: str) -> Path:
    done = subprocess.run(
        command(node, "backup", str(folder), "--json", *more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["directory"])


# --- a load that does not commute ----------------------------------------------------------------


class Chain(threading.Thread):
    """Writes its next number to a sharded row, a global row, another sharded row, and a list.

    Each is written when the one before was acknowledged: so in every moment of the cluster
    a ≥ g ≥ b ≥ the list's length ≥ a - 1.
    """

    def __init__(self, node: Node, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._node, self._stopped = node, stop
        self.number = number
        self.issued = self.acked = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with self._node.connect() as connection:
                while not self._stopped.is_set():
                    self._round(connection)
        except (psycopg.Error, AssertionError) as problem:
            self.problem = problem

    def _round(self, connection: psycopg.Connection[Any]) -> None:
        at, me = self.issued + 1, self.number
        self.issued = at
        first, second = 2 * me, 2 * me + 1
        _write(connection, "UPDATE steps SET at = %s WHERE k = %s", (at, first))
        _write(connection, "UPDATE facts SET at = %s WHERE k = %s", (at, me))
        _write(connection, "UPDATE steps SET at = %s WHERE k = %s", (at, second))
        append = "UPDATE lists SET v = v || %s, n = %s WHERE k = %s AND n = %s"
        _write(connection, append, (f"{at},", at, me, at - 1))
        self.acked = at


def _write(connection: psycopg.Connection[Any], text: str, params: tuple[Any, ...]) -> None:
    """Again when nobody can tell whether it was done: each may be done twice."""
    for _ in range(30):
        try:
            connection.execute(text, params)
            return
        except psycopg.Error as problem:
            if problem.sqlstate not in _AGAIN:
                raise
        time.sleep(0.1)
    raise AssertionError(f"not done for long: {text}")


@contextmanager
def chains(cluster: Cluster, *names: str) -> Iterator[list[Chain]]:
    """Runs until the end of the block; each chain begins with rows that are there already."""
    stop = threading.Event()
    found = [Chain(cluster[names[n % len(names)]], n, stop) for n in range(CHAINS)]
    for chain in found:
        chain.start()
    try:
        yield found
    finally:
        stop.set()
        for chain in found:
            chain.join(30)
    assert [chain.problem for chain in found] == [None] * CHAINS


@contextmanager
def long_statements(node: Node) -> Iterator[None]:
    """One after the other, at the one master that has this bucket; each changes one row."""
    node.sql("CREATE TABLE heavy (k INT, v INT, p INT, PRIMARY KEY (p, k)) DISTRIBUTED BY (p)")
    node.sql("INSERT INTO heavy VALUES " + ", ".join(f"({n}, 0, 1)" for n in range(2000)))
    stop = threading.Event()

    def work() -> None:
        with node.connect() as connection:
            while not stop.wait(0.01):
                _write(
                    connection,
                    "UPDATE heavy SET v = v + 1 "
                    "WHERE p = 1 AND length(repeat('x', 200000 + k)) = %s",
                    (200_000,),
                )

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def prepare(node: Node) -> None:
    node.sql("CREATE TABLE steps (k INT PRIMARY KEY, at INT)")
    node.sql("CREATE TABLE lists (k INT PRIMARY KEY, v TEXT, n INT)")
    node.sql("CREATE TABLE facts (k INT PRIMARY KEY, at INT) DISTRIBUTED GLOBALLY")
    for n in range(2 * CHAINS):
        node.sql("INSERT INTO steps VALUES (%s, 0)", (n,))
    for n in range(CHAINS):
        node.sql("INSERT INTO lists VALUES (%s, '', 0)", (n,))
        node.sql("INSERT INTO facts VALUES (%s, 0)", (n,))


def check_chains(content: dict[str, dict[Any, Any]], low: list[int], high: list[int]) -> None:
    """What was acknowledged before is there, nothing that began later, and all in its order."""
    for n in range(CHAINS):
        a, b = content["steps"][2 * n], content["steps"][2 * n + 1]
        listed = [int(word) for word in content["lists"][n].split(",") if word]
        fact, numbers = content["facts"][n], range(1, len(listed) + 1)
        seen = f"chain {n}: a {a}, fact {fact}, b {b}, listed {listed[-3:]}, {low[n]}…{high[n]}"
        assert listed == list(numbers), seen
        assert high[n] >= a >= fact >= b >= len(listed) >= a - 1, seen
        assert len(listed) >= low[n], seen


# --- what is in a backup -------------------------------------------------------------------------


def content_of(backup: Path) -> dict[str, dict[Any, Any]]:
    """table → first column → second column, read from the files; a key twice is a failure."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = Rows(backup, None, Path(scratch))
        dumped = global_rows(rows.directory, rows.manifest)
        catalog, _ = pictures(dumped)
        found: dict[str, dict[Any, Any]] = {}
        for table in catalog.tables.values():
            if table.is_system:
                continue
            if table.is_global:
                found[table.name] = {row[0]: row[1] for row in dumped.get(table.id, [])}
                continue
            here = found[table.name] = {}
            for part in rows.manifest.parts:
                for block in rows_of(rows.file(part), table, part, 1000):
                    for row in block:
                        assert row[1] not in here, f"{table.name} {row[1]} is there twice"
                        here[row[1]] = row[2]
        return found


def content_at(node: Node, *tables: str) -> dict[str, dict[Any, Any]]:
    return {name: {row[0]: row[1] for row in node.sql(f"SELECT * FROM {name}")} for name in tables}


def is_quiet_folder(folder: Path) -> bool:
    """Nothing by half: no name with a dot but the lock."""
    return [name for name in os.listdir(folder) if name.startswith(".")] == [".lock"]
