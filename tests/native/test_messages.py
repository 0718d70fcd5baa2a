"""Rows that C writes from pages are the messages that Arrow makes of them."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest

from cairn.model.errors import StorageDamaged
from cairn.model.types.row_shape import RowShape
from cairn.model.types.values import SQLITE_TYPES, ColumnType, to_physical
from cairn.native.library import library
from cairn.pgwire.values.encoders import float_text
from cairn.server.scan.statement import LinesAsked, Scan

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

TYPES = (
    *(ColumnType.INTEGER, ColumnType.UNSIGNED, ColumnType.DOUBLE, ColumnType.STRING),
    *(ColumnType.BOOLEAN, ColumnType.UUID, ColumnType.DATETIME, ColumnType.DECIMAL),
    *(ColumnType.MAP, ColumnType.DATE, ColumnType.TIMESTAMP),
)
NUMBERS = (
    *("0", "0.00", "-0.5", "1.50", "100", "1e20", "9" * 38, "-0." + "9" * 38, "1e-30", "12.345000"),
    *("7." + "0" * 60, "0." + "0" * 150, "-1"),
)
TEXTS = (
    *("", "plain", "a,b", "tab\there", "back\\slash", 'say "hi"', "two\nlines", "cr\rcr", "\\."),
    *("\\N", "NULL", "é€😀", "x" * 200, "y" * 9_000, "a'b", "\b\f\v", ";", "t"),
    *("'\\,;", "\\'"),
)
OPTIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("text", {}),
    ("text", {"delimiter": "|", "null": "NULL"}),
    ("text", {"delimiter": ",", "null": ""}),
    ("csv", {}),
    ("csv", {"delimiter": ";", "null": "NULL"}),
    ("csv", {"quote": "'", "escape": "\\"}),
)


def moment(chance: random.Random) -> datetime:
    usual = datetime(1970, 1, 1) + timedelta(seconds=chance.randint(-(2**32), 2**32))
    micros = timedelta(microseconds=chance.choice((0, 1, 500_000, 999_999, 120)))
    edges = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(2024, 2, 29))
    return chance.choice((usual, usual, chance.choice(edges))) + micros


def value(chance: random.Random, type_: ColumnType) -> Any:
    match type_:
        case ColumnType.INTEGER:
            return chance.choice((0, 1, -1, 2**63 - 1, -(2**63), chance.randint(-300, 70_000)))
        case ColumnType.UNSIGNED:
            return 2 ** chance.randint(0, 62)
        case ColumnType.DOUBLE:
            return chance.choice(
                (
                    0.0,
                    -0.0,
                    1.0,
                    -2.5,
                    1e-5,
                    1e10,
                    1e300,
                    123456.789,
                    chance.uniform(-1e4, 1e4),
                    0.1 + 0.2,
                )
            )
        case ColumnType.STRING:
            return chance.choice(TEXTS)
        case ColumnType.BOOLEAN:
            return chance.random() < 0.5
        case ColumnType.UUID:
            return UUID(bytes=chance.randbytes(16))
        case ColumnType.DATETIME:
            return moment(chance).replace(tzinfo=UTC)
        case ColumnType.TIMESTAMP:
            return moment(chance)
        case ColumnType.DATE:
            return moment(chance).date()
        case ColumnType.DECIMAL:
            usual = Decimal(chance.randint(-(10**9), 10**9)) / 100
            return chance.choice((usual, usual, Decimal(chance.choice(NUMBERS))))
    return {"a": [1, "é"]}


class File:
    """A table in a file as instances have it, and what is asked of it."""

    def __init__(self, path: Path, types: list[ColumnType], rows: list[Any], added: int) -> None:
        self.path, self.types = path, types
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = off")
        kinds = [SQLITE_TYPES[type_] for type_ in types]
        columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds[: len(kinds) - added]))
        connection.execute(
            f"CREATE TABLE t600(bucket_id INTEGER NOT NULL, k INTEGER NOT NULL, {columns}, "
            "PRIMARY KEY (bucket_id, k)) WITHOUT ROWID"
        )
        half = len(rows) // 2 if added else 0
        cut = len(types) - added
        self._insert(connection, [(b, k, *values[:cut]) for b, k, *values in rows[:half]])
        for at in range(cut, len(types)):
            connection.execute(f"ALTER TABLE t600 ADD COLUMN c{at} {kinds[at]}")
        self._insert(connection, rows[half:])
        connection.close()

    def _insert(self, connection: Any, rows: list[Any]) -> None:
        connection.execute("BEGIN")
        for row in rows:
            marks = ", ".join("?" * len(row))
            names = ", ".join(["bucket_id", "k", *(f"c{at}" for at in range(len(row) - 2))])
            connection.execute(f"INSERT INTO t600 ({names}) VALUES ({marks})", row)
        connection.execute("COMMIT")

    def scan(self) -> Scan:
        columns = ", ".join(f"r1.c{at} AS x{at}" for at in range(len(self.types)))
        found = Scan.of(f"SELECT {columns} FROM t600 AS r1 WHERE r1.bucket_id >= 0", ())
        assert found is not None
        return found

    def request(self, **asked: Any) -> Any:
        from cairn.server.scan.worker import ScanRequest

        return ScanRequest(str(self.path), "", "", (), (), tuple(self.types), **asked)

    def in_c(self, **asked: Any) -> list[tuple[int, bytes]]:
        from cairn.server.scan.columns import records_of
        from cairn.server.scan.messages_out import writer

        pieces = writer(self.request(**asked)).pieces(records_of(self.path, self.scan()))
        return [(count, bytes(data)) for count, data in pieces]

    def by_columns(self, encoder: Any) -> list[tuple[int, bytes]]:
        from cairn.server.scan.columns import columns_of

        batches = columns_of(self.path, self.scan(), self.types)
        return [(n, bytes(data)) for each in batches for n, data in encoder.encode_batch(each)]


def random_file(chance: random.Random, path: Path) -> File:
    types = chance.choices(TYPES, k=chance.randint(1, 6))
    some_null = chance.choice((0.0, 0.3))
    rows = []
    for key in range(chance.choice((1, 10, 600))):
        given = (None if chance.random() < some_null else value(chance, type_) for type_ in types)
        stored = (to_physical(*each) for each in zip(types, given, strict=True))
        rows.append((chance.randint(1, 30), key, *stored))
    added = chance.randint(0, len(types) - 1) if chance.random() < 0.3 else 0
    return File(path, types, rows, added)


@pytest.mark.parametrize("seed", range(40))
def test_lines_of_copy_are_the_same(seed: int, tmp_path: Path) -> None:
    from cairn.server.scan.lines import LinesEncoder

    chance = random.Random(seed)
    file = random_file(chance, tmp_path / "data.db")
    fmt, options = chance.choice(OPTIONS)
    asked = LinesAsked(fmt, options)  # type: ignore[arg-type]
    assert file.in_c(lines=asked) == file.by_columns(LinesEncoder(file.types, asked)), seed


@pytest.mark.parametrize(("fmt", "options"), OPTIONS)
@pytest.mark.parametrize("columns", [1, 2])
def test_each_text_is_written_in_each_style_as_arrow_writes_it(
    fmt: str, options: dict[str, str], columns: int, tmp_path: Path
) -> None:
    from cairn.server.scan.lines import LinesEncoder

    rows = [(1, key, *[text] * columns) for key, text in enumerate(TEXTS)]
    file = File(tmp_path / "data.db", [ColumnType.STRING] * columns, rows, 0)
    asked = LinesAsked(fmt, options)  # type: ignore[arg-type]
    assert file.in_c(lines=asked) == file.by_columns(LinesEncoder(file.types, asked))


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_a_select_are_the_same_and_cut_alike(seed: int, tmp_path: Path) -> None:
    from cairn.server.scan.data_rows import MessagesEncoder

    chance = random.Random(seed)
    file = random_file(chance, tmp_path / "data.db")
    formats = tuple(chance.randint(0, 1) for _ in file.types)
    shape = RowShape(tuple(file.types), (None,) * len(file.types), formats)
    size = chance.choice((1, 1000, 10**7))
    found = file.in_c(shape=shape, piece_bytes=size)
    wanted = file.by_columns(MessagesEncoder(shape, size))
    assert found == wanted, seed


@pytest.mark.parametrize("seed", range(12))
def test_no_place_that_a_damaged_page_tells_is_believed(seed: int, tmp_path: Path) -> None:
    """Neither C nor Arrow reads outside of the pages; pages of a log have no checksums here."""
    from cairn.server.scan.lines import LinesEncoder
    from cairn.storage.files.file_pages import UnknownFile

    chance = random.Random(seed)
    file = random_file(chance, tmp_path / "data.db")
    whole, asked = file.path.read_bytes(), LinesAsked("text", {})
    told = (UnknownFile, StorageDamaged, ValueError, ArithmeticError, apsw.Error)  # or other rows
    for _ in range(15):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            page = chance.randrange(1, len(whole) // 4096) * 4096
            at = page + chance.randrange(chance.choice((40, 4096)))
            damaged[at] = chance.choice((0, 127, 128, 255, chance.randrange(256)))
        file.path.write_bytes(damaged)
        with suppress(*told):
            file.in_c(lines=asked)
        with suppress(*told):
            file.by_columns(LinesEncoder(file.types, asked))


def bodies(data: bytes) -> Iterator[bytes]:
    """Of messages that lie behind each other."""
    at = 0
    while at < len(data):
        end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
        yield data[at + 5 : end]
        at = end


def doubles(seed: int) -> Iterator[float]:
    chance = random.Random(seed)
    for _ in range(2_000):
        yield chance.uniform(1e-4, 1e10)
        yield round(chance.uniform(-1e6, 1e6), chance.randint(0, 9))
        yield 10 ** chance.uniform(-6, 12)
        yield chance.randint(0, 2**33) / 2 ** chance.randint(0, 40)
        [near] = struct.unpack(
            ">d", chance.randrange(0x3F1A36E2EB1C432D, 0x4202A05F20000000).to_bytes(8, "big")
        )
        yield near
    for base, power in ((base, power) for base in (2.0, 10.0) for power in range(-15, 34)):
        for towards in (0.0, math.inf):
            found = base**power
            for _ in range(4):
                yield found
                found = math.nextafter(found, towards)


@pytest.mark.parametrize("seed", range(3))
def test_reals_have_the_fewest_digits_that_read_back_the_same(seed: int, tmp_path: Path) -> None:
    """Only those that C writes: with another one among them Arrow would write them all."""
    listed = [
        each for each in doubles(seed) if 1e-4 <= abs(each) < 1e10 and math.frexp(each)[0] != 0.5
    ]
    rows = [(1, key, each) for key, each in enumerate(listed)]
    file = File(tmp_path / "data.db", [ColumnType.DOUBLE], rows, 0)
    data = b"".join(data for _, data in file.in_c(lines=LinesAsked("text", {})))
    wanted = [float_text(each).encode() + b"\n" for each in listed]
    assert sorted(bodies(data)) == sorted(wanted)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_records_are_told_or_read_and_end_nothing(seed: int, tmp_path: Path) -> None:
    """Checksums find damage before this; without them nothing outside the pages is read."""
    from cairn.server.scan.columns import records_of
    from cairn.server.scan.messages_out import writer

    chance = random.Random(seed)
    types = [ColumnType.INTEGER, ColumnType.STRING, ColumnType.DOUBLE, ColumnType.BOOLEAN]
    rows = [(1, key, key, "x" * chance.randint(0, 300), key / 8, key % 2) for key in range(200)]
    file = File(tmp_path / "data.db", types, rows, 0)
    [*_, (records, at)] = records_of(file.path, file.scan())  # the leaves come last
    shape = RowShape(tuple(types), (None,) * 4, (0, 0, 1, 0))  # all of it is written by C
    request = file.request(shape=shape, piece_bytes=10**7)
    told = 0
    for _ in range(50):
        buffer = records.buffer.copy()
        for _ in range(20):
            buffer[chance.randrange(len(buffer))] = chance.randrange(256)
        damaged = records._replace(buffer=buffer)
        try:
            list(writer(request).pieces([(damaged, at)]))
        except StorageDamaged:
            told += 1
    assert told > 0
