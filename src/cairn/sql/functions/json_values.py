"""JSON made from rows, and looked into: to_json, json_build_object, json_agg, @>, jsonb_set.

JSON is text here. What is put into it arrives as JSON already (`bind/expressions/json_making`);
None is JSON's null inside of objects and arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import msgspec

from cairn.model import stops
from cairn.model.errors import InvalidParameter, InvalidText
from cairn.model.types.decimals import encode_decimal, key_form
from cairn.model.types.values import ELEMENTS, ColumnType, list_values
from cairn.sql.functions.lists import LETTERS
from cairn.sql.functions.numbers import strict
from cairn.sql.functions.texts import Gathered, c_json_deep, read_json, short, write_json

_text = write_json


@strict
def j_text(text: str) -> str:
    return _text(text)


@strict
def j_bool(value: int) -> str:
    return "true" if value else "false"


@strict
def j_double(text: str) -> str:
    """JSON has no infinity: it becomes a text, as in PostgreSQL."""
    return text if text[-1:].isdigit() else _text(text)


@strict
def j_time(text: str) -> str:
    """ISO 8601: a T between day and time, the zone with its minutes."""
    found = text.replace(" ", "T", 1)
    return _text(f"{found}:00" if found.endswith("+00") else found)


def j_object(*parts: str | None) -> str:
    """Names and values in turn."""
    return "{" + ",".join(map(_member, parts[::2], parts[1::2])) + "}"


def _member(name: str | None, value: str | None) -> str:
    if name is None:
        raise InvalidText("argument of a key must not be null", sqlstate="22023")
    return f"{_text(name)}:{'null' if value is None else value}"


def j_array(*parts: str | None) -> str:
    return "[" + ",".join("null" if part is None else part for part in parts) + "]"


@strict
def i_json_length(data: str) -> int:
    value = read_json(data)
    if not isinstance(value, list):
        kind = "a scalar" if not isinstance(value, dict) else "a non-array"
        raise InvalidText(f"cannot get array length of {kind}", sqlstate="22023")
    return len(value)


_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}


@strict
def c_json_typeof(data: str) -> str:
    return _KINDS.get(type(read_json(data)), "number")


@strict
def b_json_contains(data: str, other: str) -> int:
    """`@>`"""
    outer, inner = read_json(data), read_json(other)
    if isinstance(outer, list) and not isinstance(inner, (list, dict)):
        return int(any(_same(each, inner) for each in outer))
    return int(_contains(outer, inner))


def _contains(outer: Any, inner: Any) -> bool:
    stops.check()  # every item of one list may be compared with every item of the other
    if isinstance(outer, dict) and isinstance(inner, dict):
        return all(key in outer and _contains(outer[key], inner[key]) for key in inner)
    if isinstance(outer, list) and isinstance(inner, list):
        return all(any(_contains(mine, each) for mine in outer) for each in inner)
    return _same(outer, inner)


def _same(left: Any, right: Any) -> bool:
    """Python takes true for 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


@strict
def b_json_has(data: str, key: str) -> int:
    """`?`"""
    return int(key in _keys(data))


@strict
def b_json_has_any(data: str, keys: str) -> int:
    """`?|`"""
    return int(not _keys(data).isdisjoint(list_values(ColumnType.STRING, keys)))


@strict
def b_json_has_all(data: str, keys: str) -> int:
    """`?&`; of no keys it is true, and NULL is none."""
    wanted = {key for key in list_values(ColumnType.STRING, keys) if key is not None}
    return int(wanted <= _keys(data))


def _keys(data: str) -> set[str]:
    """Of an object; the texts of an array; a text itself."""
    value = read_json(data)
    if isinstance(value, str):
        return {value}
    found = value if isinstance(value, (dict, list)) else ()
    return {each for each in found if isinstance(each, str)}


@strict
def c_json_under(data: str, path: str) -> str | None:
    """`#>`: the path is a list of texts."""
    steps = list_values(ColumnType.STRING, path)
    return data if not steps else c_json_deep(data, *steps)


@strict
def j_joined(left: str, right: str) -> str:
    """`||` of two values: objects are merged, all else becomes one list."""
    a, b = read_json(left), read_json(right)
    if isinstance(a, dict) and isinstance(b, dict):
        return _text({**a, **b})
    return _text([*(a if isinstance(a, list) else [a]), *(b if isinstance(b, list) else [b])])


