"""COPY in binary: the stream to fields, in whatever pieces it comes."""

from __future__ import annotations

import itertools
import random
import struct

import pytest

from cairn.pgwire.copy import BadCopy
from cairn.pgwire.copy_binary import TRAILER, BinaryParser, with_header

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"
Row = tuple[bytes | None, ...]


def stream(*rows: Row) -> bytes:
    return b"".join(map(packed, rows))


def packed(row: Row) -> bytes:
    fields = (b"\xff" * 4 if f is None else struct.pack("!i", len(f)) + f for f in row)
    return struct.pack("!h", len(row)) + b"".join(fields)


def parsed(data: bytes, width: int, *cuts: int) -> list[Row]:
    parser, rows = BinaryParser(width), []
    edges = [0, *sorted(cuts), len(data)]
    for low, high in itertools.pairwise(edges):
        rows += list(zip(*parser.feed_columns(data[low:high]), strict=True))
    rows += list(zip(*parser.finish_columns(), strict=True))
    assert parser.line == len(rows)
    return rows


def test_rows_are_the_same_wherever_the_stream_is_cut() -> None:
    rows: list[Row] = [(b"\0\0\0\1", b"a"), (None, b""), (b"", None), (b"x" * 300, b"\xff")]
    data = HEAD + stream(*rows) + END
    assert parsed(data, 2) == rows
    for cut in range(len(data) + 1):
        assert parsed(data, 2, cut) == rows
    seed = 20261118
    chance = random.Random(seed)
    for _ in range(200):
        cuts = [chance.randrange(len(data)) for _ in range(chance.randrange(20))]
        assert parsed(data, 2, *cuts) == rows, (seed, cuts)


def test_a_long_row_comes_in_pieces() -> None:
    row: Row = (b"a" * 3_000_000, *[b"b" * 50_000] * 30, None)
    data = HEAD + stream(row, row)
    assert parsed(data, len(row), *range(0, len(data), 65_536)) == [row, row]


def test_the_end_may_be_left_out_and_the_header_may_be_longer() -> None:
    assert parsed(HEAD + stream((b"1",)), 1) == [(b"1",)]
    longer = HEAD[:-4] + struct.pack("!I", 5) + b"later"
    assert parsed(longer + stream((b"1",)) + END, 1, 12, 20, 22) == [(b"1",)]
    assert parsed(HEAD + END, 3) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "COPY file signature not recognized"),
        (b"PGCOPY\n", "COPY file signature not recognized"),
        (b"1\t2\n", "COPY file signature not recognized"),
        (HEAD[:11] + b"\0\1\0\0" + bytes(4), r"invalid COPY file header \(WITH OIDS\)"),
        (HEAD[:11] + b"\0\2\0\0" + bytes(4), "unrecognized critical flags in COPY file header"),
        (HEAD[:15] + b"\xff\0\0\0", r"invalid COPY file header \(wrong length\)"),
        (HEAD + packed((b"1", b"2")), "row field count is 2, expected 1"),
        (HEAD + struct.pack("!hi", 1, -2), "invalid field size"),
        (HEAD + struct.pack("!hi", 1, 9) + b"1234", "unexpected EOF in COPY data"),
        (HEAD + b"\0", "unexpected EOF in COPY data"),
        (HEAD + END + b"x", "received copy data after EOF marker"),
        (HEAD + struct.pack("!hi", 1, 1 << 30), "unexpected EOF in COPY data"),
    ],
)
def test_what_is_no_such_stream_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadCopy, match=message) as told:
        parsed(data, 1)
    assert told.value.sqlstate == "22P04"


def test_damaged_streams_are_refused_or_read_and_never_more() -> None:
    seed = 20261119
    chance = random.Random(seed)
    whole = HEAD + stream(*[(b"12", None, b"abc")] * 5) + END
    for number in range(5_000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            rows = parsed(bytes(data), 3, chance.randrange(len(data)))
        except BadCopy:
            continue
        assert all(len(row) == 3 for row in rows), (seed, number)


def test_the_header_travels_with_the_first_row() -> None:
    def copy_data(body: bytes) -> bytes:
        return b"d" + struct.pack("!I", len(body) + 4) + body

    one, other = packed((b"1",)), packed((None,))
    rows = copy_data(one) + copy_data(other)
    assert with_header(rows) == copy_data(HEAD + one) + copy_data(other)
    assert with_header(b"") == copy_data(HEAD + END)
    assert copy_data(END) == TRAILER
