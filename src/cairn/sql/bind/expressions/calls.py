"""Functions, aggregates, windows and sub-queries inside expressions to typed IR."""

from __future__ import annotations

from sqlglot import exp

from cairn.model.errors import CairnError, GroupingProblem, SyntaxProblem, Unsupported
from cairn.model.types.interval_text import MICROS_PER_DAY, unit_of
from cairn.model.types.intervals import decode_interval
from cairn.model.types.values import ELEMENTS, ColumnType
from cairn.sql.bind.expressions.expr import (
    HANDLERS,
    bind_boolean,
    bind_expr,
    local_time,
    statement_date,
    statement_time,
)
from cairn.sql.bind.expressions.functions import AGGREGATES, RANKING, Aggregation, folded, scalar
from cairn.sql.bind.expressions.json_making import (
    JSON_MAKERS,
    OF_ROWS,
    bind_argument,
    json_maker,
)
from cairn.sql.bind.expressions.lists import (
    LIST_FUNCTIONS,
    ROW_FUNCTIONS,
    item_of,
    list_function,
    slice_of,
    sorting_key,
)
from cairn.sql.bind.expressions.ordered_sets import (
    HYPOTHETICAL,
    ORDERED_SETS,
    array_of,
    ordered_set,
)
from cairn.sql.bind.expressions.sequences import current_value, next_value
from cairn.sql.bind.outer_aggregates import asked_of, is_asked, owner_of
from cairn.sql.bind.scope import MAX_ARGUMENTS, Scope
from cairn.sql.ir import (
    Agg,
    Call,
    Const,
    Expr,
    Order,
    SubQuery,
    Window,
    columns_in,
    output,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import allow, name_of, refuse
from cairn.sql.typing_rules import (
    EXPLICIT,
    JB,
    JSON,
    UNORDERED,
    B,
    D,
    H,
    I,
    M,
    N,
    S,
    T,
    V,
    Y,
    cast,
    fold,
    plain,
)

#: Functions of extensions that are others' here.
_OTHERWISE = {"uuid_generate_v4": "gen_random_uuid"}
_NOW = ("now", "statement_timestamp", "transaction_timestamp")


def _call(scope: Scope, node: exp.Anonymous) -> Expr:
    name = str(node.this).lower()
    name = _OTHERWISE.get(name, name)
    if name == "current_timestamp" or (name in _NOW and not node.expressions):
        return statement_time(scope, node)
    if name == "localtimestamp":
        return local_time(scope, node)
    if name == "current_date":
        return statement_date(scope, node)
    if name == "array":
        return array_of(scope, node)
    if name == "nextval":
        return next_value(scope.binder, node)
    if name in ("currval", "lastval"):
        return current_value(scope.binder, node, lambda arg: bind_expr(scope, arg))
    if name in AGGREGATES:
        return _aggregate(scope, node, None)
    if name in RANKING:
        raise CairnError(f"window function {name} requires an OVER clause", sqlstate="42809")
    args = _in_place(node, name)
    if len(args) > MAX_ARGUMENTS:
        raise CairnError(
            f"cannot pass more than {MAX_ARGUMENTS} arguments to a function", sqlstate="54023"
        )
    if any(isinstance(arg, (exp.Distinct, exp.Star, exp.Order)) for arg in args):
        raise refuse(node, f"{name} with DISTINCT, * or ORDER BY")
    if name in ROW_FUNCTIONS:
        raise Unsupported(
            f"{name} is supported in FROM only",
            hint=f"write SELECT … FROM {name}(…)",
            position=walk_position(node),
        )
    if name in OF_ROWS:
        bound = [bind_argument(scope, arg, bind_expr) for arg in args]
    else:
        bound = [bind_expr(scope, arg) for arg in args]
    if name == "age" and len(bound) == 1:
        bound.insert(0, statement_date(scope, exp.Anonymous(this="current_date")))
    if name in JSON_MAKERS:
        return _as_named(name, json_maker(scope.binder, name, bound, walk_position(node)))
    if name in LIST_FUNCTIONS:
        return list_function(scope.binder, name, bound, walk_position(node))
    return _as_named(name, scalar(scope.binder, name, bound, walk_position(node)))


def _as_named(name: str, expr: Expr) -> Expr:
    """What a function of jsonb gives is jsonb."""
    is_named = name.startswith("jsonb_") or name == "to_jsonb"
    return Call(JB, "same", (expr,)) if is_named and expr.type in JSON else expr


_PARTS = ("years", "months", "weeks", "days", "hours", "mins", "secs")


def _in_place(node: exp.Anonymous, name: str) -> list[exp.Expr]:
    """The arguments; `make_interval(days => 10)` is the one function whose arguments have names."""
    args = list(node.expressions)
    named = [each for each in args if isinstance(each, exp.Kwarg)]
    if not named:
        return args
    found: dict[str, exp.Expr] = dict(zip(_PARTS, args[: len(args) - len(named)], strict=False))
    for each in args[len(found) :]:
        word = name_of(each.this)
        if name != "make_interval" or not isinstance(each, exp.Kwarg) or word not in _PARTS:
            raise refuse(each, "an argument by its name")
        found[word] = each.expression
    return [found.get(part) or exp.Literal.number(0) for part in _PARTS]


def _aggregation(scope: Scope, node: exp.Anonymous) -> Aggregation:
    args, distinct, order = list(node.expressions), False, None
    if args and isinstance(args[-1], exp.Order):
        order = args[-1]
        args = [*args[:-1], order.this] if order.this is not None else args[:-1]
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        distinct, args = True, list(args[0].expressions)
    if str(node.this).lower() == "count" and len(args) == 1 and isinstance(args[0], exp.Star):
        args = []
    elif not args:
        raise SyntaxProblem(f"{node.this}(*) must be used to call a parameterless aggregate")
    name = str(node.this).lower()
    if name in OF_ROWS:
        bound = [bind_argument(scope, arg, bind_expr) for arg in args]
    else:
        bound = [bind_expr(scope, arg) for arg in args]
    found = Aggregation(scope.binder, name, bound, distinct=distinct)
    if order is not None:
        found.order = bind_order(scope, order)
    return found


def _aggregate(scope: Scope, node: exp.Anonymous, condition: exp.Expr | None) -> Expr:
    forbidden, windows = scope.no_aggregates, scope.no_windows
    scope.no_aggregates = scope.no_windows = "an aggregate"
    try:
        aggregation = _aggregation(scope, node)
        if condition is not None:
            aggregation.filter = bind_boolean(scope, condition, "FILTER")
    finally:
        scope.no_aggregates, scope.no_windows = forbidden, windows
    owner = owner_of(scope, aggregation.args)
    if aggregation.filter is not None and is_asked(owner, aggregation.filter):
        raise GroupingProblem(
            "aggregate function calls cannot be nested", position=walk_position(node)
        )
    if owner.no_aggregates is not None:
        raise GroupingProblem(
            f"aggregate functions are not allowed in {owner.no_aggregates}",
            position=walk_position(node),
        )
    found = aggregation.lower(lambda agg: agg, walk_position(node))
    return found if owner is scope else asked_of(owner, found)


def _within(scope: Scope, node: exp.WithinGroup, condition: exp.Expr | None = None) -> Expr:
    call = node.this
    name = str(call.this).lower() if isinstance(call, exp.Anonymous) else ""
    if name not in ORDERED_SETS:
        raise refuse(node, "WITHIN GROUP after this")
    forbidden, windows = scope.no_aggregates, scope.no_windows
    if forbidden is not None:
        raise GroupingProblem(
            f"aggregate functions are not allowed in {forbidden}", position=walk_position(node)
        )
    scope.no_aggregates = scope.no_windows = "an aggregate"
    try:
        args = [bind_expr(scope, arg) for arg in call.expressions]
        order = bind_order(scope, node.expression)
        holds = bind_boolean(scope, condition, "FILTER") if condition is not None else None
    finally:
        scope.no_aggregates, scope.no_windows = forbidden, windows
    has_sets = scope.parent is not None and scope.parent.has_sets
    if has_sets and name in HYPOTHETICAL and any(map(columns_in, args)):
        raise refuse(node, f"{name} of a column beside several grouping sets")
    looked_at, found = ordered_set(scope.binder, name, args, order, holds, walk_position(node))
    if owner_of(scope, list(looked_at)) is not scope:
        raise refuse(node, "WITHIN GROUP over columns of an outer query")
    return found


def _filter(scope: Scope, node: exp.Filter) -> Expr:
    if isinstance(node.this, exp.WithinGroup):
        return _within(scope, node.this, node.expression.this)
    if not isinstance(node.this, exp.Anonymous) or str(node.this.this).lower() not in AGGREGATES:
        raise refuse(node)
    return _aggregate(scope, node.this, node.expression.this)


def _window(scope: Scope, node: exp.Window) -> Expr:
    if scope.no_windows is not None:
        raise CairnError(
            f"window functions are not allowed in {scope.no_windows}", sqlstate="42P20"
        )
    spec = _named_window(scope, node)
    call, condition = node.this, None
    if isinstance(call, exp.Filter):
        call, condition = call.this, call.expression.this
    if not isinstance(call, exp.Anonymous):
        raise refuse(node)
    scope.no_windows = "a window function"
    try:
        partition = tuple(bind_expr(scope, each) for each in spec.args.get("partition_by") or ())
        ordering = node.args.get("order") or spec.args.get("order")
        order = bind_order(scope, ordering) if ordering else ()
        frame = _frame(scope, node.args.get("spec") or spec.args.get("spec"), order)

        def make(agg: Agg) -> Expr:
            if agg.distinct or agg.order:
                raise refuse(node, "DISTINCT or ORDER BY inside a window function")
            return Window(agg.type, agg, partition, order, frame)

        name = str(call.this).lower()
        if name in AGGREGATES:
            aggregation = _aggregation(scope, call)
            if condition is not None:
                aggregation.filter = bind_boolean(scope, condition, "FILTER")
            return aggregation.lower(make, walk_position(node))
        if name not in RANKING or condition is not None:
            raise CairnError(f"{name} is not a window function", sqlstate="42809")
        return make(_ranking(scope, name, [bind_expr(scope, each) for each in call.expressions]))
    finally:
        scope.no_windows = None


def _ranking(scope: Scope, name: str, args: list[Expr]) -> Agg:
    sizes = {"ntile": (1,), "lag": (1, 2, 3), "lead": (1, 2, 3), "nth_value": (2,)}
    wanted = sizes.get(name, (1,) if name.endswith("_value") else (0,))
    if len(args) not in wanted:
        raise CairnError(f"wrong number of arguments for {name}", sqlstate="42883")
    if RANKING[name] is not None:
        return Agg(RANKING[name], name, tuple(scope.binder.coerce(each, I) for each in args))
    value = args[0] if args[0].type else scope.binder.coerce(args[0], S)
    rest = [scope.binder.coerce(each, I) for each in args[1:2]]
    rest += [scope.binder.coerce(each, value.type or S) for each in args[2:]]
    return Agg(value.type, name, (value, *rest))


def _named_window(scope: Scope, node: exp.Window) -> exp.Expr:
    alias = node.args.get("alias")
    if alias is None:
        return node
    found = scope.windows.get(name_of(alias))
    if found is None:
        raise CairnError(f'window "{name_of(alias)}" does not exist', sqlstate="42704")
    if node.args.get("partition_by"):
        raise _overridden("PARTITION BY", alias)
    if node.args.get("order") and found.args.get("order"):
        raise _overridden("ORDER BY", alias)
    return found


def _overridden(what: str, window: exp.Expr) -> CairnError:
    text = f'cannot override {what} clause of window "{name_of(window)}"'
    return CairnError(text, sqlstate="42P20")


def _frame(scope: Scope, spec: exp.Expr | None, order: tuple[Order, ...]) -> str:
    if spec is None:
        return ""
    kind = str(spec.args["kind"]).upper()
    if kind == "GROUPS" and not order:
        raise CairnError("GROUPS mode requires an ORDER BY clause", sqlstate="42P20")

    def bound(which: str, missing: str) -> str:
        value, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "")
        if value is None:
            return missing
        if not side and str(value).upper() != "CURRENT ROW":
            raise SyntaxProblem("a frame's bound is PRECEDING or FOLLOWING")
        if isinstance(value, str):
            return f"{value} {side}".strip().upper()
        size = bind_expr(scope, value)
        if kind == "RANGE":
            far = _distance(scope, size, order)
        elif isinstance(size, Const) and isinstance(size.value, int):
            far = size.value
        else:
            raise Unsupported(f"a {kind} frame with this distance is not supported")
        if far < 0:
            which = "starting" if which == "start" else "ending"
            what = "preceding or following size in window function" if kind == "RANGE" else ""
            raise CairnError(
                f"invalid {what}" if what else f"frame {which} offset must not be negative",
                sqlstate="22013",
            )
        return f"{far} {side}".upper()

    start, end = bound("start", "UNBOUNDED PRECEDING"), bound("end", "CURRENT ROW")
    without = spec.args.get("exclude")
    return f"{kind} BETWEEN {start} AND {end}" + (f" EXCLUDE {without.name}" if without else "")


