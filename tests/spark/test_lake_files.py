"""Copies in files: the newest row of each key is there once, whatever was interrupted."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.spark.files import lake_files
from cairn.spark.files.lake import newest
from cairn.spark.files.lake_files import Copy, DeltaCopy, ParquetCopy

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("town", pa.string()),
        ("paid", pa.decimal128(38, 18)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
KEYS = ["id", "town"]
Rows = dict[tuple[int, str], Any]


def row(key: tuple[int, str], number: int) -> dict[str, Any]:
    return {
        "id": key[0],
        "town": key[1],
        "paid": Decimal(number) / 4 if number % 3 else None,
        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
        "tags": [f"t{number}", None, ""][: number % 4],
    }


def as_table(rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def read(kind: str, place: Path) -> list[dict[str, Any]]:
    """As somebody who knows nothing of Cairn."""
    if kind == "parquet":
        found = pq.read_table(place / "current")
    else:
        from deltalake import DeltaTable

        found = pa.table(DeltaTable(str(place)).to_pyarrow_table())
    return sorted(found.cast(SCHEMA).to_pylist(), key=lambda each: (each["id"], each["town"]))


@pytest.fixture(params=["parquet", "delta"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "delta":
        pytest.importorskip("deltalake")
    return str(request.param)


def made(kind: str, place: Path) -> Copy:
    return ParquetCopy(place, "t") if kind == "parquet" else DeltaCopy(place, "t")


@pytest.mark.parametrize("seed", range(3))
def test_the_newest_row_of_each_key_is_there_once(
    kind: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "COMPACT_EVERY", 4)
    chance = random.Random(seed)
    rows: Rows = {}
    for number in range(10):
        put: Rows = {}
        for _ in range(chance.randrange(30)):
            key = (chance.randrange(25), chance.choice(["", "1", "a:b", "Ü"]))
            put[key] = row(key, chance.randrange(1000))
        gone = {key: each for key, each in rows.items() if key not in put and chance.random() < 0.2}
        rows = {key: each for key, each in rows.items() if key not in gone} | put
        copy = made(kind, tmp_path)  # each batch may be of another process
        tables = as_table([*put.values()]), as_table([*gone.values()])
        if chance.random() < 0.1:
            copy.replace(number, KEYS, as_table([*rows.values()]))
        else:
            copy.change(number, KEYS, *tables)
        assert copy.number() == number and copy.schema() == SCHEMA
        assert read(kind, tmp_path) == [rows[key] for key in sorted(rows)]


def test_a_version_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet: interrupted at each of its steps, and made again by the next process."""
    first, second = row((1, "a"), 1), row((1, "a"), 2)
    ParquetCopy(tmp_path, "t").change(0, KEYS, as_table([first]), as_table([]))
    steps = [(lake_files, "_write"), (lake_files, "_sync"), (Path, "rename"), (Path, "symlink_to")]
    for owner, name in steps:
        with monkeypatch.context() as patch:

            def killed(*_: Any, **__: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(owner, name, killed)
            with pytest.raises(KeyboardInterrupt):
                ParquetCopy(tmp_path, "t").change(1, KEYS, as_table([second]), as_table([]))
        assert ParquetCopy(tmp_path, "t").number() == 0
        assert read("parquet", tmp_path) == [first]
    ParquetCopy(tmp_path, "t").change(1, KEYS, as_table([second]), as_table([]))
    assert read("parquet", tmp_path) == [second]


def test_files_that_did_not_change_are_shared_and_old_versions_go(tmp_path: Path) -> None:
    copy = ParquetCopy(tmp_path, "t")
    copy.change(0, KEYS, as_table([row((at, "a"), at) for at in range(200)]), as_table([]))
    before = {path.name: path.stat().st_ino for path in (tmp_path / "current").iterdir()}
    copy.change(1, KEYS, as_table([row((1, "a"), 7)]), as_table([]))
    after = {path.name: path.stat().st_ino for path in (tmp_path / "current").iterdir()}
    assert sum(before[name] != after[name] for name in before) == 1
    copy.change(2, KEYS, as_table([]), as_table([row((1, "a"), 7)]))
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == [
        "00000001",
        "00000002",
    ]


def change(op: str, old: str | None, new: str | None, lsn: int, who: str = "r1") -> dict[str, Any]:
    return {"op": op, "old": old, "new": new, "replicaset": who, "epoch": 1, "lsn": lsn, "n": 1}


def test_changes_are_folded_in_the_order_of_the_log() -> None:
    a, b, moved = '{"id": 1, "v": "a"}', '{"id": 1, "v": "b"}', '{"id": 2, "v": "b"}'
    changes = [
        change("update", b, moved, 3),
        change("insert", None, a, 1),
        change("update", a, b, 2),
    ]
    assert newest(changes, ["id"]) == ([{"id": 2, "v": "b"}], [{"id": 1, "v": "b"}])
    assert newest([*changes, change("delete", moved, None, 4)], ["id"]) == (
        [],
        [{"id": 1, "v": "b"}, {"id": 2, "v": "b"}],
    )


def test_what_the_changes_do_not_tell_is_not_guessed() -> None:
    a, b = '{"id": 1, "v": "a"}', '{"id": 1, "v": "b"}'
    both = [change("update", a, b, 9, "r1"), change("update", b, a, 1, "r2")]
    assert newest(both, ["id"]) is None
    assert newest([change("truncate", None, None, 1)], ["id"]) is None
