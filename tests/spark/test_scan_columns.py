"""Columns from the pages of a file: always what SQLite itself would say, or a refusal."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

from cairn.model.errors import StorageDamaged
from cairn.model.types.values import ColumnType
from cairn.server.scan.columns import Scan, columns_of
from cairn.storage.files import file_tree
from cairn.storage.files.file_pages import Pages, UnknownFile
from cairn.storage.files.sqlite import open_writer
from tests.storage.rot import flip

TYPES = (ColumnType.INTEGER, ColumnType.STRING, ColumnType.DOUBLE, ColumnType.UUID)
SHAPE = "bucket_id INTEGER NOT NULL, c0 INTEGER NOT NULL, c1 TEXT, c2 REAL, c3 BLOB"
ALL = "r1.bucket_id BETWEEN 1 AND 3000"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.db"


@pytest.fixture
def writer(path: Path) -> Iterator[apsw.Connection]:
    connection = open_writer(path)
    connection.pragma("wal_autocheckpoint", 0)
    # The key is not the first column and its order is another one: records begin with it.
    connection.execute(
        f"CREATE TABLE t1024 ({SHAPE}, PRIMARY KEY (bucket_id, c3, c0)) STRICT, WITHOUT ROWID"
    )
    yield connection
    connection.close()


def sql(condition: str = ALL, columns: str = "c0 c1 c2 c3", table: str = "t1024") -> str:
    listed = ", ".join(f"r1.{name} AS x{at}" for at, name in enumerate(columns.split()))
    return f"SELECT {listed} FROM {table} AS r1 WHERE ({condition})"


def scanned(path: Path, text: str, types: Any = TYPES) -> list[tuple[Any, ...]]:
    scan = Scan.of(text, ())
    assert scan is not None
    batches = list(columns_of(path, scan, types))
    return [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]


def asked(writer: apsw.Connection, text: str) -> list[tuple[Any, ...]]:
    return list(writer.execute(text))


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def any_row(chance: random.Random, number: int) -> tuple[Any, ...]:
    wide = chance.choice([7, 8, 15, 16, 31, 32, 47, 48, 62])
    text_size = chance.choice([0, 3, 32, 57, 58, 120, 900, 1100, 5000, 20_000])
    text = chance.choice([None, "x" * text_size, "ä€𝄞" * (text_size // 3)])
    real = chance.choice([None, 0.0, 1.0, -2.0, 0.5, chance.random() * 1e300, float(2**40)])
    blob = chance.randbytes(chance.choice([16, 16, 16, 3000]))
    key = chance.choice([0, 1, number, chance.randint(-(2**wide), 2**wide), -(2**63), 2**63 - 1])
    return chance.randint(1, 60), key, text, real, blob


@pytest.mark.parametrize("seed", range(6))
def test_a_scan_tells_what_sqlite_tells(path: Path, writer: apsw.Connection, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(12):
        count = chance.choice([1, 30, 400])
        rows = [any_row(chance, number * 1000 + at) for at in range(count)]
        with writer:
            writer.executemany("INSERT OR IGNORE INTO t1024 VALUES (?, ?, ?, ?, ?)", rows)
            writer.execute("DELETE FROM t1024 WHERE (c0 & 7) = ?", (chance.randrange(7),))
            writer.execute("UPDATE t1024 SET c1 = c1 || 'y' WHERE bucket_id = ?", (number,))
        if chance.random() < 0.3:
            writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        low, high = sorted(chance.choices(range(70), k=2))
        for condition in (ALL, f"r1.bucket_id BETWEEN {low} AND {high}", "r1.bucket_id IN (3, 9)"):
            text = sql(condition)
            assert ordered(scanned(path, text)) == ordered(asked(writer, text)), f"seed {seed}"


def test_a_table_of_many_levels_is_read_whole_and_in_parts(
    path: Path, writer: apsw.Connection
) -> None:
    rows = ((at % 300 + 1, at, f"name {at}", at / 2, b"%016d" % at) for at in range(120_000))
    with writer:
        writer.executemany("INSERT INTO t1024 VALUES (?, ?, ?, ?, ?)", rows)
    for condition in (
        ALL,
        "r1.bucket_id = 7",
        "r1.bucket_id BETWEEN 100 AND 103 OR r1.bucket_id = 300",
    ):
        text = sql(condition, "c0 bucket_id c2")
        types = (ColumnType.INTEGER, ColumnType.INTEGER, ColumnType.DOUBLE)
        assert sorted(scanned(path, text, types)) == sorted(asked(writer, text))


def test_columns_added_later_are_null_in_rows_from_before(
    path: Path, writer: apsw.Connection
) -> None:
    writer.execute("INSERT INTO t1024 VALUES (1, 1, 'a', 0.5, x'00')")
    writer.execute("ALTER TABLE t1024 ADD COLUMN c4 INTEGER")
    writer.execute("INSERT INTO t1024 VALUES (1, 2, 'b', 0.5, x'00', 70000)")
    text = sql(columns="c0 c4")
    types = (ColumnType.INTEGER, ColumnType.INTEGER)
    assert sorted(scanned(path, text, types)) == [(1, None), (2, 70_000)]


def test_no_row_gives_no_batch(path: Path, writer: apsw.Connection) -> None:
    assert scanned(path, sql()) == []
    writer.execute("INSERT INTO t1024 VALUES (5, 1, 'a', 0.5, x'00')")
    assert scanned(path, sql("r1.bucket_id = 6")) == []


@pytest.mark.parametrize(
    "text",
    [
        sql("r1.bucket_id = 1 AND r1.c0 = 3"),
        sql("r1.bucket_id = ?"),
        # Forty keys, as an IN list has them: to look at them must not take for ever.
        sql(" OR ".join(f"r1.bucket_id = {at}" for at in range(1000, 1040)) + " AND r1.c0 = 3"),
        sql() + " LIMIT 3",
        sql().replace("r1.c0 AS", "lower(r1.c0) AS"),
        sql(table="t1024 AS r2, t1025"),
    ],
)
def test_what_is_more_than_a_scan_is_left_to_sqlite(text: str) -> None:
    assert Scan.of(text, ()) is None


def test_files_of_another_make_are_left_to_sqlite(path: Path) -> None:
    for pragma in ("journal_mode = DELETE", "encoding = 'UTF-16'", "page_size = 65536"):
        path.unlink(missing_ok=True)
        other = apsw.Connection(str(path))
        other.execute(f"PRAGMA {pragma}")
        if "journal" not in pragma:
            other.pragma("journal_mode", "wal")
        other.execute(
            f"CREATE TABLE t1024 ({SHAPE}, PRIMARY KEY (bucket_id, c0)) STRICT, WITHOUT ROWID"
        )
        with pytest.raises(UnknownFile):
            scanned(path, sql())
        other.close()


def test_a_damaged_page_is_an_error_and_never_rows(path: Path, writer: apsw.Connection) -> None:
    rows = ((at % 300 + 1, at, "x" * 50, None, b"") for at in range(5000))
    with writer:
        writer.executemany("INSERT INTO t1024 VALUES (?, ?, ?, ?, ?)", rows)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(40 * 4096)
        file.write(bytes(4096))
    with pytest.raises(StorageDamaged, match=r"data\.db"):
        scanned(path, sql())


WRITER = """
import random, sys
from pathlib import Path
from cairn.storage.files.sqlite import open_writer
from tests.storage.rot import flip
chance = random.Random(int(sys.argv[2]))
connection = open_writer(Path(sys.argv[1]))
connection.pragma("wal_autocheckpoint", 50)
print("ready", flush=True)
for version in range(100_000):
    with connection:
        connection.execute("UPDATE t1024 SET c1 = ?", (str(version) * chance.randint(1, 9),))
        connection.execute("UPDATE t1024 SET c2 = ?", (version,))
        connection.execute("DELETE FROM t1024 WHERE c0 < 0")
        extra = chance.randint(0, 300)
        more = ((at % 300 + 1, -at, "more", version, b"") for at in range(1, extra + 1))
        connection.executemany("INSERT INTO t1024 VALUES (?, ?, ?, ?, ?)", more)
        connection.execute("UPDATE t1024 SET c2 = ? WHERE c0 = 0", (version + extra / 1000,))
    if chance.random() < 0.2:
        how = chance.choice(["PASSIVE", "TRUNCATE", "RESTART"])
        connection.execute(f"PRAGMA wal_checkpoint({how})")
