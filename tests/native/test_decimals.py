"""DECIMAL in C gives the bytes and the errors that Python gives."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError
from cairn.model.types.decimals import encode_decimal, encode_shown
from cairn.native.library import library
from cairn.native.loading import FUNCTIONS, load
from cairn.sql.functions.functions import SCALARS, register
from cairn.sql.functions.numbers import DecimalSum, KeepingSum
from cairn.storage.sqlite_errors import translated

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

SOURCE = Path(__file__).parents[2] / "src/cairn/native/decimal_functions.c"
NAMES = re.findall(r'\{"(\w+)", (\d), \w+\}', SOURCE.read_text())
#: What stands where in the arguments: a DECIMAL (n), places (p), a whole number (i), a real (d).
KINDS = {
    **dict.fromkeys(("n_of_i",), "i"),
    **dict.fromkeys(("n_of_d",), "d"),
    **dict.fromkeys(("n_round", "z_round", "n_trunc", "z_trunc", "n_padded"), "np"),
    "n_scaled": "npp",
}
EXTREME = (
    *("0", "0.0", "0.00000", "1", "-1", "1.50", "-1.50", "0.5", "-0.5", "2.5", "1e37", "9" * 38),
    *("-" + "9" * 38, "0." + "9" * 38, "1e-38", "0." + "0" * 37 + "1", "100", "1e20", "123456789"),
    *("9" * 37 + ".9", "0.1", "-0.10", "1234567890.0987654321", "1e-30", "5e-1", "10.00", "99.995"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775807.5", "1" + "0" * 40),
    *("1" * 39, "1e100", "-1e-100", "1e300", "3e-300", "7" * 120, "1." + "3" * 80),
    *("0." + "0" * 200, "5" * 19, "5" * 20, "1e19", "0.3333333333333333"),
    *("1e-200", "1e-201", "1e-61", "1e-60"),
)  # fmt: skip
WRONG: list[Any] = [b"", b"\x02\x05", b"\x03", b"\x03\x80", b"\x03\x80\x00", b"\xff\x01\x02\x03"]


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    made = apsw.Connection(":memory:")
    register(made)
    assert load(made, FUNCTIONS)
    yield made
    made.close()


def drawn(chance: random.Random) -> bytes:
    """A number as columns and expressions have it: with zeros or not, now and then a wide one."""
    if chance.random() < 0.1:
        text = chance.choice(EXTREME)
    else:
        whole, scale = chance.randint(0, 22), chance.choice((0, 2, 2, 2, 5, 12, 30))
        number = chance.randint(-(10**whole), 10**whole)
        text = f"{number}.{chance.randint(0, 10**scale - 1):0{scale}d}" if scale else str(number)
        if chance.random() < 0.3:
            text = text.rstrip("0123456789") + "5" if scale else text + "000"
            text = text if text[-1] != "." else text + "0"
    return chance.choice((encode_shown, encode_decimal))(Decimal(text))


def argument(chance: random.Random, kind: str) -> Any:
    if chance.random() < 0.02:
        return None
    match kind:
        case "p":
            return chance.choice((0, 0, 1, 2, 2, 3, 5, 10, 20, 38, 39, 60, -1, -3, -38, -50, 250))
        case "i":
            return chance.choice((0, 1, -1, 10**18, 2**63 - 1, -(2**63), chance.randint(-999, 999)))
        case "d":
            power = 10.0 ** chance.randint(-25, 25)
            return chance.choice((0.0, -0.0, 1e18, 1e-18, 0.1, 1e308, 5e-324, float("inf"), power))
    return drawn(chance)


def told_by_python(name: str, args: tuple[Any, ...]) -> Any:
    try:
        return SCALARS[name](*args)
    except CairnError as problem:
        return type(problem), str(problem), problem.sqlstate


def told_by_c(connection: Any, name: str, args: tuple[Any, ...]) -> Any:
    try:
        [(found,)] = connection.execute(f"SELECT {name}({', '.join('?' * len(args))})", args)
    except CairnError as problem:  # of the function in Python, which was asked
        return type(problem), str(problem), problem.sqlstate
    except apsw.Error as problem:
        told = translated(problem)
        return type(told), str(told), told.sqlstate
    return found


def kinds_of(name: str, count: str) -> str:
    return KINDS.get(name, "n" * int(count))[: int(count)]


@pytest.mark.parametrize(("name", "count"), NAMES)
def test_each_says_the_same(connection: Any, name: str, count: str) -> None:
    chance, kinds = random.Random(name), kinds_of(name, count)
    for _ in range(3_000):
        args = tuple(argument(chance, kind) for kind in kinds)
        assert told_by_c(connection, name, args) == told_by_python(name, args), (name, args)


@pytest.mark.parametrize(("name", "count"), [each for each in NAMES if kinds_of(*each) == "nn"])
def test_extreme_numbers_meet(connection: Any, name: str, count: str) -> None:
    for one in EXTREME:
        for other in EXTREME:
            args = encode_shown(Decimal(one)), encode_decimal(Decimal(other))
            assert told_by_c(connection, name, args) == told_by_python(name, args), (name, args)


@pytest.mark.parametrize(("name", "count"), NAMES)
def test_what_is_no_number_is_refused_as_python_does(
    connection: Any, name: str, count: str
) -> None:
    chance, kinds = random.Random(name), kinds_of(name, count)
    for wrong in (*WRONG, "1", 7):
        args = (wrong, *(argument(chance, kind) for kind in kinds[1:]))
        if None not in args:
            ours, theirs = told_by_c(connection, name, args), told_by_python(name, args)
            assert isinstance(ours, tuple) == isinstance(theirs, tuple), (name, args, ours, theirs)


def test_thousands_of_damaged_numbers_end_nothing(connection: Any) -> None:
    chance = random.Random(5)
    for _ in range(5_000):
        bytes_ = bytearray(drawn(chance))
        bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        told_by_c(connection, "n_add", (bytes(bytes_[: chance.randint(0, 30)]), drawn(chance)))


# --- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "twin"), [("n_sum", DecimalSum), ("z_sum", KeepingSum)])
@pytest.mark.parametrize("seed", range(40))
def test_sums_are_equal(connection: Any, name: str, twin: Any, seed: int) -> None:
    chance = random.Random(seed)
    rows = [None if chance.random() < 0.1 else drawn(chance) for _ in range(chance.randint(0, 60))]
    state = twin()
    for each in rows:
        state.add(each)
    values = ", ".join(["(?)"] * len(rows)) or "(NULL)"
    [(found,)] = connection.execute(f"SELECT {name}(column1) FROM (VALUES {values})", rows)
    assert found == state.value(), (seed, rows)


@pytest.mark.parametrize(("name", "twin"), [("n_sum", DecimalSum), ("z_sum", KeepingSum)])
@pytest.mark.parametrize("seed", range(20))
def test_sums_of_a_moving_frame_are_equal(connection: Any, name: str, twin: Any, seed: int) -> None:
    chance = random.Random(seed)
    rows = [None if chance.random() < 0.2 else drawn(chance) for _ in range(30)]
    width = chance.randint(0, 5)
    expected = []
    state = twin()
    for at, each in enumerate(rows):
        state.add(each)
        if at > width:
            state.remove(rows[at - width - 1])
        expected.append(state.value())
    connection.execute("CREATE TEMP TABLE moving (at INTEGER PRIMARY KEY, value)")
    try:
        connection.executemany("INSERT INTO moving VALUES (?, ?)", list(enumerate(rows)))
        frame = f"ORDER BY at ROWS BETWEEN {width} PRECEDING AND CURRENT ROW"
        told = connection.execute(f"SELECT {name}(value) OVER ({frame}) FROM moving ORDER BY at")
        assert [value for (value,) in told] == expected, seed
    finally:
        connection.execute("DROP TABLE moving")


def test_a_sum_of_what_is_no_number_is_refused_and_forgotten(connection: Any) -> None:
    for wrong in (b"\x03\x80", "x", 5):
        with pytest.raises((CairnError, apsw.Error)):
            connection.execute("SELECT z_sum(?) FROM (VALUES (1), (2))", (wrong,)).fetchall()
    assert connection.execute("SELECT z_sum(NULL)").fetchall() == [(None,)]


@pytest.mark.parametrize("text", ["n_add(x, x)", "n_sum(x)", "z_sum(x)", "c_like(x, x, '')"])
def test_a_statement_that_is_stopped_while_python_is_asked_is_stopped(
    connection: Any, text: str
) -> None:
    """With any step as the last one; it is no error of the function."""
    wide = encode_decimal(Decimal("1e100")) if "like" not in text else "é" * 70_000
    asked = f"SELECT {text} FROM (SELECT ? AS x UNION ALL SELECT ?)"
    for last in range(1, 40):
        steps = iter(range(last))
        connection.set_progress_handler(lambda steps=steps: next(steps, None) is None, 1)
        try:
            connection.execute(asked, (wide, wide)).fetchall()
        except apsw.InterruptError:
            pass
        finally:
            connection.set_progress_handler(None)
