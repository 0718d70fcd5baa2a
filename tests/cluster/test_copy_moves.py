"""A COPY … TO that has begun ends with every row once, though its buckets move meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
ROWS = 100_000


def load(cluster: Cluster) -> None:
    first = cluster["i1"]
    first.sql("CREATE TABLE t (id INT PRIMARY KEY, f TEXT) DISTRIBUTED BY (id)")
    first.sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    first.sql("ALTER SYSTEM SET rebalance_rows_per_s = 0")
    with first.connect() as connection:
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for start in range(0, ROWS, 1000):
                copy.write("".join(f"{key}\t{'x' * 500}\n" for key in range(start, start + 1000)))
        connection.commit()


def drain(cluster: Cluster, instance: str) -> None:
    """Its old rows are gone when this returns."""
    first = cluster["i1"]
    [(name,)] = first.sql(f"SELECT replicaset_name FROM _pico_instance WHERE name = '{instance}'")
    first.sql(f"CALL cairn_rebalance('drain', '{name}')")

    def is_empty() -> bool:
        buckets = {row["name"]: row["buckets"] for row in first.status()["replicasets"]}
        return buckets[name] == 0 and not first.sql("CALL cairn_rebalance()")[0][0]["moves"]

    eventually(is_empty, "the buckets to move", 60.0)


def test_what_was_begun_is_told_to_its_end(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path).start("i1", "i2")
    try:
        load(cluster)
        told: list[list[bytes]] = []
        with ExitStack() as opened:
            begun = []
            for question in ("t", "(SELECT * FROM t WHERE id >= 0)"):
                text: Any = f"COPY {question} TO STDOUT"
                connection = opened.enter_context(cluster["i1"].connect())
                begun.append(opened.enter_context(connection.cursor().copy(text)))
                told.append([bytes(begun[-1].read())])
            drain(cluster, "i1")  # whoever was asked gives all it has away
            for pieces, copy in zip(told, begun, strict=True):
                pieces += [bytes(piece) for piece in copy]
        for pieces in told:
            keys = [int(line.split(b"\t")[0]) for line in b"".join(pieces).splitlines()]
            assert sorted(keys) == list(range(ROWS))
    finally:
        cluster.close()
