"""A cluster whose new tables have all their rows together, and nothing left of them afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(cluster: Cluster, name: str) -> Connection:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster[name].pg_port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


def clear(connection: Connection, tables: Sequence[str]) -> None:
    for name in tables:
        connection.execute(f"DROP TABLE IF EXISTS {name} CASCADE")


@contextmanager
def rows_together(cluster: Cluster, name: str, tables: Sequence[str]) -> Iterator[Connection]:
    with connect(cluster, name) as connection:
        clear(connection, tables)
        connection.execute("ALTER SYSTEM SET table_distribution = 'together'")
        try:
            yield connection
        finally:
            connection.execute("ALTER SYSTEM RESET table_distribution")
            clear(connection, tables)
