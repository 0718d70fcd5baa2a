"""Every SQL function is total: any input of its types gives a value or an error with a SQLSTATE."""

# ruff: noqa: E501, PT017 (values in rows; an answer of either kind is right)

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.model.types.decimals import encode_decimal
from cairn.model.types.intervals import Interval, encode_interval
from cairn.model.types.values import INT64_MAX, INT64_MIN, ColumnType, list_text
from cairn.sql.functions.function_list import PLAIN
from cairn.sql.functions.functions import SCALARS

SEED = 20_261
CALLS = 300  # of one function with one list of types

NUMBERS = (
    Decimal(0),
    Decimal("1.5"),
    Decimal(10**38 - 1),
    -(Decimal(10) ** 8000),
    Decimal("1E-900"),
)
TEXTS = (
    "", "a", "ab cd", "%", "%%a_%", "\\", "_", "(", ")", "[", "[[:foo:]]", "*", "a{99999999999}",
    "(" * 3000, "((a*)*)*b", "\\1", "(?=a)", "%Y-%m-%d", "%Z%Z", "%", "YYYY-MM-DD HH24:MI:SS",
    "é", "ŉ", "\U0001f600", "\ud800", "\x01", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "x" * 100_000, "1", "-1", "1e999999999", "9" * 5000, "²", "١٢", "NaN", "inf", "true", "{", "{1,2}",
    "{a,NULL}", '{"', "0001-01-01", "9999-12-31T23:59:59.999999+23:59", "2024-02-30", "10000-01-01",
    "00000000-0000-0000-0000-000000000000", "century", "g", "both", "stddev_pop", "regr_slope", "corr", "null",
)  # fmt: skip
JSONS = (
    "null", "true", "[1,[2]]", '{"a":{"b":[1]}}', '"\\ud800"', '{"a":"\\ud800"}', '{"a":"\\u0000"}',
    "1e400", "NaN", "[" * 100_000, "[" * 900 + "]" * 900, "1" * 5000, f"[{'1' * 5000}]", "",
    '["' + "x" * 10_000 + '"]',
)  # fmt: skip
INTS = (0, 1, -1, 2, 63, 64, 255, 55296, 1_114_112, INT64_MAX, INT64_MIN)
TIMES = (0, 1, -62_135_596_800_000_000, 253_402_300_799_999_999, INT64_MAX, INT64_MIN)
INTERVALS = (Interval(), Interval(-1, 2, -3), Interval(3_000_000), Interval(0, 0, INT64_MAX))
CLOCKS = (0, 1, 86_399_999_999)
BLOBS = (b"", b"\0", b"\\x", b"\xff" * 1000)
DOUBLES = (0.0, -0.0, 1.5, -2.5, 1e308, -1e308, 5e-324, float("inf"), float("-inf"))

EXTREMES: dict[str, Sequence[Any]] = {
    "I": INTS,
    "D": DOUBLES,
    "N": tuple(map(encode_decimal, NUMBERS)),
    "S": TEXTS,
    "B": (0, 1),
    "U": (bytes(16), b"\xff" * 16),
    "T": TIMES,
    "V": tuple(map(encode_interval, INTERVALS)),
    "J": JSONS,
    "K": (*TEXTS[:4], *INTS),  # a key of JSON
    "li": ("[]", list_text([None, *INTS])),
    "ld": ("[]", list_text([None, *DOUBLES])),
    "ln": ("[]", list_text([None, *map(encode_decimal, NUMBERS)])),
    "ls": ("[]", list_text([None, *TEXTS])),
    "lb": ("[]", list_text([0, 1, None])),
    "lu": ("[]", list_text([bytes(16)])),
    "lt": ("[]", list_text([None, *TIMES])),
    "lm": ("[]", list_text([None, *TIMES])),
    "ly": ("[]", list_text([None, *TIMES])),
    "lv": ("[]", list_text([None, *map(encode_interval, INTERVALS)])),
    "E": ('["mood", "x", "y"]', '["none"]'),  # an enum
    "H": CLOCKS,
    "X": BLOBS,
    "lh": ("[]", list_text([None, *CLOCKS])),
    "lx": ("[]", list_text([None, *BLOBS])),
    "lo": ("[]", list_text([None, *JSONS])),
}
_LETTER = {
    ColumnType.INTEGER: "I",
    ColumnType.DOUBLE: "D",
    ColumnType.DECIMAL: "N",
    ColumnType.STRING: "S",
    ColumnType.DATETIME: "T",
    ColumnType.TIMESTAMP: "T",
    ColumnType.DATE: "T",
    ColumnType.INTERVAL: "V",
    ColumnType.TIME: "H",
    ColumnType.VARBINARY: "X",
    ColumnType.BOOLEAN: "B",
    ColumnType.ANY: "J",
    ColumnType.STRINGS: "ls",
}

