"""The functions that SQL knows by name, and those of PostgreSQL that it refuses by name."""

from __future__ import annotations

from typing import Any

from cairn.model.types.values import ColumnType
from cairn.sql.ir import Call, walk
from cairn.sql.typing_rules import B, D, H, I, M, N, S, T, U, V, X, Y

#: Answered by the instance that was asked: the node registers these on its own connections.
LATE_FUNCTIONS: dict[str, ColumnType] = {
    "version": S,
    "pico_instance_uuid": S,
    "pico_instance_name": S,
    "pico_replicaset_name": S,
    "pico_tier_name": S,
    "pico_instance_dir": S,
    "pico_config_file_path": S,
    "pico_raft_leader_id": I,
    "pico_raft_leader_uuid": S,
    "pico_instance_health_status": S,
    "_pico_bucket": ColumnType.ARRAY,
    "current_user": S,
    "session_user": S,
    "current_schema": S,
    "current_database": S,
    "current_catalog": S,
    "pg_get_userbyid": S,
    "pg_table_is_visible": B,
    "pg_get_expr": S,
    "pg_get_indexdef": S,
    "pg_get_constraintdef": S,
    "pg_encoding_to_char": S,
    "obj_description": S,
    "col_description": S,
    "shobj_description": S,
    "format_type": S,
    "pg_is_in_recovery": B,
    "current_setting": S,
    "set_config": S,
    "random": D,
    "gen_random_uuid": U,
    "clock_timestamp": T,
}

#: These tell something else each time. A call has the number of its place in the statement.
EACH_TIME = frozenset(("random", "gen_random_uuid", "clock_timestamp"))
#: A hint for who asks for the same such rows in several places.
KEPT_FIRST = "CREATE TEMP TABLE … AS keeps what was told"
#: What the DEFAULT of an identity column calls; nobody else can.
NEXT_NUMBER = "cairn_next_number"
#: `currval` and `lastval`: what the session took last.
CURRENT_NUMBER = "cairn_current_number"
BY_NAME = -1  # instead of a table's number: its name was given as a value


def calls_late(node: Any) -> bool:
    """Whether it asks for facts of the instance that got the statement."""
    return any(isinstance(each, Call) and is_late(each.name) for each in walk(node))


def told_anew(node: Any) -> bool:
    """Whether it tells something else when it is asked again."""
    return any(
        isinstance(each, Call) and (each.name in EACH_TIME or each.name == NEXT_NUMBER)
        for each in walk(node)
    )


def is_late(function: str) -> bool:
    return function in LATE_FUNCTIONS or function in (NEXT_NUMBER, CURRENT_NUMBER)


Signature = tuple[str, tuple[ColumnType, ...], ColumnType]

J, L = ColumnType.ANY, ColumnType.STRINGS


def _with_options(function: str, result: ColumnType) -> list[Signature]:
    """jsonb_path_…(data, path [, vars [, silent]])"""
    every = (J, S, J, B)
    return [(function, every[:count], result) for count in (2, 3, 4)]