def _distance(scope: Scope, size: Expr, order: tuple[Order, ...]) -> int | float:
    """Of a RANGE frame: as far as the values by which it is ordered are apart, as they are kept."""
    if len(order) != 1:
        raise CairnError(
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            sqlstate="42P20",
        )
    by = order[0].expr.type
    if by in (T, M, Y) and size.type in (V, None):
        far = scope.binder.coerce(size, V)
        if isinstance(far, Const) and isinstance(far.value, bytes):
            months, days, micros = decode_interval(far.value)
            if not months:
                return days * MICROS_PER_DAY + micros
            raise Unsupported("a RANGE frame of months is not supported", hint="give it in days")
    elif by in (I, D) and isinstance(size, Const) and size.type in (I, N, D):
        far = cast(size, D) if by is D else size
        if isinstance(far, Const) and isinstance(far.value, (int, float)):
            return far.value
    raise Unsupported(
        "a RANGE frame with this distance is not supported",
        hint="order by whole numbers, doubles or times, and give the distance as a constant",
    )


def bind_order(scope: Scope, node: exp.Expr) -> tuple[Order, ...]:
    found = []
    for each in node.expressions:
        expr = bind_expr(scope, each.this)
        found.append(ordered(scope, expr, each))
    return tuple(found)


def ordered(scope: Scope, expr: Expr, node: exp.Expr) -> Order:
    allow(node, {"this", "desc", "nulls_first"})
    if expr.type is None:
        expr = scope.binder.coerce(expr, S)
    if expr.type in ELEMENTS and expr.type not in (ColumnType.INTERVALS, ColumnType.JSONBS):
        expr = sorting_key(expr)
    if expr.type is JB:
        expr = folded(Call(ColumnType.VARBINARY, "x_json_key", (expr,)))
    if expr.type in UNORDERED:
        raise CairnError(
            f"could not identify an ordering operator for type {expr.type}", sqlstate="42883"
        )
    if expr.type is V:
        expr = folded(Call(I, "v_length", (expr,)))
    desc = bool(node.args.get("desc"))
    nulls_first = node.args.get("nulls_first")
    return Order(expr, desc, desc if nulls_first is None else bool(nulls_first))


