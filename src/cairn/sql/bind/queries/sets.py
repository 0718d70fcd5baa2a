"""VALUES, set operations, LIMIT, and the typing of a query's columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeGuard

from sqlglot import exp

from cairn.model.errors import (
    CairnError,
    SyntaxProblem,
)
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType
from cairn.sql.bind.enums import of_one_enum
from cairn.sql.bind.expressions.calls import ordered
from cairn.sql.bind.expressions.expr import bind_expr
from cairn.sql.bind.scope import Scope, no_column
from cairn.sql.ir import (
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Query,
    Select,
    SetOp,
    Values,
    output,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import allow, name_of, refuse
from cairn.sql.scales import known
from cairn.sql.typing_rules import INCOMPARABLE, I, S, common_type, plain

SET_OPERATIONS: dict[type[Any], str] = {
    exp.Union: "UNION",
    exp.Except: "EXCEPT",
    exp.Intersect: "INTERSECT",
}


def bind_limits(scope: Scope, tree: exp.Expr) -> tuple[Expr | None, Expr | None]:
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    found: list[Expr | None] = []
    for node, what in ((limit, "LIMIT"), (offset, "OFFSET")):
        inner = None
        if isinstance(node, exp.Fetch):
            inner = _fetched(node)
        elif node is not None:
            allow(node, {"expression"})
            inner = node.expression
        if inner is None or (isinstance(inner, exp.Var) and inner.name.upper() == "ALL"):
            found.append(None)
            continue
        expr = scope.binder.coerce(bind_expr(Scope(scope.binder), inner), I, 1)
        if isinstance(expr, Const) and isinstance(expr.value, int) and expr.value < 0:
            raise CairnError(
                f"{what} must not be negative", sqlstate="2201W" if what == "LIMIT" else "2201X"
            )
        found.append(None if isinstance(expr, Const) and expr.value is None else expr)
    return found[0], found[1]


def _fetched(node: exp.Fetch) -> exp.Expr:
    """`FETCH FIRST [n] ROWS ONLY`; without a number it is one row."""
    options = node.args.get("limit_options")
    if options is not None and options.args.get("percent"):
        raise refuse(node, "FETCH … PERCENT")
    found: exp.Expr = node.args.get("count") or exp.Literal.number(1)
    return found


def bind_values(scope: Scope, tree: exp.Values) -> Query:
    rows = []
    for node in tree.expressions:
        cells = node.expressions if isinstance(node, exp.Tuple) else [node]
        rows.append([bind_expr(scope, cell) for cell in cells])
    if any(len(row) != len(rows[0]) for row in rows):
        raise SyntaxProblem("VALUES lists must all be the same length")
    for at in range(len(rows[0])):
        column = of_one_enum(scope.binder, [row[at] for row in rows], "VALUES")
        for row, cell in zip(rows, column, strict=True):
            row[at] = cell
    types = [
        common_type([row[at].type for row in rows], "VALUES") or S for at in range(len(rows[0]))
    ]
    coerce = scope.binder.coerce
    cast_rows = tuple(
        tuple(coerce(cell, type_) for cell, type_ in zip(row, types, strict=True)) for row in rows
    )
    names = tuple(f"column{at}" for at in range(1, len(types) + 1))
    columns = list(zip(names, types, strict=True))
    order = tuple(order_positions(tree, columns, scope))
    limit, offset = bind_limits(scope, tree)
    return Values(cast_rows, names, tuple(types), order, limit, offset)


def bind_set_operation(scope: Scope, tree: exp.Expr) -> Query:
    allow(tree, {"this", "expression", "distinct", "order", "limit", "offset", "with_"})
    left = scope.query(tree.args["this"])
    right = scope.query(tree.args["expression"])
    ours, theirs = output(left), output(right)
    word = SET_OPERATIONS[type(tree)]
    second = tree.args["expression"]
    if len(ours) != len(theirs):
        raise SyntaxProblem(
            f"each {word} query must have the same number of columns",
            position=walk_position(second),
        )
    left, right = _of_one_enum_each(scope, left, right, word)
    types = []
    for at, ((_, a), (_, b)) in enumerate(zip(known_types(left), known_types(right), strict=True)):
        try:
            types.append(common_type((a, b), word) or S)
        except CairnError as error:
            listed = second.expressions if isinstance(second, exp.Select) else ()
            error.position = walk_position(listed[at]) if at < len(listed) else None
            raise
    every = not tree.args.get("distinct", True)
    if word + " ALL" * every != "UNION ALL" and any(type_ in INCOMPARABLE for type_ in types):
        raise CairnError("could not identify an equality operator for type json", sqlstate="42883")
    names = tuple(name for name, _ in ours)
    order = tuple(order_positions(tree, list(zip(names, types, strict=True)), scope))
    limit, offset = bind_limits(scope, tree)
    return SetOp(
        word + (" ALL" if every else ""),
        retyped(scope, left, types),
        retyped(scope, right, types),
        names,
        tuple(types),
        order,
        limit,
        offset,
    )


def _of_one_enum_each(scope: Scope, left: Query, right: Query, word: str) -> tuple[Query, Query]:
    """Beside labels there are labels: else the columns would sort as texts do."""
    for at, both in enumerate(zip(known(left), known(right), strict=True)):
        ours, theirs = (each if isinstance(each, EnumType) else None for each in both)
        if (ours and ours.id) != (theirs and theirs.id):
            cells = [_cell(left, at, ours), _cell(right, at, theirs)]
            one, other = of_one_enum(scope.binder, cells, word)
            left, right = _with_cell(left, at, one), _with_cell(right, at, other)
    return left, right


def _cell(query: Query, at: int, enum: EnumType | None) -> Expr:
    """What stands in a column, as far as it counts for what it may meet."""
    if isinstance(query, Select):
        expr = query.items[at].expr
        # A literal of a list is a text by now; here it is what its neighbour is.
        return Const(None, expr.value, expr.place) if _is_literal(expr) else expr
    name, type_ = output(query)[at]
    return Col(plain(type_), 0, at, name, scale=enum)


def _is_literal(expr: Expr) -> TypeGuard[Const]:
    return isinstance(expr, Const) and expr.type in (None, S) and expr.scale is None


def _with_cell(query: Query, at: int, expr: Expr) -> Query:
    if not isinstance(query, Select):
        return query
    items = list(query.items)
    items[at] = replace(items[at], expr=expr)
    return replace(query, items=tuple(items))


def known_types(query: Query) -> list[tuple[str, Any]]:
    """Like `output`, but a literal or NULL without a type says so."""
    if not isinstance(query, Select):
        return list(output(query))
    return [
        (
            item.name,
            None
            if isinstance(item.expr, Const) and item.expr.type in (None, S)
            else item.expr.type and plain(item.expr.type),
        )
        for item in query.items
    ]


def retyped(scope: Scope, query: Query, types: list[ColumnType]) -> Query:
    """The query with its columns cast to `types`."""
    shown = output(query)
    if [plain(type_) for _, type_ in shown] == types and all(
        not isinstance(query, Select) or item.expr.type for item in getattr(query, "items", ())
    ):
        return query
    if isinstance(query, Select) and not query.order and not query.distinct:
        items = tuple(
            replace(item, expr=_cast_item(scope, item.expr, type_))
            for item, type_ in zip(query.items, types, strict=True)
        )
        return replace(query, items=items)
    rel = scope.binder.next_rel()
    items = tuple(
        Item(name, _cast_item(scope, Col(plain(had), rel, at, name, scale=scale), type_))
        for at, ((name, had), scale, type_) in enumerate(
            zip(shown, known(query), types, strict=True)
        )
    )
    return Select(items, Derived(rel, query, "", tuple(name for name, _ in shown)))


def _cast_item(scope: Scope, expr: Expr, type_: ColumnType) -> Expr:
    if isinstance(expr, Const) and expr.type is S and type_ is not S:
        expr = Const(None, expr.value)
    return scope.binder.coerce(expr, type_)


def order_positions(
    tree: exp.Expr, columns: list[tuple[str, ColumnType]], scope: Scope
) -> list[tuple[int, bool, bool]]:
    """ORDER BY of a set operation or VALUES: a column's name or number, nothing else."""
    found = []
    names = [name for name, _ in columns]
    node = tree.args.get("order")
    for each in node.expressions if node is not None else ():
        inner = each.this
        if isinstance(inner, exp.Literal) and not inner.is_string and str(inner.this).isdigit():
            at = int(str(inner.this)) - 1
            if not 0 <= at < len(names):
                raise CairnError(
                    f"ORDER BY position {inner.this} is not in select list", sqlstate="42P10"
                )
        elif isinstance(inner, exp.Column) and name_of(inner.this) in names:
            at = names.index(name_of(inner.this))
        elif isinstance(inner, exp.Column) and not inner.table:
            raise no_column(name_of(inner.this), names, walk_position(inner))
        else:
            raise refuse(inner, "ORDER BY an expression on a set operation")
        order = ordered(scope, Col(columns[at][1], 0, at, names[at]), each)
        found.append((at, order.desc, order.nulls_first))
    return found
