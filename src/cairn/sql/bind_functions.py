"""Functions by name: which arguments they take and what they become."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cairn.model.errors import CairnError, DatatypeMismatch
from cairn.model.values import ColumnType
from cairn.sql.ir import Agg, Call, Case, Const, Expr, Order, Param
from cairn.sql.scope import Binder
from cairn.sql.typing_rules import (
    ASSIGNMENT,
    JSON,
    RANK,
    B,
    D,
    I,
    N,
    S,
    T,
    can_cast,
    common_type,
    fold,
    no_function,
)

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
    "pg_backend_pid": I,
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
    "has_table_privilege": B,
    "has_schema_privilege": B,
    "pg_is_in_recovery": B,
    "current_setting": S,
    "set_config": S,
    "quote_ident": S,
    "pg_advisory_unlock_all": S,
}

Signature = tuple[str, tuple[ColumnType, ...], ColumnType]

#: Overloads in the order in which they are tried: (our function, argument types, result).
PLAIN: dict[str, list[Signature]] = {
    "lower": [("c_lower", (S,), S)],
    "upper": [("c_upper", (S,), S)],
    "length": [("c_length", (S,), I)],
    "char_length": [("c_length", (S,), I)],
    "character_length": [("c_length", (S,), I)],
    "reverse": [("c_reverse", (S,), S)],
    "replace": [("c_replace", (S, S, S), S)],
    "repeat": [("c_repeat", (S, I), S)],
    "left": [("c_left", (S, I), S)],
    "right": [("c_right", (S, I), S)],
    "lpad": [("c_lpad", (S, I), S), ("c_lpad", (S, I, S), S)],
    "rpad": [("c_rpad", (S, I), S), ("c_rpad", (S, I, S), S)],
    "strpos": [("c_position", (S, S), I)],
    "instr": [("c_position", (S, S), I)],
    "substr": [("c_substr", (S, I), S), ("c_substr", (S, I, I), S)],
    "substring": [
        ("c_substr", (S, I), S),
        ("c_substr", (S, I, I), S),
        ("c_substring_regexp", (S, S), S),
        ("c_substring_similar", (S, S, S), S),
    ],
    "abs": [("i_abs", (I,), I), ("n_abs", (N,), N), ("abs", (D,), D)],
    "sign": [("n_sign", (N,), N), ("sign", (D,), D)],
    "floor": [("n_floor", (N,), N), ("d_floor", (D,), D)],
    "ceil": [("n_ceil", (N,), N), ("d_ceil", (D,), D)],
    "ceiling": [("n_ceil", (N,), N), ("d_ceil", (D,), D)],
    "trunc": [("n_trunc", (N,), N), ("d_trunc", (D,), D), ("n_trunc", (N, I), N)],
    "round": [("n_round", (N,), N), ("d_round", (D,), D), ("n_round", (N, I), N)],
    "sqrt": [("d_sqrt", (D,), D)],
    "power": [("d_power", (D, D), D)],
    "mod": [("i_mod", (I, I), I), ("n_mod", (N, N), N)],
    "to_char": [("c_to_char", (T, S), S)],
    "to_date": [("c_to_date", (S, S), T)],
}
_MULTI = {"concat", "greatest", "least", "coalesce", "nullif", "json_extract_path"}


def scalar(binder: Binder, name: str, args: Sequence[Expr], position: int | None) -> Expr:
    """A call of an ordinary function."""
    if name in LATE_FUNCTIONS:
        given = tuple(arg if arg.type else binder.coerce(arg, S) for arg in args)
        return Call(LATE_FUNCTIONS[name], name, given)
    if name in _MULTI:
        return _multi(binder, name, args, position)
    overloads = [each for each in PLAIN.get(name, ()) if len(each[1]) == len(args)]
    for exact in (True, False):
        fitting = [each for each in overloads if _fits(args, each[1], exact=exact)]
        if fitting:
            # Like PostgreSQL, take a literal or parameter without a type for text if that fits.
            target, wanted, result = max(fitting, key=lambda each: _as_text(args, each[1]))
            given = tuple(binder.coerce(a, w) for a, w in zip(args, wanted, strict=True))
            return folded(Call(result, target, given))
    raise no_function(name, [arg.type for arg in args], position)


def folded(call: Call) -> Expr:
    try:
        return fold(call)
    except CairnError:
        return call  # an error of evaluation, not of the statement


def _as_text(args: Sequence[Expr], wanted: Sequence[ColumnType]) -> int:
    return sum(a.type is None and w is S for a, w in zip(args, wanted, strict=True))


def _fits(args: Sequence[Expr], wanted: Sequence[ColumnType], *, exact: bool) -> bool:
    if exact:
        return all(a.type in (None, w) for a, w in zip(args, wanted, strict=True))
    return all(can_cast(a.type, w, 0) for a, w in zip(args, wanted, strict=True))


def _multi(binder: Binder, name: str, args: Sequence[Expr], position: int | None) -> Expr:
    if name == "concat" and args:
        given = tuple(binder.coerce(arg, S, ASSIGNMENT) for arg in args)
        return Call(S, "c_concat", given)
    if name == "json_extract_path" and len(args) > 1 and args[0].type in JSON:
        keys = tuple(binder.coerce(arg, S) for arg in args[1:])
        return Call(ColumnType.ANY, "c_json_path", (args[0], *keys))
    if name == "nullif" and len(args) == 2:
        type_ = common_type([arg.type for arg in args], "NULLIF") or S
        left, right = (binder.coerce(arg, type_) for arg in args)
        return Case(type_, ((Call(B, "=", (left, right)), Const(type_, None)),), left)
    if name in ("coalesce", "greatest", "least") and args:
        type_ = common_type([arg.type for arg in args], name.upper()) or S
        given = tuple(binder.coerce(arg, type_) for arg in args)
        if len(given) == 1:
            return given[0]
        if name == "coalesce":
            return Call(type_, name, given)
        return _extreme(type_, name, given)
    raise no_function(name, [arg.type for arg in args], position)


def _extreme(type_: ColumnType, name: str, args: tuple[Expr, ...]) -> Expr:
    """GREATEST and LEAST pass over NULLs, unlike SQLite's max(a, b)."""
    best, sign = args[0], ">" if name == "greatest" else "<"
    for arg in args[1:]:
        keep = Call(B, "or", (Call(B, "is_null", (arg,)), Call(B, sign, (best, arg))))
        whens = ((Call(B, "is_null", (best,)), arg), (keep, best))
        best = Case(type_, whens, arg)
    return best


