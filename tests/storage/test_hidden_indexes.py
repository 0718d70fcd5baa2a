"""An index that is filled while rows are written: nobody sees it, in the end it has all rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from cairn.model.log.records import Shape
from cairn.model.tables.schema import Column, Computed, Index, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.sql.functions.functions import register
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.hidden.indexes import hidden_name
from cairn.storage.data_db.hidden.key_list import KeyList, has_over
from cairn.storage.files.sqlite import check_file

COLUMNS = (
    Column("id", ColumnType.STRING, nullable=False),
    Column("weight", ColumnType.DOUBLE),
    Column("name", ColumnType.STRING),
    Column("price", ColumnType.DECIMAL, sizes=(10, 2), keeps_zeros=True),
    Column("n", ColumnType.INTEGER),
)
TABLE = Table(1024, "things", COLUMNS, ("id",), Sharded(("id",), "default"), schema_version=1)
PRICES = ("1.50", "2", None)
INDEXES = {
    "two columns": Index(1024, 1, "a", ("weight", "name")),
    "a part of the key": Index(1024, 1, "a", ("name", "id")),
    "a decimal with zeros": Index(1024, 1, "a", ("price",)),
    "some rows": Index(1024, 1, "a", ("n",), where="n > 5 or n < 2", rule="c4 > 5 OR c4 < 2"),
    "an expression": Index(
        1024, 1, "a", ("n",), computed=(Computed(0, "n % 3", "c4 % 3", ColumnType.INTEGER),)
    ),
    "an expression of some rows": Index(
        *(1024, 1, "a", ("n",)),
        computed=(Computed(0, "n % 3", "c4 % 3", ColumnType.INTEGER),),
        where="n > 5 or n < 2",
        rule="c4 > 5 OR c4 < 2",
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DataStore]:
    made = opened(tmp_path / "data.db")
    yield made
    made.close()


def opened(path: Path) -> DataStore:
    return DataStore(path, "origin", now_micros=lambda: 0, register=register)


def a_row(chance: random.Random, at: int) -> tuple[Any, ...]:
    weight = chance.choice([None, float(chance.randrange(9)), chance.random()])
    return (
        chance.randrange(1, 20),
        f"k{at}",
        weight,
        chance.choice([None, "", "a", "zz"]),
        chance.choice([None, b"\x01" + bytes([chance.randrange(9)])]),
        chance.randrange(12),
    )


def write(store: DataStore, sql: str, values: tuple[Any, ...] = ()) -> None:
    store.connection.execute("BEGIN IMMEDIATE")
    store.judge(clients=False)
    store.connection.execute(sql, values)
    store._gathered.clear()
    store.connection.execute("COMMIT")


def fill_some(store: DataStore, chance: random.Random, rows: int) -> None:
    for at in range(rows):
        write(store, "INSERT INTO t1024 VALUES (?, ?, ?, ?, ?, ?)", a_row(chance, at))


def disturb(store: DataStore, chance: random.Random) -> None:
    """What statements, replicas and moves do to rows, of which some have no entry yet."""
    key = f"k{chance.randrange(400)}"
    match chance.randrange(6):
        case 0:
            write(store, "DELETE FROM t1024 WHERE c0 = ?", (key,))
        case 1:
            values = (chance.random(), chance.choice([None, "q"]), key)
            write(store, "UPDATE t1024 SET c1 = ?, c2 = ? WHERE c0 = ?", values)
        case 2:
            row = a_row(chance, chance.randrange(400))
            write(store, "INSERT OR REPLACE INTO t1024 VALUES (?, ?, ?, ?, ?, ?)", row)
        case 3:
            write(store, "UPDATE OR REPLACE t1024 SET bucket_id = 3 WHERE c0 = ?", (key,))
        case 4:
            write(store, "UPDATE t1024 SET c4 = c4 + 1 WHERE bucket_id = ?", (chance.randrange(9),))
        case _:
            write(store, "DELETE FROM t1024 WHERE bucket_id = ?", (chance.randrange(200),))


def in_one(store: DataStore, work: Any) -> Any:
    store.connection.execute("BEGIN IMMEDIATE")
    found = work()
    store.connection.execute("COMMIT")
    return found


def made(store: DataStore) -> None:
    in_one(store, lambda: store.apply_shape(Shape(1024, TABLE)))


def with_index(index: Index) -> Shape:
    return Shape(1024, TABLE, (index,))


def problems(store: DataStore) -> list[Any]:
    found: list[Any] = store.connection.execute("PRAGMA integrity_check(3)").fetchall()
    return [text for (text,) in found if text != "ok"]


def root_of(store: DataStore, name: str) -> Any:
    query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
    return store.connection.execute(query, (name,)).fetchall()


def left_of(store: DataStore) -> list[Any]:
    found: list[Any] = store.connection.execute(
        "SELECT name FROM sqlite_schema WHERE name GLOB 'x[0-9]*'"
    ).fetchall()
    return found


def entries(store: DataStore, index: Index) -> int:
    rule = f" WHERE {index.rule}" if index.rule else ""
    text = f"SELECT count(*) FROM t1024 INDEXED BY {index.physical_name}{rule}"
    found: Any = store.connection.execute(text).fetchone()
    return int(found[0])


def rows_of(store: DataStore, index: Index) -> int:
    rule = f" WHERE {index.rule}" if index.rule else ""
    found: Any = store.connection.execute(
        f"SELECT count(*) FROM t1024 NOT INDEXED{rule}"
    ).fetchone()
    return int(found[0])


def by_entries(store: DataStore, index: Index, chance: random.Random) -> Iterator[None]:
    keys = KeyList(store.path, TABLE, index, register)
    for bucket in range(0, 220, 10):
        keys.gather(bucket, bucket + 9)
        disturb(store, chance)
    while (packed := keys.take(7)) is not None:
        assert in_one(store, lambda packed=packed: store.hidden.add(TABLE, index, packed))
        yield
    keys.close()


def by_rows(store: DataStore, index: Index) -> Iterator[None]:
    while count := in_one(store, lambda: store.hidden.add_next(TABLE, index, 7)):
        assert count <= 7
        yield
    assert count == 0


@pytest.mark.parametrize("takes_packed", [True, False], ids=["C", "Python"])
@pytest.mark.parametrize("what", INDEXES)
def test_an_index_that_is_filled_while_rows_change_is_whole(
    store: DataStore, what: str, takes_packed: bool
) -> None:
    if takes_packed and not store.packed.is_there:
        pytest.skip("there was no compiler")
    store.hidden._takes_packed = takes_packed
    chance, index = random.Random(what), INDEXES[what]
    made(store)
    fill_some(store, chance, 300)
    hidden = store.hidden
    in_one(store, lambda: hidden.begin(TABLE, index))
    for _ in range(30):
        disturb(store, chance)
    steps = by_rows(store, index) if index.computed else by_entries(store, index, chance)
    for _ in steps:
        for _ in range(3):
            disturb(store, chance)
        check_file(store.path)  # a start in the middle finds nothing wrong
        assert store.connection.execute("SELECT * FROM x1024_rows").fetchall() == []
        if index.computed:  # SQLite would look for a missing one in the whole index
            assert problems(store) == []
    assert in_one(store, lambda: hidden.is_filled(TABLE, index))
    for _ in range(30):
        disturb(store, chance)
    root = root_of(store, "x1024")
    in_one(store, lambda: store.apply_shape(with_index(index)))
    assert root_of(store, "i1024_1") == root  # it was shown, not made
    assert problems(store) == []
    assert entries(store, index) == rows_of(store, index) > 100
    for _ in range(50):
        disturb(store, chance)
    assert problems(store) == []
    assert left_of(store) == []
    store.hidden.rest()
    assert store.connection.execute("PRAGMA writable_schema").fetchall() == [(0,)]


def test_nobody_reads_a_hidden_index(store: DataStore) -> None:
    made(store)
    fill_some(store, random.Random(1), 50)
    reader = apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READONLY)
    in_one(store, lambda: store.hidden.begin(TABLE, INDEXES["two columns"]))
    for question in ("count(*)", "min(c1)", "max(c1)", "count(c1)"):
        hidden = reader.execute(f"SELECT {question} FROM t1024").fetchall()
        assert hidden == reader.execute(f"SELECT {question} FROM t1024 NOT INDEXED").fetchall()
    for where in ("c1 > 0", "c1 IS NULL", "c1 = 3 AND bucket_id IS NOT 3", "bucket_id IS NOT 'h'"):
        plan = reader.execute(f"EXPLAIN QUERY PLAN SELECT c1 FROM t1024 WHERE {where}").fetchall()
        assert "x1024" not in str(plan)
    in_one(store, lambda: store.hidden.begin(TABLE, INDEXES["some rows"]))
    reader.execute("SELECT count(*) FROM t1024").fetchall()  # from here on it knows of this one
    plan = reader.execute("EXPLAIN QUERY PLAN SELECT c4 FROM t1024 WHERE c4 > 5").fetchall()
    assert "x1024" not in str(plan)
    reader.close()


def test_one_that_is_not_filled_or_is_of_other_columns_is_not_shown(store: DataStore) -> None:
    made(store)
    fill_some(store, random.Random(2), 50)
    index, other = INDEXES["two columns"], INDEXES["some rows"]
    in_one(store, lambda: store.hidden.begin(TABLE, index))
    in_one(store, lambda: store.apply_shape(with_index(index)))
    in_one(store, lambda: store.hidden.drop(1024))
    assert (problems(store), entries(store, index)) == ([], 50)
    in_one(store, lambda: store.apply_shape(Shape(1024, TABLE)))
    in_one(store, lambda: store.hidden.begin(TABLE, index))
    keys = KeyList(store.path, TABLE, index, register)
    keys.gather(0, 30)
    packed = keys.take(100)
    assert packed is not None
    in_one(store, lambda: store.hidden.add(TABLE, index, packed))
    keys.close()
    in_one(store, lambda: store.hidden.is_filled(TABLE, index))
    in_one(store, lambda: store.apply_shape(with_index(other)))
    in_one(store, lambda: store.hidden.drop(1024))
    assert (problems(store), entries(store, other)) == ([], rows_of(store, other))


def test_a_unique_index_is_refused_where_two_rows_are_equal(store: DataStore) -> None:
    made(store)
    index = Index(1024, 1, "a", ("name", "n"), unique=True)
    for at, (name, n) in enumerate([("a", 1), ("b", 1), (None, 1), (None, 1), ("a", 2)]):
        write(store, "INSERT INTO t1024 VALUES (1, ?, 1.0, ?, NULL, ?)", (f"k{at}", name, n))
    for twin, is_refused in (("other", False), ("a", True)):
        in_one(store, lambda: store.hidden.begin(TABLE, index))
        keys = KeyList(store.path, TABLE, index, register)
        keys.gather(0, 30)
        packed = keys.take(100)
        assert packed is not None
        in_one(store, lambda packed=packed: store.hidden.add(TABLE, index, packed))
        keys.close()
        in_one(store, lambda: store.hidden.is_filled(TABLE, index))
        row = (f"k9{twin}", twin)
        write(store, "INSERT INTO t1024 VALUES (1, ?, 1.0, ?, NULL, 1)", row)
        store.connection.execute("BEGIN IMMEDIATE")
        if is_refused:
            with pytest.raises(apsw.ConstraintError):
                store.hidden.show(TABLE, index)
        else:
            assert store.hidden.show(TABLE, index)
        store.connection.execute("ROLLBACK")
        in_one(store, lambda: store.hidden.drop(1024))
        assert problems(store) == []


def test_what_a_crash_leaves_is_forgotten_at_the_next_start(
    store: DataStore, tmp_path: Path
) -> None:
    made(store)
    fill_some(store, random.Random(3), 50)
    in_one(store, lambda: store.hidden.begin(TABLE, INDEXES["two columns"]))
    there = tmp_path / "there"
    there.mkdir()
    for name in ("data.db", "data.db-wal"):
        shutil.copy(tmp_path / name, there / name)
    again = opened(there / "data.db")
    assert left_of(again) == []
    write(again, "DELETE FROM t1024")  # none of these rows had an entry
    assert problems(again) == []
    again.close()


def test_a_table_that_is_dropped_or_emptied_takes_its_hidden_index_along(store: DataStore) -> None:
    made(store)
    fill_some(store, random.Random(4), 50)
    index = INDEXES["two columns"]
    in_one(store, lambda: store.hidden.begin(TABLE, index))
    keys = KeyList(store.path, TABLE, index, register)
    keys.gather(0, 30)
    packed = keys.take(100)
    assert packed is not None
    keys.close()
    write(store, "DELETE FROM t1024")
    assert in_one(store, lambda: store.hidden.add(TABLE, index, packed))
    in_one(store, lambda: store.apply_shape(Shape(1024, None)))
    assert not in_one(store, lambda: store.hidden.add(TABLE, index, packed))
    in_one(store, lambda: store.hidden.drop(1024))
    assert left_of(store) == []


def test_whether_a_table_is_large_is_seen_without_counting_it(store: DataStore) -> None:
    made(store)
    fill_some(store, random.Random(5), 12)
    assert [has_over(store.path, TABLE, rows) for rows in (0, 11, 12, 13)] == [
        *(True, True, False, False)
    ]
    assert hidden_name(1024) == "x1024"


def test_columns_that_are_taken_back_take_their_hidden_index_along(store: DataStore) -> None:
    """A master that was deposed undoes what no replica had; nobody waits for the index any more."""
    wider = replace(TABLE, columns=(*COLUMNS, Column("more", ColumnType.INTEGER)), schema_version=2)
    with store.connection:
        store.apply_shape(Shape(1024, TABLE))
        store.apply_shape(Shape(1024, wider))
        store.hidden.begin(wider, Index(1024, 1, "a", ("more",)))
    with store.connection:
        store.apply_shape(Shape(1024, replace(TABLE, schema_version=3)))
    assert not store.hidden.has(1024)
    assert store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_rows_without_an_entry_can_go_after_a_drop_that_was_rolled_back(store: DataStore) -> None:
    """A disk that is full: what was dropped is there again, and is not whole."""
    chance = random.Random(3)
    with store.connection:
        store.apply_shape(Shape(1024, TABLE))
    fill_some(store, chance, 40)
    with store.connection:
        store.hidden.begin(TABLE, INDEXES["two columns"])
    with pytest.raises(apsw.FullError), store.connection:
        store.hidden.drop(1024)
        raise apsw.FullError("disk")
    store.hidden.rest()
    write(store, "DELETE FROM t1024")
    with store.connection:
        store.hidden.drop(1024)
    store.hidden.rest()
    assert store.connection.execute("PRAGMA writable_schema").fetchall() == [(0,)]
    assert store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
