"""How quickly the governor's queue runs a thousand small migrations, and what each of them takes.

`python bench/migrations.py [global] [sharded] [setting] [noop] [table]` runs the named kinds, or
all of them, on a demo of 3 instances: operations per second from the insert to the last status,
with the governor's steps and the Raft entries of one operation. COUNT=1000 operations of a kind;
tables take two phases and are a tenth of it.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any

import apsw
import psycopg

import cairn
from cluster import Demo

COUNT = int(os.environ.get("COUNT", "1000"))
PORT = 23_400
LIMIT_S = 600.0

#: kind → a statement with its number, and how many of them
KINDS: dict[str, tuple[str, int]] = {
    "global": ("UPDATE g SET n = n + 1 WHERE k = 1", COUNT),
    "sharded": ("UPDATE s SET n = n + 1 WHERE k = {at}", COUNT),
    "setting": ("ALTER SYSTEM SET sql_motion_row_max = {at}", COUNT),
    "noop": ("CREATE TABLE IF NOT EXISTS g (k INT PRIMARY KEY) DISTRIBUTED GLOBALLY", COUNT),
    "table": ("CREATE TABLE t{at} (k INT PRIMARY KEY) DISTRIBUTED BY (k)", COUNT // 10),
}
_INSERT = (
    "INSERT INTO _pico_governor_queue "
    "(id, batch_id, op, op_format, status, kind, description) VALUES "
)


def position(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """Applied entries, and steps that the governor has done."""
    [(status,)] = connection.execute("CALL cairn_status()").fetchall()
    return int(status["raft"]["index"]), int(status["governor"]["steps_done"])


def run(connection: psycopg.Connection[Any], name: str, first: int) -> int:
    statement, count = KINDS[name]
    rows = ", ".join(
        f"({first + at}, '{name}', '{statement.format(at=at + 1)}', 'sql', 'pending', 'custom', '')"
        for at in range(count)
    )
    entries, steps = position(connection)
    begun = time.monotonic()
    connection.execute(_INSERT + rows)  # type: ignore[call-overload]
    left = f"SELECT count(*) FROM _pico_governor_queue WHERE status <> 'done' AND id >= {first}"
    while connection.execute(left).fetchall() != [(0,)]:  # type: ignore[call-overload]
        if time.monotonic() - begun > LIMIT_S:
            raise SystemExit(f"{name}: not done within {LIMIT_S:g} s; see `cairn migrate status`")
        time.sleep(0.05)
    took_s = time.monotonic() - begun
    time.sleep(1.5)  # an idle governor tells its steps
    entries_after, steps_after = position(connection)
    print(
        f"{name:8} {count:5} operations in {took_s:6.2f} s: {count / took_s:6.0f} ops/s, "
        f"{(entries_after - entries - 1) / count:.2f} entries and "
        f"{(steps_after - steps) / count:.2f} governor steps each"
    )
    return first + count


def main() -> None:
    print(
        f"queue: {platform.node()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, cairn {cairn.__version__}, "
        f"SQLite {apsw.sqlite_lib_version()}, load {os.getloadavg()[0]:.1f}"
    )
    print("command: python " + " ".join(sys.argv))
    demo = Demo(3, 1, PORT)
    try:
        name = demo.leader("i1")
        [dsn] = [each["dsn"] for each in demo.facts["instances"] if each["name"] == name]
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
            connection.execute("CREATE TABLE g (k INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY")
            connection.execute("CREATE TABLE s (k INT PRIMARY KEY, n INT) DISTRIBUTED BY (k)")
            connection.execute("INSERT INTO g VALUES (1, 0)")
            first = 10_000
            for kind in sys.argv[1:] or list(KINDS):
                first = run(connection, kind, first)
    finally:
        demo.close()


if __name__ == "__main__":
    main()
