"""Settings of PostgreSQL that change how values are read or shown, and have one value here.

Clients set them when they connect, mostly to what they are anyway. Whoever asks for anything else
is told what stays in force, also by SHOW: a day taken for a month is noticed by nobody.
"""

from __future__ import annotations

from cairn.model.errors import InvalidParameter, Unsupported
from cairn.model.settings.parameters import REPORTED

_ORDERS = {
    **dict.fromkeys(("mdy", "us", "noneuropean", "noneuro"), "MDY"),
    **dict.fromkeys(("dmy", "european", "euro"), "DMY"),
    "ymd": "YMD",
}
_STYLES = ("iso", "sql", "postgres", "german")
_CHOICES = {
    "intervalstyle": ("postgres", "postgres_verbose", "sql_standard", "iso_8601"),
    "bytea_output": ("hex", "escape"),
}
_SEARCHED = {"$user", "public", "pg_catalog", "pg_temp", "information_schema", ""}


def in_force(name: str, value: str) -> str:
    """What SHOW tells after `SET name = value`; the value itself of most settings."""
    key, plain = name.lower(), value.strip().strip("'\"")
    if key == "datestyle":
        if any(word not in (*_STYLES, *_ORDERS, "default") for word in _words(plain)):
            raise _wrong(name, plain)
        return REPORTED["DateStyle"]
    if key in _CHOICES:
        if plain.lower() not in (*_CHOICES[key], "default"):
            raise _wrong(name, plain)
        return _CHOICES[key][0]
    if key == "standard_conforming_strings" and plain.lower() in ("off", "false", "no", "0"):
        raise Unsupported(
            "standard_conforming_strings is always on: a backslash stands for itself",
            hint="write E'…' where it is an escape",
        )
    return value


def without_effect(name: str, value: str) -> str:
    """The notice for who asked for something else than what is in force; empty: none."""
    key, plain = name.lower(), value.strip().strip("'\"")
    words = _words(plain)
    if key == "datestyle" and not set(words) <= {"iso", "default", *_of("MDY")}:
        return (
            "DateStyle stays ISO, MDY: 01/02/2003 is read as the second of January, and dates are "
            "shown as 2003-01-02"
        )
    if key == "intervalstyle" and words not in (["postgres"], ["default"]):
        return "IntervalStyle stays postgres: intervals are shown as 1 day 02:03:04"
    if key == "bytea_output" and words == ["escape"]:
        return r"bytea_output stays hex: bytes are shown as \x6162"
    if key == "extra_float_digits" and plain.lstrip("-").isdigit() and int(plain) < 1:
        return "extra_float_digits has no effect: as many digits are shown as the number needs"
    if key == "search_path":
        given = value.replace('"', "").replace("'", "").split(",")
        unknown = [each.strip() for each in given if each.strip() not in _SEARCHED]
        if unknown and words != ["default"]:
            return f'there is one schema, public: names are looked up there, not in "{unknown[0]}"'
    return ""


def _words(value: str) -> list[str]:
    return [each.strip().lower() for each in value.replace("'", "").split(",") if each.strip()]


def _of(order: str) -> list[str]:
    return [word for word, meant in _ORDERS.items() if meant == order]


def _wrong(name: str, value: str) -> InvalidParameter:
    return InvalidParameter(f'invalid value for parameter "{name}": "{value}"')
