"""Staged writes as Spark makes them, without Spark: each is there whole, once, or not at all.

A driver keeps chunks aside, decides, promotes. When it is told an error it begins anew under the
same id, as a job that is started again does, or another driver goes on beside it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from typing import Any

import pyarrow as pa

from cairn.client import CairnError
from cairn.spark import cluster as drivers
from cairn.spark import tables
from cairn.spark.writes import staging
from cairn.spark.writes.splitting import Splitter, to_stream
from tests.cluster.harness import PASSWORD, Cluster

ADDED, REPLACED = "staged_added", "staged_replaced"
CREATE = tuple(
    f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT) DISTRIBUTED BY (id)"
    for name in (ADDED, REPLACED)
)
PARTS, ROWS = 3, 100  # of a write: tasks, and rows of each
TRIES = 12


class StagedWriter(threading.Thread):
    """One write after another; `ended` says of each what its driver knows."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(daemon=True)
        self._chance = random.Random(seed)
        addresses = ",".join(f"127.0.0.1:{node.pg_port}" for node in cluster.nodes.values())
        self._dsn = f"postgresql://admin:{PASSWORD}@{addresses}/cairn"
        self.stop = threading.Event()
        self.ended: dict[int, bool] = {}  # number of a write → whether it is known to be done
        self.failed: BaseException | None = None
        self.problems: Counter[str] = Counter()

    def run(self) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                number += 1
                self.ended[number] = self._write(number)
        except BaseException as problem:
            self.failed = problem

    def _write(self, number: int) -> bool:
        """Until it is known to be done, or nobody tries any more."""
        for _ in range(TRIES):
            try:
                if self._chance.random() < 0.2:
                    beside = threading.Thread(target=self._attempt_in_vain, args=(number,))
                    beside.start()
                    try:
                        self._attempt(number)
                    finally:
                        beside.join(120.0)
                else:
                    self._attempt(number)
                return True
            except (CairnError, OSError) as problem:
                code = getattr(problem, "sqlstate", None)
                self.problems[f"staged {code or type(problem).__name__}"] += 1
                time.sleep(0.2)
            if self.stop.is_set():
                return False
        return False

    def _attempt_in_vain(self, number: int) -> None:
        with contextlib.suppress(CairnError, OSError):
            self._attempt(number)

    def _attempt(self, number: int) -> None:
        dsn, table = self._dsn, REPLACED if number % 3 == 0 else ADDED
        write_id = f"chaos-{number}"
        if staging.prepare(dsn, write_id):
            return
        info = tables.describe(dsn, table)
        assert info.tier is not None
        owners = drivers.owners(dsn, info.tier)
        slots = staging.slots(owners, info)
        chunks: list[Any] = []
        for part in range(PARTS):
            first = (0 if table == REPLACED else number * PARTS * ROWS) + part * ROWS
            keys = pa.array(range(first, first + ROWS), pa.int64())
            batch = pa.record_batch({"id": keys, "word": pa.array([f"w{number}"] * ROWS)})
            task = staging.Task(dsn, write_id, part)
            chunks += [
                task.keep(slots[at], to_stream(piece, "zstd"), piece.num_rows)
                for at, piece in Splitter(info, owners).chunks(batch, staging.CHUNK_ROWS)
            ]
        manifest = staging.Manifest(
            table, ("id", "word"), "error", table == REPLACED, tuple(chunks)
        )
        staging.commit(dsn, write_id, manifest)


def why_wrong(ended: dict[int, bool], added: list[Any], replaced: list[Any]) -> str | None:
    """`added` and `replaced` are (word, how many rows) of each table, at the end."""
    whole = PARTS * ROWS
    for word, count in (*added, *replaced):
        if count != whole:
            return f"{count} of {whole} rows of {word} are there"
    have = {word for word, _ in added}
    for number, is_done in ended.items():
        if number % 3 and is_done and f"w{number}" not in have:
            return f"w{number} was done and is gone"
    if have - {f"w{number}" for number in ended if number % 3}:
        return f"never written: {sorted(have)[-3:]}"
    last = max((number for number in ended if number % 3 == 0 and ended[number]), default=0)
    words = [int(word[1:]) for word, _ in replaced]
    if len(words) > 1 or (last and not words) or any(word < last for word in words):
        return f"w{last} replaced all rows, and there is {words}"
    return None
