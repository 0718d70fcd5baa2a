"""Arrays of one dimension: what `ARRAY[…]`, `'{…}'`, `= ANY(…)` and array_agg are made of.

Inside SQLite a list is JSON text of physical values (`model.values.list_text`). Functions that
have to know what is in the list are made once for each type, under its letter: `i_list`, `n_list`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from cairn.model import stops
from cairn.model.errors import InvalidText, LimitExceeded
from cairn.model.types.array_text import join_list, split_list
from cairn.model.types.decimals import key_form
from cairn.model.types.values import ELEMENTS, ColumnType, list_text, list_values
from cairn.sql.functions.numbers import strict
from cairn.sql.functions.times import t_shift

LETTERS: dict[ColumnType, str] = {
    ColumnType.BOOLEANS: "b",
    ColumnType.INTEGERS: "i",
    ColumnType.DOUBLES: "d",
    ColumnType.DECIMALS: "n",
    ColumnType.STRINGS: "s",
    ColumnType.UUIDS: "u",
    ColumnType.DATETIMES: "t",
    ColumnType.DATES: "y",
    ColumnType.TIMESTAMPS: "m",
    ColumnType.INTERVALS: "v",
}
MAX_SERIES = 1_000_000
SERIES_PIECE = 5_000


def make_list(*values: Any) -> str:
    return list_text(values)


def list_cat(left: str | None, right: str | None) -> str | None:
    """`||` of two lists: NULL adds nothing."""
    if left is None or right is None:
        return right if left is None else left
    comma = "," if len(left) > 2 and len(right) > 2 else ""
    return left[:-1] + comma + right[1:]


def list_append(text: str | None, value: Any) -> str | None:
    return list_cat(text, list_text((value,)))


def list_prepend(value: Any, text: str | None) -> str | None:
    return list_cat(list_text((value,)), text)


def list_place(text: str | None, value: Any) -> int | None:
    """`array_position`, which finds NULL too."""
    items, wanted = _items(text), _items(list_text((value,)))[0]
    return items.index(wanted) + 1 if wanted in items else None


def list_without(text: str | None, value: Any) -> str | None:
    if text is None:
        return None
    wanted = _items(list_text((value,)))[0]
    return json.dumps(
        [each for each in _items(text) if each != wanted], separators=(",", ":"), ensure_ascii=False
    )


@strict
def list_contains(text: str, other: str) -> int:
    """`@>`: every value of the other is in it; NULL is in none."""
    return int(None not in (inner := _items(other)) and set(inner) <= set(_items(text)))


@strict
def list_overlaps(text: str, other: str) -> int:
    return int(bool((set(_items(text)) & set(_items(other))) - {None}))


def _items(text: str | None) -> list[Any]:
    """As they are spelled in the text: equal values are spelled alike."""
    return [] if text is None else list(json.loads(text))


def list_length(text: str | None, dimension: int | None = 1) -> int | None:
    """`array_length`: NULL for an empty array and for dimensions that are not there."""
    if text is None or dimension != 1:
        return None
    return len(list_values(ColumnType.INTEGER, text)) or None


@strict
def list_size(text: str) -> int:
    return len(list_values(ColumnType.INTEGER, text))


def _joined(numbers: Sequence[int]) -> str:
    """Piece by piece: other threads get their turn in between."""
    parts = []
    for at in range(0, len(numbers), SERIES_PIECE):
        stops.check()
        parts.append(",".join(map(str, numbers[at : at + SERIES_PIECE])))
    return f"[{','.join(parts)}]"


@strict
def series(start: int, stop: int, step: int) -> str:
    """`generate_series` over integers."""
    if step == 0:
        raise InvalidText("step size cannot equal zero", sqlstate="22023")
    numbers = range(start, stop + (1 if step > 0 else -1), step)
    if len(numbers) > MAX_SERIES:
        raise LimitExceeded(f"generate_series gives at most {MAX_SERIES} rows")
    return _joined(numbers)


@strict
def time_series(start: int, stop: int, months: int, days: int, rest: int) -> str:
    """`generate_series` of times, an interval apart."""
    forward = t_shift(start, months, days, rest)
    if forward == start:
        raise InvalidText("step size cannot equal zero", sqlstate="22023")
    found, at = [], start
    while at <= stop if forward > start else at >= stop:
        found.append(at)
        if len(found) % SERIES_PIECE == 0:
            stops.check()
        if len(found) > MAX_SERIES:
            raise LimitExceeded(f"generate_series gives at most {MAX_SERIES} rows")
        at = t_shift(at, months, days, rest)
    return _joined(found)


def scalars(known: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Every function of lists; `known` has those that read and write single values."""
    known = {**known, "n_parse": _key_parser(known["n_parse"])}
    found: dict[str, Callable[..., Any]] = {
        "a_make": make_list,
        "a_cat": list_cat,
        "a_append": list_append,
        "a_prepend": list_prepend,
        "a_place": list_place,
        "a_without": list_without,
        "a_length": list_length,
        "a_size": list_size,
        "a_series": series,
        "b_list_contains": list_contains,
        "b_list_overlaps": list_overlaps,
        "a_times": time_series,
    }
    for list_, letter in LETTERS.items():
        parse = known.get(f"{letter}_parse", lambda text: text)
        write = known.get(f"s_of_{letter}", lambda value: value)
        if letter == "b":
            write = _truth  # alone it is spelled out, in a list not
        found[f"{letter}_list"] = _reader(parse)
        found[f"s_of_{letter}_list"] = _writer(ELEMENTS[list_], write)
        found[f"{letter}_item"] = _picker(ELEMENTS[list_])
        found[f"{letter}_joined"] = _joiner(ELEMENTS[list_], write)
        for name in known:
            # What casts one value casts a list of them.
            if name.endswith(f"_of_{letter}") or (letter == "s" and name.endswith("_parse")):
                found[caster_name(name)] = _caster(ELEMENTS[list_], known[name])
    return found


def _key_parser(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """Numbers in a list have no zeros: lists are compared as texts."""

    def key(text: str | None) -> bytes | None:
        return None if text is None else key_form(parse(text))

    return key


def _truth(value: int) -> str:
    return "t" if value else "f"


def caster_name(name: str) -> str:
    """`s_of_i_list` writes a whole list, as the first of its kind did."""
    return f"{name}_items" if name.startswith("s_of_") else f"{name}_list"


def _reader(parse: Callable[[str], Any]) -> Callable[..., Any]:
    return strict(
        lambda text: list_text(None if item is None else parse(item) for item in split_list(text))
    )


def _writer(of: ColumnType, write: Callable[[Any], str]) -> Callable[..., Any]:
    return strict(
        lambda text: join_list(
            None if value is None else write(value) for value in list_values(of, text)
        )
    )


def _picker(of: ColumnType) -> Callable[..., Any]:
    @strict
    def pick(text: str, at: int) -> Any:
        values = list_values(of, text)
        return values[at - 1] if 0 < at <= len(values) else None

    return pick


def _joiner(of: ColumnType, write: Callable[[Any], str]) -> Callable[..., Any]:
    """`array_to_string`, which passes over NULLs."""

    @strict
    def join(text: str, separator: str) -> str:
        return separator.join(write(value) for value in list_values(of, text) if value is not None)

    return join


def _caster(of: ColumnType, cast: Callable[[Any], Any]) -> Callable[..., Any]:
    return strict(lambda text: list_text(cast(value) for value in list_values(of, text)))
