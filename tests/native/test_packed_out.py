"""Rows of a query are packed by C as Python packs them, and end where they should."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from cairn.model.log.packed_rows import unpacked
from cairn.native.batches import RowBatch
from cairn.native.library import library
from cairn.native.loading import POINTS, load
from cairn.storage.data_db.packed_read import Found, PackedRead
from cairn.storage.files.sqlite import open_writer
from tests.native.test_packed_rows import ROWS

ALL = "SELECT * FROM t600 ORDER BY 1, 2"
MANY = 1 << 30


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    found = apsw.Connection(":memory:")
    found.execute("CREATE TABLE t600(b, c1, c2, c3, PRIMARY KEY (b, c1)) WITHOUT ROWID")
    found.executemany("INSERT INTO t600 VALUES (?, ?, ?, ?)", ROWS)
    yield found
    found.close()


@pytest.fixture(params=["C", "Python"])
def read(request: pytest.FixtureRequest, connection: apsw.Connection) -> PackedRead:
    made = PackedRead(connection)
    if request.param == "Python":
        made._batch = None
    elif made._batch is None:
        pytest.skip("there was no compiler")
    return made


def in_order(connection: apsw.Connection) -> list[Any]:
    rows: list[Any] = connection.execute(ALL).fetchall()
    return rows


def test_values_of_every_kind_and_size_are_read_as_they_are(
    read: PackedRead, connection: apsw.Connection
) -> None:
    rows = in_order(connection)
    found = read.read(ALL, (), 4, MANY, MANY)
    assert (unpacked(found.packed), found.rows, found.last) == (rows, len(ROWS), rows[-1])
    sizes = "+".join(
        f"CASE WHEN typeof({name}) IN ('text','blob') THEN octet_length({name}) ELSE 8 END"
        for name in ("b", "c1", "c2", "c3")
    )
    assert connection.execute(f"SELECT sum({sizes}) FROM t600").fetchall() == [(found.size,)]


@pytest.mark.parametrize("most", [1, 2, len(ROWS) - 1, len(ROWS), len(ROWS) + 1])
def test_there_are_no_more_rows_than_were_asked_for(
    read: PackedRead, connection: apsw.Connection, most: int
) -> None:
    rows = in_order(connection)[:most]
    found = read.read(ALL, (), 4, most, MANY)
    assert (unpacked(found.packed), found.rows, found.last) == (rows, len(rows), rows[-1])


def test_rows_end_with_the_first_that_goes_past_the_bytes(
    read: PackedRead, connection: apsw.Connection
) -> None:
    rows = in_order(connection)
    assert unpacked(read.read(ALL, (), 4, MANY, 0).packed) == rows[:1]
    assert unpacked(read.read(ALL, (), 4, MANY, -5).packed) == rows[:1]
    first, second = (read.read(ALL, (), 4, most, MANY).size for most in (1, 2))
    assert unpacked(read.read(ALL, (), 4, MANY, first).packed) == rows[:2]
    assert unpacked(read.read(ALL, (), 4, MANY, second - 1).packed) == rows[:2]


def test_nothing_is_an_empty_list(read: PackedRead) -> None:
    found = read.read(f"SELECT * FROM t600 WHERE b = ? {ALL[19:]}", (99,), 4, MANY, MANY)
    assert (unpacked(found.packed), found[1:]) == ([], (0, 0, ()))


@pytest.mark.parametrize(
    "value", [0, -1, 2**63 - 1, -(2**63), 1.5, "", "é" * 300, b"", b"\0x", None]
)
def test_arguments_arrive_as_they_are(read: PackedRead, value: Any) -> None:
    found = read.read("SELECT ?, typeof(?)", (value, value), 2, MANY, MANY)
    kind = {int: "integer", float: "real", str: "text", bytes: "blob"}.get(type(value), "null")
    assert unpacked(found.packed) == [(value, kind)]


def test_an_error_in_the_middle_is_told_by_python(read: PackedRead) -> None:
    """No row of a query that failed is taken for all of them."""
    broken = "SELECT b, CASE WHEN b = 70000 THEN abs(-9223372036854775807 - 1) END FROM t600"
    with pytest.raises(apsw.SQLError, match="integer overflow"):
        read.read(broken, (), 2, MANY, MANY)
    with pytest.raises(apsw.SQLError, match="no such table"):
        read.read("SELECT * FROM unknown", (), 1, MANY, MANY)


def test_a_damaged_page_is_told_as_before(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    writer = open_writer(path)
    writer.execute("CREATE TABLE t(b, c, PRIMARY KEY (b)) WITHOUT ROWID")
    writer.executemany("INSERT INTO t VALUES (?, ?)", [(at, "x" * 500) for at in range(200)])
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    writer.close()
    with path.open("r+b") as file:
        file.seek(4096 * 12 + 3000)
        file.write(b"!")
    for is_there in (True, False):
        reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        found = PackedRead(reader)
        found._batch = found._batch if is_there else None
        with pytest.raises(apsw.IOError):
            found.read("SELECT * FROM t", (), 2, MANY, MANY)
        reader.close()


@pytest.mark.skipif(library() is None, reason="there was no compiler")
def test_random_rows_are_packed_alike(connection: apsw.Connection) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, fast, slow = random.Random(seed), PackedRead(connection), PackedRead(connection)
    slow._batch = None
    for _ in range(60):
        connection.execute("DELETE FROM t600")
        for key in range(chance.randrange(40)):
            row = (chance.randrange(5), key, some_value(chance), some_value(chance))
            connection.execute("INSERT INTO t600 VALUES (?, ?, ?, ?)", row)
        most = (chance.randrange(1, 50), chance.choice((0, 100, 5_000, MANY)))
        pair: list[Found] = [each.read(ALL, (), 4, *most) for each in (fast, slow)]
        assert pair[0] == pair[1], f"seed {seed}"


def some_value(chance: random.Random) -> Any:
    length = chance.choice((0, 1, 31, 32, 255, 256, 65_535, 65_536))
    return chance.choice(
        (
            *(None, chance.randrange(-300, 300), chance.getrandbits(63) * chance.choice((1, -1))),
            *(chance.random(), float("inf"), "é" * (length // 2), "x" * length, bytes(length)),
        )
    )


@pytest.mark.skipif(library() is None, reason="there was no compiler")
def test_arguments_that_are_no_values_are_not_taken(connection: apsw.Connection) -> None:
    assert load(connection, POINTS)
    batch, db = RowBatch(), connection.sqlite3_pointer()
    whole = msgspec.msgpack.encode("some text")
    assert batch.take_query(db, "SELECT ?", whole, 1, 9, 9) == 9
    assert batch.last() == b"\x91" + whole
    for end in range(1, len(whole)):
        assert batch.take_query(db, "SELECT ?", whole[:end], 1, 9, 9) is None
    assert batch.take_query(db, "SELECT ?", b"\xc1", 1, 9, 9) is None
    assert batch.take_query(db, "SELECT ?", b"\x01\x02", 1, 9, 9) is None  # one too many
