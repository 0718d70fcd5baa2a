"""Indexes of expressions when what the functions give has changed since they were made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from cairn.model.log.records import Shape
from cairn.model.tables.schema import Column, Computed, Index, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.storage.data_db.data_store import DataStore

TABLE = Table(
    1025,
    "made",
    (Column("k", ColumnType.INTEGER), Column("v", ColumnType.STRING)),
    ("k",),
    Sharded(("k",), "default"),
    schema_version=1,
)
INDEX = Index(
    1025, 1, "by_v", (), computed=(Computed(0, "lower(v)", "c_lower(c1)", ColumnType.STRING),)
)
FOUND = "SELECT c0 FROM t1025 INDEXED BY i1025_1 WHERE c_lower(c1) = ?"


def opened(path: Path, lower: Callable[[str], str]) -> DataStore:
    def register(connection: apsw.Connection) -> None:
        connection.create_scalar_function("c_lower", lower, 1, deterministic=True)

    return DataStore(path, "origin", now_micros=lambda: 0, register=register)


def found(store: DataStore, text: str) -> list[int]:
    return [key for (key,) in store.connection.execute(FOUND, (text,))]


def test_they_are_made_anew_by_functions_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    store = opened(path, str.lower)
    store.computed_by("15.0")
    store.connection.execute("BEGIN IMMEDIATE")
    store.reshape(Shape(1025, TABLE, (INDEX,)))
    store.connection.execute("INSERT INTO t1025 VALUES (1, 7, 'Ab')")
    store.connection.execute("COMMIT")
    assert found(store, "ab") == [7]
    store.close()

    newer = opened(path, lambda text: f"{text.lower()}!")
    newer.computed_by("15.0")
    assert found(newer, "ab!") == []  # believed to be the same: it is looked for in vain
    newer.computed_by("16.0")
    assert found(newer, "ab!") == [7]
    newer.close()
