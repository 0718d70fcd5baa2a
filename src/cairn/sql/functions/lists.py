"""Arrays of one dimension: what `ARRAY[…]`, `'{…}'`, `= ANY(…)` and array_agg are made of.

Inside SQLite a list is JSON text of physical values (`model.values.list_text`). Functions that
have to know what is in the list are made once for each type, under its letter: `i_list`, `n_list`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from cairn.model.errors import InvalidText, LimitExceeded
from cairn.model.values import ELEMENTS, ColumnType, list_text, list_values
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
}
MAX_SERIES = 1_000_000
SERIES_PIECE = 5_000
_ITEM = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^\\",{}\s]|\\.|\s+(?=[^\s,}]))+))\s*', re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(r'[\s"\\{},]|^$|^null$', re.IGNORECASE)


def split_list(text: str) -> list[str | None]:
    """The items of `{a,"b c",NULL}`."""
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}") and len(body) > 1):
        raise InvalidText(
            f'malformed array literal: "{text}"',
            detail='Array value must start with "{" or dimension information.',
        )
    body, found, at = body[1:-1], [], 0
    if not body.strip():
        return []
    while True:
        match = _ITEM.match(body, at)
        if match is None:
            raise InvalidText(f'malformed array literal: "{text}"')
        quoted, bare = match.groups()
        is_null = bare is not None and bare.upper() == "NULL"
        word = quoted if quoted is not None else bare
        found.append(None if is_null else _ESCAPED.sub(r"\1", word))
        at = match.end()
        if at == len(body):
            return found
        if body[at] != ",":
            raise InvalidText(f'malformed array literal: "{text}"')
        at += 1


def make_list(*values: Any) -> str:
    return list_text(values)


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
    parts = [
        ",".join(map(str, numbers[at : at + SERIES_PIECE]))
        for at in range(0, len(numbers), SERIES_PIECE)
    ]
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
        if len(found) > MAX_SERIES:
            raise LimitExceeded(f"generate_series gives at most {MAX_SERIES} rows")
        at = t_shift(at, months, days, rest)
    return _joined(found)


def scalars(known: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Every function of lists; `known` has those that read and write single values."""
    found: dict[str, Callable[..., Any]] = {
        "a_make": make_list,
        "a_length": list_length,
        "a_size": list_size,
        "a_series": series,
        "a_times": time_series,
    }
    for list_, letter in LETTERS.items():
        parse = known.get(f"{letter}_parse", lambda text: text)
        write = known.get(f"s_of_{letter}", lambda value: value)
        found[f"{letter}_list"] = _reader(parse)
        found[f"s_of_{letter}_list"] = _writer(ELEMENTS[list_], write)
        found[f"{letter}_item"] = _picker(ELEMENTS[list_])
        found[f"{letter}_joined"] = _joiner(ELEMENTS[list_], write)
    for source, target in (("i", "n"), ("i", "d"), ("n", "d"), ("n", "i"), ("d", "i"), ("d", "n")):
        of = next(ELEMENTS[list_] for list_, letter in LETTERS.items() if letter == source)
        name = f"{target}_of_{source}"
        found[f"{name}_list"] = _caster(of, known[name])
    return found


def _reader(parse: Callable[[str], Any]) -> Callable[..., Any]:
    return strict(
        lambda text: list_text(None if item is None else parse(item) for item in split_list(text))
    )


def _writer(of: ColumnType, write: Callable[[Any], str]) -> Callable[..., Any]:
    def one(value: Any) -> str:
        if value is None:
            return "NULL"
        text = write(value)
        if not _QUOTED.search(text):
            return text
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return strict(lambda text: "{" + ",".join(map(one, list_values(of, text))) + "}")


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
