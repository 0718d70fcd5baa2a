"""sqlglot's expressions to typed IR."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from typing import cast as typed

from sqlglot import exp

from cairn.model.decimals import decode_decimal, encode_decimal
from cairn.model.errors import CairnError, GroupingProblem, SyntaxProblem, Unsupported
from cairn.model.values import INT64_MAX, ColumnType
from cairn.sql.bind_functions import AGGREGATES, RANKING, Aggregation, scalar
from cairn.sql.dialect import walk_position
from cairn.sql.ir import (
    FALSE,
    NULL,
    TRUE,
    Agg,
    Call,
    Case,
    Const,
    Expr,
    Order,
    Param,
    Query,
    SubQuery,
    Window,
    output,
)
from cairn.sql.scope import MAX_ARGUMENTS, NOW, Scope
from cairn.sql.typing_rules import (
    ASSIGNMENT,
    EXPLICIT,
    JSON,
    RANK,
    B,
    D,
    I,
    N,
    S,
    T,
    cast,
    common_type,
    fold,
    no_operator,
    plain,
    type_word,
)


def bind_query(scope: Scope, tree: exp.Expr) -> Query:
    """Queries hold expressions and expressions hold queries: hence the late import."""
    from cairn.sql.bind import bind_query as bind_inner

    return bind_inner(scope, tree)


_COMPARE: dict[type[Any], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[Any], tuple[str, str]] = {
    exp.Add: ("+", "add"),
    exp.Sub: ("-", "sub"),
    exp.Mul: ("*", "mul"),
    exp.Div: ("/", "div"),
    exp.Mod: ("%", "mod"),
}
_PREFIX = {I: "i", N: "n", D: "d"}


def name_of(node: Any) -> str:
    """An identifier as PostgreSQL folds it."""
    if isinstance(node, exp.Identifier):
        return str(node.this) if node.args.get("quoted") else str(node.this).lower()
    return str(getattr(node, "name", node)).lower()


def refuse(node: exp.Expr, what: str | None = None) -> Unsupported:
    return Unsupported(
        f"{what or type(node).__name__.upper()} is not supported", position=walk_position(node)
    )


def bind_expr(scope: Scope, node: exp.Expr) -> Expr:
    """The typed form of an expression; what Cairn does not know is refused by name."""
    binder = scope.binder
    binder.deeper()
    try:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise refuse(node)
        found = handler(scope, node)
        # sqlglot keeps the NOT of `NOT LIKE` and its kind inside the node.
        return Call(B, "not", (found,)) if node.args.get("negate") else found
    except CairnError as error:
        if error.position is None:
            error.position = walk_position(node)
        raise
    finally:
        binder.depth -= 1


def bind_boolean(scope: Scope, node: exp.Expr, what: str) -> Expr:
    expr = bind_expr(scope, node)
    return boolean(scope, expr, what)


def boolean(scope: Scope, expr: Expr, what: str) -> Expr:
    if expr.type is None:
        expr = scope.binder.coerce(expr, B)
    if expr.type is not B:
        raise CairnError(
            f"argument of {what} must be type boolean, not type {expr.type}", sqlstate="42804"
        )
    return expr


# --- leaves ---------------------------------------------------------------------------------------


def _literal(scope: Scope, node: exp.Literal) -> Expr:
    text = str(node.this)
    if node.is_string:
        if "\x00" in text:
            raise CairnError("a string cannot contain a zero byte", sqlstate="22021")
        return Const(None, text)
    if "e" in text.lower():
        value = float(text)
        if value == float("inf"):
            raise CairnError(f'"{text}" is out of range for type double', sqlstate="22003")
        return Const(D, value)
    if "." in text or int(text) > INT64_MAX:
        return Const(N, encode_decimal(Decimal(text)))
    return Const(I, int(text))


def _parameter(scope: Scope, node: exp.Parameter) -> Expr:
    number = str(getattr(node.this, "this", node.this))
    if not number.isdigit():
        raise SyntaxProblem(f'syntax error at or near "${number}"', position=walk_position(node))
    return scope.binder.param(int(number), walk_position(node))


def _column(scope: Scope, node: exp.Column) -> Expr:
    if isinstance(node.this, exp.Star):
        raise SyntaxProblem("* is not an expression", position=walk_position(node))
    alias = name_of(node.args["table"]) if node.args.get("table") else None
    bare = alias is None and not node.this.args.get("quoted")
    if bare and name_of(node.this) in ("current_user", "session_user", "current_catalog"):
        return scalar(scope.binder, name_of(node.this), (), None)
    return scope.column(name_of(node.this), alias, walk_position(node))


def _now(scope: Scope, node: exp.Expr) -> Expr:
    scope.binder.uses_now = True
    return Param(T, NOW)


def _today(scope: Scope, node: exp.Expr) -> Expr:
    return Call(T, "t_date", (_now(scope, node),))


# --- operators ------------------------------------------------------------------------------------


def _logic(scope: Scope, node: exp.Expr) -> Expr:
    word = "and" if isinstance(node, exp.And) else "or"
    parts = [bind_boolean(scope, part, word.upper()) for part in node.flatten()]
    return Call(B, word, tuple(parts))


def _not(scope: Scope, node: exp.Not) -> Expr:
    return Call(B, "not", (bind_boolean(scope, node.this, "NOT"),))


def compare(scope: Scope, name: str, left: Expr, right: Expr) -> Expr:
    """A comparison of two values after bringing them to one type."""
    try:
        type_ = common_type((left.type, right.type), "comparison") or S
    except CairnError:
        raise no_operator(name, left.type, right.type) from None
    if type_ in JSON:
        raise no_operator(name, left.type, right.type)
    mixed = {left.type, right.type} == {I, D}
    if mixed and not isinstance(left, (Const, Param)) and not isinstance(right, (Const, Param)):
        return Call(B, name, (left, right))  # SQLite compares them exactly as they are
    coerce = scope.binder.coerce
    return Call(B, name, (coerce(left, type_), coerce(right, type_)))


def _comparison(scope: Scope, node: exp.Binary) -> Expr:
    name = _COMPARE[type(node)]
    if isinstance(node.right, (exp.Any, exp.All)):
        return _quantified(scope, name, node)
    left_row, right_row = _row_parts(node.left), _row_parts(node.right)
    if left_row is not None or right_row is not None:
        return _row_comparison(scope, name, node)
    return compare(scope, name, bind_expr(scope, node.left), bind_expr(scope, node.right))


def _row_parts(node: exp.Expr) -> list[exp.Expr] | None:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "row":
        return list(node.expressions)
    return None


def _row_comparison(scope: Scope, name: str, node: exp.Binary) -> Expr:
    left, right = _row_parts(node.left), _row_parts(node.right)
    if left is None or right is None:
        raise refuse(node, "comparing a row with a sub-query or a single value")
    if len(left) != len(right):
        raise SyntaxProblem("unequal number of entries in row expressions")
    pairs = [
        typed(Call, compare(scope, name, bind_expr(scope, a), bind_expr(scope, b)))
        for a, b in zip(left, right, strict=True)
    ]
    if name == "=":
        return Call(B, "and", tuple(pairs))
    if name == "<>":
        return Call(B, "or", tuple(pairs))
    args = tuple(p.args[0] for p in pairs) + tuple(p.args[1] for p in pairs)
    return Call(B, "row" + name, args)


def _quantified(scope: Scope, name: str, node: exp.Binary) -> Expr:
    """`= ANY (query)` is IN, `<> ALL (query)` is NOT IN; the others are rare and refused."""
    query = node.right.this
    query = query.this if isinstance(query, exp.Subquery) else query
    wanted = ("=", exp.Any) if isinstance(node.right, exp.Any) else ("<>", exp.All)
    if name != wanted[0] or not isinstance(query, exp.Query):
        raise refuse(node, f"{name} {type(node.right).__name__.upper()}")
    found = _in_query(scope, [node.left], query)
    return found if name == "=" else Call(B, "not", (found,))


def _arithmetic(scope: Scope, node: exp.Binary) -> Expr:
    symbol, word = _ARITHMETIC[type(node)]
    left, right = bind_expr(scope, node.left), bind_expr(scope, node.right)
    return arithmetic(scope, symbol, word, left, right)


def arithmetic(scope: Scope, symbol: str, word: str, left: Expr, right: Expr) -> Expr:
    if left.type is None and right.type is None:
        raise CairnError(
            f"operator is not unique: unknown {symbol} unknown",
            sqlstate="42725",
            hint="cast one of the operands",
        )
    if any(each.type not in (None, *RANK) for each in (left, right)):
        raise no_operator(symbol, left.type, right.type)
    type_ = common_type((left.type, right.type), symbol)
    assert type_ is not None
    if type_ is D and word == "mod":
        raise no_operator(symbol, left.type, right.type)
    coerce = scope.binder.coerce
    call = Call(type_, f"{_PREFIX[type_]}_{word}", (coerce(left, type_), coerce(right, type_)))
    try:
        return fold(call)
    except CairnError:
        return call  # an error of evaluation, not of the statement


def _negative(scope: Scope, node: exp.Neg) -> Expr:
    inner = bind_expr(scope, node.this)
    if isinstance(inner, Const) and inner.type is N and isinstance(inner.value, bytes):
        return Const(N, encode_decimal(decode_decimal(inner.value).copy_negate()))
    if inner.type is None:
        inner = scope.binder.coerce(inner, D)
    if inner.type not in RANK:
        raise no_operator("-", inner.type)
    if inner.type is D:
        if isinstance(inner, Const) and isinstance(inner.value, float):
            return Const(D, -inner.value)
        return Call(D, "neg", (inner,))
    return fold(Call(inner.type, f"{_PREFIX[inner.type]}_neg", (inner,)))


def _concat(scope: Scope, node: exp.Expr) -> Expr:
    parts = [bind_expr(scope, part) for part in node.flatten()]
    if all(part.type not in (None, S) for part in parts):
        raise no_operator("||", *[part.type for part in parts])
    return Call(S, "||", tuple(scope.binder.coerce(part, S, ASSIGNMENT) for part in parts))


def _is(scope: Scope, node: exp.Is) -> Expr:
    inner, what = node.this, node.expression
    found: Expr
    if isinstance(what, exp.Null):
        parts = _row_parts(inner)
        if parts is not None:
            raise refuse(node, "IS NULL of a row")
        expr = bind_expr(scope, inner)
        if expr.type is None:
            expr = scope.binder.coerce(expr, S)
        found = Call(B, "is_null", (expr,))
    elif isinstance(what, exp.Boolean):
        word = "is_true" if what.this else "is_false"
        found = Call(B, word, (bind_boolean(scope, inner, "IS TRUE"),))
    else:
        raise refuse(node)
    return found


def _distinct_from(scope: Scope, node: exp.Binary) -> Expr:
    call = compare(scope, "=", bind_expr(scope, node.left), bind_expr(scope, node.right))
    name = "is" if isinstance(node, exp.NullSafeEQ) else "is_not"
    return Call(B, name, typed(Call, call).args)


def _between(scope: Scope, node: exp.Between) -> Expr:
    value = bind_expr(scope, node.this)
    low, high = bind_expr(scope, node.args["low"]), bind_expr(scope, node.args["high"])
    first = Call(B, "and", (compare(scope, ">=", value, low), compare(scope, "<=", value, high)))
    if not node.args.get("symmetric"):
        return first
    other = Call(B, "and", (compare(scope, ">=", value, high), compare(scope, "<=", value, low)))
    return Call(B, "or", (first, other))


def _in(scope: Scope, node: exp.In) -> Expr:
    query = node.args.get("query")
    if query is not None:
        operands = _row_parts(node.this) or [node.this]
        return _in_query(scope, operands, query.this if isinstance(query, exp.Subquery) else query)
    items = list(node.expressions)
    if not items and node.args.get("field") is not None:
        items = [node.args["field"]]
    if not items:
        raise refuse(node)
    if _row_parts(node.this) is not None:
        rows = [_row_comparison(scope, "=", exp.EQ(this=node.this, expression=i)) for i in items]
        return rows[0] if len(rows) == 1 else Call(B, "or", tuple(rows))
    value = bind_expr(scope, node.this)
    bound = [bind_expr(scope, item) for item in items]
    try:
        type_ = common_type([value.type, *(each.type for each in bound)], "IN") or S
    except CairnError:
        raise no_operator("in", value.type, *(each.type for each in bound)) from None
    if type_ in JSON:
        raise no_operator("=", value.type, bound[0].type)
    coerce = scope.binder.coerce
    return Call(B, "in", (coerce(value, type_), *(coerce(each, type_) for each in bound)))


def _in_query(scope: Scope, operands: list[exp.Expr], tree: exp.Expr) -> Expr:
    values = [bind_expr(scope, each) for each in operands]
    query = bind_query(scope, tree)
    columns = output(query)
    if len(columns) != len(values):
        few = "few" if len(columns) < len(values) else "many"
        raise SyntaxProblem(f"subquery has too {few} columns")
    coerced = []
    for value, (_, type_) in zip(values, columns, strict=True):
        try:
            coerced.append(scope.binder.coerce(value, plain(type_)))
        except CairnError:
            if value.type in RANK and type_ in RANK and value.type is not None:
                query = _cast_output(query, value.type)
                coerced.append(value)
            else:
                raise no_operator("=", value.type, type_) from None
    return SubQuery(B, "in", query, tuple(coerced))


def _cast_output(query: Query, to: ColumnType) -> Query:
    from dataclasses import replace

    from cairn.sql.ir import Item, Select

    if not isinstance(query, Select) or len(query.items) != 1:
        raise Unsupported("IN with this pair of types is not supported", hint="cast one side")
    item = query.items[0]
    return replace(query, items=(Item(item.name, cast(item.expr, to)),))


def _like(scope: Scope, node: exp.Expr) -> Expr:
    escape: Expr = Const(S, "\\")
    if isinstance(node, exp.Escape):
        if node.this.args.get("negate"):
            node.this.set("negate", False)
            node.set("negate", True)
        escape = scope.binder.coerce(bind_expr(scope, node.expression), S)
        node = node.this
    names: dict[type[Any], str] = {
        exp.Like: "c_like",
        exp.ILike: "c_ilike",
        exp.SimilarTo: "c_similar",
    }
    name = names.get(type(node))
    if name is None:
        raise refuse(node)
    values = [bind_expr(scope, node.this), bind_expr(scope, node.expression)]
    if any(each.type not in (None, S) for each in values):
        raise no_operator("like", *(each.type for each in values))
    return Call(B, name, (*(scope.binder.coerce(each, S) for each in values), escape))


def _case(scope: Scope, node: exp.Case) -> Expr:
    operand = bind_expr(scope, node.this) if node.this is not None else None
    conditions, results = [], []
    for branch in node.args["ifs"]:
        if operand is None:
            conditions.append(bind_boolean(scope, branch.this, "CASE/WHEN"))
        else:
            conditions.append(compare(scope, "=", operand, bind_expr(scope, branch.this)))
        results.append(bind_expr(scope, branch.args["true"]))
    default = node.args.get("default")
    if default is not None:
        results.append(bind_expr(scope, default))
    type_ = common_type([each.type for each in results], "CASE") or S
    coerced = [scope.binder.coerce(each, type_) for each in results]
    last = coerced.pop() if default is not None else None
    return Case(type_, tuple(zip(conditions, coerced, strict=True)), last)


def cast_type(node: exp.DataType) -> tuple[ColumnType, list[int]]:
    """The type named in a cast, and the numbers in its parentheses."""
    word = str(getattr(node.this, "value", node.this)).lower()
    if word == "userdefined":
        word = name_of(node.args.get("kind"))
    sizes = [int(each.name) for each in node.expressions if isinstance(each, exp.DataTypeParam)]
    if word == "array":
        return ColumnType.ARRAY, []
    return plain(type_word(word)), sizes


def _cast(scope: Scope, node: exp.Cast) -> Expr:
    to, sizes = cast_type(node.to)
    inner = bind_expr(scope, node.this)
    found = scope.binder.coerce(inner, to, EXPLICIT)
    if str(node.to.this) == str(exp.DType.DATE):
        return Call(T, "t_date", (found,))
    if sizes and to is N:
        scale = sizes[1] if len(sizes) > 1 else 0
        return Call(N, "n_scaled", (found, Const(I, sizes[0]), Const(I, scale)))
    if sizes and to is S:
        return Call(S, "c_left", (found, Const(I, sizes[0])))
    return found


# --- functions and sub-queries --------------------------------------------------------------------


def _call(scope: Scope, node: exp.Anonymous) -> Expr:
    name = str(node.this).lower()
    if name in ("current_timestamp", "localtimestamp", "now"):
        return _now(scope, node)
    if name == "current_date":
        return _today(scope, node)
    if name in AGGREGATES:
        return _aggregate(scope, node, None)
    if name in RANKING:
        raise CairnError(f"window function {name} requires an OVER clause", sqlstate="42P20")
    args = list(node.expressions)
    if len(args) > MAX_ARGUMENTS:
        raise CairnError(
            f"cannot pass more than {MAX_ARGUMENTS} arguments to a function", sqlstate="54023"
        )
    if any(isinstance(arg, (exp.Distinct, exp.Star, exp.Order)) for arg in args):
        raise refuse(node, f"{name} with DISTINCT, * or ORDER BY")
    bound = [bind_expr(scope, arg) for arg in args]
    return scalar(scope.binder, name, bound, walk_position(node))


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
    bound = [bind_expr(scope, arg) for arg in args]
    found = Aggregation(scope.binder, str(node.this).lower(), bound, distinct=distinct)
    if order is not None:
        found.order = bind_order(scope, order)
    return found


def _aggregate(scope: Scope, node: exp.Anonymous, condition: exp.Expr | None) -> Expr:
    if scope.no_aggregates is not None:
        raise GroupingProblem(
            f"aggregate functions are not allowed in {scope.no_aggregates}",
            position=walk_position(node),
        )
    scope.no_aggregates, windows = "an aggregate", scope.no_windows
    scope.no_windows = "an aggregate"
    try:
        aggregation = _aggregation(scope, node)
        if condition is not None:
            aggregation.filter = bind_boolean(scope, condition, "FILTER")
    finally:
        scope.no_aggregates, scope.no_windows = None, windows
    return aggregation.lower(lambda agg: agg, walk_position(node))


def _filter(scope: Scope, node: exp.Filter) -> Expr:
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
        order = bind_order(scope, spec.args["order"]) if spec.args.get("order") else ()
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
    sizes = {"ntile": (1,), "lag": (1, 2, 3), "lead": (1, 2, 3)}
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
    return found


def _frame(scope: Scope, spec: exp.Expr | None, order: tuple[Order, ...]) -> str:
    if spec is None:
        return ""
    kind = str(spec.args["kind"]).upper()

    def bound(which: str, missing: str) -> str:
        value, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "")
        if value is None:
            return missing
        if isinstance(value, str):
            return f"{value} {side}".strip().upper()
        size = bind_expr(scope, value)
        if not isinstance(size, Const) or not isinstance(size.value, int) or kind == "RANGE":
            raise Unsupported(f"a {kind} frame with this distance is not supported")
        if size.value < 0:
            raise CairnError("frame starting offset must not be negative", sqlstate="22013")
        return f"{size.value} {side}".upper()

    start, end = bound("start", "UNBOUNDED PRECEDING"), bound("end", "CURRENT ROW")
    return f"{kind} BETWEEN {start} AND {end}"


def bind_order(scope: Scope, node: exp.Expr) -> tuple[Order, ...]:
    found = []
    for each in node.expressions:
        expr = bind_expr(scope, each.this)
        found.append(ordered(scope, expr, each))
    return tuple(found)


def ordered(scope: Scope, expr: Expr, node: exp.Expr) -> Order:
    if expr.type is None:
        expr = scope.binder.coerce(expr, S)
    if expr.type in JSON:
        raise CairnError(
            f"could not identify an ordering operator for type {expr.type}", sqlstate="42883"
        )
    desc = bool(node.args.get("desc"))
    nulls_first = node.args.get("nulls_first")
    return Order(expr, desc, desc if nulls_first is None else bool(nulls_first))


def _subquery(scope: Scope, node: exp.Subquery) -> Expr:
    query = bind_query(scope, node)
    columns = output(query)
    if len(columns) != 1:
        raise SyntaxProblem("subquery must return only one column")
    return SubQuery(plain(columns[0][1]), "scalar", query)


def _exists(scope: Scope, node: exp.Exists) -> Expr:
    return SubQuery(B, "exists", bind_query(scope, node.this))


def _bracket(scope: Scope, node: exp.Bracket) -> Expr:
    inner = bind_expr(scope, node.this)
    if len(node.expressions) != 1 or inner.type not in JSON:
        raise refuse(node, "this subscript")
    key = bind_expr(scope, node.expressions[0])
    if key.type is I:
        if isinstance(key, Const) and isinstance(key.value, int):
            key = Const(I, key.value + 1)  # sqlglot counts from 0
        return Call(ColumnType.ANY, "c_index", (inner, key))
    return Call(ColumnType.ANY, "c_index", (inner, scope.binder.coerce(key, S)))


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


def _extract(scope: Scope, node: exp.Extract) -> Expr:
    value = scope.binder.coerce(bind_expr(scope, node.expression), T)
    return Call(N, "n_extract", (value, Const(S, name_of(node.this))))


_HANDLERS: dict[type[Any], Callable[[Scope, Any], Expr]] = {
    exp.Literal: _literal,
    exp.Boolean: lambda _, node: TRUE if node.this else FALSE,
    exp.Null: lambda *_: NULL,
    exp.Parameter: _parameter,
    exp.Column: _column,
    exp.Paren: lambda scope, node: bind_expr(scope, node.this),
    exp.And: _logic,
    exp.Or: _logic,
    exp.Not: _not,
    **dict.fromkeys(_COMPARE, _comparison),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _negative,
    exp.DPipe: _concat,
    exp.Is: _is,
    exp.NullSafeEQ: _distinct_from,
    exp.NullSafeNEQ: _distinct_from,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.SimilarTo: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.Anonymous: _call,
    exp.Filter: _filter,
    exp.Window: _window,
    exp.Subquery: _subquery,
    exp.Exists: _exists,
    exp.Bracket: _bracket,
    exp.Trim: _trim,
    exp.StrPosition: _position,
    exp.Extract: _extract,
    exp.CurrentTimestamp: _now,
    exp.Localtimestamp: _now,
    exp.CurrentDate: _today,
    exp.CurrentUser: lambda scope, _: scalar(scope.binder, "current_user", (), None),
}