"""


def test_a_scan_sees_one_commit_while_others_follow(path: Path, writer: apsw.Connection) -> None:
    """Each commit rewrites every row and says how many there are."""
    with writer:
        rows = ((at % 300 + 1, at, "begin", 0.0, b"") for at in range(3000))
        writer.executemany("INSERT INTO t1024 VALUES (?, ?, ?, ?, ?)", rows)
    writer.close()
    command = [sys.executable, "-c", WRITER, str(path), "7"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    seen = set()
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        for at in range(5000):
            if at >= 150 and len(seen) > 20:  # a busy machine lets the writer write less
                break
            try:
                found = scanned(path, sql(columns="c0 c2"), (TYPES[0], TYPES[2]))
            except UnknownFile:
                continue  # told before the first row; another way is taken then
            [said] = [value for key, value in found if key == 0]
            version, extra = int(said), round(said % 1 * 1000)
            assert {int(value) for _, value in found} == {version}
            assert len(found) == 3000 + extra
            seen.add(version)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert len(seen) > 20, "the writer did not write while rows were read"


def test_a_text_is_a_text_and_a_blob_a_blob(path: Path, writer: apsw.Connection) -> None:
    writer.execute("INSERT INTO t1024 VALUES (1, 1, 'a', 0.5, x'ff00')")
    scan = Scan.of(sql(), ())
    assert scan is not None
    [batch] = columns_of(path, scan, TYPES)
    assert batch.schema.types == [pa.int64(), pa.string(), pa.float64(), pa.binary()]


def test_a_scan_sees_all_of_a_commit_or_nothing(
    path: Path, writer: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made when the transaction has begun and the log's index has not been read yet. The
    second row is beyond the last bucket that SQLite knew of.
    """
    writer.execute("INSERT INTO t1024 VALUES (100, 1, 'old', 0, x'01'), (200, 2, 'old', 0, x'02')")
    both = "INSERT INTO t1024 VALUES (150, 10, 'new', 0, x'03'), (2000, 11, 'new', 0, x'04')"
    code = f"import apsw; apsw.Connection({str(path)!r}).execute({both!r})"
    read = Pages._log_head
    times = itertools.count()

    def late(pages: Pages) -> bytes | None:
        if next(times) == 0:
            subprocess.run([sys.executable, "-c", code], check=True)
        return read(pages)

    monkeypatch.setattr(Pages, "_log_head", late)
    assert sorted(row[0] for row in scanned(path, sql())) == [1, 2, 10, 11]


