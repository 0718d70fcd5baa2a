"""Arithmetic in C gives the values and the errors that Python gives."""

from __future__ import annotations

import itertools
import math
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError
from cairn.native.library import library
from cairn.native.loading import FUNCTIONS, load
from cairn.sql.functions.functions import SCALARS, register
from cairn.storage.sqlite_errors import translated
from tests.sql.test_total import CASES, EXTREMES

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

SOURCE = Path(__file__).parents[2] / "src/cairn/native/functions.c"
NAMES = dict(re.findall(r'\{"(\w+)", (\d), \w+\}', SOURCE.read_text()))
KINDS = {name: kinds for name, kinds in CASES if name in NAMES}


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    """Without Python's functions: what answers here is C."""
    made = apsw.Connection(":memory:")
    assert load(made, FUNCTIONS)
    yield made
    made.close()


def random_value(chance: random.Random, kind: str) -> Any:
    if kind == "D":
        [found] = struct.unpack("d", chance.randbytes(8))
        return 0.5 if found != found else found
    if kind == "S":
        return "".join(
            chr(chance.choice((97, 233, 8364, 128512))) for _ in range(chance.randint(0, 9))
        )
    if kind == "B":
        return chance.randint(0, 1)
    return chance.randint(-(2 ** chance.randint(1, 63)), 2 ** chance.randint(1, 63) - 1)


def in_python(name: str, args: tuple[Any, ...]) -> Any:
    try:
        found = SCALARS[name](*args)
    except CairnError as problem:
        return type(problem), str(problem), problem.sqlstate, problem.hint
    return type(found), found


def in_c(connection: Any, name: str, args: tuple[Any, ...]) -> Any:
    try:
        [(found,)] = connection.execute(f"SELECT {name}({', '.join('?' * len(args))})", args)
    except apsw.Error as problem:
        told = translated(problem)
        return type(told), str(told), told.sqlstate, told.hint
    return type(found), found


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_says_the_same(connection: Any, name: str) -> None:
    kinds = KINDS[name]
    assert len(kinds) == int(NAMES[name])
    chance = random.Random(name)
    known = [[each for each in (*EXTREMES[kind], None) if each != "\ud800"] for kind in kinds]
    drawn = (tuple(random_value(chance, kind) for kind in kinds) for _ in range(2_000))
    for args in itertools.chain(itertools.product(*known), drawn):
        assert in_c(connection, name, args) == in_python(name, args), (name, args)


@pytest.mark.parametrize("value", [2.0**63, -(2.0**63), math.nextafter(2.0**63, 0), 0.5, -1.5])
def test_a_real_at_the_edge_becomes_a_whole_number_or_is_refused(
    connection: Any, value: float
) -> None:
    assert in_c(connection, "i_of_d", (value,)) == in_python("i_of_d", (value,))


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("wrong", [b"\xff", "1"])
def test_a_value_of_another_type_is_refused(connection: Any, name: str, wrong: Any) -> None:
    args = (*(random_value(random.Random(1), kind) for kind in KINDS[name][1:]), wrong)
    if KINDS[name][-1] == "S" and isinstance(wrong, str):
        return  # of the right type
    with pytest.raises(apsw.SQLError, match="of another type"):
        connection.execute(f"SELECT {name}({', '.join('?' * len(args))})", args).fetchall()


def test_they_take_the_place_of_those_in_python(connection: Any) -> None:
    both = apsw.Connection(":memory:")
    register(both)
    load(both, FUNCTIONS)
    with pytest.raises(apsw.SQLError, match=r"^integer out of range$"):  # an error of SQLite's
        both.execute("SELECT i_add(9223372036854775807, 1)").fetchall()
    both.close()
