"""Pages and ranges by the primary key: one and two replicasets against PostgreSQL 15.

    ROWS=1000000 ROUNDS=20 python bench/sql_pages.py

`t` has a number without gaps as its key, `s` a text. Medians of paired rounds; answers are
compared. Ratios: above 1 we are quicker.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from typing import Any

import psycopg
from postgres import Postgres
from sql_more import Demo

ROUNDS = int(os.environ.get("ROUNDS", "20"))
ROWS = int(os.environ.get("ROWS", "1000000"))
READS = {
    "next page": "SELECT * FROM t WHERE id > $1 ORDER BY id LIMIT 10",
    "page before": "SELECT * FROM t WHERE id < $1 ORDER BY id DESC LIMIT 10",
    "first page": "SELECT * FROM t ORDER BY id LIMIT 10",
    "next page, filtered": "SELECT * FROM t WHERE id > $1 AND v > 500 ORDER BY id LIMIT 10",
    "100 keys": "SELECT count(*) FROM t WHERE id BETWEEN $1 AND $1 + 99",
    "5,000 keys": "SELECT count(*) FROM t WHERE id BETWEEN $1 AND $2",
    "max(id)": "SELECT max(id) FROM t",
    "next page of texts": "SELECT * FROM s WHERE id > $1 ORDER BY id LIMIT 10",
    "last page of texts": "SELECT * FROM s ORDER BY id DESC LIMIT 10",
    "range of texts": "SELECT count(*) FROM s WHERE id BETWEEN $1 AND $2",
    "point": "SELECT * FROM t WHERE id = $1",
}


def given(text: str, dice: random.Random) -> list[Any]:
    at = dice.randrange(ROWS - 10_000)
    if " s " in text:
        return [f"{at:08}", f"{at + 100:08}"][: text.count("$")]
    return [at, at + 4_999][: 2 if "$2" in text else int("$1" in text)]


def asked(connection: psycopg.Connection[Any], text: str, values: list[Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    rows = psycopg.RawCursor(connection).execute(text.encode(), values, prepare=True).fetchall()
    return time.perf_counter() - begun, rows


def filled(dsn: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(dsn, autocommit=True)
    for name, key in (("t", "BIGINT"), ("s", 'TEXT COLLATE "C"' if "cairn" not in dsn else "TEXT")):
        connection.execute(f"CREATE TABLE {name} (id {key} PRIMARY KEY, v INT, f TEXT)".encode())
        with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
            for at in range(ROWS):
                shown = at if name == "t" else f"{at * 7919 % ROWS:08}"
                copy.write(f"{shown}\t{at % 1000}\tfiller of row {at}\n")
    return connection


def main() -> None:
    peer = Postgres()
    print(f"{platform.platform()}, {peer.version()}, {ROWS} rows, load {os.getloadavg()[0]:.1f}\n")
    try:
        with filled(peer.dsn()) as theirs:
            theirs.execute("VACUUM ANALYZE")
            for replicasets in (1, 2):
                demo = Demo(replicasets)
                try:
                    with filled(demo.dsn()) as ours:
                        compare(ours, theirs, replicasets)
                finally:
                    demo.stop()
    finally:
        peer.stop()


def compare(ours: Any, theirs: Any, replicasets: int) -> None:
    for name, text in READS.items():
        dice, took = random.Random(name), ([], [])  # type: tuple[list[float], list[float]]
        for turn in range(ROUNDS + 3):
            values = given(text, dice)
            (mine, my_rows), (its, its_rows) = (
                asked(each, text, values) for each in (ours, theirs)
            )
            assert my_rows == its_rows, (name, values, my_rows, its_rows)
            if turn >= 3:  # the first ones are to warm up
                took[0].append(mine)
                took[1].append(its)
        mine, its = map(statistics.median, took)
        print(
            f"{replicasets} replicasets: {name:22} {its / mine:5.2f}×  {mine * 1000:8.2f} ms,"
            f" PostgreSQL {its * 1000:8.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