def _subquery(scope: Scope, node: exp.Subquery) -> Expr:
    query = scope.query(node)
    columns = output(query)
    if len(columns) != 1:
        raise SyntaxProblem("subquery must return only one column")
    return SubQuery(plain(columns[0][1]), "scalar", query)


def _exists(scope: Scope, node: exp.Exists) -> Expr:
    return SubQuery(B, "exists", scope.query(node.this))


def _bracket(scope: Scope, node: exp.Bracket) -> Expr:
    inner = bind_expr(scope, node.this)
    if inner.type is JB:
        return _member(scope, node, inner)
    is_list = inner.type in ELEMENTS
    if len(node.expressions) != 1 or not (is_list or inner.type in JSON):
        raise refuse(node, "this subscript")
    (place,) = node.expressions
    if isinstance(place, exp.Slice) and is_list:
        edges = [place.this, place.expression]
        return slice_of(
            scope.binder,
            inner,
            [None if each is None else bind_expr(scope, each) for each in edges],
        )
    key = bind_expr(scope, place)
    if is_list and key.type is None:
        key = scope.binder.coerce(key, I)
    if key.type is I:
        if is_list:
            return item_of(inner, key)
        return Call(ColumnType.ANY, "c_index", (inner, key))
    return Call(ColumnType.ANY, "c_index", (inner, scope.binder.coerce(key, S)))


