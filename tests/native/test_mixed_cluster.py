"""Instances with the compiled part and without it are one cluster: rows are the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.native.library import library
from tests.cluster.harness import Cluster, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(library() is None, reason="there was no compiler"),
]

LINES = "".join(
    f"{key}\tvalue {key}\t{key / 8}\t{'t' if key % 3 else 'f'}\n" for key in range(5_000)
)
SUM = "SELECT count(*), sum(id), sum(d), sum(length(s)) FROM {}"


def test_rows_copied_by_each_reach_all_of_them(tmp_path: Path) -> None:
    """Two replicasets of two: every pair of asker, owner and replica with and without it."""
    cluster = Cluster(tmp_path, "mixed", "--init-replication-factor", "2")
    try:
        names = ("i1", "i2", "i3", "i4")
        cluster.peers = ",".join(cluster.add(name).peer for name in names)
        for name, native in zip(names, ("on", "off", "off", "on"), strict=True):
            cluster[name].start(CAIRN_NATIVE=native)
        cluster.wait_online(*names)
        query = "SELECT DISTINCT current_replicaset_name FROM _pico_bucket"
        eventually(lambda: len(cluster["i1"].sql(query)) == 2, "buckets in both replicasets")
        cluster["i1"].sql(
            "CREATE TABLE t (by TEXT, id INTEGER, s TEXT, d DOUBLE, b BOOLEAN, "
            "PRIMARY KEY (by, id)) DISTRIBUTED BY (by, id)"
        )
        for name in names:
            with cluster[name].connect() as connection, connection.cursor() as cursor:
                text = "COPY t (id, s, d, b, by) FROM STDIN"
                with cursor.copy(text) as copy:
                    copy.write(LINES.replace("\n", f"\t{name}\n"))
                assert cursor.rowcount == 5_000
        total = (
            20_000,
            4 * 12_497_500,
            4 * 12_497_500 / 8,
            4 * sum(len(f"value {key}") for key in range(5_000)),
        )
        told = [cluster[name].sql(SUM.format("t")) for name in names]
        assert [[*map(float, row)] for [row] in told] == [[*map(float, total)]] * 4
        replicas = SUM.format("t") + " OPTION (read_preference = replica)"

        def replicas_have_all() -> bool:
            return all(
                [*map(float, cluster[name].sql(replicas)[0])] == [*map(float, total)]
                for name in names
            )

        eventually(replicas_have_all, "rows of all replicas")
        with (
            cluster["i2"].connect() as connection,
            connection.cursor() as cursor,
            pytest.raises(Exception, match=r"\(by, id\)=\(i1, 7\)"),
            cursor.copy("COPY t (by, id) FROM STDIN") as copy,
        ):
            copy.write("new\t1\ni1\t7\n")
    finally:
        cluster.close()
