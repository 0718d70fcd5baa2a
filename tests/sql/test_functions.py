"""Functions on physical values, run inside SQLite: exact numbers, PostgreSQL's texts and errors."""

# ruff: noqa: E501 (a case is one line)

from __future__ import annotations

from decimal import Decimal
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError, DivisionByZero, OutOfRange
from cairn.model.settings import limits
from cairn.sql.functions import functions
from cairn.sql.functions.functions import double_text

from .harness import Cluster, connection

cluster = Cluster()


def value(text: str) -> Any:
    return cluster.run(f"SELECT {text}")[0][0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1 + 0.2", Decimal("0.3")),
        ("1.10 * 3", Decimal("3.3")),
        ("1 / 3.0", Decimal("0.33333333333333333333")),
        ("10.0 / 3", Decimal("3.3333333333333333")),
        ("-7 / 2", -3),
        ("'5'::unsigned + 1", 6),
        ("cast('5' AS string)", "5"),
        ("'1'::numeric + '2'::decimal(5, 2)", Decimal(3)),
        ("12.345::decimal(4, 1)", Decimal("12.3")),
        ("'2024-01-02 03:04:05'::timestamp::text", "2024-01-02 03:04:05"),
        ("'2024-01-02 03:04:05'::timestamp with time zone::date::text", "2024-01-02"),
        ("'abcdef'::varchar(3)", "abc"),
        ("'t'::bool AND 'on'::boolean", True),
        ("'1.5'::double precision + '1'::float8 + 1::real", 3.5),
        ("1::int2 + 2::smallint + 3::int8 + 4::bigint", 10),
        ("-7 % 3", -1),
        ("round(2.5)", Decimal("3")),
        ("round(-2.5)", Decimal("-3")),
        ("cast(2.5 AS int)", 3),
        ("cast(2.5e0 AS int)", 2),
        ("12345678901234567890123456789012345678 + 1", Decimal("12345678901234567890123456789012345679")),
        ("cast(1e15 AS text)", "1e+15"),
        ("cast(0.1e0 AS text)", "0.1"),
        ("cast(1.50 AS text)", "1.50"),
        ("cast(true AS text)", "true"),
        ("cast('2024-01-01 12:00:00.5+02' AS datetime)::text", "2024-01-01 10:00:00.5+00"),
        ("cast('{\"a\": 1}' AS json)['a']::int", 1),
        ("json_extract_path('{\"a\": {\"b\": [1, 2]}}'::json, 'a', 'b', '1')::int", 2),
        ("trim(both 'x' from 'xxaxx')", "a"),
        ("trim(trailing 'x' from 'xxaxx')", "xxa"),
        ("substr('hello', -1, 4)", "he"),
        ("substring('foobar' from 'o(.)b')", "o"),
        ("substring('foobar' similar '%#\"o_b#\"%' escape '#')", "oob"),
        ("'a_c' LIKE 'a!_c' ESCAPE '!'", True),
        ("'abc' SIMILAR TO '%(b|d)%'", True),
        ("'ABC' ILIKE 'a%'", True),
        ("to_char('2024-03-05 06:07:08'::datetime, '%Y/%m/%d')", "2024/03/05"),
        ("to_char('2024-03-05 06:07:08'::datetime, 'DD.MM.YYYY HH24:MI')", "05.03.2024 06:07"),
        ("to_date('05.03.2024', '%d.%m.%Y')::text", "2024-03-05"),
        ("upper('straße')", "STRASSE"),
        ("lower('ŻÓŁĆ')", "żółć"),
        ("length('żółć')", 4),
        ("extract(epoch from '1970-01-02'::datetime)", Decimal(86400)),
    ],
)  # fmt: skip
def test_expressions_have_postgresql_s_values(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("9223372036854775807 + 1", "22003"),
        ("-9223372036854775807 - 2", "22003"),
        ("4611686018427387904 * 2", "22003"),
        ("abs(cast(-9223372036854775808 AS int))", "22003"),
        ("1 / 0", "22012"),
        ("1 % 0", "22012"),
        ("1.5 / 0", "22012"),
        ("1e0 / 0", "22012"),
        ("1e308 * 10", "22003"),
        ("cast('x' AS int)", "22P02"),
        ("cast('1_0' AS int)", "22P02"),
        ("cast('' AS int)", "22P02"),
        ("cast(1e30 AS int)", "22003"),
        ("cast('nope' AS datetime)", "22007"),
        ("cast('{' AS json)", "22P02"),
        ("substr('x', 1, -1)", "22011"),
        ("to_date('x', '%Y')", "22007"),
        ("(SELECT 1 UNION SELECT 2)", "21000"),
    ],
)
def test_errors_of_evaluation_have_postgresql_s_codes(text: str, sqlstate: str) -> None:
    with pytest.raises(CairnError) as error:
        value(text)
    assert error.value.sqlstate == sqlstate


def test_an_error_raised_inside_sqlite_keeps_its_class() -> None:
    node = connection()
    with pytest.raises(DivisionByZero):
        node.execute("SELECT n_div(n_of_i(1), n_of_i(0))").fetchall()
    with pytest.raises(OutOfRange):
        node.execute("SELECT i_of_n(n_mul(n_of_i(9223372036854775807), n_of_i(2)))").fetchall()


def test_sums_of_integers_are_exact_beyond_64_bits() -> None:
    text = "sum(x) FROM (VALUES (9223372036854775807), (9223372036854775807), (-1)) v(x)"
    assert value(text) == Decimal("18446744073709551613")
    assert value("avg(x) FROM (VALUES (1), (2)) v(x)") == Decimal("1.5")
    assert value("sum(x) FROM (VALUES (-5), (-7)) v(x)") == Decimal("-12")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-2.5e-7, "-2.5e-07"),
        (1.5e300, "1.5e+300"),
        (999999999999999.9, "999999999999999.9"),
        (123456789012345680.0, "1.2345678901234568e+17"),
        (0.1 + 0.2, "0.30000000000000004"),
        (float("inf"), "Infinity"),
        (0.0, "0"),
    ],
)
def test_doubles_are_spelled_as_postgresql_spells_them(number: float, text: str) -> None:
    assert double_text(number) == text


def test_no_further_long_text_is_made_while_those_of_others_fill_the_memory() -> None:
    """A row of twenty texts of 60 MB took 5 GB, and its instance was deaf for seconds."""
    held = 0
    made = apsw.Connection("")

    def in_process(name: str, function: Any, args: Any) -> Any:
        return function(*args)

    functions.register(made, in_process, lambda: held)
    sql = "SELECT length(c_repeat('x', ?))"
    assert made.execute(sql, (500_000,)).get == 500_000
    held = limits.TEXTS_BYTES + 1
    assert made.execute(sql, (1000,)).get == 1000
    with pytest.raises(CairnError, match="out of memory: long texts"):
        made.execute(sql, (500_000,)).get  # noqa: B018 (the answer is what is asked for)
    with pytest.raises(CairnError, match="out of memory: long texts"):
        made.execute("SELECT c_replace(?, 'x', 'y')", ("x" * 500_000,)).get  # noqa: B018
