"""Clients of the recorded run: each appends to rows of its own and remembers what it was told.

A row is a list: `UPDATE t SET n = n + 1, told = told || ' 17'`. What was lost, done twice or
done in another order is seen in the list itself. A statement without an answer may be in it or not.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import CairnError

APPEND = "UPDATE t SET n = n + 1, told = told || ' {}' WHERE id = {}"
READ = "SELECT told FROM t WHERE id = {}"
Execute = Callable[[str], list[Any]]


NOT_DONE = "57P03"  # told instead of an answer by an instance that ends


class Failed(Exception):
    """A statement that was answered with an error; `state` is "" when nobody answered."""

    def __init__(self, state: str, words: str, *, is_last: bool = False) -> None:
        super().__init__(f"{state} {words.strip()}")
        self.state, self.is_last = state, is_last  # the connection ended with it


@dataclass
class List:
    """One row as its client knows it: the numbers that were told done, and those that may be."""

    done: list[int] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)

    def wrong(self, text: str | None) -> str:
        found = [int(word) for word in (text or "").split()]
        without = [number for number in found if number not in self.unknown]
        if without != self.done or len(set(found)) != len(found):
            return f"{found[-8:]} instead of {self.done[-8:]}, unknown {sorted(self.unknown)}"
        return "" if found == sorted(found) else f"{found[-8:]} is out of order"


class Client(threading.Thread):
    """Appends and reads in turn. `connect` gives something that executes; it may be lost."""

    def __init__(self, name: str, keys: list[int], connect: Callable[[], Any], seed: int) -> None:
        super().__init__(daemon=True, name=name)
        self.rows = {key: List() for key in keys}
        self.seen: list[tuple[float, float]] = []  # when it ended, how long it took
        self.failed: list[tuple[float, str]] = []
        self.lost: list[tuple[float, str]] = []  # on their way to somebody who was killed
        self.goodbyes: list[tuple[float, str]] = []  # from instances that left: asked elsewhere
        self.wrong: list[str] = []
        self._connect, self._chance = connect, random.Random(seed)
        self.ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            try:
                with self._connect() as execute:
                    while not self.ending.is_set():
                        number += 1
                        self._one(execute, self._chance.choice([*self.rows]), number)
            except (Failed, psycopg.Error, CairnError, OSError):
                time.sleep(0.05)  # nobody listens there yet, or no more

    def _one(self, execute: Execute, key: int, number: int) -> None:
        row = self.rows[key]
        row.unknown.add(number)
        if self._timed(execute, APPEND.format(number, key), lambda: row.unknown.discard(number)):
            row.unknown.discard(number)
            row.done.append(number)
        found = self._timed(execute, READ.format(key), lambda: None)
        if found and (wrong := row.wrong(found[0][0])):
            self.wrong.append(f"key {key}: {wrong}")

    def _timed(self, execute: Execute, sql: str, certainly_not: Callable[[], None]) -> Any:
        begun = time.monotonic()
        try:
            answer = execute(sql) or True
        except Failed as problem:
            now = time.monotonic()
            if problem.is_last and problem.state == NOT_DONE:
                self.goodbyes.append((now, str(problem)))
                certainly_not()
            elif problem.state in ("", "40003") or problem.state.startswith(
                "08"
            ):  # nobody can know: a process was killed meanwhile
                self.lost.append((now, str(problem)))
            else:
                self.failed.append((now, str(problem)))
                certainly_not()
            if problem.is_last:
                raise
            return None
        now = time.monotonic()
        self.seen.append((now, now - begun))
        return answer


def plain(ports: list[int], password: str) -> Callable[[], Any]:
    """psycopg with a list of hosts, as libpq has it: the next one when one is gone."""
    words = {
        "host": ",".join("127.0.0.1" for _ in ports),
        "port": ",".join(map(str, ports)),
        "user": "admin",
        "password": password,
        "dbname": "cairn",
    }

    @contextmanager
    def connect() -> Iterator[Execute]:
        with psycopg.connect(**words, connect_timeout=3, autocommit=True) as connection:  # type: ignore[arg-type]

            def execute(sql: str) -> list[Any]:
                try:
                    cursor = connection.execute(sql)
                    return cursor.fetchall() if cursor.description else []
                except psycopg.Error as problem:
                    state, ended = problem.sqlstate or "", bool(connection.closed)
                    raise Failed(state, str(problem), is_last=ended or not state) from None

            yield execute

    return connect


def smart(dsn: str) -> Callable[[], Any]:
    """Our own driver: it follows the topology by itself and never has to be opened again."""

    @contextmanager
    def connect() -> Iterator[Execute]:
        with SyncPool(parse_dsn(dsn)).open() as pool:

            def execute(sql: str) -> list[Any]:
                try:
                    return pool.fetch(sql)
                except CairnError as problem:
                    raise Failed(problem.sqlstate, str(problem)) from None

            yield execute

    return connect
