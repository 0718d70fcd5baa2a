"""`cairn follow --into`: a copy that others read has the rows of the table, always."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.cli.data import pipeline
from cairn.client.sync_pool import SyncPool
from tests.spark.test_sink import forget_the_end_of_the_last_batch

Make = Callable[[str], str]


def copied(kind: str, place: Path) -> list[tuple[Any, ...]]:
    if kind == "parquet":
        found = pq.read_table(place / "current")
    else:
        from deltalake import DeltaTable

        found = pa.table(DeltaTable(str(place)).to_pyarrow_table())
    return sorted(tuple(row.values()) for row in found.to_pylist())


def in_table(pool: SyncPool, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in pool.fetch(f"SELECT * FROM {name}"))


@pytest.mark.parametrize("kind", ["parquet", pytest.param("delta", marks=pytest.mark.slow)])
def test_the_copy_is_the_table_after_every_run(
    spark: Any, dsn: str, pool: SyncPool, table: Make, tmp_path: Path, kind: str
) -> None:
    if kind == "delta":
        pytest.importorskip("deltalake")
    name, place = table("id INTEGER PRIMARY KEY, s TEXT"), tmp_path / "copy"

    def run() -> None:
        assert pipeline.follow(name, into=str(place), kind=kind, dsn=dsn, once=True) == 0
        assert copied(kind, place) == in_table(pool, name)

    pool.executemany(f"INSERT INTO {name} VALUES ($1, $2)", [(i, f"s{i}") for i in range(50)])
    run()
    pool.execute(f"UPDATE {name} SET s = 'new' WHERE id < 5")
    pool.execute(f"DELETE FROM {name} WHERE id >= 40")
    pool.execute(f"INSERT INTO {name} VALUES (40, 'again')")
    run()
    forget_the_end_of_the_last_batch(place / "_checkpoint")  # Spark repeats it
    pool.execute(f"DELETE FROM {name} WHERE id = 40")
    run()
    pool.execute(f"ALTER TABLE {name} ADD COLUMN n INTEGER")
    pool.execute(f"INSERT INTO {name} VALUES (100, 'wide', 7)")
    run()
    pool.execute(f"TRUNCATE {name}")
    pool.execute(f"INSERT INTO {name} VALUES (1, 'after', 1)")
    run()
    assert copied(kind, place) == [(1, "after", 1)]


def test_a_place_with_anything_else_is_refused(
    spark: Any, dsn: str, pool: SyncPool, table: Make, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    name, place = table("id INTEGER PRIMARY KEY"), tmp_path / "copy"

    def said(table: str = name, into: Path = place) -> str:
        assert pipeline.follow(table, into=str(into), dsn=dsn, once=True) == 1
        return capfd.readouterr().err

    assert "has other files" in said(into=tmp_path.parent)
    pool.execute(f"INSERT INTO {name} VALUES (1)")
    assert pipeline.follow(name, into=str(place), dsn=dsn, once=True) == 0
    assert "a copy of another table" in said(table("id INTEGER PRIMARY KEY"))
    assert "only sharded tables are copied" in said("_pico_table", tmp_path / "other")
    shutil.rmtree(place / "_checkpoint")
    assert "has a copy, but not its _checkpoint" in said()
    assert pipeline.follow(name, dsn=dsn) == 2