#: Those that operators and casts call; SQL's own names are in `PLAIN`.
INNER: dict[str, str] = {
    **{f"i_{name}": "I I" for name in ["add", "sub", "mul", "div", "mod", "and", "or", "xor", "shl", "shr"]},
    **{f"d_{name}": "D D" for name in ["add", "sub", "mul", "div"]},
    **{f"n_{name}": "N N" for name in ["add", "sub", "mul", "div", "mod"]},
    **{f"z_{name}": "N N" for name in ["add", "sub", "mul", "mod"]},
    "z_neg": "N", "z_abs": "N", "z_round": "N I", "z_trunc": "N I", "n_padded": "N I", "n_key": "N", "i_scale": "N", "store_z": "N",
    "i_neg": "I", "i_not": "I", "n_neg": "N", "store_n": "N", "store_fit": "N S I I", "i_fit": "I I", "i_step": "I", "store_u": "I",
    "d_of_n": "N", "i_of_d": "D", "n_of_i": "I", "n_of_d": "D", "i_of_n": "N",
    "n_scaled": "N I I", "n_sum2": "I I", "n_avg2": "I I I", "n_avg": "N I", "d_avg": "D I",
    "n_spread": "N N I S", "n_spread_of": "ln S", "d_regression": "S I N N N N N",
    "a_percentiles": "ld ld", "a_percentile_places": "I ld", "a_items": "ls li", "n_extract": "T S", "t_shift": "T I I I", "t_round": "T I",
    "t_plus": "T V", "t_minus": "T V", "v_between": "T T", "v_of_days": "T T", "v_add": "V V",
    "v_neg": "V", "v_mul": "V D", "v_div": "V D", "v_length": "V", "v_extract": "V S", "v_age": "T T",
    "c_like": "S S S", "c_ilike": "S S S", "c_similar": "S S S", "c_regexp": "S S",
    "c_iregexp": "S S", "c_trim": "S S S", "c_limit": "I", "c_concat": "S S", "c_concat_ws": "S S S",
    "c_json_path": "J K", "c_index": "J K",
    **{f"{letter}_parse": "S" for letter in "bidnutmyvhx"},
    "j_check": "J", "s_of_b": "B", "s_of_i": "I", "s_of_d": "D", "s_of_n": "N", "s_of_u": "U",
    "s_of_t": "T", "s_of_m": "T", "s_of_y": "T", "s_of_v": "V", "s_of_j": "J", "b_of_j": "J", "i_of_j": "J", "d_of_j": "J", "n_of_j": "J",
    "d_of_i": "I", "b_of_i": "I", "i_of_b": "B", "t_date": "T", "only_row": "I S", "s_pack": "S S",
    "a_make": "I S", "a_length": "li I", "a_size": "ls", "a_series": "I I I", "a_times": "T T I I I",
    **{f"{letter}_list": "S" for letter in "bidnsutmyvhxo"},
    **{f"s_of_{letter}_list": f"l{letter}" for letter in "bidnsutmyvhxo"},
    **{f"{letter}_item": f"l{letter} I" for letter in "bidnsutmyvhxo"},
    **{f"{letter}_joined": f"l{letter} S S" for letter in "bidnsutmyvhxo"},
    **{f"{to}_of_{of}_list": f"l{of}" for of, to in ("in", "id", "nd", "ni", "di", "dn", "bi", "ib")},
    **{f"s_of_{letter}_items": f"l{letter}" for letter in "bidnutmyvhx"},
    **{f"{letter}_parse_list": "ls" for letter in "bidnutmyvhxo"},
    "b_list_compared": "I li S S B", "b_overlaps": "T T T T", "a_regexp_matches": "S S S", "b_like_each": "S ls B B",
    "c_json_under": "J ls", "j_without_all": "J ls", "x_json_key": "J",
    "a_cat": "ls ls", "a_append": "li I", "a_prepend": "S ls", "a_place": "ls S", "a_without": "ls S",
    "a_check": "J", "a_split": "S S S", "a_regexp_split": "S S S", "a_regexp_match": "S S S",
    "i_regexp_count": "S S", "c_hex": "I", "c_format": "S S S",
    "b_list_contains": "ls ls", "b_list_overlaps": "li li",
    "d_percentile": "ld D", "i_percentile": "I D", "i_mode": "ls",
    "j_text": "S", "j_bool": "B", "j_double": "S", "j_time": "S", "j_list": "ls S", "j_object": "S J",
    "j_array": "J J", "i_json_length": "J", "c_json_typeof": "J", "b_json_contains": "J J",
    "b_json_has_any": "J ls", "b_json_has_all": "J ls",
    "b_json_has": "J S", "c_json_deep": "J S S", "j_joined": "J J", "j_without": "J K",
    "j_set": "J ls J B", "c_json_pretty": "J", "j_stripped": "J", "a_json_items": "J",
    "a_json_texts": "J", "a_json_keys": "J", "a_json_pairs": "J", "a_json_text_pairs": "J", "a_path_items": "J S",
    "i_min_scale": "N", "c_json_shown": "J", "c_json_canonical": "J", "j_cut": "J ls", "a_key": "ls S",
    "a_places": "ls S", "a_replaced": "ls S S", "a_slice": "ls I I", "a_trimmed": "ls I",
    "s_of_h": "H", "s_of_x": "X", "h_of_m": "T", "h_of_v": "V", "v_of_h": "H", "h_plus": "H V",
    "h_minus": "H V", "h_round": "H I", "n_extract_clock": "H S", "x_cat": "X X", "a_zip": "ls li",
    "h_of_m_list": "lm", "h_of_v_list": "lv", "v_of_h_list": "lh",
    "s_label": "S E", "s_labels": "ls E", "s_rank": "S E", "s_nth": "I E",
    "v_of_parts": "I I I", "v_months": "V", "v_days": "V", "v_clock": "V",
}  # fmt: skip

