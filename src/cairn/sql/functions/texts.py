"""Text functions with PostgreSQL's rules: LIKE, SIMILAR TO, substring, trim, to_char, to_date."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from cairn.model import stops
from cairn.model.errors import CairnError, InvalidParameter, InvalidText, LimitExceeded, OutOfRange
from cairn.model.types.interval_text import MICROS_PER_DAY
from cairn.model.types.json_text import json_text, json_value
from cairn.model.types.values import datetime_to_micros
from cairn.sql.functions import patterns
from cairn.sql.functions.formats.time_reading import read_time
from cairn.sql.functions.numbers import strict


@strict
def c_like(text: str, pattern: str, escape: str = "\\") -> int:
    return 1 if patterns.like(pattern, escape)(text) else 0


@strict
def c_ilike(text: str, pattern: str, escape: str = "\\") -> int:
    return 1 if patterns.like(pattern, escape, ignores_case=True)(text) else 0


@strict
def c_similar(text: str, pattern: str, escape: str = "\\") -> int:
    stops.check()
    return 1 if patterns.similar(pattern, escape).fullmatch(text) else 0


@strict
def c_substring_similar(text: str, pattern: str, escape: str) -> str | None:
    found = patterns.similar(pattern, escape).fullmatch(text)
    if found is None:
        return None
    return str(found.group(1)) if found.re.groups else text


@strict
def c_substring_regexp(text: str, pattern: str) -> str | None:
    stops.check()
    found = patterns.regexp(pattern).search(text)
    if found is None:
        return None
    return found.group(1) if found.re.groups else found.group()  # type: ignore[no-any-return]


@strict
def c_regexp(text: str, pattern: str) -> int:
    stops.check()
    return 1 if patterns.regexp(pattern, captures=False).search(text) else 0


@strict
def c_iregexp(text: str, pattern: str) -> int:
    stops.check()
    return 1 if patterns.regexp(pattern, "i", captures=False).search(text) else 0


@strict
def c_substr(text: str, start: int, length: int | None = None) -> str:
    """From `start`, counted from 1; places before the text count too, as in PostgreSQL."""
    first = max(start - 1, 0)
    if length is None:
        return text[first:]
    if length < 0:
        raise InvalidParameter("negative substring length not allowed", sqlstate="22011")
    return text[first : max(start - 1 + length, 0)]


@strict
def c_trim(text: str, chars: str, side: str) -> str:
    if side == "leading":
        return text.lstrip(chars) if chars else text
    if side == "trailing":
        return text.rstrip(chars) if chars else text
    return text.strip(chars) if chars else text


@strict
def c_left(text: str, count: int) -> str:
    return text[:count]


@strict
def c_right(text: str, count: int) -> str:
    if count == 0:
        return ""
    return text[-count:]


MAX_LENGTH = 1 << 26  # characters of a text that a function makes


def check_length(length: int) -> None:
    stops.check()
    if length > MAX_LENGTH:
        raise CairnError("requested length too large", sqlstate="54000")


def check_arguments(args: tuple[Any, ...]) -> None:
    """Of a call that is made in another process: all of them travel there."""
    length = sum(map(_length, args))
    if length > 2 * MAX_LENGTH:
        check_length(length)


class Gathered:
    """What an aggregate has gathered for a text. One that would be too long is not made: for whole
    moments nothing else would run meanwhile.
    """

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._length = 0

    def gather(self, part: Any) -> None:
        self.parts.append(part)
        self._length += _length(part)
        if self._length > MAX_LENGTH:
            check_length(self._length)

    def let_go(self) -> None:
        """A frame moved on: rows leave it in the order in which they came."""
        self._length -= _length(self.parts.pop(0))


def _length(part: Any) -> int:
    return len(part) if part.__class__ is str or part.__class__ is bytes else 8


@strict
def c_replace(text: str, old: str, new: str) -> str:
    if not old:
        return text
    if len(new) > len(old):
        check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


@strict
def c_repeat(text: str, count: int) -> str:
    check_length(count * len(text))
    return text * max(count, 0)


@strict
def c_lpad(text: str, length: int, fill: str = " ") -> str:
    return _pad(text, length, fill, left=True)


@strict
def c_rpad(text: str, length: int, fill: str = " ") -> str:
    return _pad(text, length, fill, left=False)


def _pad(text: str, length: int, fill: str, *, left: bool) -> str:
    missing = max(length, 0) - len(text)
    check_length(missing)
    if missing <= 0 or not fill:
        return text[: max(length, 0)]
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return padding + text if left else text + padding


@strict
def c_position(text: str, part: str) -> int:
    return text.find(part) + 1


def c_limit(count: int | None) -> int:
    """LIMIT or OFFSET given by a parameter: NULL is none, a negative one an error."""
    if count is None:
        return -1
    if count < 0:
        raise InvalidParameter("LIMIT must not be negative", sqlstate="2201W")
    return count


# --- dates ----------------------------------------------------------------------------------------

MAX_TIME_FORMAT = 200


@strict
def c_to_date(text: str, pattern: str) -> int:
    if len(pattern) > MAX_TIME_FORMAT:
        raise InvalidText(f"a format of more than {MAX_TIME_FORMAT} characters", sqlstate="22007")
    if "%" not in pattern:  # Picodata takes strftime's spelling, PostgreSQL its own
        return read_time(text, pattern)
    try:
        value = datetime.strptime(text, pattern)
    except (ValueError, IndexError, OverflowError, re.error):  # whatever strptime stumbles over
        raise InvalidText(
            f'invalid value "{short(text)}" for the format "{pattern}"', sqlstate="22007"
        ) from None
    try:
        return datetime_to_micros(value.replace(tzinfo=value.tzinfo or UTC))
    except OverflowError:
        raise OutOfRange("timestamp out of range", sqlstate="22008") from None


@strict
def c_to_day(text: str, pattern: str) -> int:
    """`to_date`: the day alone."""
    micros: int = c_to_date(text, pattern)
    return micros - micros % MICROS_PER_DAY


# --- JSON -----------------------------------------------------------------------------------------


def read_json(data: str) -> Any:
    """The value of a JSON text, or why it is none. Other threads wait meanwhile."""
    try:
        return json_value(data)
    except RecursionError:
        raise LimitExceeded("json is nested too deeply", sqlstate="54001") from None
    except ValueError:
        raise InvalidText(f'invalid input syntax for type json: "{short(data)}"') from None


def check_json(text: str) -> None:
    """Without its value: that of a long text takes many times its memory."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):  # it is stricter about escapes
        read_json(text)