# --- aggregates -----------------------------------------------------------------------------------

AGGREGATES = {"count", "sum", "total", "avg", "min", "max", "group_concat", "string_agg"}
RANKING: dict[str, ColumnType | None] = {
    "row_number": I,
    "rank": I,
    "dense_rank": I,
    "ntile": I,
    "first_value": None,
    "last_value": None,
    "lag": None,
    "lead": None,
}
Maker = Callable[[Agg], Expr]
_LOW = Const(I, 0xFFFFFFFF)
_SHIFT = Const(I, 32)


class Aggregation:
    """One aggregate call. `lower` writes it with those that can be merged: count, sum, min, max."""

    def __init__(
        self, binder: Binder, name: str, args: Sequence[Expr], *, distinct: bool = False
    ) -> None:
        self.binder, self.name, self.distinct = binder, name, distinct
        self.args = list(args)
        self.filter: Expr | None = None
        self.order: tuple[Order, ...] = ()

    def _agg(self, type_: ColumnType, name: str, *args: Expr) -> Agg:
        return Agg(type_, name, args, self.distinct, self.filter, self.order)

    def lower(self, make: Maker, position: int | None) -> Expr:
        """`make` turns each elementary aggregate into an expression: itself, or a window."""
        name, args = self.name, self.args
        if name == "count" and len(args) <= 1:
            return make(self._agg(I, "count", *args))
        if name in ("group_concat", "string_agg"):
            return self._concat(make, position)
        if len(args) != 1:
            raise no_function(name, [arg.type for arg in args], position)
        arg = args[0] if args[0].type else self.binder.coerce(args[0], S)
        if name in ("min", "max"):
            if arg.type in (B, *JSON) or arg.type is None:
                raise no_function(name, [arg.type], position)
            return make(Agg(arg.type, name, (arg,), False, self.filter, ()))
        if arg.type not in RANK:
            raise no_function(name, [arg.type], position)
        result = self._average(make, arg) if name == "avg" else self._sum(make, arg)
        if name == "total":
            zero = self.binder.coerce(Const(I, 0), result.type or N)
            return Call(result.type, "coalesce", (result, zero))
        return result

    def _sum(self, make: Maker, arg: Expr) -> Expr:
        if arg.type is D:
            return make(self._agg(D, "sum", arg))
        if arg.type is N:
            return make(self._agg(N, "n_sum", arg))
        if self.distinct:
            return make(self._agg(N, "n_sum", self.binder.coerce(arg, N)))
        high, low = self._halves(make, arg)
        return Call(N, "n_sum2", (high, low))

    def _halves(self, make: Maker, arg: Expr) -> tuple[Expr, Expr]:
        high = make(self._agg(I, "sum", Call(I, ">>", (arg, _SHIFT))))
        low = make(self._agg(I, "sum", Call(I, "&", (arg, _LOW))))
        return high, low

    def _average(self, make: Maker, arg: Expr) -> Expr:
        count = make(self._agg(I, "count", arg))
        if arg.type is I and not self.distinct:
            return Call(N, "n_avg2", (*self._halves(make, arg), count))
        total = self._sum(make, arg)
        return Call(total.type, "d_avg" if total.type is D else "n_avg", (total, count))

    def _concat(self, make: Maker, position: int | None) -> Expr:
        wanted = (1, 2) if self.name == "group_concat" else (2,)
        if len(self.args) not in wanted:
            raise no_function(self.name, [arg.type for arg in self.args], position)
        level = ASSIGNMENT if self.name == "group_concat" else 0
        try:
            value = self.binder.coerce(self.args[0], S, level)
            separator = self.binder.coerce(self.args[1], S) if len(self.args) > 1 else Const(S, ",")
        except DatatypeMismatch:
            raise no_function(self.name, [arg.type for arg in self.args], position) from None
        if self.distinct:
            order = tuple(
                each
                for each in self.order
                if isinstance(each.expr, (Const, Param)) or each.expr == value
            )
            if len(order) != len(self.order):
                raise CairnError(
                    "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument"
                    " list",
                    sqlstate="42P10",
                    position=position,
                )
            packed = Call(S, "s_pack", (value, separator))
            return make(Agg(S, "s_agg", (packed,), True, self.filter, order))
        return make(self._agg(S, "concat", value, separator))
