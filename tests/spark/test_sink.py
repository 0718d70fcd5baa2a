"""Streams into a table: each micro-batch once, whenever the driver was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark.writes.staging import COMMIT, STAGE

Run = Callable[..., None]


@pytest.fixture
def pour(spark: Any, dsn: str, tmp_path: Path) -> Run:
    """Pours all files of `tmp_path/in` that were not poured yet, a batch for each."""

    def go(table: str, **options: str) -> None:
        source = spark.readStream.schema("id bigint, s string").option("maxFilesPerTrigger", 1)
        frame = source.json(str(tmp_path / "in"))
        writer = frame.writeStream.format("cairn").option("dsn", dsn).option("table", table)
        writer = writer.options(**options).option("checkpointLocation", str(tmp_path / "cp"))
        writer.trigger(availableNow=True).start().awaitTermination()

    (tmp_path / "in").mkdir()
    return go


def put(tmp_path: Path, name: str, ids: range) -> None:
    lines = [f'{{"id": {at}, "s": "{name}"}}\n' for at in ids]
    (tmp_path / "in" / f"{name}.json").write_text("".join(lines))


def forget_the_end_of_the_last_batch(checkpoint: Path) -> None:
    """As if the driver had been killed after the sink's commit and before Spark noted it."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_spark_repeats_is_in_the_table_once(
    pool: SyncPool, table: Callable[[str], str], tmp_path: Path, pour: Run
) -> None:
    name = table("id INTEGER PRIMARY KEY, s TEXT")
    put(tmp_path, "a", range(100))
    pour(name)
    forget_the_end_of_the_last_batch(tmp_path / "cp")
    put(tmp_path, "b", range(100, 150))
    pour(name)
    rows = pool.fetch(f"SELECT s, count(*), min(id), max(id) FROM {name} GROUP BY s ORDER BY s")
    assert rows == [("a", 100, 0, 99), ("b", 50, 100, 149)]
    assert pool.fetch(f"SELECT count(*) FROM {STAGE}") == [(0,)]
    ids = pool.fetch(f"SELECT write_id, state FROM {COMMIT} ORDER BY write_id")
    mine = [(key.rpartition(":")[2], state) for key, state in ids if key.startswith("stream:")]
    assert mine == [("0", "done"), ("1", "done")]


def test_rows_replace_others_if_that_is_asked_for(
    pool: SyncPool, table: Callable[[str], str], tmp_path: Path, pour: Run
) -> None:
    name = table("id INTEGER PRIMARY KEY, s TEXT")
    for word in ("a", "b"):
        put(tmp_path, word, range(10))
        pour(name, onConflict="replace")
    assert pool.fetch(f"SELECT s, count(*) FROM {name} GROUP BY s") == [("b", 10)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"\[23505\] Duplicate key exists .* Key \(id\)=\(7\) is in the table; nothing"),
        ({"commit": "direct"}, r"\[22023\] a stream is always written staged"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_of_the_batch_is_written(
    pool: SyncPool, table: Callable[[str], str], tmp_path: Path, pour: Run,
    options: dict[str, str], said: str,
) -> None:  # fmt: skip
    name = table("id INTEGER PRIMARY KEY, s TEXT")
    pool.execute(f"INSERT INTO {name} VALUES (7, 'there')")
    put(tmp_path, "a", range(10))
    with pytest.raises(Exception, match=said):
        pour(name, **options)
    assert pool.fetch(f"SELECT id, s FROM {name}") == [(7, "there")]