def short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


def plain_text(text: str) -> str:
    """A text that came out of JSON, where escapes can spell what is no text."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise _no_character()
    return text


def _no_character() -> InvalidText:
    return InvalidText(
        "unsupported Unicode escape sequence",
        detail="it stands for no character that a text can have",
        sqlstate="22P05",
    )


def write_json(value: Any) -> str:
    try:
        return json_text(value)
    except RecursionError:
        raise LimitExceeded("json is nested too deeply", sqlstate="54001") from None
    except UnicodeEncodeError:
        raise _no_character() from None
    except (ValueError, OverflowError):  # a number of too many digits
        raise OutOfRange("a number of the json is out of range") from None


@strict
def c_json_path(data: str, key: Any) -> str | None:
    """`->`: a text is the name of a member, a number the place of an item, from 0."""
    value = read_json(data)
    if isinstance(key, str):
        return write_json(value[key]) if isinstance(value, dict) and key in value else None
    is_there = isinstance(value, list) and -len(value) <= key < len(value)
    return write_json(value[key]) if is_there else None


def c_json_deep(data: str | None, *path: Any) -> str | None:
    """One step for each text: of a list it is a place."""
    if data is None or None in path:
        return None
    value = read_json(data)
    for key in path:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and _NUMBER.fullmatch(key):
            at = int(key)
            if not -len(value) <= at < len(value):
                return None
            value = value[at]
        else:
            return None
    return write_json(value)


@strict
def c_json_shown(data: str) -> str | None:
    """What `->>` tells of a value: JSON's null is NULL, a text is its content."""
    value = read_json(data)
    if value is None:
        return None
    return plain_text(value) if isinstance(value, str) else data


_NUMBER = re.compile(r"-?[0-9]{1,18}")


def c_index(data: str | None, key: Any) -> str | None:
    """`a[1]` of an array counts from 1; `m['k']` of a map takes the key."""
    if isinstance(key, int):
        return None if key < 1 else c_json_path(data, key - 1)
    return c_json_deep(data, key)
