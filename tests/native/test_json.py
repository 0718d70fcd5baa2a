"""`->`, `->>` and subscripts in C give the values and the errors that Python gives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from cairn.native.library import library
from tests.native.test_decimals import connection, told_by_c, told_by_python

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")
__all__ = ["connection"]
NAMES = ("a", "b", "żółć", "0", "-1", "12", "", "a b", 'q"', "\u2028", "back\\", "\x7f", "\t")
#: As people, drivers and attackers write it.
WRITTEN = (
    *('{"a":1}', '{"a":1,"a":2}', '{"a": 1}', ' {"a":1}', '{"a":1} ', '{"a":1}}', '{"a":1', "{"),
    *(
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        "{,}",
        '{"a":1 ,"b":2}',
        "[]",
        "[1,2,3]",
        "[1,2,]",
        "[,]",
        "[",
    ),
    *(
        "null",
        "true",
        "false",
        "nul",
        "truex",
        "0",
        "-0",
        "00",
        "01",
        "1.50",
        "1e3",
        "-1",
        "1.",
        ".5",
    ),
    *(
        '"x"',
        '"',
        '"a\\nb"',
        '"\\u0000"',
        '"\\ud800"',
        "1234567890123456789",
        "12345678901234567890",
    ),
    *(
        '{"a":1.50}',
        '{"a":[1.0,2]}',
        '{"a":{"b":1,"b":2}}',
        '{"b":{"x":1,"x":1},"a":7}',
        '{"a":"\\""}',
    ),
    *('{"a":null}', '{"a":[null]}', '[{"a":[[["x"]]]}]', "[" * 60 + "]" * 60, '[1,{"a":-0}]', ""),
    *('{"\\u0061":1}', '{"a":NaN}', "[Infinity]", '{"a":1}{"a":2}', '{"a":"' + "x" * 300 + '"}'),
)
KEYS = (*NAMES, None, 0, 1, 2, -1, -2, -3, 10**18, -(10**18), "1", "-", "--1", "1-", "x", 1.5)


def same(connection: Any, name: str, args: tuple[Any, ...]) -> None:
    assert told_by_c(connection, name, args) == told_by_python(name, args), (name, args)


def value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(9 if depth else 6)
    if kind < 6:
        whole = chance.randint(-(10 ** chance.randint(1, 20)), 10**6)
        return chance.choice((None, True, False, whole, chance.choice(NAMES), chance.random()))
    if kind == 6:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    names = chance.sample(NAMES, chance.randrange(5))
    return {name: value(chance, depth - 1) for name in names}


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_written_in_any_way_is_read_alike(connection: Any, text: str) -> None:
    same(connection, "c_json_shown", (text,))
    for key in KEYS:
        for name in ("c_json_path", "c_index"):
            if key != 1.5:  # no type of ours gives it
                same(connection, name, (text, key))


@pytest.mark.parametrize("seed", range(5))
def test_generated_values_are_read_alike(connection: Any, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(400):
        made = value(chance, 4)
        blanks = chance.choice(((",", ":"), (", ", ": ")))
        text = json.dumps(made, separators=blanks, ensure_ascii=chance.random() < 0.2)
        same(connection, "c_json_shown", (text,))
        for key in chance.sample(KEYS[:-1], 6):
            same(connection, "c_json_path", (text, key))
            same(connection, "c_index", (text, key))


@pytest.mark.parametrize("seed", range(5))
def test_damaged_texts_are_refused_alike(connection: Any, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(400):
        text = list(json.dumps(value(chance, 3), separators=(",", ":"), ensure_ascii=False))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text))
            text[at : at + chance.randrange(2)] = chance.choice(
                ['"', "{", "}", "[", "]", ",", ":", "1", ""]
            )
            text = text or ["x"]
        damaged = "".join(text)
        same(connection, "c_json_shown", (damaged,))
        same(connection, "c_json_path", (damaged, chance.choice(NAMES)))
        same(connection, "c_json_path", (damaged, chance.randint(-3, 3)))


LISTS = (
    *(
        '["a","b"]',
        "[]",
        "[null]",
        '["a",null]',
        "[1,-2,3]",
        '["\\"x"]',
        '["0a",1]',
        "[1.5]",
        "[true]",
    ),
    *('[ "a"]', '["żółć"]', "[0,-0]", "{}"),
)


@pytest.mark.parametrize("text", LISTS)
def test_items_of_arrays_are_read_alike(connection: Any, text: str) -> None:
    for at in (None, -1, 0, 1, 2, 3, 4, 10**12):
        if text != "{}":  # no array is written so
            same(connection, "s_item", (text, at))
            same(connection, "i_item", (text, at))


def test_parts_of_texts_are_equal(connection: Any) -> None:
    texts = ("a@b", "", "@", "@@", "a@@b@", "ab", "żółć@x", "a::b::", ":::", None)
    for text in texts:
        for mark in ("@", "::", ":", "", "ab", "ć@", "abcdef", None):
            for at in (1, 2, 3, 4, 0, -1, -2, 2**62, None):
                same(connection, "c_split_part", (text, mark, at))


def test_texts_are_the_same_whole_numbers(connection: Any) -> None:
    for text in (
        *("0", "-0", "12", " 12", "12 ", "+5", "1_000", "٣", "", "-", "--1", "1.0", "1e3", "x"),
        *(
            "999999999999999999",
            "-999999999999999999",
            "9223372036854775807",
            "9223372036854775808",
        ),
        *("000000000000000000000001", "0x1f", None),
    ):
        same(connection, "i_parse", (text,))


def test_plain_values_do_not_need_python(connection: Any) -> None:
    """Else it would be no quicker, and nobody would notice."""
    asked: list[str] = []
    for name in ("c_json_path", "c_json_shown", "c_index"):
        connection.create_scalar_function(f"p_{name}", lambda *args: asked.append("x"), -1)
    text = '{"name":"Ania","age":33,"tags":["x","y"],"deep":{"on":true,"n":null}}'
    for key, found in (
        ("name", "Ania"),
        ("age", "33"),
        ("deep", '{"on":true,"n":null}'),
        ("no", None),
    ):
        [(told,)] = connection.execute("SELECT c_json_shown(c_json_path(?, ?))", (text, key))
        assert told == found
    [(last, first)] = connection.execute("SELECT c_json_path('[1,2]', -1), c_index('[1,2]', 1)")
    assert (last, first, asked) == ("2", "1", [])
