"""What a column of a system table may hold: a test of the stored value, and words for people.

Values are physical (see `values`): JSON columns hold their text.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec

from cairn.model.members.topology import Grade
from cairn.model.types.values import ColumnType


class Check(msgspec.Struct, frozen=True):
    """`words` complete the sentence "allowed: …"; `instead` is assumed for what cannot be read."""

    words: str
    holds: Callable[[Any], bool]
    instead: Any = None


def one_of(words: Iterable[str] | type[enum.StrEnum]) -> Check:
    allowed = tuple(str(word) for word in words)
    return Check(", ".join(allowed), lambda value: value in allowed, allowed[0])


def json_of(shape: Any, words: str, instead: str) -> Check:
    """JSON text of this shape."""
    decoder = msgspec.json.Decoder(shape)

    def holds(value: Any) -> bool:
        try:
            decoder.decode(value)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            return False
        return True

    return Check(words, holds, instead)


def number(low: int, high: int = 2**63 - 1) -> Check:
    words = f"{low} or more" if high == 2**63 - 1 else f"{low} to {high}"
    return Check(words, lambda value: low <= value <= high, low)


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]

_ADDRESS = re.compile(r"[^\s:]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?|[0-9A-Fa-f:.]+")

NAME = Check("1 to 255 letters", lambda value: 0 < len(value) <= 255, "")
ANY_TEXT = Check("any text", lambda value: True, "")
NAME_OR_NONE = Check("a name, or empty", lambda value: len(value) <= 255, "")
UUID_TEXT = Check("a uuid", lambda value: 0 < len(value) <= 64, "")
ADDRESS = Check("HOST:PORT", lambda value: _ADDRESS.fullmatch(value) is not None, "")
WEIGHT = Check("a number from 0 on, finite", lambda value: 0 <= value < math.inf, 0.0)
_STATE = msgspec.json.Decoder(tuple[Grade, _Count])


def _state(grades: tuple[Grade, ...]) -> Check:
    def holds(value: Any) -> bool:
        try:
            return _STATE.decode(value)[0] in grades
        except (msgspec.MsgspecError, TypeError, ValueError):
            return False

    words = f'["GRADE", INCARNATION] with a grade of {", ".join(grades)}'
    return Check(words, holds, '["Offline",0]')


CURRENT_STATE = _state(tuple(Grade))
TARGET_STATE = _state((Grade.ONLINE, Grade.OFFLINE, Grade.EXPELLED))
FAILURE_DOMAIN = json_of(dict[_Name, str], '{"NAME":"VALUE", …}', "{}")
VCLOCK = json_of(dict[str, _Count], '{"INSTANCE UUID":LSN, …}', "{}")
CUTS = json_of(dict[int, dict[str, _Count]], '{"EPOCH":{"INSTANCE UUID":LSN, …}, …}', "{}")
STAMP = json_of(dict[str, tuple[_Count, _Count]], '{"INSTANCE UUID":[LSN,EPOCH], …}', "{}")
NAMES = json_of(list[_Name], '["INSTANCE NAME", …]', "[]")
LABELS = json_of(list[str], '["LABEL", …]', "[]")
COLUMNS = json_of(list[str], '["COLUMN", …]', "[]")
ANY_JSON = json_of(Any, "JSON", "null")
_DISTRIBUTIONS = msgspec.json.Decoder(dict[str, tuple[list[_Name], str, _Name] | None])


def _is_distribution(value: Any) -> bool:
    try:
        found = list(_DISTRIBUTIONS.decode(value).items())
    except (msgspec.MsgspecError, TypeError, ValueError):
        return False
    if found == [("Global", None)]:
        return True
    return len(found) == 1 and found[0][0] == "ShardedImplicitly" and found[0][1] is not None


DISTRIBUTION = Check(
    '{"Global":null} or {"ShardedImplicitly":[["COLUMN", …],"murmur3","TIER"]}',
    _is_distribution,
    '{"Global":null}',
)


class _Field(msgspec.Struct):
    name: str
    field_type: ColumnType
    is_nullable: bool


FORMAT = json_of(list[_Field], '[{"name":…,"field_type":…,"is_nullable":…}, …]', "[]")
OPTIONS = json_of(list[dict[str, list[Any]]], '[{"OPTION":[VALUE]}, …]', "[]")
AUTH = json_of(tuple[str, str], '["METHOD","VERIFIER"]', '["scram-sha256",""]')

_INTEGERS = Check("a whole number", lambda value: -(2**63) <= value < 2**63, 0)

#: Python types of physical values, and what is checked when a column says nothing of its own.
BY_TYPE: dict[ColumnType, tuple[tuple[type, ...], Check]] = {
    ColumnType.UNSIGNED: ((int,), number(0)),
    ColumnType.INTEGER: ((int,), _INTEGERS),
    ColumnType.STRING: ((str,), ANY_TEXT),
    ColumnType.DOUBLE: ((float, int), Check("a finite number", math.isfinite, 0.0)),
    ColumnType.BOOLEAN: ((int,), Check("true, false", lambda value: value in (0, 1), 0)),
    ColumnType.DATETIME: ((int,), _INTEGERS),
    ColumnType.MAP: ((str,), json_of(dict[str, Any], "a JSON object", "{}")),
    ColumnType.ARRAY: ((str,), json_of(list[Any], "a JSON array", "[]")),
    ColumnType.ANY: ((str,), ANY_JSON),
    ColumnType.UUID: ((bytes,), Check("16 bytes", lambda value: len(value) == 16, bytes(16))),
}