#: Overloads in the order in which they are tried: (our function, argument types, result). Of
#: whole numbers PostgreSQL takes the one for doubles, so that comes first.
PLAIN: dict[str, list[Signature]] = {
    "lower": [("c_lower", (S,), S)],
    "upper": [("c_upper", (S,), S)],
    "length": [("c_length", (S,), I), ("i_bytes", (X,), I)],
    "encode": [("c_encoded", (X, S), S)],
    "decode": [("x_decoded", (S, S), X)],
    "convert_to": [("x_of_text", (S, S), X)],
    "convert_from": [("c_of_bytes", (X, S), S)],
    "get_byte": [("i_byte", (X, I), I)],
    "set_byte": [("x_set_byte", (X, I, I), X)],
    **{name: [(f"x_{name}", (X,), X)] for name in ("sha224", "sha256", "sha384", "sha512")},
    "make_time": [("h_made", (I, I, D), H)],
    "char_length": [("c_length", (S,), I)],
    "character_length": [("c_length", (S,), I)],
    "reverse": [("c_reverse", (S,), S)],
    "replace": [("c_replace", (S, S, S), S)],
    "repeat": [("c_repeat", (S, I), S)],
    "left": [("c_left", (S, I), S)],
    "right": [("c_right", (S, I), S)],
    "lpad": [("c_lpad", (S, I), S), ("c_lpad", (S, I, S), S)],
    "rpad": [("c_rpad", (S, I), S), ("c_rpad", (S, I, S), S)],
    "strpos": [("c_position", (S, S), I), ("i_place", (X, X), I)],
    "instr": [("c_position", (S, S), I)],
    "substr": [
        *(("c_substr", (S, I), S), ("c_substr", (S, I, I), S)),
        *(("x_part", (X, I), X), ("x_part", (X, I, I), X)),
    ],
    "substring": [
        ("c_substr", (S, I), S),
        ("c_substr", (S, I, I), S),
        *(("x_part", (X, I), X), ("x_part", (X, I, I), X)),
        ("c_substring_regexp", (S, S), S),
        ("c_substring_similar", (S, S, S), S),
    ],
    "abs": [("i_abs", (I,), I), ("n_abs", (N,), N), ("abs", (D,), D)],
    "sign": [("sign", (D,), D), ("n_sign", (N,), N)],
    "floor": [("d_floor", (D,), D), ("n_floor", (N,), N)],
    "ceil": [("d_ceil", (D,), D), ("n_ceil", (N,), N)],
    "ceiling": [("d_ceil", (D,), D), ("n_ceil", (N,), N)],
    "trunc": [("d_trunc", (D,), D), ("n_trunc", (N,), N), ("n_trunc", (N, I), N)],
    "round": [("d_round", (D,), D), ("n_round", (N,), N), ("n_round", (N, I), N)],
    "scale": [("i_scale", (N,), I)],
    "min_scale": [("i_min_scale", (N,), I)],
    "trim_scale": [("n_key", (N,), N)],
    **{name: [("i_json_length", (J,), I)] for name in ("json_array_length", "jsonb_array_length")},
    **{name: [("c_json_typeof", (J,), S)] for name in ("json_typeof", "jsonb_typeof")},
    **{name: [("j_stripped", (J,), J)] for name in ("json_strip_nulls", "jsonb_strip_nulls")},
    "jsonb_pretty": [("c_json_pretty", (J,), S)],
    "jsonb_path_exists": _with_options("b_path_exists", B),
    "jsonb_path_match": _with_options("b_path_match", B),
    "jsonb_path_query_array": _with_options("j_path_array", ColumnType.JSONB),
    "jsonb_path_query_first": _with_options("j_path_first", ColumnType.JSONB),
    "jsonb_exists": [("b_json_has", (J, S), B)],
    "string_to_array": [("a_split", (S, S), L), ("a_split", (S, S, S), L)],
    "regexp_split_to_array": [("a_regexp_split", (S, S), L), ("a_regexp_split", (S, S, S), L)],
    "regexp_match": [("a_regexp_match", (S, S), L), ("a_regexp_match", (S, S, S), L)],
    "regexp_count": [("i_regexp_count", (S, S, I, S)[:n], I) for n in (2, 3, 4)],
    "width_bucket": [("i_bucket", (D, D, D, I), I), ("i_bucket_of", (N, N, N, I), I)],
    "to_hex": [("c_hex", (I,), S)],
    "jsonb_set": [
        ("j_set", (J, L, J), J),
        ("j_set", (J, L, J, B), J),
    ],
    "sqrt": [("d_sqrt", (D,), D)],
    "power": [("d_power", (D, D), D)],
    "div": [("n_quotient", (N, N), N)],
    "mod": [("i_mod", (I, I), I), ("n_mod", (N, N), N)],
    "to_char": [
        ("c_to_char", (T, S), S),
        ("c_to_char", (M, S), S),
        ("c_of_interval", (V, S), S),
        ("c_of_number", (N, S), S),
        ("c_of_double", (D, S), S),
    ],
    "timezone": [
        *(("t_clock", (S, T), M), ("t_moment", (S, M), T)),
        *(("t_clock", (V, T), M), ("t_moment", (V, M), T)),
    ],
    "to_date": [("c_to_day", (S, S), Y)],
    "to_timestamp": [("t_of_epoch", (D,), T), ("c_to_date", (S, S), T)],
    "date_trunc": [
        ("t_trunc", (S, T), T),
        ("t_trunc", (S, M), M),
        ("v_trunc", (S, V), V),
        ("t_trunc_in", (S, T, S), T),
    ],
    "date_part": [
        ("d_part", (S, T), D),
        ("d_part", (S, M), D),
        ("d_part_of_clock", (S, H), D),
        ("d_part_of_interval", (S, V), D),
    ],
    "justify_days": [("v_justify_days", (V,), V)],
    "justify_hours": [("v_justify_hours", (V,), V)],
    "justify_interval": [("v_justify_interval", (V,), V)],
    "isfinite": [("b_finite", (each,), B) for each in (Y, M, T, V)],
    "date_bin": [("t_binned", (V, M, M), M), ("t_binned", (V, T, T), T)],
    "make_timestamp": [("t_made_at", (I, I, I, I, I, D), M)],
    "make_interval": [("v_made", (*(I,) * min(n, 6), *(D,) * (n == 7)), V) for n in range(1, 8)],
    "regexp_like": [("b_regexp_like", (S, S), B), ("b_regexp_like", (S, S, S), B)],
    "regexp_substr": [("c_regexp_substr", (S, S, I, I, S, I)[:n], S) for n in range(2, 7)],
    "regexp_instr": [("i_regexp_instr", (S, S, I, I, I, S, I)[:n], I) for n in range(2, 8)],
    "jsonb_insert": [("j_insert", (J, L, J), J), ("j_insert", (J, L, J, B), J)],
    "quote_nullable": [("c_quote_nullable", (S,), S)],
    "factorial": [("n_factorial", (I,), N)],
    "age": [("v_age", (T, T), V), ("v_age", (M, M), V)],
    "make_date": [("t_made", (I, I, I), Y)],
    "initcap": [("c_initcap", (S,), S)],
    "split_part": [("c_split_part", (S, S, I), S)],
    "md5": [("c_md5", (S,), S), ("c_md5_of_bytes", (X,), S)],
    "hashtext": [("c_hashtext", (S,), I)],
    "chr": [("c_chr", (I,), S)],
    "ascii": [("c_ascii", (S,), I)],
    "translate": [("c_translate", (S, S, S), S)],
    "starts_with": [("c_starts_with", (S, S), B)],
    "octet_length": [("c_octets", (S,), I), ("i_bytes", (X,), I)],
    "bit_length": [("c_bits", (S,), I), ("i_bits", (X,), I)],
    "quote_ident": [("c_quote_ident", (S,), S)],
    "quote_literal": [("c_quote_literal", (S,), S)],
    "overlay": [("c_overlay", (S, S, I), S), ("c_overlay", (S, S, I, I), S)],
    "regexp_replace": [
        ("c_regexp_replace", (S, S, S), S),
        ("c_regexp_replace", (S, S, S, S), S),
        *(("c_regexp_replace_at", (S, S, S, I, I, S)[:n], S) for n in (4, 5, 6)),
    ],
    "pow": [("d_power", (D, D), D)],
    "exp": [("d_exp", (D,), D)],
    "ln": [("d_ln", (D,), D)],
    "log": [("d_log", (D,), D), ("d_log_of", (D, D), D)],
    "cot": [("d_cot", (D,), D)],
    "log10": [("d_log", (D,), D)],
    "cbrt": [("d_cbrt", (D,), D)],
    **{name: [(f"d_{name}", (D,), D)] for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: [(f"d_{name}", (D,), D)] for name in ("degrees", "radians", "sinh", "cosh", "tanh")},
    "atan2": [("d_atan2", (D, D), D)],
    "pi": [("d_pi", (), D)],
    "gcd": [("i_gcd", (I, I), I)],
    "lcm": [("i_lcm", (I, I), I)],
}

