"""sqlglot's expressions to typed IR."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial, reduce
from typing import Any

from sqlglot import exp

from cairn.model import stops
from cairn.model.errors import CairnError, SyntaxProblem, UndefinedColumn, Unsupported
from cairn.model.types.decimals import decode_decimal, encode_decimal
from cairn.model.types.enums import EnumType
from cairn.model.types.intervals import decode_interval, encode_interval
from cairn.model.types.values import (
    ELEMENTS,
    INT64_MAX,
    INT64_MIN,
    LISTS,
    ColumnType,
    is_too_small,
)
from cairn.model.types.widths import WHOLES, Width, width_of_word
from cairn.sql.bind.enums import as_text, cast_to, cast_to_list, of_one_enum
from cairn.sql.bind.expressions.functions import folded, scalar
from cairn.sql.bind.scope import NOW, Binder, Scope
from cairn.sql.bind.storing import cast_whole
from cairn.sql.ir import (
    FALSE,
    NULL,
    TRUE,
    Call,
    Case,
    Const,
    Expr,
    Param,
    Type,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import allow, name_of, refuse, without_schema
from cairn.sql.scales import enum_of
from cairn.sql.typing_rules import (
    ASSIGNMENT,
    EXPLICIT,
    INCOMPARABLE,
    JB,
    JSON,
    POSTGRES_NAMES,
    RANK,
    B,
    D,
    H,
    I,
    M,
    N,
    S,
    T,
    V,
    X,
    Y,
    common_type,
    fold,
    json_like,
    no_operator,
    plain,
    type_word,
)

_ARITHMETIC: dict[type[Any], tuple[str, str]] = {
    exp.Add: ("+", "add"),
    exp.Sub: ("-", "sub"),
    exp.Mul: ("*", "mul"),
    exp.Div: ("/", "div"),
    exp.Mod: ("%", "mod"),
}
#: Inside these the value is of the same kind as the whole.
_PASSED_ON = frozenset((*_ARITHMETIC, exp.Paren, exp.Neg))
_EQUALITY = ("=", "<>")
_PREFIX = {I: "i", N: "n", D: "d"}


def bind_expr(scope: Scope, node: exp.Expr) -> Expr:
    """The typed form of an expression; what Cairn does not know is refused by name."""
    stops.check()
    binder = scope.binder
    binder.deeper()
    wanted = binder.wanted
    if wanted is not None and type(node) not in _PASSED_ON:
        binder.wanted = None
    try:
        handler = HANDLERS.get(type(node))
        if handler is None:
            raise refuse(node)
        found = handler(scope, node)
        # sqlglot keeps the NOT of `NOT LIKE` and its kind inside the node.
        return binder.weighed(Call(B, "not", (found,)) if node.args.get("negate") else found)
    except CairnError as error:
        if error.position is None:
            error.position = walk_position(node)
        raise
    finally:
        binder.depth -= 1
        binder.wanted = wanted


def bind_wanted(scope: Scope, node: exp.Expr, wanted: Type) -> Expr:
    """`bind_expr` of what becomes a value of `wanted`: `$1 - 100` for a DOUBLE takes 2.5."""
    binder = scope.binder
    before, binder.wanted = binder.wanted, wanted if wanted in RANK else None
    try:
        return bind_expr(scope, node)
    finally:
        binder.wanted = before


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
        return string(text, walk_position(node))
    return number(text)


def string(text: str, place: int | None = None) -> Const:
    """A quoted literal: its type is not known before it meets something."""
    if "\x00" in text:
        raise CairnError("a string cannot contain a zero byte", sqlstate="22021")
    return Const(None, text, place)


def number(text: str) -> Const:
    """A numeric literal: `1.5` is DECIMAL, `1e3` DOUBLE, too big for INTEGER is DECIMAL."""
    if "e" in text.lower():
        value = float(text)
        if value == float("inf") or is_too_small(value, text):
            raise CairnError(f'"{text}" is out of range for type double', sqlstate="22003")
        return Const(D, value)
    if "." in text or not INT64_MIN <= int(text) <= INT64_MAX:
        return Const(N, encode_decimal(Decimal(text)), scale=len(text.partition(".")[2]))
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
    try:
        return scope.column(name_of(node.this), alias, walk_position(node))
    except UndefinedColumn:
        if bare and name_of(node.this) == "user":  # where no column is called so
            return scalar(scope.binder, "current_user", (), None)
        raise


def statement_time(scope: Scope, node: exp.Expr) -> Expr:
    scope.binder.uses_now = True
    return _to_digits(Param(T, NOW), node)


def _to_digits(time: Expr, node: exp.Expr) -> Expr:
    """`current_timestamp(3)`: rounded to so many digits of a second."""
    args = list(node.expressions) or [node.this] * isinstance(node.this, exp.Expr)
    if not args:
        return time
    [digits] = args if len(args) == 1 else [None]
    if not isinstance(digits, exp.Literal) or not str(digits.this).isdigit():
        raise SyntaxProblem(f"{_function_name(node)} takes a number of digits or nothing")
    return Call(time.type, "t_round", (time, Const(I, min(int(str(digits.this)), 6))))


def _function_name(node: exp.Expr) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else "current_timestamp"


def local_time(scope: Scope, node: exp.Expr) -> Expr:
    return Call(M, "same", (statement_time(scope, node),))


def statement_clock(scope: Scope, node: exp.Expr) -> Expr:
    return Call(H, "h_of_m", (statement_time(scope, node),))


def statement_date(scope: Scope, node: exp.Expr) -> Expr:
    return Call(Y, "t_date", (statement_time(scope, node),))


# --- operators ------------------------------------------------------------------------------------


def _logic(scope: Scope, node: exp.Expr) -> Expr:
    word = "and" if isinstance(node, exp.And) else "or"
    parts = [bind_boolean(scope, part, word.upper()) for part in node.flatten()]
    return Call(B, word, tuple(parts))


def _not(scope: Scope, node: exp.Not) -> Expr:
    return Call(B, "not", (bind_boolean(scope, node.this, "NOT"),))


def compare(scope: Scope, name: str, left: Expr, right: Expr) -> Expr:
    """A comparison of two values after bringing them to one type."""
    left, right = of_one_enum(scope.binder, (left, right), name)
    try:
        type_ = common_type((left.type, right.type), "comparison") or S
    except CairnError:
        raise no_operator(name, left.type, right.type) from None
    if type_ is V:
        # `1 mon` is as long as `30 days`.
        both = (scope.binder.coerce(each, V) for each in (left, right))
        return Call(B, name, tuple(folded(Call(I, "v_length", (each,))) for each in both))
    if type_ in JSON and name in _EQUALITY:
        both = (scope.binder.coerce(each, type_) for each in (left, right))
        return Call(B, name, tuple(folded(Call(S, "c_json_canonical", (each,))) for each in both))
    if type_ is JB:
        both = (scope.binder.coerce(each, JB) for each in (left, right))
        return Call(B, name, tuple(folded(Call(X, "x_json_key", (each,))) for each in both))
    if type_ in INCOMPARABLE:
        raise no_operator(name, left.type, right.type)
    if type_ in ELEMENTS and name not in _EQUALITY:
        both = (scope.binder.coerce(each, type_) for each in (left, right))
        word = Const(S, type_.value)
        return Call(B, name, tuple(folded(Call(S, "a_key", (each, word))) for each in both))
    mixed = {left.type, right.type} == {I, D}
    if mixed and not isinstance(left, (Const, Param)) and not isinstance(right, (Const, Param)):
        return Call(B, name, (left, right))  # SQLite compares them exactly as they are
    coerce = scope.binder.coerce
    return Call(B, name, (coerce(left, type_), coerce(right, type_)))


def _arithmetic(scope: Scope, node: exp.Binary) -> Expr:
    symbol, word = _ARITHMETIC[type(node)]
    left, right = bind_expr(scope, node.left), bind_expr(scope, node.right)
    return arithmetic(scope, symbol, word, left, right)


def arithmetic(scope: Scope, symbol: str, word: str, left: Expr, right: Expr) -> Expr:
    if left.type in JSON and word == "sub":
        if right.type is ColumnType.STRINGS:
            return Call(json_like(left.type), "j_without_all", (left, right))
        key = right if right.type is I else scope.binder.coerce(right, S)
        return Call(json_like(left.type), "j_without", (left, key))
    wanted = scope.binder.wanted
    if wanted is not None and not (wanted is D and word == "mod"):
        left, right = _as_wanted(scope, left, right, wanted), _as_wanted(scope, right, left, wanted)
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


def _as_wanted(scope: Scope, expr: Expr, other: Expr, wanted: ColumnType) -> Expr:
    """A parameter beside nothing but a literal takes the type of the whole."""
    plain_other = isinstance(other, (Const, Param)) and (other.type is None or other.type in RANK)
    if not isinstance(expr, Param) or expr.type is not None or not plain_other:
        return expr
    if other.type is not None and RANK[other.type] > RANK[wanted]:
        return expr
    return scope.binder.coerce(expr, wanted)


def _negative(scope: Scope, node: exp.Neg) -> Expr:
    inner = bind_expr(scope, node.this)
    if isinstance(inner, Const) and inner.type is N and isinstance(inner.value, bytes):
        negated = decode_decimal(inner.value).copy_negate()
        if isinstance(node.this, exp.Literal) and node.this.name == str(-INT64_MIN):
            return Const(I, INT64_MIN)  # the one integer that does not fit without its sign
        return Const(N, encode_decimal(negated), scale=inner.scale)
    if inner.type is None:
        inner = scope.binder.coerce(inner, D)
    if inner.type is V:
        return folded(Call(V, "v_neg", (inner,)))
    if inner.type not in RANK:
        raise no_operator("-", inner.type)
    if inner.type is D:
        if isinstance(inner, Const) and isinstance(inner.value, float):
            return Const(D, -inner.value)
        return Call(D, "neg", (inner,))
    return fold(Call(inner.type, f"{_PREFIX[inner.type]}_neg", (inner,)))


def _concat(scope: Scope, node: exp.Expr) -> Expr:
    parts = [bind_expr(scope, part) for part in node.flatten()]
    if any(part.type in ELEMENTS for part in parts):
        return reduce(partial(join_lists, scope.binder), parts)
    if any(part.type in JSON for part in parts) and all(
        part.type in (None, *JSON) for part in parts
    ):
        values = [scope.binder.coerce(part, ColumnType.ANY) for part in parts]
        type_ = json_like(JB if any(part.type is JB for part in parts) else None)
        return reduce(lambda left, right: Call(type_, "j_joined", (left, right)), values)
    if any(part.type is X for part in parts) and all(part.type in (None, X) for part in parts):
        return folded(Call(X, "x_cat", tuple(scope.binder.coerce(part, X) for part in parts)))
    if all(part.type not in (None, S) for part in parts):
        raise no_operator("||", *[part.type for part in parts])
    return Call(S, "||", tuple(scope.binder.coerce(part, S, ASSIGNMENT) for part in parts))


def join_lists(binder: Binder, left: Expr, right: Expr) -> Expr:
    """`||` of two lists, or of a list and one more value before or behind it."""
    of, other = ELEMENTS.get(left.type or S), ELEMENTS.get(right.type or S)
    if of is None and other is None:
        raise no_operator("||", left.type, right.type)
    # A value without a type is a list beside a list, as in PostgreSQL.
    both = (of or left.type is None) and (other or right.type is None)
    type_ = common_type((of or left.type, other or right.type), "||") or S
    if type_ not in LISTS:
        raise no_operator("||", left.type, right.type)
    wanted = [LISTS[type_] if both or each else type_ for each in (of, other)]
    name = "a_cat" if both else "a_append" if of else "a_prepend"
    given = (binder.coerce(left, wanted[0]), binder.coerce(right, wanted[1]))
    return Call(LISTS[type_], name, given)


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
    results = of_one_enum(scope.binder, results, "CASE")
    type_ = common_type([each.type for each in results], "CASE") or S
    coerced = [scope.binder.coerce(each, type_) for each in results]
    last = coerced.pop() if default is not None else None
    return Case(type_, tuple(zip(conditions, coerced, strict=True)), last)


def _enum_named(scope: Scope, node: exp.DataType) -> EnumType | None:
    """The enum that a cast names."""
    kind = node.args.get("kind")
    if str(getattr(node.this, "name", node.this)).lower() != "userdefined" or kind is None:
        return None
    found = scope.binder.catalog.types.get(name_of(without_schema(kind)))
    if found is not None:
        scope.binder.views[found.id] = found.schema_version
    return found


def cast_type(node: exp.DataType) -> tuple[ColumnType, list[int]]:
    """The type named in a cast, and the numbers in its parentheses."""
    word = str(getattr(node.this, "name", node.this)).lower()
    if word == "userdefined":
        kind = node.args.get("kind")
        word = name_of(without_schema(kind))
    sizes = []
    for each in node.expressions:
        if isinstance(each, exp.DataTypeParam):
            if not each.name.isdigit():
                raise SyntaxProblem(f'syntax error at or near "{each.name}"')
            sizes.append(int(each.name))
    if word == "array":
        inner = [each for each in node.expressions if isinstance(each, exp.DataType)]
        if not inner:
            return ColumnType.ARRAY, []
        of, _ = cast_type(inner[0])
        if of not in LISTS:
            raise Unsupported(f"arrays of {of} are not supported")
        return LISTS[of], []
    return plain(type_word(word, walk_position(node))), sizes


def _width_named(scope: Scope, node: exp.DataType) -> Width | None:
    """How wide a whole number is that a cast names."""
    word = str(getattr(node.this, "name", node.this)).lower()
    if word == "userdefined":
        word = name_of(without_schema(node.args.get("kind")))
    return width_of_word(word, scope.binder.catalog.int_size)


def _cast(scope: Scope, node: exp.Cast) -> Expr:
    allow(node, {"this", "to"})
    if (enum := _enum_named(scope, node.to)) is not None:
        return cast_to(scope.binder, bind_expr(scope, node.this), enum)
    of = next((each for each in node.to.expressions if isinstance(each, exp.DataType)), None)
    if of is not None and (enum := _enum_named(scope, of)) is not None:
        return cast_to_list(scope.binder, bind_expr(scope, node.this), enum)
    to, sizes = cast_type(node.to)
    if to in ELEMENTS and isinstance(node.this, exp.Array):
        # The items are read as what they become: an empty array has a type then.
        items = [bind_expr(scope, each) for each in node.this.expressions]
        if not any(each.type in ELEMENTS for each in items):
            given = (scope.binder.coerce(each, ELEMENTS[to], EXPLICIT) for each in items)
            made = folded(Call(to, "a_make", tuple(given)))
            return cast_whole(made, _width_named(scope, of)) if of and to in WHOLES else made
    inner = bind_expr(scope, node.this)
    if to is not S and (enum := enum_of(inner)) is not None:
        shown = POSTGRES_NAMES[to]
        raise CairnError(f"cannot cast type {enum.name} to {shown}", sqlstate="42846")
    found = as_text(scope.binder.coerce(inner, to, EXPLICIT))
    if to in WHOLES:
        return cast_whole(found, _width_named(scope, of or node.to))
    if sizes and to is N:
        scale = sizes[1] if len(sizes) > 1 else 0
        return Call(N, "n_scaled", (found, Const(I, sizes[0]), Const(I, scale)))
    if sizes and to in (T, M, H):
        name = "h_round" if to is H else "t_round"
        return folded(Call(to, name, (found, Const(I, min(sizes[0], 6)))))
    if sizes and to is V and sizes[0] < 6:
        if not isinstance(found, Const):
            raise Unsupported("INTERVAL(p) of what is no literal is not supported")
        if not isinstance(found.value, bytes):  # NULL
            return found
        return Const(V, encode_interval(decode_interval(found.value).rounded(sizes[0])))
    if sizes and to is S:
        return Call(S, "c_left", (found, Const(I, sizes[0])))
    return found


#: `predicates` and `calls` add theirs.
HANDLERS: dict[type[Any], Callable[[Scope, Any], Expr]] = {
    exp.Literal: _literal,
    exp.Boolean: lambda _, node: TRUE if node.this else FALSE,
    exp.Null: lambda *_: NULL,
    exp.Parameter: _parameter,
    exp.Column: _column,
    exp.Paren: lambda scope, node: bind_expr(scope, node.this),
    exp.And: _logic,
    exp.Or: _logic,
    exp.Not: _not,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _negative,
    exp.DPipe: _concat,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.CurrentTimestamp: statement_time,
    exp.Localtimestamp: local_time,
    exp.CurrentDate: statement_date,
    exp.Localtime: statement_clock,
    exp.CurrentUser: lambda scope, _: scalar(scope.binder, "current_user", (), None),
}
