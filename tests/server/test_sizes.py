"""How large tables are, asked as tools of PostgreSQL ask."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from cairn.server.catalog.sizes import pretty
from tests.cluster.harness import Cluster
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

SIZES = [
    sign * (base * 1024**power + more)
    for power in range(6)
    for base in (0, 1, 9, 10, 11, 1023, 1024, 10_239, 10_240)
    for more in (-1, 0, 1, 511, 512, 513)
    for sign in (1, -1)
    if base * 1024**power + more < 2**63
]


def test_sizes_are_written_as_postgresql_writes_them(postgres: Any) -> None:  # noqa: F811
    asked = "SELECT size, pg_size_pretty(size) FROM unnest(%s::bigint[]) size"
    told = dict(postgres.execute(asked, (SIZES,)).fetchall())
    assert {size: pretty(size) for size in SIZES} == told
    assert pretty(None) is None


@pytest.mark.cluster
def test_the_sizes_of_a_table_are_those_that_its_owners_tell(cluster: Cluster) -> None:
    node = cluster["i1"]
    node.sql("CREATE TABLE sized (id SERIAL PRIMARY KEY, v TEXT)")
    try:
        node.sql("CREATE INDEX ON sized (v)")
        node.sql("INSERT INTO sized (v) SELECT repeat('x', 100) FROM generate_series(1, 3000)")
        stats = "FROM _cairn_table_stats WHERE table_name = 'sized'"
        [(rows, indexes)] = node.sql(f"SELECT sum(bytes), sum(index_bytes) {stats}")
        assert rows > 300_000 and indexes > 300_000
        sizes = "pg_relation_size, pg_table_size, pg_indexes_size, pg_total_relation_size"
        for asked in ("'sized'", "'sized'::regclass", "'public.sized'", "c.oid", "oid"):
            calls = ", ".join(f"{name.strip()}({asked})" for name in sizes.split(","))
            where = " FROM pg_class c WHERE relname = 'sized'" if "oid" in asked else ""
            assert node.sql(f"SELECT {calls}{where}") == [(rows, rows, indexes, rows + indexes)]
        [(everything,)] = node.sql("SELECT pg_database_size(current_database())")
        assert everything >= rows + indexes
        shown = "pg_catalog.pg_size_pretty(pg_catalog.pg_table_size(c.oid))"  # as psql writes it
        [(told,)] = node.sql(f"SELECT {shown} FROM pg_class c WHERE relname = 'sized'")
        assert told == pretty(rows)
        with pytest.raises(psycopg.errors.UndefinedTable):
            node.sql("SELECT pg_relation_size('nothing_of_this_name')")
        assert node.sql("SELECT pg_get_serial_sequence('sized', 'id')") == [
            ("public.sized_id_seq",)
        ]
        node.sql("SELECT setval(pg_get_serial_sequence('sized', 'id'), 9000)")
        assert node.sql("INSERT INTO sized (v) VALUES ('y') RETURNING id >= 9000") == [(True,)]
    finally:
        node.sql("DROP TABLE sized")
