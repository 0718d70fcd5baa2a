"""COPY in text and csv: what PostgreSQL writes is read, and the other way round."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.model.errors import CairnError, InvalidParameter
from cairn.pgwire.copy import BadCopy, CopyParser
from cairn.pgwire.copy_out import copy_encoder as framed_encoder
from cairn.pgwire.copy_out import header_line
from cairn.pgwire.values import oids

from .fuzzing import CALM, message

copy_encoder = partial(framed_encoder, framed=False)


def parse(data: bytes, fmt: Any = "text", *, cut: int = 1 << 20, **options: Any) -> Any:
    parser = CopyParser(fmt, **({"ncols": 2} | options))
    rows = []
    for at in range(0, len(data), cut):
        rows += parser.feed(data[at : at + cut])
    return rows + parser.finish()


@pytest.mark.parametrize("cut", [1, 3, 1000])
@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"1\ta\n2\tb\n", [["1", "a"], ["2", "b"]]),
        (b"1\ta\n2\tb", [["1", "a"], ["2", "b"]]),
        (b"1\t\\N\n", [["1", None]]),
        (b"\\\\N\t\\t\\n\\\\\n", [["\\N", "\t\n\\"]]),
        (b"a\\\tb\tc\n", [["a\tb", "c"]]),
        (b"a\\\nb\tc\n", [["a\nb", "c"]]),
        (b"\\303\\251\t\\x41\n", [["é", "A"]]),
        (b"1\ta\r\n2\tb\r\n", [["1", "a"], ["2", "b"]]),
        (b"1\ta\n\\.\nignored", [["1", "a"]]),
        ("é\t€\n".encode(), [["é", "€"]]),
        (b"", []),
    ],
)
def test_text_is_read(data: bytes, rows: list[list[str | None]], cut: int) -> None:
    assert parse(data, cut=cut) == rows


@pytest.mark.parametrize("cut", [1, 3, 1000])
@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"1,a\n2,b\n", [["1", "a"], ["2", "b"]]),
        (b'1,\n"",""\n', [["1", None], ["", ""]]),
        (b'"a,b","say ""hi"""\n', [["a,b", 'say "hi"']]),
        (b'"two\nlines",x\n', [["two\nlines", "x"]]),
        (b'a"b,c"d,e\n', [["ab,cd", "e"]]),
        (b'1,"a\r\nb"\r\n2,b\r\n', [["1", "a\r\nb"], ["2", "b"]]),
        (b"1,a\n\\.\n", [["1", "a"]]),
    ],
)
def test_csv_is_read(data: bytes, rows: list[list[str | None]], cut: int) -> None:
    assert parse(data, "csv", cut=cut) == rows


def test_options_change_the_marks() -> None:
    assert parse(b"1|NULL\n", delimiter="|", null="NULL") == [["1", None]]
    assert parse(b"a,b\n1,2\n", "csv", header=True) == [["1", "2"]]
    assert parse(b"'it\\'s'|x\n", "csv", delimiter="|", quote="'", escape="\\") == [["it's", "x"]]


@pytest.mark.parametrize(
    ("data", "fmt", "text", "line"),
    [
        (b"1\ta\n2\n", "text", "missing data for column 2 of 2", 2),
        (b"1\ta\tb\n", "text", "extra data after last expected column", 1),
        (b"1\ta\\n\n2\\t\n", "text", "missing data for column 2 of 2", 2),
        (b"1,a\n2,b,c\n", "csv", "extra data after last expected column", 2),
        (b'1,"open\n', "csv", "unterminated CSV quoted field", 1),
        (b"1\ta\rb\n", "text", "literal carriage return", 1),
    ],
)
def test_errors_say_their_line(data: bytes, fmt: str, text: str, line: int) -> None:
    with pytest.raises(BadCopy, match=text) as caught:
        parse(data, fmt)
    assert caught.value.sqlstate == "22P04"
    assert caught.value.detail == f"COPY, line {line}"


