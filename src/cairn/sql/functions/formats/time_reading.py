"""`to_timestamp` and `to_date`: texts read by PostgreSQL's template patterns, as it reads them.

A separator of the pattern stands for any one of the text, or for none; a number takes all digits
where no other one follows it, else as many as its field has; other text of the pattern stands for
as many letters of the text, whichever they are; what is behind the last field is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache

from cairn.model.errors import InvalidText, OutOfRange, Unsupported

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_ROMAN = ("xii", "xi", "x", "ix", "viii", "vii", "vi", "v", "iv", "iii", "ii", "i")
_NAMES: dict[str, Sequence[str]] = {
    "MONTH": _MONTHS,
    "MON": [name[:3] for name in _MONTHS],
    "DAY": _DAYS,
    "DY": [name[:3] for name in _DAYS],
    "RM": _ROMAN,
    **dict.fromkeys(("AM", "PM"), ("am", "pm")),
    **dict.fromkeys(("A.M.", "P.M."), ("a.m.", "p.m.")),
    **dict.fromkeys(("AD", "BC"), ("ad", "bc")),
    **dict.fromkeys(("A.D.", "B.C."), ("a.d.", "b.c.")),
}
#: How many digits a field has.
_NUMBERS = {
    **dict.fromkeys(("Y", "I", "D", "ID", "W", "Q"), 1),
    **dict.fromkeys(("YY", "IY", "CC", "MM", "DD", "WW", "IW"), 2),
    **dict.fromkeys(("HH24", "HH12", "HH", "MI", "SS", "TZM"), 2),
    **dict.fromkeys(("YYY", "IYY", "DDD", "IDDD", "MS"), 3),
    **dict.fromkeys(("YYYY", "IYYY", "SSSS"), 4),
    "SSSSS": 5,
    "US": 6,
    "J": 7,
    **{f"FF{digits}": digits for digits in range(1, 7)},
}
_UPPER = (*_NUMBERS, *_NAMES, "Y,YYY", "TZH", "TZ", "OF", "FX")
_WORDS = sorted(
    (*_UPPER, *map(str.lower, _UPPER), "Month", "Mon", "Day", "Dy"), key=len, reverse=True
)
_NODE = re.compile(
    rf'(FM|fm|TM|tm)?({"|".join(map(re.escape, _WORDS))})(TH|th)?|"((?:[^"\\]|\\.)*)"?|(\\"|.)',
    re.DOTALL,
)
_INTEGER = re.compile(r"\s*[+-]?\d+")
_ISO = ("IYYY", "IYY", "IY", "I", "IDDD", "ID", "IW")
_GREGORIAN = (
    *("YYYY", "YYY", "YY", "Y", "Y,YYY", "CC", "MM", "MONTH", "MON", "RM"),
    *("DDD", "DD", "D", "WW", "W"),
)
#: Fields that say the same thing, and must not say it differently.
_SAME = (
    ("YYYY", "YYY", "YY", "Y", "IYYY", "IYY", "IY", "I"),
    ("HH24", "HH12", "HH"),
    ("US", *(f"FF{digits}" for digits in range(1, 7))),
    ("SSSSS", "SSSS"),
    ("D", "ID"),
)
_SHORT_YEARS = ("YYY", "YY", "Y", "IYY", "IY", "I")
_FRACTIONS = ("MS", *_SAME[2])
_MOST = 2**31 - 1
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class _Node:
    word: str = ""  # of a field
    text: str = ""  # one letter that is no field
    is_filled: bool = False  # FM
    has_ordinal: bool = False


@lru_cache(maxsize=256)
def _nodes(pattern: str) -> tuple[_Node, ...]:
    found: list[_Node] = []
    for match in _NODE.finditer(pattern):
        prefix, word, ordinal, quoted, other = match.groups()
        if word is not None:
            is_filled = (prefix or "").upper() == "FM"
            found.append(_Node(word.upper(), "", is_filled, ordinal is not None))
        elif quoted is not None:
            found += [_Node(text=each) for each in re.sub(r"\\(.)", r"\1", quoted)]
        else:
            found.append(_Node(text=other[-1]))
    words = {each.word for each in found}
    if words.intersection(_ISO) and words.intersection(_GREGORIAN):
        raise InvalidText(
            "invalid combination of date conventions",
            hint="Do not mix Gregorian and ISO week date conventions in a formatting template.",
            sqlstate="22007",
        )
    return tuple(found)


def _is_separator(letter: str) -> bool:
    return letter.isascii() and letter.isprintable() and not letter.isalnum()


@dataclass
class _Reader:
    text: str
    at: int = 0
    is_fixed: bool = False  # FX
    skipped: int = 0
    values: dict[str, int] = field(default_factory=dict)

    def read(self, nodes: Sequence[_Node]) -> dict[str, int]:
        for place, node in enumerate(nodes):
            if self.at >= len(self.text):
                break
            if not self.is_fixed and (node.word or place == 0):
                self._skip_blanks()
            if not node.word:
                self._pass(node.text)
                continue
            if node.word == "FX":
                self.is_fixed = True
                continue
            self._field(node, _ends(nodes, place))
            if not self.is_fixed:
                self.skipped = 0
                self._skip_blanks()
        return self.values

    def _skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
            self.skipped += 1

    def _pass(self, letter: str) -> None:
        here = self.text[self.at]
        if self.is_fixed:
            self.at += 1
        elif letter.isspace() or _is_separator(letter):
            if here.isspace() or _is_separator(here):
                self.at += 1
            else:
                self.skipped -= 1
        elif self.skipped > 0:
            self.skipped -= 1
        else:
            self.at += 1

    def _field(self, node: _Node, is_last: bool) -> None:
        word = node.word
        if word in ("TZ", "OF"):
            raise Unsupported(f'formatting field "{word}" is only supported in to_char')
        if word in _NAMES:
            self._name(word)
        elif word == "TZH":
            sign = self.text[self.at]
            self.at += sign in "+- "
            if sign not in "+- " and self.skipped > 0:  # a separator of the pattern took it
                sign = self.text[self.at - 1]
            self._note("TZS", -1 if sign == "-" else 1)
            self._note(word, self._number(word, 2, all_digits=node.is_filled or is_last)[0])
        elif word == "Y,YYY":
            match = re.compile(r"(\d+),(\d{1,3})").match(self.text, self.at)
            if match is None:
                raise _wrong(self.text[self.at :], word)
            self.at = match.end()
            self._note("YYYY", int(match[1]) * 1000 + int(match[2]))
        else:
            value, size = self._number(word, _NUMBERS[word], all_digits=node.is_filled or is_last)
            if word in _SHORT_YEARS and size < 4:
                value = _full_year(value)
            elif word in _FRACTIONS:
                value *= 10 ** max(6 - size, 0)
            if word != "Q":
                self._note(word, value)
        if node.has_ordinal:
            self.at += 2

    def _note(self, word: str, value: int) -> None:
        same = next((kind for kind in _SAME if word in kind), (word,))
        if any(self.values.get(each, 0) not in (0, value) for each in same):
            raise InvalidText(
                f'conflicting values for "{word}" field in formatting string', sqlstate="22007"
            )
        self.values[word] = value

    def _name(self, word: str) -> None:
        rest = self.text[self.at :].lower()
        for place, name in enumerate(_NAMES[word]):
            if rest.startswith(name):
                self.at += len(name)
                plain = word.replace(".", "")
                if plain in ("MONTH", "MON"):
                    self._note("MM", place + 1)
                elif plain == "RM":
                    self._note("MM", 12 - place)
                elif plain in ("DAY", "DY"):
                    self._note("D", place + 1)
                else:
                    self._note("PM" if plain in ("AM", "PM") else "BC", place)
                return
        raise _wrong(re.split(r"\W", rest, maxsplit=1)[0] or rest, word)

    def _number(self, word: str, size: int, *, all_digits: bool) -> tuple[int, int]:
        begun = self.at
        if all_digits:
            match = _INTEGER.match(self.text, self.at)
        else:
            part = self.text[self.at : self.at + size]
            if len(part) < size:
                raise InvalidText(
                    f'source string too short for "{word}" formatting field',
                    detail=f"Field requires {size} characters, but only {len(part)} remain.",
                    hint='If your source string is not fixed-width, try using the "FM" modifier.',
                    sqlstate="22007",
                )
            match = _INTEGER.match(self.text, self.at, self.at + size)
            if match is not None and match.end() - begun < size:
                raise _wrong(part, word)
        if match is None:
            raise _wrong(self.text[self.at : self.at + size], word)
        if len(match[0]) > 20 or abs(int(match[0])) > _MOST:
            raise OutOfRange(
                f'value for "{word}" in source string is out of range', sqlstate="22008"
            )
        self.at = match.end()
        return int(match[0]), self.at - begun


def _ends(nodes: Sequence[_Node], place: int) -> bool:
    """Whether what follows cannot begin with a digit, so that all digits are of this field."""
    if nodes[place].has_ordinal or place + 1 == len(nodes):
        return True
    after = nodes[place + 1]
    if after.word:
        return after.word not in _NUMBERS and after.word not in ("Y,YYY", "TZH")
    return not after.text.isdigit()


def _wrong(given: str, word: str) -> InvalidText:
    return InvalidText(f'invalid value "{given[:40]}" for "{word}"', sqlstate="22007")


def _full_year(year: int) -> int:
    """Of two or three digits: the one nearest to 2020."""
    if year < 70:
        return year + 2000
    if year < 100:
        return year + 1900
    return year + 2000 if year < 520 else year + 1000 if year < 1000 else year


def _year(values: dict[str, int]) -> int:
    """Year 0 is 1 BC, as PostgreSQL counts."""
    year, digits = 0, 4
    for word in _SAME[0]:
        if word in values:
            year, digits = values[word], _NUMBERS[word]
    century, before_christ = values.get("CC", 0), values.get("BC", 0)
    century = -century if before_christ else century
    if year and century and digits <= 2:
        year %= 100
        if not year:
            return century * 100 + (0 if century >= 0 else 1)
        return year + (century - 1) * 100 if century >= 0 else (century + 1) * 100 - year + 1
    if year:
        year = -year if before_christ else year
        return year + 1 if year < 0 else year
    if century:
        return (century - 1) * 100 + 1 if century >= 0 else century * 100 + 1
    return 0


def read_time(text: str, pattern: str) -> int:
    """Microseconds since 1970, in UTC."""
    reader = _Reader(text)
    values = reader.read(_nodes(pattern))
    clock = _clock(values, text)
    try:
        day = _day(values)
    except (ValueError, OverflowError):
        raise OutOfRange(
            f'date/time field value out of range: "{text[:100]}"', sqlstate="22008"
        ) from None
    return (day - _EPOCH + clock) // timedelta(microseconds=1)


def _day(values: dict[str, int]) -> date:
    told = values.get
    year, month, day = _year(values), told("MM", 0), told("DD", 0)
    if told("J"):  # a month or a day beside it counts more
        found = date.fromordinal(told("J", 0) - 1_721_425)
        year, month, day = found.year, month or found.month, day or found.day
    if told("IW"):
        return date.fromisocalendar(year, told("IW", 0), told("ID", 0) or 1)
    number = told("DDD", 0)
    if told("IDDD"):
        return date.fromisocalendar(year, 1, 1) + timedelta(days=told("IDDD", 0) - 1)
    if told("WW"):
        number = (told("WW", 0) - 1) * 7 + 1
    if told("W"):
        day = (told("W", 0) - 1) * 7 + 1
    if number and (month <= 1 or day <= 1):
        if not year:
            raise InvalidText(
                "cannot calculate day of year without year information", sqlstate="22007"
            )
        found = date(year, 1, 1) + timedelta(days=number - 1)
        if number < 1 or found.year != year:
            raise ValueError(number)
        return date(year, month if month > 1 else found.month, day if day > 1 else found.day)
    return date(year, month or 1, day or 1)


def _clock(values: dict[str, int], text: str) -> timedelta:
    told = values.get
    past = told("SSSSS", told("SSSS", 0))
    hour, minute, second = past // 3600, past % 3600 // 60, past % 60
    hour = told("HH24", told("HH12", told("HH", hour)))
    minute, second = told("MI", minute), told("SS", second)
    if "HH12" in values or "HH" in values or "PM" in values:
        if not 1 <= hour <= 12:
            raise InvalidText(
                f'hour "{hour}" is invalid for the 12-hour clock',
                hint="Use the 24-hour clock, or give an hour between 1 and 12.",
                sqlstate="22007",
            )
        hour = hour % 12 + (12 if told("PM", 0) else 0)
    micros = told("MS", 0) + next((values[each] for each in _SAME[2] if each in values), 0)
    asked = next((int(each[2]) for each in _SAME[2][1:] if each in values), 6)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= micros < 10**6):
        raise OutOfRange(f'date/time field value out of range: "{text[:100]}"', sqlstate="22008")
    east = told("TZS", 1) * (told("TZH", 0) * 60 + told("TZM", 0))
    step = 10 ** (6 - asked)  # FF2 rounds to hundredths
    micros = (micros + step // 2) // step * step
    return timedelta(hours=hour, minutes=minute - east, seconds=second, microseconds=micros)
