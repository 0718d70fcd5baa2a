"""The types of columns, and how each value looks inside SQLite (its physical form).

One place knows both directions: SQL, storage, replication and the drivers ask here.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from cairn.model.errors import InvalidText, OutOfRange, TooComplex
from cairn.model.types.array_text import split_list
from cairn.model.types.byte_text import parse_bytes
from cairn.model.types.decimals import (
    decode_decimal,
    encode_shown,
    key_form,
    parse_decimal,
)
from cairn.model.types.interval_text import parse_interval
from cairn.model.types.intervals import Interval, decode_interval, encode_interval, of_timedelta
from cairn.model.types.json_text import (
    JsonText,
    json_parsed,
    json_shown,
    json_text,
)
from cairn.model.types.moment_text import FieldOutOfRange
from cairn.model.types.time_text import (
    DAY_US,
    clock_to_micros,
    micros_to_clock,
    parse_clock,
    parse_date,
    parse_datetime,
    parse_timestamp,
)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = EPOCH.toordinal()

#: A physical value: what SQLite stores.
Physical = int | float | str | bytes | None


class ColumnType(enum.StrEnum):
    """Type names as `_pico_table.format` spells them; drivers read them there."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    UNSIGNED = "unsigned"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    UUID = "uuid"
    DATETIME = "datetime"
    DATE = "date"
    TIMESTAMP = "timestamp"  # without a zone
    INTERVAL = "interval"
    TIME = "time"  # of day, without a zone
    VARBINARY = "varbinary"  # bytea
    MAP = "map"
    JSONB = "jsonb"  # the same, under the number that some clients ask for
    ARRAY = "array"
    ANY = "any"
    # Lists of one type.
    BOOLEANS = "boolean[]"
    INTEGERS = "integer[]"
    DOUBLES = "double[]"
    DECIMALS = "decimal[]"
    STRINGS = "string[]"
    UUIDS = "uuid[]"
    DATETIMES = "datetime[]"
    DATES = "date[]"
    TIMESTAMPS = "timestamp[]"
    INTERVALS = "interval[]"
    TIMES = "time[]"
    VARBINARIES = "varbinary[]"
    JSONBS = "jsonb[]"

    @property
    def is_key(self) -> bool:
        """Whether keys and indexes may have it: equal values are stored alike, and in order."""
        return self not in (*JSONS, ColumnType.INTERVAL) and self not in ELEMENTS


#: JSON under its names.
JSONS = (ColumnType.MAP, ColumnType.ARRAY, ColumnType.ANY, ColumnType.JSONB)

#: A list's type to that of what is in it.
ELEMENTS: dict[ColumnType, ColumnType] = {
    ColumnType.BOOLEANS: ColumnType.BOOLEAN,
    ColumnType.INTEGERS: ColumnType.INTEGER,
    ColumnType.DOUBLES: ColumnType.DOUBLE,
    ColumnType.DECIMALS: ColumnType.DECIMAL,
    ColumnType.STRINGS: ColumnType.STRING,
    ColumnType.UUIDS: ColumnType.UUID,
    ColumnType.DATETIMES: ColumnType.DATETIME,
    ColumnType.DATES: ColumnType.DATE,
    ColumnType.TIMESTAMPS: ColumnType.TIMESTAMP,
    ColumnType.INTERVALS: ColumnType.INTERVAL,
    ColumnType.TIMES: ColumnType.TIME,
    ColumnType.VARBINARIES: ColumnType.VARBINARY,
    ColumnType.JSONBS: ColumnType.JSONB,
}
LISTS: dict[ColumnType, ColumnType] = {of: list_ for list_, of in ELEMENTS.items()}


#: Type OIDs told to clients; canonical, whatever the client declared.
OIDS: dict[ColumnType, int] = {
    ColumnType.BOOLEAN: 16,
    ColumnType.INTEGER: 20,
    ColumnType.UNSIGNED: 20,
    ColumnType.DOUBLE: 701,
    ColumnType.DECIMAL: 1700,
    ColumnType.STRING: 25,
    ColumnType.UUID: 2950,
    ColumnType.DATETIME: 1184,
    ColumnType.DATE: 1082,
    ColumnType.TIMESTAMP: 1114,
    ColumnType.INTERVAL: 1186,
    ColumnType.TIME: 1083,
    ColumnType.VARBINARY: 17,
    ColumnType.MAP: 114,
    ColumnType.JSONB: 3802,
    ColumnType.ARRAY: 114,
    ColumnType.ANY: 114,
    ColumnType.BOOLEANS: 1000,
    ColumnType.INTEGERS: 1016,
    ColumnType.DOUBLES: 1022,
    ColumnType.DECIMALS: 1231,
    ColumnType.STRINGS: 1009,
    ColumnType.UUIDS: 2951,
    ColumnType.DATETIMES: 1185,
    ColumnType.DATES: 1182,
    ColumnType.TIMESTAMPS: 1115,
    ColumnType.INTERVALS: 1187,
    ColumnType.TIMES: 1183,
    ColumnType.VARBINARIES: 1001,
    ColumnType.JSONBS: 3807,
}