def _member(scope: Scope, node: exp.Bracket, inner: Expr) -> Expr:
    """`j['a'][0]` of JSONB is `j #> '{a,0}'`; a column that is declared ARRAY counts from 1."""
    keys: list[Expr] = []
    for each in node.expressions:
        if isinstance(each, exp.Slice):
            raise CairnError("jsonb subscript does not support slices", sqlstate="42804")
        key = bind_expr(scope, each)
        if key.type not in (None, I, S):
            raise CairnError(
                f"subscript type {key.type} is not supported",
                hint="jsonb subscript must be coercible to either integer or text.",
                sqlstate="42804",
            )
        keys.append(scope.binder.coerce(key, S, EXPLICIT))
    return folded(Call(JB, "c_json_deep", (inner, *keys)))


def _trim(scope: Scope, node: exp.Trim) -> Expr:
    side = str(node.args.get("position") or "both").lower()
    chars = node.expression
    coerce = scope.binder.coerce
    text = coerce(bind_expr(scope, node.this), S)
    what = coerce(bind_expr(scope, chars), S) if chars is not None else Const(S, " ")
    return fold(Call(S, "c_trim", (text, what, Const(S, side))))


def _position(scope: Scope, node: exp.StrPosition) -> Expr:
    args = [bind_expr(scope, node.this), bind_expr(scope, node.args["substr"])]
    return scalar(scope.binder, "strpos", args, walk_position(node))


_OF_CLOCK = ("hour", "minute", "second", "milliseconds", "microseconds")


def _extract(scope: Scope, node: exp.Extract) -> Expr:
    value = bind_expr(scope, node.expression)
    unit = name_of(node.this)
    word = Const(S, unit)
    if value.type is V:
        return folded(Call(N, "v_extract", (value, word)))
    if value.type is H:
        return folded(Call(N, "n_extract_clock", (value, word)))
    if value.type is Y and unit_of(unit) in _OF_CLOCK:
        raise refuse(node, f"{unit} of a date")
    found = Call(N, "n_extract", (scope.binder.coerce(value, T), word))
    is_whole = value.type is Y and unit.lower() == "epoch"  # a day has no parts of a second
    return folded(Call(N, "n_round", (found, Const(I, 0)))) if is_whole else found


HANDLERS.update(
    {
        exp.Anonymous: _call,
        exp.Filter: _filter,
        exp.Window: _window,
        exp.WithinGroup: _within,
        exp.Subquery: _subquery,
        exp.Exists: _exists,
        exp.Bracket: _bracket,
        exp.Trim: _trim,
        exp.StrPosition: _position,
        exp.Extract: _extract,
    }
)
