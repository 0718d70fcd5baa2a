"""Functions by name: which arguments they take and what they become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from cairn.model.errors import CairnError, DatatypeMismatch, SyntaxProblem, Unsupported
from cairn.model.settings.parameters import PRESETS
from cairn.model.types.values import LISTS, ColumnType
from cairn.model.types.widths import Width
from cairn.sql.bind.enums import enum_function, of_one_enum, told_type
from cairn.sql.bind.expressions.json_making import to_json
from cairn.sql.bind.scope import Binder, nearest
from cairn.sql.functions.function_list import ABSENT, EACH_TIME, INSTEAD, LATE_FUNCTIONS, PLAIN
from cairn.sql.ir import Agg, Call, Case, Const, Expr, Order, Param, Type
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import (
    ASSIGNMENT,
    JB,
    JSON,
    RANK,
    UNORDERED,
    B,
    D,
    H,
    I,
    N,
    S,
    V,
    can_cast,
    common_type,
    fold,
    no_function,
)

_MULTI = {
    *("concat", "concat_ws", "greatest", "least", "coalesce", "nullif", "json_extract_path"),
    *("btrim", "ltrim", "rtrim", "pg_typeof", "format", "num_nulls", "num_nonnulls"),
    *("enum_first", "enum_last", "enum_range"),
    *("jsonb_extract_path", "json_extract_path_text", "jsonb_extract_path_text"),
}
_PATHS = {f"{kind}_extract_path{text}" for kind in ("json", "jsonb") for text in ("", "_text")}
_TRIMS = {"btrim": "both", "ltrim": "leading", "rtrim": "trailing"}


def scalar(binder: Binder, name: str, args: Sequence[Expr], position: int | None) -> Expr:
    """A call of an ordinary function."""
    if name in ("current_user", "session_user"):
        # The plan belongs to one user: whoever runs a part of it must not be taken for them.
        return Const(S, binder.user_name)
    if name in ("current_setting", "set_config"):
        _check_setting(name, args, position)
    if name in LATE_FUNCTIONS:
        given = tuple(arg if arg.type else binder.coerce(arg, S) for arg in args)
        if name in EACH_TIME:
            given = (Const(I, binder.next_rel()),)
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
    raise _no_such(name, [arg.type for arg in args], position)


#: What no session can change; the rest is known to the session alone.
_FIXED = frozenset((*PRESETS, "standard_conforming_strings"))


def _check_setting(name: str, args: Sequence[Expr], position: int | None) -> None:
    first = args[0] if args else None
    known = first.value if isinstance(first, Const) else None
    if name == "set_config" or str(known).lower() not in _FIXED:
        raise Unsupported(
            f"{name} beside anything else is not supported",
            hint=f"SELECT {name}('…') alone, with literals",
            position=position,
        )


def _no_such(name: str, types: list[Type], position: int | None) -> CairnError:
    if name in ABSENT:
        return Unsupported(
            f"function {name} is not supported", hint=INSTEAD.get(name), position=position
        )
    known = (*PLAIN, *_MULTI, *AGGREGATES, *RANKING, *LATE_FUNCTIONS)
    near = None if name in PLAIN else nearest(name, known)
    return no_function(name, types, position, near)


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
    least = {"concat": 1, "format": 1, "concat_ws": 2}.get(name)
    if least is not None and len(args) >= least:
        return Call(S, f"c_{name}", tuple(_written(binder, arg) for arg in args))
    if name in _TRIMS and len(args) in (1, 2):
        chars = binder.coerce(args[1], S) if len(args) == 2 else Const(S, " ")
        return folded(Call(S, "c_trim", (binder.coerce(args[0], S), chars, Const(S, _TRIMS[name]))))
    if name == "pg_typeof" and len(args) == 1:
        return Const(S, told_type(args[0]))
    if name.startswith("enum_"):
        return enum_function(name, args, position)
    if name in _PATHS and len(args) > 1 and args[0].type in (None, *JSON):
        keys = tuple(binder.coerce(arg, S) for arg in args[1:])
        data = binder.coerce(args[0], ColumnType.ANY)
        found = Call(ColumnType.ANY, "c_json_deep", (data, *keys))
        return Call(S, "c_json_shown", (found,)) if name.endswith("_text") else found
    if name in ("num_nulls", "num_nonnulls") and args:
        one, none = (
            (Const(I, 1), Const(I, 0)) if name == "num_nulls" else (Const(I, 0), Const(I, 1))
        )
        parts: list[Expr] = [
            Case(
                I, ((Call(B, "is_null", (arg if arg.type else binder.coerce(arg, S),)), one),), none
            )
            for arg in args
        ]
        return reduce(lambda left, right: Call(I, "i_add", (left, right)), parts)
    if name == "nullif" and len(args) == 2:
        args = of_one_enum(binder, args, "=")
        type_ = common_type([arg.type for arg in args], "NULLIF") or S
        left, right = (binder.coerce(arg, type_) for arg in args)
        return Case(type_, ((Call(B, "=", (left, right)), Const(type_, None)),), left)
    if name in ("coalesce", "greatest", "least") and not args:
        raise SyntaxProblem('syntax error at or near ")"', position=position)
    if name in ("coalesce", "greatest", "least"):
        args = of_one_enum(binder, args, name.upper())
        type_ = common_type([arg.type for arg in args], name.upper()) or S
        given = tuple(binder.coerce(arg, type_) for arg in args)
        if len(given) == 1:
            return given[0]
        if name == "coalesce":
            return Call(type_, name, given)
        return _extreme(type_, name, given)
    raise no_function(name, [arg.type for arg in args], position)


def _written(binder: Binder, arg: Expr) -> Expr:
    """As a client would be shown it: a boolean is t or f, where a cast would spell it out."""
    if arg.type is not B:
        return binder.coerce(arg, S, ASSIGNMENT)
    is_false = Call(B, "not", (arg,))
    return Case(S, ((arg, Const(S, "t")), (is_false, Const(S, "f"))), None)


def _extreme(type_: ColumnType, name: str, args: tuple[Expr, ...]) -> Expr:
    """GREATEST and LEAST pass over NULLs, unlike SQLite's max(a, b).

    The first that none of the later ones beats: all of the earlier ones are beaten by it.
    """
    sign = ">=" if name == "greatest" else "<="

    def is_best(at: int) -> Expr:
        arg = args[at]
        beaten = (
            Call(B, "or", (Call(B, "is_null", (each,)), Call(B, sign, (arg, each))))
            for each in args[at + 1 :]
        )
        return Call(B, "and", (Call(B, "not", (Call(B, "is_null", (arg,)),)), *beaten))

    whens = tuple((is_best(at), arg) for at, arg in enumerate(args[:-1]))
    return Case(type_, whens, args[-1])


# --- aggregates -----------------------------------------------------------------------------------

AGGREGATES = {
    *("count", "sum", "total", "avg", "min", "max", "group_concat", "string_agg", "array_agg"),
    *("bool_and", "bool_or", "every"),
}
_SPREADS = {"stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"}
_LINES = {
    *("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count"),
    *("regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy"),
}
_BITS = {"bit_and", "bit_or", "bit_xor"}
AGGREGATES |= _SPREADS | _LINES | _BITS
_ARRAYS, _OBJECTS = {"json_agg", "jsonb_agg"}, {"json_object_agg", "jsonb_object_agg"}
AGGREGATES |= _ARRAYS | _OBJECTS
_OF_BOOLEANS = {"bool_and": "min", "every": "min", "bool_or": "max"}
RANKING: dict[str, ColumnType | None] = {
    "row_number": I,
    "rank": I,
    "dense_rank": I,
    "percent_rank": D,
    "cume_dist": D,
    "ntile": I,
    "first_value": None,
    "last_value": None,
    "nth_value": None,
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
        if self.distinct and len(args) > 1:
            raise Unsupported(
                f"DISTINCT in {name} of several values",
                hint="ask for distinct rows in a sub-query",
                position=position,
            )
        if name in _OBJECTS and len(args) == 2:
            key = self.binder.coerce(args[0], S, ASSIGNMENT)
            value = to_json(self.binder, args[1])
            return make(self._agg(self._json(), "j_object_agg", key, value))
        if name in _LINES and len(args) == 2:
            return self._line(make, position)
        if len(args) != 1:
            raise no_function(name, [arg.type for arg in args], position)
        if name in _ARRAYS:
            return make(self._agg(self._json(), "j_agg", to_json(self.binder, args[0])))
        arg = args[0] if args[0].type else self.binder.coerce(args[0], S)
        if name in ("min", "max"):
            if arg.type in (B, *UNORDERED) or arg.type is None:
                raise no_function(name, [arg.type], position)
            return make(Agg(arg.type, name, (arg,), False, self.filter, ()))
        if name in _OF_BOOLEANS and arg.type is B:
            return make(Agg(B, _OF_BOOLEANS[name], (arg,), False, self.filter, ()))
        if name == "array_agg" and arg.type in LISTS:
            if self.distinct and not self.order:
                self.order = (Order(arg),)  # PostgreSQL sorts to find what is distinct
            return make(self._agg(LISTS[arg.type], "a_agg", arg))
        if arg.type is H and name in ("sum", "avg"):
            arg = self.binder.coerce(arg, V)
        if arg.type is V and name in ("sum", "avg"):
            return self._lengths(make, arg)
        if name in _SPREADS and arg.type in RANK:
            return self._spread(make, arg)
        if name in _BITS and arg.type is I:
            # What is there twice changes only the third of them.
            distinct = self.distinct and name == "bit_xor"
            return make(Agg(I, f"i_{name}", (arg,), distinct, self.filter, ()))
        if arg.type not in RANK or name not in ("sum", "total", "avg"):
            raise no_function(name, [arg.type], position)
        result = self._average(make, arg) if name == "avg" else self._sum(make, arg)
        if name == "total":
            zero = self.binder.coerce(Const(I, 0), result.type or N)
            return Call(result.type, "coalesce", (result, zero))
        return result

    def _json(self) -> ColumnType:
        return JB if self.name.startswith("jsonb") else ColumnType.ANY

    def _sum(self, make: Maker, arg: Expr) -> Expr:
        if arg.type is D:
            return make(self._agg(D, "sum", arg))
        if arg.type is N:
            return make(self._agg(N, "n_sum", arg))
        if isinstance(known_of(arg), Width):
            return make(self._agg(I, "sum", arg))  # 64 bits are enough, as in PostgreSQL
        if self.distinct:
            return make(self._agg(N, "n_sum", self.binder.coerce(arg, N)))
        high, low = self._halves(make, arg)
        return Call(N, "n_sum2", (high, low))

    def _lengths(self, make: Maker, arg: Expr) -> Expr:
        """Of intervals: months, days and the clock are added up apart."""
        if self.distinct:
            raise Unsupported(f"{self.name} of intervals with DISTINCT is not supported")
        names = ("v_months", "v_days", "v_clock")
        parts = [make(self._agg(I, "sum", Call(I, name, (arg,)))) for name in names]
        total = Call(V, "v_of_parts", tuple(parts))
        if self.name == "sum":
            return total
        count = make(self._agg(I, "count", arg))
        return Call(V, "v_div", (total, Call(D, "d_of_i", (count,))))

    def _spread(self, make: Maker, arg: Expr) -> Expr:
        value = self.binder.coerce(arg, N, ASSIGNMENT)
        if self.distinct:
            values = make(
                Agg(LISTS[N], "a_agg", (value,), True, self._there(value), (Order(value),))
            )
            found = Call(N, "n_spread_of", (values, Const(S, self.name)))
            return Call(D, "d_of_n", (found,)) if arg.type is D else found
        total = make(self._agg(N, "n_sum", value))
        squares = make(self._agg(N, "n_sum", Call(N, "n_mul", (value, value))))
        count = make(self._agg(I, "count", value))
        found = Call(N, "n_spread", (total, squares, count, Const(S, self.name)))
        return Call(D, "d_of_n", (found,)) if arg.type is D else found

    def _there(self, value: Expr) -> Expr:
        known: Expr = Call(B, "not", (Call(B, "is_null", (value,)),))
        return known if self.filter is None else Call(B, "and", (self.filter, known))

    def _line(self, make: Maker, position: int | None) -> Expr:
        """Of pairs (y, x): what has no partner does not count."""
        if self.distinct:
            raise Unsupported(f"{self.name} with DISTINCT is not supported")
        if any(arg.type is not None and arg.type not in RANK for arg in self.args):
            raise no_function(self.name, [arg.type for arg in self.args], position)
        y, x = (self.binder.coerce(self.binder.coerce(arg, D), N, ASSIGNMENT) for arg in self.args)
        self.filter = Call(B, "and", (self._there(y), self._there(x)))
        count = make(self._agg(I, "count"))
        if self.name == "regr_count":
            return count
        pairs = (y, x, Call(N, "n_mul", (y, y)), Call(N, "n_mul", (x, x)), Call(N, "n_mul", (x, y)))
        sums = tuple(make(self._agg(N, "n_sum", each)) for each in pairs)
        return Call(D, "d_regression", (Const(S, self.name), count, *sums))

    def _halves(self, make: Maker, arg: Expr) -> tuple[Expr, Expr]:
        high = make(self._agg(I, "sum", Call(I, ">>", (arg, _SHIFT))))
        low = make(self._agg(I, "sum", Call(I, "&", (arg, _LOW))))
        return high, low

    def _average(self, make: Maker, arg: Expr) -> Expr:
        count = make(self._agg(I, "count", arg))
        if arg.type is I and not self.distinct:
            return Call(N, "n_avg2", (*self._halves(make, arg), count))
        total = self._sum(make, arg)
        if total.type is I:
            total = self.binder.coerce(total, N)
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
            return make(Agg(S, "s_agg", (packed,), True, self.filter, order or (Order(value),)))
        return make(self._agg(S, "concat", value, separator))