#: What PostgreSQL has and Cairn has not: refused by name, for it is no slip of the pen.
_ABSENT = (
    "acosd acosh any_value area array_dims array_fill array_to_tsvector asind asinh atan2d atand "
    "atanh bit_count broadcast cosd cotd "
    "current_query daterange get_bit "
    "host inet_client_addr inet_client_port inet_server_addr inet_server_port int4range int8range "
    "is_normalized isempty json_object json_populate_record json_populate_recordset "
    "jsonb_object jsonb_populate_record "
    "jsonb_populate_recordset jsonb_set_lax lo_create "
    "lo_get lo_put lo_unlink lower_inc make_timestamptz masklen netmask "
    "network normalize numrange parse_ident pg_advisory_lock pg_advisory_lock_shared "
    "pg_advisory_unlock pg_advisory_unlock_all pg_advisory_unlock_shared pg_advisory_xact_lock "
    "pg_advisory_xact_lock_shared pg_backend_pid pg_cancel_backend pg_column_size "
    "pg_current_wal_lsn pg_size_bytes pg_sleep pg_sleep_for pg_sleep_until pg_terminate_backend "
    "pg_try_advisory_lock pg_try_advisory_lock_shared pg_try_advisory_xact_lock "
    "pg_try_advisory_xact_lock_shared phraseto_tsquery plainto_tsquery point "
    "query_to_xml range_agg "
    "row set_bit setseed setval "
    "sind tand timeofday to_ascii to_number to_tsquery to_tsvector "
    "ts_headline ts_rank ts_rank_cd tsrange tstzrange txid_current txid_current_snapshot "
    "txid_status unistr websearch_to_tsquery xmlagg xmlcomment "
    "xpath "
)
ABSENT = frozenset(_ABSENT.split())
INSTEAD = {
    **{
        name: f"it is called in the list of a SELECT without FROM: SELECT {name}(…)"
        for name in ABSENT
        if "advisory" in name
    },
    **{
        name: "use jsonb_array_elements and ->>"
        for name in ABSENT
        if name.startswith("json") and "record" in name
    },
    **{
        name: f"it is asked alone, or with tables of pg_catalog: SELECT {name}(…)"
        for name in ("pg_backend_pid", "pg_cancel_backend", "pg_terminate_backend")
    },
}
