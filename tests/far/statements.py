"""How many round trips a statement of each kind costs, asked of one instance next to the client."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from statistics import median
from typing import Any

import psycopg

from tests.cluster.harness import Cluster

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, n INT, s TEXT) DISTRIBUTED BY (id)",
    "CREATE TABLE u (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)",
    "CREATE TABLE g (id INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY",
    "CREATE TABLE o (id INT PRIMARY KEY, n INT) DISTRIBUTED BY ()",
    "CREATE SEQUENCE numbers",
    "INSERT INTO t SELECT x, x % 10, 's' FROM generate_series(1, 2000) AS x (x)",
    "INSERT INTO u SELECT x, x % 10 FROM generate_series(1, 2000) AS x (x)",
    "INSERT INTO g SELECT x, x % 10 FROM generate_series(1, 50) AS x (x)",
    "INSERT INTO o SELECT x, x % 10 FROM generate_series(1, 50) AS x (x)",
)
FRESH = count(1_000_000)
MANY = ",".join(f"({at}, 1)" for at in range(5_000, 5_040))

Work = Callable[[psycopg.Connection[Any], int], None]


def texts(*asked: str, who: str = "") -> Work:
    def work(connection: psycopg.Connection[Any], at: int) -> None:
        for text in asked:
            connection.execute(text.format(n=at, who=who).encode())

    return work


def copy_in(connection: psycopg.Connection[Any], at: int) -> None:
    with connection.cursor().copy("COPY u (id, n) FROM STDIN") as copy:
        for _ in range(20_000):
            copy.write_row((next(FRESH), 1))


def copy_out(connection: psycopg.Connection[Any], at: int) -> None:
    with connection.cursor().copy("COPY t TO STDOUT") as copy:
        for _ in copy:
            pass


def kinds(own: int, other: int, who: str) -> dict[str, Work]:
    """`own` and `other`: keys whose rows this instance is the master of, and is not."""
    made: dict[str, Work] = {}
    if own:
        made["read, own row"] = texts(f"SELECT n FROM t WHERE id = {own}")
        made["write, own row"] = texts(f"UPDATE t SET n = n + 1 WHERE id = {own}")
    if other:
        made["read by key, a row of another"] = texts(f"SELECT n FROM t WHERE id = {other}")
        made["write by key, a row of another"] = texts(f"UPDATE t SET n = n + 1 WHERE id = {other}")
        made["block of three writes of another"] = texts(
            "BEGIN", *[f"UPDATE t SET n = n + 1 WHERE id = {other}"] * 3, "COMMIT"
        )
        made["block of two reads and a write"] = texts(
            "BEGIN",
            *[f"SELECT n FROM t WHERE id = {other}"] * 2,
            f"UPDATE t SET n = n + 1 WHERE id = {other}",
            "COMMIT",
        )
        made["the same block in one message"] = texts(
            f"BEGIN; SELECT n FROM t WHERE id = {other}; "
            f"UPDATE t SET n = n + 1 WHERE id = {other}; COMMIT"
        )
        made["DO of two writes"] = texts(
            f"DO $$ BEGIN UPDATE t SET n = n + 1 WHERE id = {other}; "
            f"UPDATE t SET n = n + 1 WHERE id = {other}; END $$"
        )
    return made | {
        "read of all owners": texts("SELECT count(*), sum(n) FROM t"),
        "join by the key": texts("SELECT count(*) FROM t JOIN u ON t.id = u.id"),
        "join by another column": texts("SELECT count(*) FROM t JOIN u ON t.id = u.n"),
        "insert of 40 rows, all owners": texts(
            "DELETE FROM u WHERE id >= 5000 AND id < 6000", f"INSERT INTO u VALUES {MANY}"
        ),
        "update of all owners": texts("UPDATE u SET n = n + 1"),
        "read, rows that lie together": texts("SELECT count(*) FROM o"),
        "read, global table": texts("SELECT count(*) FROM g"),
        "write, global table": texts("UPDATE g SET n = n + 1 WHERE id = 7"),
        "nextval": texts("SELECT nextval('numbers')"),
        "CREATE TABLE": texts(
            "CREATE TABLE made_{who}_{n} (id INT PRIMARY KEY) DISTRIBUTED BY (id)", who=who
        ),
        "CREATE INDEX": texts("CREATE INDEX ix{n} ON made_{who}_{n} (id)", who=who),
        "ALTER TABLE": texts("ALTER TABLE made_{who}_{n} ADD COLUMN x INT", who=who),
        "TRUNCATE": texts("TRUNCATE made_{who}_{n}", who=who),
        "DROP TABLE": texts("DROP TABLE made_{who}_{n}", who=who),
        "COPY in, 20,000 rows": copy_in,
        "COPY out, 2,000 rows": copy_out,
    }


def measure(cluster: Cluster, name: str, times: int) -> dict[str, float]:
    """Seconds of each kind, the middle one; the first try is not counted."""
    node, found = cluster[name], {}
    own, other = keys(cluster, name)
    with node.connect() as connection:
        for kind, work in kinds(own, other, name).items():
            took = []
            for at in range(times + 1):
                begun = time.monotonic()
                work(connection, at)
                took.append(time.monotonic() - begun)
            found[kind] = median(took[1:])
    begun = time.monotonic()
    node.sql("SELECT 1")
    return {"connect": time.monotonic() - begun, **found}


def keys(cluster: Cluster, name: str) -> tuple[int, int]:
    """A row whose master is this instance, and one whose master is another; 0: there is none."""
    masters = {each["name"]: each["master"] for each in cluster[name].status()["replicasets"]}
    mine = [rs for rs, master in masters.items() if master == name]
    with cluster[name].connect() as connection:
        owner = {
            bucket: row[0]
            for row in connection.execute(
                "SELECT current_replicaset_name, bucket_id_start, bucket_id_end FROM _pico_bucket"
            )
            for bucket in range(row[1], row[2] + 1)
        }
        rows = connection.execute("SELECT id, bucket_id FROM t WHERE id <= 50").fetchall()
    own = [key for key, bucket in rows if owner[bucket] in mine]
    other = [key for key, bucket in rows if owner[bucket] not in mine]
    return (own or [0])[0], (other or [0])[0]