@strict
def j_without(data: str, key: Any) -> str:
    """`-`: without a member, or an item by its place or its text."""
    value = read_json(data)
    if isinstance(key, int):
        if not isinstance(value, list | dict):
            raise InvalidText("cannot delete from scalar", sqlstate="22023")
        if isinstance(value, dict):
            raise InvalidText("cannot delete from object using integer index", sqlstate="22023")
        at = key if key >= 0 else key + len(value)
        return _text([each for place, each in enumerate(value) if place != at])
    if isinstance(value, dict):
        return _text({name: each for name, each in value.items() if name != key})
    if isinstance(value, list):
        return _text([each for each in value if each != key])
    raise InvalidText("cannot delete from scalar", sqlstate="22023")


@strict
def j_without_all(data: str, keys: str) -> str:
    """`-` with a list: without all of these."""
    value, gone = read_json(data), set(list_values(ColumnType.STRING, keys))
    if isinstance(value, dict):
        return _text({name: each for name, each in value.items() if name not in gone})
    if not isinstance(value, list):
        raise InvalidText("cannot delete from scalar", sqlstate="22023")
    return _text([each for each in value if not isinstance(each, str) or each not in gone])


def _container(data: str, what: str) -> Any:
    value = read_json(data)
    if not isinstance(value, list | dict):
        raise InvalidText(f"cannot {what} path in scalar", sqlstate="22023")
    return value


@strict
def j_set(data: str, path: str, new: str, create: int = 1) -> str:
    """`jsonb_set`"""
    value, fresh = _container(data, "set"), read_json(new)
    steps = _steps(path)
    if not steps or not (value or create):
        return data
    return _text(_put(value, steps, fresh, bool(create)))


def _steps(path: str) -> list[str]:
    found = list_values(ColumnType.STRING, path)
    if None in found:
        at = found.index(None) + 1
        raise InvalidParameter(f"path element at position {at} is null", sqlstate="22004")
    return [str(step) for step in found]


def _put(value: Any, steps: Sequence[str], new: Any, create: bool) -> Any:
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        if step in value:
            return {**value, step: _put(value[step], rest, new, create) if rest else new}
        return {**value, step: new} if create and not rest else value
    if isinstance(value, list):
        at = _place(step, len(value))
        if 0 <= at < len(value):
            changed = _put(value[at], rest, new, create) if rest else new
            return [*value[:at], changed, *value[at + 1 :]]
        if create and not rest:
            return [new, *value] if at < 0 else [*value, new]
    return value


def _place(step: str, length: int) -> int:
    """Of an item; those that are counted from the end are below zero if there is none."""
    if not step.lstrip("-").isdecimal():
        raise InvalidText(f'path element is not an integer: "{short(step)}"', sqlstate="22P02")
    at = int(step) if len(step) < 19 else length
    return at + length if at < 0 else at


@strict
def j_insert(data: str, path: str, new: str, after: int = 0) -> str:
    """`jsonb_insert`: a member that is not there yet, or an item before or after another."""
    value, fresh = _container(data, "set"), read_json(new)
    steps = _steps(path)
    return _text(_inserted(value, steps, fresh, bool(after))) if steps else data


def _inserted(value: Any, steps: Sequence[str], new: Any, after: bool) -> Any:
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        if rest:
            return (
                {**value, step: _inserted(value[step], rest, new, after)}
                if step in value
                else value
            )
        if step in value:
            raise InvalidText("cannot replace existing key", sqlstate="22023")
        return {**value, step: new}
    if not isinstance(value, list):
        return value
    at = _place(step, len(value))
    if rest:
        if not 0 <= at < len(value):
            return value
        return [*value[:at], _inserted(value[at], rest, new, after), *value[at + 1 :]]
    at = min(max(at, 0), len(value)) + (after and 0 <= at < len(value))
    return [*value[:at], new, *value[at:]]


@strict
def j_cut(data: str, path: str) -> str:
    """`#-`"""
    steps = _steps(path)
    value = _container(data, "delete")
    return _text(_cut(value, steps)) if steps and value else data


def _cut(value: Any, steps: Sequence[str]) -> Any:
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict) and step in value:
        others = {name: each for name, each in value.items() if name != step}
        return {**value, step: _cut(value[step], rest)} if rest else others
    if isinstance(value, list) and 0 <= (at := _place(step, len(value))) < len(value):
        middle = [_cut(value[at], rest)] if rest else []
        return [*value[:at], *middle, *value[at + 1 :]]
    return value


@strict
def c_json_canonical(data: str) -> str:
    """Equal values are equal texts, as jsonb compares them."""
    return _text(_canonical(read_json(data)))


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _canonical(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_canonical(each) for each in value]
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return str(Decimal(value).normalize(_EXACT)) if value else "0"
    return value if not isinstance(value, str) else f"'{value}"


