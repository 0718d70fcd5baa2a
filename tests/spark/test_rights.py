"""What a user needs who loads rows: rights on the table and on the stage, none to create tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark.writes.global_write import DONE
from cairn.spark.writes.staging import COMMIT, STAGE

PASSWORD = "T0psecret-of-a-loader"


@pytest.fixture
def loader(spark: Any, pool: SyncPool, dsn: str, writing: Callable[..., None]) -> Iterator[str]:
    """The DSN of a user that may use the stage, which an administrator's write has made."""
    pool.execute("CREATE TABLE rights_s (id INTEGER PRIMARY KEY)")
    pool.execute("CREATE TABLE rights_g (id INTEGER PRIMARY KEY) DISTRIBUTED GLOBALLY")
    for name in ("rights_s", "rights_g"):
        writing(spark.range(1), name)
    pool.execute(f"CREATE USER loader WITH PASSWORD '{PASSWORD}'")
    for name in (STAGE, COMMIT, DONE):
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            pool.execute(f"GRANT {right} ON TABLE {name} TO loader")
    for name in ("rights_s", "rights_g"):
        pool.execute(f"GRANT SELECT, INSERT ON TABLE {name} TO loader")
    yield dsn.replace("admin:T0psecret1@", f"loader:{PASSWORD}@")
    pool.execute("DROP TABLE rights_s")
    pool.execute("DROP TABLE rights_g")
    pool.execute("DROP USER loader")


def test_a_loader_needs_no_right_to_create_tables(
    spark: Any, pool: SyncPool, loader: str, writing: Callable[..., None]
) -> None:
    writing(spark.range(1, 5), "rights_s", dsn=loader)
    writing(spark.range(5, 9), "rights_s", dsn=loader, commit="direct")
    writing(spark.range(1, 9), "rights_g", dsn=loader)
    for name in ("rights_s", "rights_g"):
        assert pool.fetch(f"SELECT id FROM {name} ORDER BY id") == [(i,) for i in range(9)]