TYPE_OF_OID: dict[int, ColumnType] = {
    **{oid: type_ for type_, oid in OIDS.items()},
    **dict.fromkeys((20, 21, 23, 26), ColumnType.INTEGER),
    700: ColumnType.DOUBLE,
    **dict.fromkeys((19, 1042, 1043), ColumnType.STRING),
    114: ColumnType.MAP,
    **dict.fromkeys((1005, 1007, 1028), ColumnType.INTEGERS),
    1021: ColumnType.DOUBLES,
    1015: ColumnType.STRINGS,
}

#: How a column of the type is declared in a STRICT table.
SQLITE_TYPES: dict[ColumnType, str] = {
    ColumnType.BOOLEAN: "INTEGER",
    ColumnType.INTEGER: "INTEGER",
    ColumnType.UNSIGNED: "INTEGER",
    ColumnType.DOUBLE: "REAL",
    ColumnType.DECIMAL: "BLOB",
    ColumnType.STRING: "TEXT",
    ColumnType.UUID: "BLOB",
    ColumnType.DATETIME: "INTEGER",
    ColumnType.DATE: "INTEGER",
    ColumnType.TIMESTAMP: "INTEGER",
    ColumnType.INTERVAL: "BLOB",
    ColumnType.TIME: "INTEGER",
    ColumnType.VARBINARY: "BLOB",
    ColumnType.MAP: "TEXT",
    ColumnType.JSONB: "TEXT",
    ColumnType.ARRAY: "TEXT",
    ColumnType.ANY: "TEXT",
}


