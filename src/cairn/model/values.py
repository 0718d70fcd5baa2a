"""The types of columns, and how each value looks inside SQLite (its physical form).

One place knows both directions: SQL, storage, replication and the drivers ask here.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from cairn.model.decimals import decode_decimal, encode_decimal, parse_decimal
from cairn.model.errors import InvalidText, OutOfRange

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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
    MAP = "map"
    ARRAY = "array"
    ANY = "any"

    @property
    def is_scalar(self) -> bool:
        return self not in (ColumnType.MAP, ColumnType.ARRAY, ColumnType.ANY)


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
    ColumnType.MAP: 114,
    ColumnType.ARRAY: 114,
    ColumnType.ANY: 114,
}

TYPE_OF_OID: dict[int, ColumnType] = {
    16: ColumnType.BOOLEAN,
    20: ColumnType.INTEGER,
    21: ColumnType.INTEGER,
    23: ColumnType.INTEGER,
    26: ColumnType.INTEGER,
    700: ColumnType.DOUBLE,
    701: ColumnType.DOUBLE,
    1700: ColumnType.DECIMAL,
    25: ColumnType.STRING,
    1043: ColumnType.STRING,
    1042: ColumnType.STRING,
    19: ColumnType.STRING,
    2950: ColumnType.UUID,
    1184: ColumnType.DATETIME,
    1114: ColumnType.DATETIME,
    1082: ColumnType.DATETIME,
    114: ColumnType.MAP,
    3802: ColumnType.MAP,
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
    ColumnType.MAP: "TEXT",
    ColumnType.ARRAY: "TEXT",
    ColumnType.ANY: "TEXT",
}


def datetime_to_micros(value: datetime) -> int:
    """Microseconds since 1970 in UTC; a value without a zone is taken as UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    delta = value - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def micros_to_datetime(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


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
    return number + 0.0  # -0.0 + 0.0 is 0.0: equal values share a bucket (DESIGN 5.2)


def _decimal(value: Any) -> bytes:
    if isinstance(value, float):
        value = Decimal(repr(value))
    elif not isinstance(value, Decimal):
        value = Decimal(value)
    return encode_decimal(value)


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
    if not isinstance(value, datetime):
        raise InvalidText(f'invalid input for type datetime: "{value}"')
    return datetime_to_micros(value)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_TO_PHYSICAL: dict[ColumnType, Callable[[Any], Physical]] = {
    ColumnType.BOOLEAN: _bool,
    ColumnType.INTEGER: _integer,
    ColumnType.UNSIGNED: _unsigned,
    ColumnType.DOUBLE: _double,
    ColumnType.DECIMAL: _decimal,
    ColumnType.STRING: _string,
    ColumnType.UUID: _uuid,
    ColumnType.DATETIME: _datetime,
    ColumnType.MAP: _json,
    ColumnType.ARRAY: _json,
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
    ColumnType.MAP: json.loads,
    ColumnType.ARRAY: json.loads,
    ColumnType.ANY: json.loads,
}


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
    except (ValueError, OverflowError):
        name = type_.value
        raise InvalidText(f'invalid input syntax for type {name}: "{text}"') from None


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


def _parse_int(text: str) -> int:
    return _integer(int(_number(text)))


def parse_datetime(text: str) -> datetime:
    """ISO 8601 or PostgreSQL's spelling (`2024-01-02 03:04:05+00`); UTC where no zone is given."""
    word = text.strip()
    if word.upper().endswith(" UTC"):
        word = word[:-4]
    tail = word[-3:]
    if len(word) > 12 and tail[0] in "+-" and tail[1:].isdigit():
        word += ":00"
    value = datetime.fromisoformat(word)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


_PARSERS: dict[ColumnType, Callable[[str], Any]] = {
    ColumnType.BOOLEAN: _parse_bool,
    ColumnType.INTEGER: _parse_int,
    ColumnType.UNSIGNED: lambda text: _unsigned(int(_number(text))),
    ColumnType.DOUBLE: lambda text: float(_number(text)),
    ColumnType.DECIMAL: parse_decimal,
    ColumnType.STRING: str,
    ColumnType.UUID: lambda text: UUID(text.strip()),
    ColumnType.DATETIME: parse_datetime,
    ColumnType.MAP: json.loads,
    ColumnType.ARRAY: json.loads,
    ColumnType.ANY: json.loads,
}
