"""Arrays of one dimension: what `ARRAY[…]`, `'{…}'`, `= ANY(…)` and array_agg are made of.

Inside SQLite a list is JSON text of physical values (`model.values.list_text`). Functions that
have to know what is in the list are made once for each type, under its letter: `i_list`, `n_list`.
"""

from __future__ import annotations

import json
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from cairn.model import stops
from cairn.model.errors import InvalidText, LimitExceeded
from cairn.model.types.array_text import CHECKED, join_list, split_list
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
    ColumnType.TIMES: "h",
    ColumnType.VARBINARIES: "x",
    ColumnType.JSONBS: "o",
}
MAX_SERIES = 1_000_000
SERIES_PIECE = 5_000
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])  # values of a list as they are spelled


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


def zipped(*texts: str | None) -> str:
    """`unnest` of several: a list of lists, the shorter ones filled with NULL."""
    columns = [_RAW_ITEMS.decode(text or "[]") for text in texts]
    rows = zip_longest(*columns, fillvalue=b"null")
    return (b"[" + b",".join(b"[" + b",".join(row) + b"]" for row in rows) + b"]").decode()


def list_place(text: str | None, value: Any, start: int | None = 1) -> int | None:
    """`array_position`, which finds NULL too."""
    if text is None:
        return None
    if start is None:
        raise InvalidText("initial position must not be null", sqlstate="22004")
    items, wanted, before = _items(text), _items(list_text((value,)))[0], max(start - 1, 0)
    return items.index(wanted, before) + 1 if wanted in items[before:] else None


def list_without(text: str | None, value: Any) -> str | None:
    if text is None:
        return None
    wanted = _items(list_text((value,)))[0]
    return json.dumps(
        [each for each in _items(text) if each != wanted], separators=(",", ":"), ensure_ascii=False
    )


def list_places(text: str | None, value: Any) -> str | None:
    """`array_positions`, which finds NULL too."""
    if text is None:
        return None
    wanted = _items(list_text((value,)))[0]
    return list_text(at for at, each in enumerate(_items(text), 1) if each == wanted)


def list_replaced(text: str | None, old: Any, new: Any) -> str | None:
    """`array_replace`, which finds NULL too."""
    if text is None:
        return None
    before, after = _items(list_text((old, new)))
    found = [after if each == before else each for each in _items(text)]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def list_slice(text: str | None, first: int | None, last: int | None) -> str | None:
    """`a[first:last]`: what of it is there."""
    if text is None or first is None or last is None:
        return None
    found = _items(text)[max(first - 1, 0) : max(last, 0)]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


@strict
def list_picked(text: str, places: str) -> str:
    """Those at these places, counted from 1."""
    items = _items(text)
    found = [items[at - 1] if at and 0 < at <= len(items) else None for at in _items(places)]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


@strict
def list_trimmed(text: str, count: int) -> str | None:
    """`trim_array`: without so many at the end."""
    items = _items(text)
    if not 0 <= count <= len(items):
        raise InvalidText(
            f"number of elements to trim must be between 0 and {len(items)}", sqlstate="2202E"
        )
    return list_slice(text, 1, len(items) - count)


@strict
def list_key(text: str, word: str) -> str:
    """By which lists are sorted: item by item, a shorter one first, NULL behind all values."""
    of = next((ELEMENTS[each] for each in LETTERS if each.value == word), ColumnType.STRING)
    parts = ["02" if each is None else "01" + _item_key(each) for each in list_values(of, text)]
    return "".join(parts) + "00"


def _item_key(value: Any) -> str:
    """Hex digits that sort as the values do, and none of which begins another one's."""
    if isinstance(value, int):
        return f"{value + (1 << 63):016x}"
    if isinstance(value, float):
        (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
        return f"{bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | 1 << 63:016x}"
    data = value if isinstance(value, bytes) else str(value).encode()
    return data.replace(b"\0", b"\0\xff").hex() + "0000"


@strict
def list_contains(text: str, other: str) -> int:
    """`@>`: every value of the other is in it; NULL is in none."""
    return int(None not in (inner := _items(other)) and set(inner) <= set(_items(text)))


@strict
def list_overlaps(text: str, other: str) -> int:
    return int(bool((set(_items(text)) & set(_items(other))) - {None}))


def list_compared(value: Any, text: str | None, word: str, sign: str, is_any: int) -> int | None:
    """`value < ANY(list)`, `value >= ALL(list)`: NULL where an unknown one would decide."""
    if text is None:
        return None
    of = next((ELEMENTS[each] for each in LETTERS if each.value == word), ColumnType.STRING)
    items = list_values(of, text)
    known = [each for each in items if each is not None]
    if value is None:
        return None if items else int(not is_any)
    compare: Callable[[Any, Any], Any] = _SIGNS.get(sign, operator.eq)
    if any(bool(compare(value, each)) == bool(is_any) for each in known):
        return is_any
    return int(not is_any) if len(known) == len(items) else None


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


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
def checked_step(step: int) -> int:
    if step == 0:
        raise InvalidText("step size cannot equal zero", sqlstate="22023")
    return step


@strict
def series(start: int, stop: int, step: int) -> str:
    """`generate_series` over integers whose rows have numbers, or that neighbours in FROM give."""
    checked_step(step)
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
    known = {**known, "n_parse": _key_parser(known["n_parse"]), "o_parse": known["j_check"]}
    found: dict[str, Callable[..., Any]] = {
        "a_make": make_list,
        "a_zip": zipped,
        "a_cat": list_cat,
        "a_append": list_append,
        "a_prepend": list_prepend,
        "a_place": list_place,
        "a_without": list_without,
        "a_places": list_places,
        "a_replaced": list_replaced,
        "a_slice": list_slice,
        "a_items": list_picked,
        "a_trimmed": list_trimmed,
        "a_key": list_key,
        "a_length": list_length,
        "a_size": list_size,
        "a_series": series,
        "i_step": checked_step,
        "b_list_contains": list_contains,
        "b_list_overlaps": list_overlaps,
        "b_list_compared": list_compared,
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
    def values(text: str) -> Iterator[Any]:
        for at, item in enumerate(split_list(text)):
            if not at % CHECKED:
                stops.check()
            yield None if item is None else parse(item)

    return strict(lambda text: list_text(values(text)))


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
    """`array_to_string`, which passes over NULLs, or shows them as it is told."""

    def join(text: str | None, separator: str | None, null: str | None = None) -> str | None:
        if text is None or separator is None:
            return None
        values = list_values(of, text)
        shown = [null if value is None else write(value) for value in values]
        return separator.join(each for each in shown if each is not None)

    return join


def _caster(of: ColumnType, cast: Callable[[Any], Any]) -> Callable[..., Any]:
    return strict(lambda text: list_text(cast(value) for value in list_values(of, text)))