def datetime_to_micros(value: date) -> int:
    """Microseconds since 1970 in UTC; without a zone it is UTC, and a date is its midnight."""
    if not isinstance(value, datetime):
        return (value.toordinal() - _EPOCH_DAY) * DAY_US
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    delta = value - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def micros_to_datetime(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def micros_to_date(micros: int) -> date:
    return date.fromordinal(micros // DAY_US + _EPOCH_DAY)


def _bool(value: Any) -> int:
    if not isinstance(value, bool):
        raise InvalidText(f'invalid input for type boolean: "{value}"')
    return 1 if value else 0


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidText(f'invalid input for type integer: "{value}"')
    if not INT64_MIN <= value <= INT64_MAX:
        raise OutOfRange(f'value "{value}" is out of range for type integer')
    return value


def _unsigned(value: Any) -> int:
    value = _integer(value)
    if value < 0:
        raise OutOfRange(
            f'value "{value}" is out of range for type unsigned', hint="UNSIGNED is 0 to 2^63-1"
        )
    return int(value)


def _double(value: Any) -> float:
    number = float(value)
    if math.isnan(number):
        raise OutOfRange("NaN cannot be stored", hint="store NULL, or leave the row out")
    return number + 0.0  # -0.0 + 0.0 is 0.0: equal values share a bucket


def _decimal(value: Any) -> bytes:
    if isinstance(value, float):
        value = Decimal(repr(value))
    elif not isinstance(value, Decimal):
        try:
            value = Decimal(value)
        except (InvalidOperation, ValueError, TypeError):
            text = str(value)[:200]
            raise InvalidText(f'invalid input syntax for type decimal: "{text}"') from None
    return encode_shown(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidText(f'invalid input for type string: "{value}"')
    if "\x00" in value:
        raise InvalidText("a string cannot contain a zero byte", sqlstate="22021")
    return value


def _uuid(value: Any) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    try:
        return UUID(str(value)).bytes
    except ValueError:
        raise InvalidText(f'invalid input syntax for type uuid: "{value}"') from None


def _datetime(value: Any) -> int:
    if not isinstance(value, date):
        raise InvalidText(f'invalid input for type datetime: "{value}"')
    return datetime_to_micros(value)


def _date(value: Any) -> int:
    """The midnight that begins the day: as a time it sorts and is hashed like one."""
    micros = _datetime(value)
    return micros - micros % DAY_US


def _interval(value: Any) -> bytes:
    if isinstance(value, timedelta):
        value = of_timedelta(value)
    if isinstance(value, str):
        value = parse_interval(value)
    if not isinstance(value, Interval):
        raise InvalidText(f'invalid input for type interval: "{value}"')
    return encode_interval(value)


def _time(value: Any) -> int:
    if isinstance(value, str):
        value = parse_text(ColumnType.TIME, value)
    if not isinstance(value, time):
        raise InvalidText(f'invalid input for type time: "{value}"')
    return clock_to_micros(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidText(f'invalid input for type bytea: "{str(value)[:200]}"')
    return bytes(value)


def _json(value: Any) -> str:
    if isinstance(value, JsonText):
        return str(value)
    try:
        return json_text(value)
    except UnicodeEncodeError:  # half of a character, as an escape can spell it
        return json.dumps(value, separators=(",", ":"), default=float)


def _array(value: Any) -> str:
    """JSON; `{}` is what drivers send for an empty list when they are not told of which type."""
    if value == {} or (isinstance(value, JsonText) and value.strip() == "{}"):
        return "[]"
    is_list = value.lstrip()[:1] == "[" if isinstance(value, JsonText) else isinstance(value, list)
    if not is_list:
        raise InvalidText(f'invalid input for type array: "{str(value)[:200]}"')
    return _json(value)


_TO_PHYSICAL: dict[ColumnType, Callable[[Any], Physical]] = {
    ColumnType.BOOLEAN: _bool,
    ColumnType.INTEGER: _integer,
    ColumnType.UNSIGNED: _unsigned,
    ColumnType.DOUBLE: _double,
    ColumnType.DECIMAL: _decimal,
    ColumnType.STRING: _string,
    ColumnType.UUID: _uuid,
    ColumnType.DATETIME: _datetime,
    ColumnType.DATE: _date,
    ColumnType.TIMESTAMP: _datetime,
    ColumnType.INTERVAL: _interval,
    ColumnType.TIME: _time,
    ColumnType.VARBINARY: _bytes,
    ColumnType.MAP: _json,
    ColumnType.JSONB: _json,
    ColumnType.ARRAY: _array,
    ColumnType.ANY: _json,
}

_FROM_PHYSICAL: dict[ColumnType, Callable[[Any], Any] | None] = {
    ColumnType.BOOLEAN: bool,
    ColumnType.INTEGER: None,
    ColumnType.UNSIGNED: None,
    ColumnType.DOUBLE: None,
    ColumnType.DECIMAL: decode_decimal,
    ColumnType.STRING: None,
    ColumnType.UUID: lambda data: UUID(bytes=data),
    ColumnType.DATETIME: micros_to_datetime,
    ColumnType.DATE: micros_to_date,
    ColumnType.TIMESTAMP: lambda micros: micros_to_datetime(micros).replace(tzinfo=None),
    ColumnType.INTERVAL: decode_interval,
    ColumnType.TIME: micros_to_clock,
    ColumnType.VARBINARY: None,
    ColumnType.MAP: json_shown,
    ColumnType.JSONB: json_shown,
    ColumnType.ARRAY: json_shown,
    ColumnType.ANY: json_shown,
}


def list_text(values: Iterable[Physical]) -> str:
    """Physical values as one JSON text, which SQLite can take apart; blobs are spelled in hex."""
    given = list(values)
    if not any(isinstance(value, (bytes, float)) for value in given):
        return json.dumps(given, separators=(",", ":"), ensure_ascii=False)
    found: list[str] = []
    for value in given:
        if isinstance(value, bytes):
            found.append(f'"{value.hex()}"')
        elif isinstance(value, float) and math.isinf(value):
            found.append("9e999" if value > 0 else "-9e999")
        else:
            found.append(json.dumps(value, ensure_ascii=False))
    return f"[{','.join(found)}]"


def list_values(of: ColumnType, text: str) -> list[Physical]:
    """The physical values behind `list_text`."""
    found: list[Physical] = json.loads(text)
    if SQLITE_TYPES[of] != "BLOB":
        return found
    return [None if value is None else bytes.fromhex(str(value)) for value in found]


def _list_writer(of: ColumnType) -> Callable[[Any], str]:
    def write(values: Any) -> str:
        if not isinstance(values, list):
            raise InvalidText(f'invalid input for type {of}[]: "{values}"')
        if of is ColumnType.INTEGER and values and set(map(type, values)) == {int}:
            _integer(min(values)), _integer(max(values))  # a list of keys may be long
            return msgspec.json.encode(values).decode()  # six times as quick
        if of is not ColumnType.JSONB and any(isinstance(value, list) for value in values):
            raise InvalidText("arrays of more than one dimension are not supported")
        physical = (to_physical(of, value) for value in values)
        if of is ColumnType.DECIMAL:  # lists are compared as texts: equal values, equal texts
            return list_text(
                key_form(each) if isinstance(each, bytes) else each for each in physical
            )
        return list_text(physical)

    return write


def _list_reader(of: ColumnType) -> Callable[[str], list[Any]]:
    if of is ColumnType.JSONB:  # a list inside of JSON is no dimension of the array
        return lambda text: [None if v is None else JsonText(v) for v in list_values(of, text)]
    return lambda text: [from_physical(of, value) for value in list_values(of, text)]


for _list, _of in ELEMENTS.items():
    SQLITE_TYPES[_list] = "TEXT"
    _TO_PHYSICAL[_list] = _list_writer(_of)
    _FROM_PHYSICAL[_list] = _list_reader(_of)


def to_physical(type_: ColumnType, value: Any) -> Physical:
    """The form in which SQLite stores `value`; a refusal names the type."""
    return None if value is None else _TO_PHYSICAL[type_](value)


def from_physical(type_: ColumnType, value: Any) -> Any:
    """The Python value behind a stored one."""
    convert = _FROM_PHYSICAL[type_]
    return value if value is None or convert is None else convert(value)


def physical_reader(type_: ColumnType) -> Callable[[Any], Any] | None:
    """The conversion alone, for hot loops; None where stored and Python value are the same."""
    return _FROM_PHYSICAL[type_]


_TRUE = {"t", "true", "y", "yes", "on", "1"}
_FALSE = {"f", "false", "n", "no", "off", "0"}


def parse_text(type_: ColumnType, text: str) -> Any:
    """The value that PostgreSQL would read from `text` for a column of the type."""
    try:
        return _PARSERS[type_](text)
    except RecursionError:
        raise TooComplex(f"a value of type {type_.value} is nested too deeply") from None
    except FieldOutOfRange:
        shown = f'date/time field value out of range: "{text[:200]}"'
        raise OutOfRange(shown, sqlstate="22008") from None
    except (ValueError, OverflowError):
        name = "bytea" if type_ is ColumnType.VARBINARY else type_.value
        raise InvalidText(f'invalid input syntax for type {name}: "{text[:200]}"') from None


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _number(text: str) -> str:
    """Python reads `1_000` and `١٢` as numbers, SQL does not."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def is_too_small(value: float, text: str) -> bool:
    """Whether it became zero by being read, as 1e-400 does."""
    return value == 0 and any(digit in "123456789" for digit in text.lower().partition("e")[0])


def _parse_double(text: str) -> float:
    value = float(_number(text))
    is_too_big = math.isinf(value) and "inf" not in text.lower()
    if is_too_big or is_too_small(value, text):
        raise OutOfRange(f'"{text}" is out of range for type double precision')
    return value


_PARSERS: dict[ColumnType, Callable[[str], Any]] = {
    ColumnType.BOOLEAN: _parse_bool,
    ColumnType.INTEGER: lambda text: _integer(int(_number(text))),
    ColumnType.UNSIGNED: lambda text: _unsigned(int(_number(text))),
    ColumnType.DOUBLE: _parse_double,
    ColumnType.DECIMAL: parse_decimal,
    ColumnType.STRING: str,
    ColumnType.UUID: lambda text: UUID(text.strip()),
    ColumnType.DATETIME: parse_datetime,
    ColumnType.DATE: parse_date,
    ColumnType.TIMESTAMP: parse_timestamp,
    ColumnType.INTERVAL: parse_interval,
    ColumnType.TIME: parse_clock,
    ColumnType.VARBINARY: parse_bytes,
    ColumnType.MAP: json_parsed,
    ColumnType.JSONB: json_parsed,
    ColumnType.ARRAY: json_parsed,
    ColumnType.ANY: json_parsed,
}


def _list_parser(of: ColumnType) -> Callable[[str], list[Any]]:
    parse = _PARSERS[of]
    return lambda text: [None if item is None else parse(item) for item in split_list(text)]


for _list, _of in ELEMENTS.items():
    _PARSERS[_list] = _list_parser(_of)