@strict
def x_json_key(data: str) -> bytes:
    """Sorts as jsonb does: NULL, texts, numbers, booleans, arrays by their length, objects. What is
    no container stands as a list of one thing, before the list that has only it."""
    value = read_json(data)
    if isinstance(value, dict):
        return _sorting(value)
    items = value if isinstance(value, list) else [value]
    head = b"\4" + len(items).to_bytes(8, "big") + bytes([isinstance(value, list)])
    return head + b"".join(map(_sorting, items))


def _sorting(value: Any) -> bytes:
    stops.check()
    if value is None:
        return b"\0"
    if isinstance(value, str):
        return b"\1" + _ended(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bool):
        return b"\3" + bytes([value])
    if isinstance(value, list):
        return b"\4" + len(value).to_bytes(8, "big") + b"".join(map(_sorting, value))
    if isinstance(value, dict):
        names = sorted((len(name.encode()), name.encode(), name) for name in value)
        members = (_ended(text) + _sorting(value[name]) for _, text, name in names)
        return b"\5" + len(value).to_bytes(8, "big") + b"".join(members)
    return b"\2" + _ended(key_form(encode_decimal(Decimal(value))))


def _ended(data: bytes) -> bytes:
    """None of these begins another one."""
    return data.replace(b"\0", b"\0\xff") + b"\0\0"


_EXACT = Context(prec=10_000, Emax=10**9, Emin=-(10**9))


@strict
def c_json_pretty(data: str) -> str:
    return msgspec.json.format(write_json(read_json(data)), indent=4)


@strict
def j_stripped(data: str) -> str:
    """`jsonb_strip_nulls`"""
    value = read_json(data)
    return data if value is None else _text(_stripped(value))


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stripped(each) for name, each in value.items() if each is not None}
    return [_stripped(each) for each in value] if isinstance(value, list) else value


@strict
def a_json_items(data: str) -> str:
    """The items of an array, each as JSON, as a list that SQLite can take apart."""
    value = read_json(data)
    if not isinstance(value, list):
        raise InvalidText("cannot extract elements from a non-array", sqlstate="22023")
    return _text([_text(each) for each in value])


@strict
def a_json_texts(data: str) -> str:
    value = read_json(data)
    if not isinstance(value, list):
        raise InvalidText("cannot extract elements from a non-array", sqlstate="22023")
    return _text([_shown(each) for each in value])


@strict
def a_json_keys(data: str) -> str:
    value = read_json(data)
    if not isinstance(value, dict):
        raise InvalidText("cannot call json_object_keys on a non-object", sqlstate="22023")
    return _text(list(value))


def _members(data: str) -> dict[str, Any]:
    value = read_json(data)
    if not isinstance(value, dict):
        raise InvalidText("cannot deconstruct a non-object", sqlstate="22023")
    return value


@strict
def a_json_pairs(data: str) -> str:
    """Names and values, each value as JSON."""
    return _text([[name, _text(each)] for name, each in _members(data).items()])


@strict
def a_json_text_pairs(data: str) -> str:
    return _text([[name, _shown(each)] for name, each in _members(data).items()])


def _shown(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _text(value)


def list_writer(known: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """`j_list`: a list of any type as JSON."""

    @strict
    def j_list(text: str, word: str) -> str:
        type_ = next((each for each in LETTERS if each.value == word), None)
        if type_ is None:
            raise InvalidText(f'type "{short(word)}" is no array', sqlstate="42704")
        letter, of = LETTERS[type_], ELEMENTS[type_]
        write = known.get(f"s_of_{letter}", str)
        make = _MAKERS.get(letter, j_text)
        return j_array(
            *(
                None if each is None else make(each if letter == "b" else write(each))
                for each in list_values(of, text)
            )
        )

    return j_list


_MAKERS: dict[str, Callable[..., Any]] = {
    "i": str, "n": str, "d": j_double, "t": j_time, "m": j_time, "b": j_bool, "o": str,
}  # fmt: skip


class JsonAgg(Gathered):
    """`json_agg`: NULLs stay, no rows give NULL."""

    def add(self, value: str | None) -> None:
        self.gather("null" if value is None else value)

    def remove(self, value: str | None) -> None:
        self.let_go()

    def value(self) -> str | None:
        return f"[{','.join(self.parts)}]" if self.parts else None


class JsonObjectAgg(JsonAgg):
    """`json_object_agg`"""

    def add(self, name: str | None, value: str | None = None) -> None:  # type: ignore[override]
        self.gather(_member(name, value))

    def remove(self, name: str | None, value: str | None = None) -> None:  # type: ignore[override]
        self.let_go()

    def value(self) -> str | None:
        return "{" + ",".join(self.parts) + "}" if self.parts else None
