"""Values in text and binary, compared with what PostgreSQL sends and refuses."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.model.errors import CairnError, InvalidBinary, InvalidText, OutOfRange, Unsupported
from cairn.model.types.intervals import Interval
from cairn.model.types.json_text import JsonText, json_value
from cairn.model.types.values import ColumnType, to_physical
from cairn.pgwire.values import oids
from cairn.pgwire.values.formats import (
    binary_encoder,
    decode_params,
    decoder,
    encoder,
    text_encoder,
)
from cairn.pgwire.values.rows import row_decoder, row_encoder

from .golden import GOLDEN


def decode_param(oid: int, fmt: int, data: bytes | None) -> Any:
    return decode_params([decoder(oid, fmt)], [data])[0]


KNOWN = [*oids.TYPE_NAMES, *oids.ARRAY_ELEMENTS]


@pytest.mark.parametrize(("oid", "text", "binary"), GOLDEN)
def test_values_look_as_postgresql_writes_them(oid: int, text: bytes, binary: bytes) -> None:
    from_text, from_binary = decode_param(oid, 0, text), decode_param(oid, 1, binary)
    assert repr(from_text) == repr(from_binary)
    assert text_encoder(oid)(from_binary) == text
    assert binary_encoder(oid)(from_text) == binary


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (oids.INT8, b" +5 ", 5),
        (oids.INT4, b"-2147483648", -(1 << 31)),
        (oids.BOOL, b" YES", True),
        (oids.BOOL, b"of", False),
        (oids.FLOAT8, b"-inf", float("-inf")),
        (oids.NUMERIC, b"1e3", Decimal("1000")),
        (oids.NUMERIC, b" .5", Decimal("0.5")),
        (oids.UNKNOWN, b"abc", "abc"),
        (oids.INFER, b"abc", "abc"),
        (oids.BYTEA, b"a\\001\\\\", b"a\1\\"),
        (
            oids.TIMESTAMPTZ,
            b"2024-01-01T00:30:00+01:00",
            datetime(2023, 12, 31, 23, 30, tzinfo=UTC),
        ),
        (oids.TIMESTAMPTZ, b"2024-02-03 24:00:00", datetime(2024, 2, 4, tzinfo=UTC)),
        (oids.TIMESTAMPTZ, b"epoch", datetime(1970, 1, 1, tzinfo=UTC)),
        (
            oids.TIMESTAMPTZ,
            b"2024-01-01 00:00:00.9999999",
            datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC),
        ),
        (oids.TIMESTAMP, b"2024-01-01 00:00:00+05", datetime(2024, 1, 1)),
        (oids.DATE, b"2024-02-29", date(2024, 2, 29)),
        (oids.INTERVAL, b"1 mon 2 days 03:00:00", Interval(1, 2, 10_800_000_000)),
        (oids.INT8_ARRAY, b" { 1 , NULL } ", [1, None]),
        (oids.TEXT_ARRAY, b'{a b,"NULL",null,"x\\"y"}', ["a b", "NULL", None, 'x"y']),
        (oids.JSON, b' {"a": [1, null]} ', JsonText(' {"a": [1, null]} ')),
    ],
)
def test_what_postgresql_reads_we_read(oid: int, text: bytes, value: Any) -> None:
    assert decode_param(oid, 0, text) == value


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (oids.INT8, b"abc"),
        (oids.INT8, b"1_000"),
        (oids.INT8, "٣".encode()),
        (oids.INT8, b""),
        (oids.BOOL, b"o"),
        (oids.FLOAT8, b"1_0"),
        (oids.FLOAT8, b"infin"),
        (oids.NUMERIC, b"+NaN"),
        (oids.NUMERIC, b"1e"),
        (oids.NUMERIC, b"1e99999999999999999999"),
        (oids.UUID, b"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (oids.UUID, b"urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (oids.TIMESTAMPTZ, b"yesterday-ish"),
        (oids.BYTEA, b"\\400"),
        (oids.JSON, b"{"),
        (oids.JSON, b"[" * 100_000),
        (oids.INT8_ARRAY, b"{1,2"),
        (oids.INT8_ARRAY, b"{1,}"),
        (oids.INT8_ARRAY, b"{{1},{2,3}}"),
        (oids.INT8_ARRAY, b"{1}x"),
        (oids.INT8_ARRAY, b"{" * 1000),
    ],
)
def test_text_that_is_no_value_is_22p02(oid: int, text: bytes) -> None:
    with pytest.raises(InvalidText, match=r"^failed to bind parameter \$1: decoding error: ") as e:
        decode_param(oid, 0, text)
    assert e.value.sqlstate == "22P02"


def test_the_message_names_the_parameter_the_value_and_the_type() -> None:
    with pytest.raises(InvalidText) as caught:
        decode_params([decoder(oids.INT8, 0)] * 3, [b"1", None, b"abc"])
    expected = "failed to bind parameter $3: decoding error: 'abc' is not a valid int8"
    assert caught.value.message == expected


@pytest.mark.parametrize(
    ("oid", "text", "sqlstate"),
    [
        (oids.INT2, b"32768", "22003"),
        (oids.INT8, b"9223372036854775808", "22003"),
        (oids.INT8, b"9" * 100_000, "22003"),
        (oids.OID, b"-1", "22003"),
        (oids.FLOAT8, b"1e400", "22003"),
        (oids.FLOAT8, b"1e-400", "22003"),
        (oids.FLOAT4, b"1e39", "22003"),
        (oids.NUMERIC, b"1e131072", "22003"),
        (oids.NUMERIC, b"1e-20000", "22003"),
        (oids.NUMERIC, b"1e999999999", "22003"),
        (oids.TIMESTAMPTZ, b"2024-02-30", "22008"),
        (oids.TIMESTAMPTZ, b"2024-01-01 25:00", "22008"),
        (oids.TIMESTAMPTZ, b"9999-12-31 23:59:59-10", "22008"),
        (oids.TIMESTAMPTZ, b"2024-01-01 00:00+16", "22008"),
    ],
)
def test_values_beyond_their_type_are_out_of_range(oid: int, text: bytes, sqlstate: str) -> None:
    with pytest.raises(OutOfRange) as caught:
        decode_param(oid, 0, text)
    assert caught.value.sqlstate == sqlstate


@pytest.mark.parametrize("data", [b"\xff", b"a\0b", b"\xed\xa0\x80"])
@pytest.mark.parametrize("fmt", [0, 1])
def test_text_that_is_not_utf8_is_22021(data: bytes, fmt: int) -> None:
    with pytest.raises(InvalidText, match='invalid byte sequence for encoding "UTF8"') as caught:
        decode_param(oids.TEXT, fmt, data)
    assert caught.value.sqlstate == "22021"


@pytest.mark.parametrize(
    ("oid", "data"),
    [
        (oids.BOOL, b""),
        (oids.INT8, b"\0\0\0\1"),
        (oids.UUID, b"\0" * 15),
        (oids.TIMESTAMPTZ, b"\0" * 4),
        (oids.NUMERIC, b"\0\1\0\0"),
        (oids.NUMERIC, pack("!HhHHH", 1, 0, 0, 0, 10_000)),
        (oids.NUMERIC, pack("!HhHH", 3, 0, 0, 0)),
        (oids.NUMERIC, pack("!HhHHH", 1, 0, 0x1234, 0, 1)),
        (oids.INT8_ARRAY, b""),
        (oids.INT8_ARRAY, pack("!iiIii", 1, 0, 20, 1 << 30, 1)),
        (oids.INT8_ARRAY, pack("!iiIii", 1, 0, 20, -1, 1)),
        (oids.INT8_ARRAY, pack("!iiI", 7, 0, 20)),
        (oids.INT8_ARRAY, pack("!iiI", -1, 0, 20)),
        (oids.INT8_ARRAY, pack("!iiIiii", 1, 0, 25, 1, 1, -1)),
        (oids.INT8_ARRAY, pack("!iiIiii", 1, 0, 20, 1, 1, 8)),
        (oids.INT8_ARRAY, pack("!iiIiii", 1, 0, 20, 1, 1, -7)),
        (oids.INT8_ARRAY, pack("!iiI", 0, 0, 20) + b"extra"),
    ],
)
def test_binary_that_is_no_value_is_22p03(oid: int, data: bytes) -> None:
    with pytest.raises(InvalidBinary) as caught:
        decode_param(oid, 1, data)
    assert caught.value.sqlstate == "22P03"


def test_infinite_timestamps_have_no_place_here() -> None:
    with pytest.raises(OutOfRange):
        decode_param(oids.TIMESTAMPTZ, 1, pack("!q", (1 << 63) - 1))


def test_types_and_formats_that_we_do_not_have_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="parameters of type 600"):
        decode_param(600, 0, b"(1,2)")
    with pytest.raises(Unsupported, match="no binary output for type 600"):
        binary_encoder(600)


def test_a_moment_of_another_zone_is_written_in_utc() -> None:
    moment = datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=3)))
    assert text_encoder(oids.TIMESTAMPTZ)(moment) == b"2023-12-31 21:00:00+00"


def test_long_decimals_keep_every_digit() -> None:
    value = Decimal("-" + "123456789" * 20 + "." + "987654321" * 20)
    for fmt in (0, 1):
        assert decode_param(oids.NUMERIC, fmt, encoder(oids.NUMERIC, fmt)(value)) == value


TEXTS = st.text("abcNUL\"'\\{}, \t\n\r\x01\x7fé€😀", max_size=20)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    oids.BOOL: st.booleans(),
    oids.INT8: st.integers(-(1 << 63), (1 << 63) - 1),
    oids.FLOAT8: st.floats(allow_nan=False),
    oids.NUMERIC: st.decimals(allow_nan=False, allow_infinity=False, places=9),
    oids.TEXT: TEXTS,
    oids.UUID: st.uuids(),
    oids.TIMESTAMPTZ: st.datetimes(timezones=st.just(UTC)),
    oids.BYTEA: st.binary(),
    oids.TEXT_ARRAY: st.lists(st.none() | TEXTS),
    oids.INT8_ARRAY: st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1)),
    oids.JSON: st.recursive(st.none() | st.booleans() | TEXTS, st.lists, max_leaves=5),
}


@given(data=st.data(), oid=st.sampled_from(sorted(VALUES)), fmt=st.sampled_from([0, 1]))
def test_every_value_survives_the_way_there_and_back(
    data: st.DataObject, oid: int, fmt: int
) -> None:
    value = data.draw(VALUES[oid])
    found = decode_param(oid, fmt, encoder(oid, fmt)(value))
    assert (json_value(str(found)) if isinstance(found, JsonText) else found) == value


@given(oid=st.sampled_from(KNOWN), fmt=st.sampled_from([0, 1]), data=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_clean_error(oid: int, fmt: int, data: bytes) -> None:
    codes: list[str] = []
    try:
        decode_param(oid, fmt, data)
    except CairnError as error:
        codes.append(error.sqlstate[:2])
    assert codes in ([], ["22"])


@pytest.mark.parametrize("fmt", [0, 1])
def test_a_row_goes_out_as_one_message_and_comes_back(fmt: int) -> None:
    types = [oids.INT8, oids.TEXT, oids.FLOAT8, oids.BOOL, oids.TEXT, oids.INT4]
    formats = [fmt] * len(types)
    row = (-7, "x" * 1000, 2.5, True, None, 0)
    message = row_encoder(types, formats)(row)
    assert message[:1] == b"D" and int.from_bytes(message[1:5]) == len(message) - 1
    assert row_decoder(types, formats)(message, 5, len(message)) == row


def test_a_row_of_no_columns_is_a_row() -> None:
    assert row_encoder([], [])(()) == b"D\0\0\0\6\0\0"


@pytest.mark.parametrize(
    "text", ["{1,2,NULL}", "{-5}", "{1, 2}", '{"1",2}', "{}", "{1,,2}", "{1,x}"]
)
def test_a_list_without_quotes_is_read_as_with_them(text: str) -> None:
    def found(written: str) -> Any:
        try:
            return decoder(oids.INT8_ARRAY, 0)(written.encode())
        except CairnError as problem:
            return type(problem)

    assert found(text) == found(f" {text}")  # blanks lead the long way


def test_json_of_a_parameter_is_looked_at_and_stays_a_text() -> None:
    decode = decoder(oids.JSON, 0)
    good = b"[" + b"1, " * 400_000 + b"2]"
    assert to_physical(ColumnType.ANY, decode(good)) == good.decode()
    assert to_physical(ColumnType.ARRAY, decode(good)) == good.decode()
    for bad in (good[:-1], good + b"]", b"[" + b"\xff" * 400_000 + b"]"):
        with pytest.raises(InvalidText):
            decode(bad)


@pytest.mark.parametrize("fmt", [0, 1])
def test_a_client_has_the_values_of_a_json_however_long_it_is(fmt: int) -> None:
    """A server keeps a long one as its text."""
    long = {"changes": [{"lsn": at, "new": "x" * 50} for at in range(10_000)]}
    message = row_encoder([oids.JSON], [fmt])((long,))
    assert row_decoder([oids.JSON], [fmt])(message, 5, len(message)) == (long,)