@pytest.mark.parametrize("data", [b"\xff\tx\n", b"a\0\tx\n", b"\\xff\tx\n"])
def test_bytes_that_are_not_text_are_22021(data: bytes) -> None:
    with pytest.raises(CairnError) as caught:
        parse(data)
    assert caught.value.sqlstate == "22021"


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("text", {"delimiter": "a"}),
        ("text", {"delimiter": "\n"}),
        ("text", {"delimiter": "ab"}),
        ("csv", {"quote": ","}),
        ("csv", {"null": 'a"'}),
        ("xml", {}),
    ],
)
def test_marks_that_cannot_be_told_apart_are_refused(fmt: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidParameter):
        parse(b"", fmt, **options)


def test_rows_are_written_as_postgresql_writes_them() -> None:
    types = [oids.INT8, oids.TEXT, oids.FLOAT8, oids.BOOL, oids.NUMERIC]
    rows = [(1, "plain", 2.0, True, Decimal("1.50")), (None, "a\tb\\\n", None, False, None)]
    assert copy_encoder(types)(rows[:1]) == b"1\tplain\t2\tt\t1.50\n"
    assert copy_encoder(types)(rows) == (
        b"1\tplain\t2\tt\t1.50\n" + b"\\N\ta\\tb\\\\\\n\t\\N\tf\t\\N\n"
    )
    assert copy_encoder(types, "csv")(rows) == b'1,plain,2,t,1.50\n,"a\tb\\\n",,f,\n'
    assert copy_encoder([oids.TEXT], "csv")([("",), (None,), ("\\.",)]) == b'""\n\n"\\."\n'
    assert header_line(["a", "b,c"], "csv") == message(b"d", b'a,"b,c"\n')


def test_every_row_is_a_message_of_its_own() -> None:
    encode = framed_encoder([oids.INT8, oids.TEXT])
    assert encode([]) == b""
    rows = [(1, "a"), (2, "b" * 1000)]
    plain = message(b"d", b"1\ta\n") + message(b"d", b"2\t" + b"b" * 1000 + b"\n")
    assert encode(rows) == plain
    assert encode([*rows, (3, "\t")]) == plain + message(b"d", b"3\t\\t\n")
    encode = framed_encoder([oids.TEXT], "csv")
    assert encode([("two\nlines",)]) == message(b"d", b'"two\nlines"\n')


@pytest.mark.parametrize("delimiter", ["{", "'", '"', "\\"])
def test_odd_delimiters_are_only_delimiters(delimiter: str) -> None:
    if delimiter == "\\":
        encode = copy_encoder([oids.INT8, oids.TEXT], "csv", delimiter=delimiter)
    else:
        encode = copy_encoder([oids.INT8, oids.TEXT], delimiter=delimiter)
    assert encode([(1, "x")]) == f"1{delimiter}x\n".encode()


TEXTS = st.none() | st.text("ab,\"\\\t\n\r.N'|é\b", max_size=6)


@CALM
@given(
    st.lists(st.tuples(TEXTS, TEXTS), max_size=6),
    st.sampled_from(["text", "csv"]),
    st.integers(1, 9),
)
def test_what_is_written_is_read_back(
    rows: list[tuple[str | None, str | None]], fmt: Any, cut: int
) -> None:
    written = copy_encoder([oids.TEXT, oids.TEXT], fmt)(rows)
    assert parse(written, fmt, cut=cut) == [list(row) for row in rows]


@CALM
@given(
    st.text('a,\t\n"\\N.\r', max_size=30).map(str.encode) | st.binary(max_size=30),
    st.sampled_from(["text", "csv"]),
)
def test_any_stream_is_rows_or_a_clean_error(data: bytes, fmt: str) -> None:
    with contextlib.suppress(CairnError):
        assert all(len(row) == 2 for row in parse(data, fmt))
