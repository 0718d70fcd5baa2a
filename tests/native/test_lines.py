"""Lines of COPY that C reads mean what Python reads from them; what C leaves, Python gets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.model.log.packed_rows import unpacked
from cairn.model.tables.catalog import Catalog, Tier
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.native.batches import RowBatch
from cairn.native.library import library
from cairn.pgwire.copy import CopyParser
from cairn.server.scan.copy_rows import RowMaker, find_bad_line
from cairn.server.scan.packed_in import packed_lines

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

TIER = "default"
CATALOG = Catalog(tiers={TIER: Tier(TIER, 1, bucket_count=300)})
TYPES = (
    *(ColumnType.INTEGER, ColumnType.UNSIGNED, ColumnType.DOUBLE, ColumnType.STRING),
    *(ColumnType.BOOLEAN, ColumnType.UUID, ColumnType.DATETIME, ColumnType.TIMESTAMP),
    ColumnType.DATE,
)
KEYS = TYPES[:2] + TYPES[3:6]
TEXTS = {
    ColumnType.INTEGER: (
        *(
            "0",
            "7",
            "-1",
            "127",
            "128",
            "-32",
            "-33",
            "-128",
            "-129",
            "255",
            "256",
            "65535",
            "65536",
        ),
        *("-32768", "-32769", "4294967295", "4294967296", "-2147483648", "-2147483649"),
        *("9223372036854775807", "-9223372036854775807", "-9223372036854775808"),
        *(
            "9223372036854775808",
            "99999999999999999999",
            "007",
            "-0",
            "+5",
            " 12 ",
            "1_0",
            "1.0",
            "",
        ),
    ),
    ColumnType.DOUBLE: (
        *("0", "-0", "1.5", "-2.25", "0.1", "123456789.123456", "1e10", "1E-7", "1e308", "1e309"),
        *("0.30000000000000004", "9007199254740993", "1234567890123456.7", "4.9e-324", "1e-400"),
        *("2.2250738585072011e-308", "NaN", "inf", "-Infinity", ".5", "5.", "1e", "00.5", "0x10"),
        *("123456789012345678901234567890", "0." + "3" * 70, "1,5", ""),
    ),
    ColumnType.STRING: (
        *("", "a", "ab" * 15, "x" * 31, "x" * 32, "y" * 255, "z" * 256, "w" * 70_000),
        *("é", "€uro", "😀", "日本語", "'quoted'", "a b", "N", "NULL", "null", "t"),
    ),
    ColumnType.BOOLEAN: ("t", "f", "true", "false", "1", "0", "TRUE", "yes", "off", "maybe", ""),
    ColumnType.UUID: (
        *("6b6b1c9e-7a43-4a0b-9d1f-0c6f1f0a7b11", "6B6B1C9E-7A43-4A0B-9D1F-0C6F1F0A7B11"),
        *("6b6b1c9e7a434a0b9d1f0c6f1f0a7b11", "6b6b1c9e-7a43-4a0b-9d1f-0c6f1f0a7b1g", "zero"),
    ),
    ColumnType.DATETIME: (
        *("2024-01-02 03:04:05+00", "2024-02-29 23:59:59.999999+02:30", "1969-12-31 23:59:59.5-08"),
        *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2023-02-29 00:00:00", "1900-02-29"),
        *("2000-02-29 00:00:00.1", "2024-01-02", "2024-1-2", "2024-01-02T03:04:05Z", "now"),
        *("2024-01-02 24:00:00", "2024-01-02 03:04", "2024-01-02 03:04:05.1234567+00"),
        *("0001-01-01 00:00:00+15", "2024-01-02 03:04:05+16", "2024-13-01 00:00:00", "infinity"),
    ),
}
TEXTS[ColumnType.UNSIGNED] = TEXTS[ColumnType.INTEGER]
TEXTS[ColumnType.TIMESTAMP] = ("2024-01-02 03:04:05", *TEXTS[ColumnType.DATETIME])
TEXTS[ColumnType.DATE] = ("2024-01-02", *TEXTS[ColumnType.DATETIME])


def random_table(chance: random.Random) -> Table:
    count = chance.randint(1, 6)
    types = [chance.choice(KEYS), *(chance.choice(TYPES) for _ in range(count))]
    columns = tuple(
        Column(
            f"c{at}",
            type_,
            nullable=at > 0 and chance.random() < 0.7,
            sizes=(chance.choice((1, 3, 31)),)
            if type_ is ColumnType.STRING and chance.random() < 0.3
            else (),
        )
        for at, type_ in enumerate(types)
    )
    key = ["c0", *(c.name for c in columns[1:] if c.type in KEYS and chance.random() < 0.3)]
    return Table(600, "t", columns, ("c0",), Sharded(tuple(key), TIER))


def written(chance: random.Random, fmt: str, text: str | None) -> str:
    """A value as people write it: as it is, escaped, or quoted."""
    if text is None:
        return "" if fmt == "csv" else "\\N"
    if fmt == "csv":
        if text == "" or chance.random() < 0.3:
            return '"' + text.replace('"', '""') + '"'
        return text
    if chance.random() < 0.02:
        text += chance.choice(("\\t", "\\\\", "\\n", "\\\t", "\\x41", "\\101", "\\q", "\\N"))
    return text


def is_good(table: Table, name: str, text: str) -> bool:
    return find_bad_line(table, [name], [[text]], 1) is None


def random_lines(chance: random.Random, table: Table, names: Sequence[str], fmt: str) -> bytes:
    """Most files are good, and spelled in all the ways that are allowed."""
    mistakes = chance.choice((0.0, 0.0, 0.0, 0.002, 0.1))
    usual = chance.random() < 0.5
    columns = [column for name in names if (column := table.column(name)) is not None]
    good = {c.name: [t for t in TEXTS[c.type] if is_good(table, c.name, t)] for c in columns}
    lines = []
    for _ in range(chance.randint(0, 40)):
        fields = []
        for column in columns:
            texts = good[column.name][: 4 if usual else None]
            text: str | None = chance.choice(texts)
            if chance.random() < 0.1 and column.nullable and column.name not in table.primary_key:
                text = None
            elif column.type is ColumnType.STRING and not column.sizes and chance.random() < 0.1:
                text = chance.choice(('say "hi"', "two\nlines", "a,b", "\\.x", "\\", "-"))
                text = text if fmt == "csv" else text.replace("\n", "").replace("\\", "\\\\")
                if fmt == "csv":
                    fields.append('"' + text.replace('"', '""') + '"')
                    continue
            if chance.random() < mistakes:
                text = chance.choice((None, "cr\rcr", "nul\0", *TEXTS[column.type]))
            fields.append(written(chance, fmt, text))
        if chance.random() < mistakes / 5:
            fields.append("too many")
        lines.append(("," if fmt == "csv" else "\t").join(fields))
    if chance.random() < 0.05:
        lines.append("\\.")
    end = "\r\n" if chance.random() < 0.05 else "\n"
    data = end.join(lines).encode() + (b"\n" if chance.random() < 0.8 else b"")
    if chance.random() < mistakes:
        data = data.replace(b"a", b"\xff", 1)
    return data


class Reading:
    """One COPY, read with the compiled part or without it."""

    def __init__(self, table: Table, names: list[str], fmt: Any, header: bool, in_c: bool) -> None:
        self.table, self.names = table, names
        self.parser = CopyParser(fmt, ncols=len(names), header=header)
        self.maker = RowMaker(table, names, CATALOG)
        self.batch = RowBatch()
        self.lines = packed_lines(table, names, CATALOG, self.parser) if in_c else None
        assert (self.lines is not None) == in_c
        self.left = 0  # rows that C did not take

    def columns(self, read: Any) -> None:
        try:
            rows = self.maker.rows(read)
        except (CairnError, ValueError, OverflowError):
            first = self.parser.line - len(read[0]) + 1
            found = find_bad_line(self.table, self.names, read, first)
            assert found is not None
            raise found from None
        self.left += len(rows)
        self.batch.add(rows)

    def read(self, pieces: Sequence[bytes]) -> Any:
        try:
            for piece in pieces:
                if self.lines is not None:
                    for left in self.lines.feed(self.batch, piece):
                        self.columns(left)
                else:
                    self.columns(self.parser.feed_columns(piece))
            self.columns(self.parser.finish_columns())
        except CairnError as problem:
            return type(problem).__name__, str(problem), problem.detail
        return unpacked(self.batch.sorted(300).of(self.batch_buckets()))

    def batch_buckets(self) -> Sequence[int]:
        return self.batch.sorted(300).buckets


def pieces_of(chance: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 5)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("seed", range(400))
def test_whatever_is_copied_has_the_same_rows_or_the_same_error(seed: int) -> None:
    chance = random.Random(seed)
    table = random_table(chance)
    names = [column.name for column in table.columns]
    chance.shuffle(names)
    fmt, header = chance.choice(("text", "csv")), chance.random() < 0.1
    data = random_lines(chance, table, names, fmt)
    pieces = pieces_of(chance, data)
    in_c = Reading(table, names, fmt, header, in_c=True).read(pieces)
    in_python = Reading(table, names, fmt, header, in_c=False).read(pieces)
    if in_c != in_python:  # of several mistakes either may be told
        told = (in_c, in_python, seed, fmt, table, data)
        assert isinstance(in_c, tuple) and isinstance(in_python, tuple), told
        lines = [line + b"\n" for line in data.split(b"\n")]
        alone = [Reading(table, names, fmt, header=False, in_c=False).read([e]) for e in lines]
        assert sum(isinstance(each, tuple) for each in alone) > 1, told


#: Spellings that stand at the edge of what C takes; alone, for one mistake hides another.
EDGES: dict[ColumnType, tuple[str, ...]] = {
    ColumnType.INTEGER: (
        *("9" * 18, "9" * 19, "9" * 20, "1" + "0" * 19, "18446744073709551617", "-" + "9" * 20),
        *("-129", "-32769", "-2147483649", "-33", "-128"),
    ),
    ColumnType.DOUBLE: ("9" * 15, "9" * 16, "0." + "1" * 15, "1e22", "1e23", "-0.0", "1e-320"),
    ColumnType.STRING: ("é" * 31, "é" * 32, "x" * 32, "\u07ff", "\uffff", "\U0010ffff"),
    ColumnType.DATETIME: (
        *("2000-02-29 00:00:00", "1900-02-29 00:00:00", "2024-02-29", "2023-02-29", "2024-04-31"),
        *("2024-01-02 03:04:05+02", "2024-01-02 03:04:05-02:30", "2024-01-02 03:04:05.1234567"),
        *("0001-01-01 00:00:00+01", "9999-12-31 23:59:59-01", "2024-01-02 03:04:60"),
        *("2024-01-02 24:00:00", "2024-01-02 03:04:05+16", "2024-01-02 03:04:05+15:59"),
    ),
}


@pytest.mark.parametrize("type_", TYPES)
def test_each_spelling_alone_means_the_same(type_: ColumnType) -> None:
    edges = EDGES.get(type_, EDGES[ColumnType.DATETIME] if type_ in TYPES[-2:] else ())
    sizes = (31,) if type_ is ColumnType.STRING else ()
    for nullable in (True, False):
        columns = Column("c0", ColumnType.INTEGER), Column("c1", type_, nullable, sizes=sizes)
        table = Table(600, "t", columns, ("c0",), Sharded(("c0",), TIER))
        for text in ("\\N", *TEXTS[type_], *edges):
            line = f"7\t{text}\n".encode()
            c, python = (Reading(table, ["c0", "c1"], "text", False, in_c=c) for c in (True, False))
            assert c.read([line]) == python.read([line]), (type_, nullable, text)


@pytest.mark.parametrize("mark", ["\\b", "\\f", "\\n", "\\r", "\\t", "\\v", "\\\\", "\\q"])
def test_each_escape_is_undone(mark: str) -> None:
    columns = Column("c0", ColumnType.INTEGER), Column("c1", ColumnType.STRING)
    table = Table(600, "t", columns, ("c0",), Sharded(("c0",), TIER))
    line = f"7\tbefore{mark}after\n".encode()
    c, python = (Reading(table, ["c0", "c1"], "text", False, in_c=c) for c in (True, False))
    assert (c.read([line]), c.left) == (python.read([line]), 0)


def test_a_key_of_several_long_parts_is_left_to_python() -> None:
    columns = tuple(Column(f"c{at}", ColumnType.STRING) for at in range(4))
    names = [column.name for column in columns]
    table = Table(600, "t", columns, ("c0",), Sharded(tuple(names), TIER))
    line = b"\t".join([b"x" * 4_000] * 4) + b"\n"
    c, python = (Reading(table, names, "text", False, in_c=in_c) for in_c in (True, False))
    assert (c.read([line]), c.left) == (python.read([line]), 1)


def test_a_text_is_measured_in_characters() -> None:
    columns = Column("c0", ColumnType.INTEGER), Column("c1", ColumnType.STRING, sizes=(31,))
    table = Table(600, "t", columns, ("c0",), Sharded(("c0",), TIER))
    reading = Reading(table, ["c0", "c1"], "text", False, in_c=True)
    found = reading.read([("7\t" + "é" * 31 + "\n").encode()])
    assert ([row[2] for row in found], reading.left) == (["é" * 31], 0)


def test_bytes_that_are_no_text_are_never_taken() -> None:
    columns = Column("c0", ColumnType.INTEGER), Column("c1", ColumnType.STRING)
    table = Table(600, "t", columns, ("c0",), Sharded(("c0",), TIER))
    for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"):
        reading = Reading(table, ["c0", "c1"], "text", False, in_c=True)
        assert reading.read([b"1\tgood\n2\t" + bad + b"\n"])[0] == "InvalidText", bad


def test_odd_lines_among_plain_ones_are_read_in_few_goes() -> None:
    """One by one they cost many times what they cost together, and others wait meanwhile."""
    columns = Column("c0", ColumnType.INTEGER), Column("c1", ColumnType.INTEGER)
    table = Table(600, "t", columns, ("c0",), Sharded(("c0",), TIER))
    reading = Reading(table, ["c0", "c1"], "text", False, in_c=True)
    assert reading.lines is not None
    data = b"".join(b"%d\t1\n%d\t+1\n" % (2 * at, 2 * at + 1) for at in range(2_000))
    goes = 0
    for left in reading.lines.feed(reading.batch, data):
        reading.columns(left)
        goes += 1
    assert (len(reading.batch), goes < 10) == (4_000, True), goes


def test_plain_lines_are_left_to_nobody() -> None:
    """Else the test above would say nothing of C."""
    columns = tuple(Column(f"c{at}", type_) for at, type_ in enumerate(TYPES))
    table = Table(600, "t", columns, ("c0",), Sharded(("c0",), TIER))
    texts = [TEXTS[type_][0] for type_ in TYPES]
    rows = b"".join(("\t".join((str(key), *texts[1:])) + "\n").encode() for key in range(1000))
    reading = Reading(table, [c.name for c in columns], "text", header=False, in_c=True)
    found = reading.read([rows[:777], rows[777:]])
    assert (len(found), reading.left) == (1000, 0)


def test_keys_are_hashed_as_everywhere_else() -> None:
    chance = random.Random(4)
    columns = tuple(Column(f"c{at}", type_) for at, type_ in enumerate(KEYS))
    table = Table(600, "t", columns, ("c0",), Sharded(tuple(c.name for c in columns), TIER))
    names = [column.name for column in columns]
    lines = [
        "\t".join(
            (
                str(chance.randint(-(2 ** chance.randint(0, 62)), 2 ** chance.randint(0, 62))),
                str(2 ** chance.randint(0, 62)),
                "é" * chance.randint(0, 300),
                chance.choice("tf"),
                TEXTS[ColumnType.UUID][0],
            )
        )
        for _ in range(2000)
    ]
    data = ("\n".join(lines) + "\n").encode()
    in_c = Reading(table, names, "text", header=False, in_c=True)
    in_python = Reading(table, names, "text", header=False, in_c=False)
    assert in_c.read([data]) == in_python.read([data])
    assert in_c.left == 0
