"""Comparisons, IN, BETWEEN, LIKE and IS to typed IR."""

from __future__ import annotations

from typing import Any
from typing import cast as typed

from sqlglot import exp

from cairn.model.errors import CairnError, SyntaxProblem, Unsupported
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ELEMENTS, LISTS, ColumnType
from cairn.sql.bind.enums import of_one_enum
from cairn.sql.bind.expressions.expr import HANDLERS, bind_boolean, bind_expr, bind_wanted, compare
from cairn.sql.bind.expressions.quantified import compared_with_all
from cairn.sql.bind.scope import Scope
from cairn.sql.ir import (
    Call,
    Col,
    Const,
    Expr,
    Query,
    SubQuery,
    output,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import refuse
from cairn.sql.scales import enum_of, known
from cairn.sql.typing_rules import (
    INCOMPARABLE,
    RANK,
    TIMES,
    B,
    H,
    S,
    V,
    cast,
    common_type,
    no_operator,
    plain,
)

_COMPARE: dict[type[Any], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def _comparison(scope: Scope, node: exp.Binary) -> Expr:
    name = _COMPARE[type(node)]
    right = node.right
    if isinstance(right, exp.Anonymous) and str(right.this).lower() in ("all", "some"):
        # Of anything but a query sqlglot takes these for functions.
        kind = exp.All if str(right.this).lower() == "all" else exp.Any
        node.set("expression", kind(this=right.expressions[0]))
    if isinstance(node.right, (exp.Any, exp.All)):
        return _quantified(scope, name, node)
    left_row, right_row = row_parts(node.left), row_parts(node.right)
    if left_row is not None or right_row is not None:
        return _row_comparison(scope, name, node)
    if isinstance(node.right, exp.Column) and not isinstance(node.left, exp.Column):
        second = bind_expr(scope, node.right)  # `$1 - 100 < price`
        first = bind_wanted(scope, node.left, second.type)
    else:
        first = bind_expr(scope, node.left)
        second = bind_wanted(scope, node.right, first.type)
    return compare(scope, name, first, second)


def row_parts(node: exp.Expr) -> list[exp.Expr] | None:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "row":
        return list(node.expressions)
    return None


def _row_comparison(scope: Scope, name: str, node: exp.Binary) -> Expr:
    left, right = row_parts(node.left), row_parts(node.right)
    if left is None or right is None:
        raise refuse(node, "comparing a row with a sub-query or a single value")
    if len(left) != len(right):
        raise SyntaxProblem("unequal number of entries in row expressions")
    if not left:
        raise Unsupported("cannot compare rows of zero length", position=walk_position(node))
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
    """`= ANY (…)` is IN, `<> ALL (…)` is NOT IN, whether of a query or of an array; the others
    are told by the extreme of it."""
    query = node.right.this
    while isinstance(query, (exp.Subquery, exp.Paren)):
        query = query.this
    is_any = isinstance(node.right, exp.Any)
    is_in = name == ("=" if is_any else "<>")
    if isinstance(query, exp.Array) and query.expressions:
        if not is_in:
            kind = type(node)
            parts = [
                bind_expr(scope, kind(this=node.left, expression=e)) for e in query.expressions
            ]
            return Call(B, "or" if is_any else "and", tuple(parts))
        found = bind_expr(scope, exp.In(this=node.left, expressions=query.expressions))
    elif not is_in and isinstance(query, exp.Query):
        return compared_with_all(scope, node, query, is_any=is_any)
    elif not is_in:
        left, right = bind_expr(scope, node.left), bind_expr(scope, query)
        value, items = _beside_list(scope, left, right, node, name)
        word, sign = Const(S, str(items.type and items.type.value)), Const(S, name)
        return Call(B, "b_list_compared", (value, items, word, sign, Const(B, is_any)))
    elif isinstance(query, exp.Query):
        found = _in_query(scope, [node.left], query)
    else:
        found = _in_list(scope, bind_expr(scope, node.left), bind_expr(scope, query), node)
    return found if is_any else Call(B, "not", (found,))


def _in_list(scope: Scope, value: Expr, items: Expr, node: exp.Expr) -> Expr:
    return Call(B, "any_of", _beside_list(scope, value, items, node, "="))


def _beside_list(
    scope: Scope, value: Expr, items: Expr, node: exp.Expr, name: str
) -> tuple[Expr, Expr]:
    """`value = ANY(items)`; an array without a type, as drivers send it, takes the value's."""
    if items.type is None:
        items = scope.binder.coerce(items, LISTS.get(value.type or S, ColumnType.STRINGS))
    of = ELEMENTS.get(items.type or S)
    if of is None:
        raise CairnError(
            "op ANY/ALL (array) requires array on right side",
            sqlstate="42809",
            position=walk_position(node),
        )
    try:
        type_ = common_type((value.type, of), "ANY") or S
    except CairnError:
        raise no_operator(name, value.type, of, position=walk_position(node)) from None
    if type_ not in LISTS or (type_ in INCOMPARABLE and name != "="):
        raise no_operator(name, value.type, of, position=walk_position(node))
    coerce = scope.binder.coerce
    return coerce(value, type_), coerce(items, LISTS[type_])


def _all_null(scope: Scope, parts: list[exp.Expr], node: exp.Is) -> Expr:
    """A row is NULL when all of it is, and NOT NULL when nothing of it is."""
    bound = (bind_expr(scope, each) for each in parts)
    known = (each if each.type else scope.binder.coerce(each, S) for each in bound)
    nulls = tuple(Call(B, "is_null", (each,)) for each in known)
    return Call(B, "or" if node.args.get("negate") else "and", nulls)  # NOT comes around it


def _is(scope: Scope, node: exp.Is) -> Expr:
    inner, what = node.this, node.expression
    found: Expr
    if isinstance(what, exp.Null):
        parts = row_parts(inner)
        if parts:
            return _all_null(scope, parts, node)
        expr = bind_expr(scope, inner)
        if expr.type is None:
            expr = scope.binder.coerce(expr, S)
        found = Call(B, "is_null", (expr,))
    elif isinstance(what, exp.Boolean):
        word = "is_true" if what.this else "is_false"
        found = Call(B, word, (bind_boolean(scope, inner, "IS TRUE"),))
    else:
        raise SyntaxProblem(
            f'syntax error at or near "{what.name}"',
            hint="IS takes [NOT] NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM",
            position=walk_position(what),
        )
    return found


def _distinct_from(scope: Scope, node: exp.Binary) -> Expr:
    left, right = row_parts(node.left), row_parts(node.right)
    if left is not None and right is not None and len(left) == len(right) > 0:
        pairs = zip(left, right, strict=True)
        kind, word = type(node), "and" if isinstance(node, exp.NullSafeEQ) else "or"
        parts = [bind_expr(scope, kind(this=a, expression=b)) for a, b in pairs]
        return Call(B, word, tuple(parts))
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
        operands = row_parts(node.this) or [node.this]
        return _in_query(scope, operands, query.this if isinstance(query, exp.Subquery) else query)
    items = list(node.expressions)
    if not items and node.args.get("field") is not None:
        items = [node.args["field"]]
    if not items:
        raise refuse(node)
    if row_parts(node.this) is not None:
        rows = [_row_comparison(scope, "=", exp.EQ(this=node.this, expression=i)) for i in items]
        return rows[0] if len(rows) == 1 else Call(B, "or", tuple(rows))
    value, *bound = of_one_enum(
        scope.binder, [bind_expr(scope, each) for each in (node.this, *items)], "="
    )
    try:
        type_ = common_type([value.type, *(each.type for each in bound)], "IN") or S
    except CairnError:
        raise no_operator("in", value.type, *(each.type for each in bound)) from None
    if type_ in INCOMPARABLE:
        raise no_operator("=", value.type, bound[0].type)
    coerce = scope.binder.coerce
    return Call(B, "in", (coerce(value, type_), *(coerce(each, type_) for each in bound)))


def _in_query(scope: Scope, operands: list[exp.Expr], tree: exp.Expr) -> Expr:
    values = [bind_expr(scope, each) for each in operands]
    query = scope.query(tree)
    columns = output(query)
    if len(columns) != len(values):
        few = "few" if len(columns) < len(values) else "many"
        raise SyntaxProblem(f"subquery has too {few} columns")
    coerced = []
    for value, (_, type_), told in zip(values, columns, known(query), strict=True):
        is_meant = isinstance(told, EnumType) or enum_of(value) is not None
        if is_meant and told != enum_of(value):
            value = of_one_enum(scope.binder, (Col(type_, 0, 0, "", scale=told), value), "=")[1]
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
    if isinstance(node.expression, (exp.Any, exp.All)):
        return _like_each(scope, node)
    values = [bind_expr(scope, node.this), bind_expr(scope, node.expression)]
    if any(each.type not in (None, S) for each in values):
        raise no_operator("like", *(each.type for each in values))
    return Call(B, name, (*(scope.binder.coerce(each, S) for each in values), escape))


def _like_each(scope: Scope, node: exp.Expr) -> Expr:
    """`LIKE ANY (ARRAY[…])`, or of any list of texts."""
    query, is_any = node.expression.this, isinstance(node.expression, exp.Any)
    # `x NOT LIKE ANY (…)` is true if it is unlike one of them; NOT comes around what is told here.
    is_any = is_any != bool(node.args.get("negate"))
    while isinstance(query, exp.Paren):
        query = query.this
    if isinstance(query, exp.Array) and query.expressions:
        kind = type(node)
        parts = [bind_expr(scope, kind(this=node.this, expression=e)) for e in query.expressions]
        return Call(B, "or" if is_any else "and", tuple(parts))
    if isinstance(query, exp.Query) or isinstance(node, exp.SimilarTo):
        raise refuse(node, "LIKE ANY of anything but a list")
    value = scope.binder.coerce(bind_expr(scope, node.this), S)
    patterns = scope.binder.coerce(bind_expr(scope, query), ColumnType.STRINGS)
    ignores_case = Const(B, isinstance(node, exp.ILike))
    return Call(B, "b_like_each", (value, patterns, ignores_case, Const(B, is_any)))


def _overlaps(scope: Scope, node: exp.Overlaps) -> Expr:
    """`(start, end) OVERLAPS (start, length)`"""
    rows = [row_parts(side) or [] for side in (node.left, node.right)]
    if any(len(each) != 2 for each in rows):
        raise SyntaxProblem("wrong number of parameters on a side of OVERLAPS expression")
    bound = []
    for start, end in rows:
        last = bind_expr(scope, end)
        if last.type is V:
            last = bind_expr(scope, exp.Add(this=start.copy(), expression=end.copy()))
        bound += [bind_expr(scope, start), last]
    type_ = common_type([each.type for each in bound], "OVERLAPS")
    if type_ not in (*TIMES, H):
        raise no_operator("overlaps", *(each.type for each in bound), position=walk_position(node))
    return Call(B, "b_overlaps", tuple(scope.binder.coerce(each, type_) for each in bound))


HANDLERS.update(
    {
        **dict.fromkeys(_COMPARE, _comparison),
        exp.Is: _is,
        exp.NullSafeEQ: _distinct_from,
        exp.NullSafeNEQ: _distinct_from,
        exp.Between: _between,
        exp.In: _in,
        exp.Like: _like,
        exp.ILike: _like,
        exp.SimilarTo: _like,
        exp.Overlaps: _overlaps,
        exp.Escape: _like,
    }
)