CASES: list[tuple[str, tuple[str, ...]]] = sorted(
    {(name, tuple(kinds.split())) for name, kinds in INNER.items()}
    | {
        (function, tuple(_LETTER[type_] for type_ in types))
        for overloads in PLAIN.values()
        for function, types, _ in overloads
        if function in SCALARS
    }
)


def test_every_function_is_tried() -> None:
    assert {name for name, _ in CASES} == set(SCALARS)


@pytest.mark.parametrize(("name", "kinds"), CASES, ids=lambda each: str(each))
def test_any_input_gives_a_value_or_a_sqlstate(name: str, kinds: tuple[str, ...]) -> None:
    chance = random.Random(f"{SEED} {name} {kinds}")
    every = [EXTREMES[kind] for kind in kinds]
    count = 1
    for values in every:
        count *= len(values)
    calls: Any = (
        itertools.product(*every)
        if count <= CALLS
        else ([chance.choice(values) for values in every] for _ in range(CALLS))
    )
    for args in calls:
        try:
            found = SCALARS[name](*args)
        except CairnError as problem:
            assert problem.sqlstate != "XX000", (name, _shown(args))
            continue
        assert _is_storable(found, args), (name, _shown(args), _shown([found]))


def _is_storable(value: Any, args: Sequence[Any]) -> bool:
    """Whether SQLite takes it; a text that was no text before need not become one."""
    if isinstance(value, int):
        return INT64_MIN <= value <= INT64_MAX
    if isinstance(value, str) and "\ud800" not in json.dumps(
        list(map(str, args)), ensure_ascii=False
    ):
        value.encode()
    return value is None or (isinstance(value, (str, float, bytes)) and value == value)


def _shown(args: Sequence[Any]) -> str:
    return repr([str(arg)[:60] for arg in args])
