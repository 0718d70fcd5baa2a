"""What the checksum of pages costs, beside the ways that were turned down; ratios of one run.

    python bench/checksums.py [DIRECTORY]

Each way gets a file of its own in DIRECTORY (a temporary one if none is given). Rounds of all ways
follow each other, so that a busy machine is busy for all of them; medians are compared.
"""

from __future__ import annotations

import hashlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from cairn.storage.files.checksums import IS_LOADED

ROWS, ROUNDS = 200_000, 7
READS, WRITES, BULK = 10_000, 300, 20_000
TABLE = (
    "CREATE TABLE t (b INTEGER NOT NULL, k INTEGER NOT NULL, v TEXT, w TEXT, h BLOB, "
    "PRIMARY KEY (b, k)) STRICT, WITHOUT ROWID"
)


class Way:
    def __init__(self, name: str, path: Path, vfs: str, with_hash: bool) -> None:
        self.name, self.with_hash, self.next = name, with_hash, ROWS
        self.writer = apsw.Connection(str(path), vfs=vfs)
        if vfs != "unix":
            self.writer.reserve_bytes("main", 8)
        self.writer.pragma("journal_mode", "wal")
        self.writer.pragma("cache_size", -64_000)
        self.writer.execute(TABLE)
        self.reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
        self.reader.pragma("cache_size", -32_000)
        self.cold = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
        self.cold.pragma("cache_size", -200)
        self.load(range(ROWS))

    def row(self, key: int, text: str = "x" * 40) -> tuple[Any, ...]:
        row = (key % 3000, key, text, "y" * 30)
        return (*row, _hash(row)) if self.with_hash else (*row, None)

    def load(self, keys: range) -> None:
        with self.writer:
            insert = "INSERT INTO t VALUES (?, ?, ?, ?, ?)"
            self.writer.executemany(insert, map(self.row, keys))

    # --- what is measured -----------------------------------------------------------------------

    def read(self, connection: apsw.Connection, keys: list[int]) -> None:
        sql = "SELECT b, k, v, w, h FROM t WHERE b = ? AND k = ?"
        for key in keys:
            row: Any = connection.execute(sql, (key % 3000, key)).fetchone()
            if self.with_hash:
                assert _hash(row[:4]) == row[4]

    def write(self, keys: list[int]) -> None:
        for at, key in enumerate(keys):
            row = self.row(key, f"{at:040d}")
            sql = "UPDATE t SET v = ?, h = ? WHERE b = ? AND k = ?"
            with self.writer:
                self.writer.execute(sql, (row[2], row[4], row[0], row[1]))

    def bulk(self) -> None:
        self.load(range(self.next, self.next + BULK))
        self.next += BULK
        self.writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _hash(row: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(repr(row).encode(), digest_size=8).digest()


def main() -> None:
    assert IS_LOADED
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        ways = [
            Way("nothing", Path(directory) / "plain.db", "unix", False),
            Way("checksum of a page", Path(directory) / "pages.db", "cksmvfs", False),
            Way("hash in a row", Path(directory) / "rows.db", "unix", True),
        ]
        chance = random.Random(1)
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(ROUNDS):
            keys = [chance.randrange(ROWS) for _ in range(READS)]
            steps: list[tuple[str, int, Callable[[Way], None]]] = [
                ("point read", READS, lambda way, k=keys: way.read(way.reader, k)),
                ("point read, small cache", READS, lambda way, k=keys: way.read(way.cold, k)),
                ("point write", WRITES, lambda way, k=keys: way.write(k[:WRITES])),
                ("bulk, a row", BULK, Way.bulk),
            ]
            for step, count, run in steps:
                for way in ways:
                    begun = time.perf_counter()
                    run(way)
                    took = (time.perf_counter() - begun) / count * 1e6
                    found.setdefault((step, way.name), []).append(took)
        print(f"{'µs, median of ' + str(ROUNDS):28}" + "".join(f"{way.name:>28}" for way in ways))
        for step in dict.fromkeys(step for step, _ in found):
            first = statistics.median(found[step, ways[0].name])
            cells = [statistics.median(found[step, way.name]) for way in ways]
            print(f"{step:28}" + "".join(f"{x:20.2f} ({x / first:.2f})" for x in cells))


if __name__ == "__main__":
    main()