def test_long_rows_are_not_decoded_all_at_once(
    path: Path, writer: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places are told in 32 bits: two gigabytes of rows must never lie in one piece."""
    monkeypatch.setattr(file_tree, "LONG_BYTES", 50_000)
    chance = random.Random(7)
    rows = [(at % 60 + 1, at, "x" * chance.choice([5, 20_000]), None, b"") for at in range(200)]
    with writer:
        writer.executemany("INSERT INTO t1024 VALUES (?, ?, ?, ?, ?)", rows)
    scan = Scan.of(sql(), ())
    assert scan is not None
    batches = list(columns_of(path, scan, TYPES))
    assert max(batch.nbytes for batch in batches) < 80_000
    assert ordered(scanned(path, sql())) == ordered(asked(writer, sql()))


def test_a_changed_byte_is_found_in_rows_short_and_long(
    path: Path, writer: apsw.Connection
) -> None:
    rows = [(1 + at % 3000, at, f"text {at:05d}", 0.5, b"%05d" % at) for at in range(5000)]
    rows.append((7, 9999, "long " + "x" * 20_000 + " the end", 0.5, b"long"))
    writer.executemany("INSERT INTO t1024 VALUES (?, ?, ?, ?, ?)", rows)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert len(scanned(path, sql())) == 5001
    whole = path.read_bytes()
    for near in (b"text 03333", b" the end"):
        page = flip(path, near)
        with pytest.raises(StorageDamaged, match=f"the checksum of page {page} is wrong"):
            scanned(path, sql())
        path.write_bytes(whole)
    assert len(scanned(path, sql())) == 5001
