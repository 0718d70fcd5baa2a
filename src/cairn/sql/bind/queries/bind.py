"""sqlglot's queries to IR. Past this module nobody sees sqlglot's tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from cairn.model.errors import (
    CairnError,
    GroupingProblem,
    SyntaxProblem,
    UndefinedColumn,
    Unsupported,
)
from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import ColumnType
from cairn.sql.bind.expressions import operators, pg, predicates, times  # noqa: F401 (they add their handlers)
from cairn.sql.bind.expressions.calls import ordered
from cairn.sql.bind.expressions.expr import bind_boolean, bind_expr
from cairn.sql.bind.outer_aggregates import answered
from cairn.sql.bind.queries.distinct_on import first_of_each
from cairn.sql.bind.queries.grouping_sets import bind_grouping_sets, has_sets
from cairn.sql.bind.queries.relations import bind_ctes, bind_join, bind_relation
from cairn.sql.bind.queries.rows_in_items import rows_into_from
from cairn.sql.bind.queries.sets import (
    SET_OPERATIONS,
    bind_limits,
    bind_set_operation,
    bind_values,
    order_positions,
)
from cairn.sql.bind.queries.sorted_sources import in_order_of_source
from cairn.sql.bind.queries.with_ties import wants_ties, with_ties
from cairn.sql.bind.scope import Binder, BlockNames, Scope
from cairn.sql.ir import (
    Agg,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Join,
    Order,
    Query,
    Rel,
    Scan,
    Select,
    SetOp,
    SubQuery,
    Values,
    Window,
    children,
    has_aggregate,
    has_window,
    output,
    rels_of,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.naming import column_name
from cairn.sql.parse.tree import allow, name_of, refuse
from cairn.sql.scales import known
from cairn.sql.typing_rules import INCOMPARABLE, S, plain

_SELECT_ARGS = frozenset(
    (
        *("with_", "expressions", "from_", "joins", "where", "group", "having"),
        *("distinct", "order", "limit", "offset", "windows", "locks"),
    )
)


def binder_of(
    catalog: Catalog,
    param_oids: Sequence[int] = (),
    known: dict[int, ColumnType] | None = None,
    user_name: str = "",
    block: BlockNames | None = None,
) -> Binder:
    return Binder(bind_query, catalog, param_oids, known or {}, user_name, block)


def bind_query(outer: Scope, tree: exp.Expr) -> Query:
    """Any query: SELECT, VALUES, a set operation, or one of them in parentheses."""
    if isinstance(tree, exp.Subquery):
        return _parenthesised(outer, tree)
    scope = Scope(outer.binder, outer)
    bind_ctes(scope, tree)
    if isinstance(tree, exp.Select):
        return _bind_select(scope, tree)
    if isinstance(tree, exp.Values):
        return bind_values(scope, tree)
    if type(tree) in SET_OPERATIONS:
        return bind_set_operation(scope, tree)
    raise refuse(tree)


def _parenthesised(outer: Scope, tree: exp.Subquery) -> Query:
    modifiers = [key for key in ("order", "limit", "offset") if tree.args.get(key)]
    scope = Scope(outer.binder, outer)
    bind_ctes(scope, tree)
    query = bind_query(scope, tree.this)
    if not modifiers:
        return query
    rel = outer.binder.next_rel()
    columns = output(query)
    items = tuple(
        Item(name, Col(plain(type_), rel, at, name, scale=scale))
        for at, ((name, type_), scale) in enumerate(zip(columns, known(query), strict=True))
    )
    derived = Derived(rel, query, "", tuple(name for name, _ in columns))
    select = Select(items, derived)
    order = tuple(
        Order(items[at].expr, desc, nulls)
        for at, desc, nulls in order_positions(tree, columns, scope)
    )
    limit, offset = bind_limits(scope, tree)
    return replace(select, order=order, limit=limit, offset=offset)


# --- SELECT ---------------------------------------------------------------------------------------


def _bind_select(scope: Scope, tree: exp.Select) -> Select:
    if has_sets(tree.args.get("group")):
        allow(tree, _SELECT_ARGS)
        scope.has_sets = True
        return bind_grouping_sets(scope, tree, _bind_select, _bind_group)
    scope.binder.enter_select(expanded=False)
    allow(tree, _SELECT_ARGS)
    _note_locks(scope, tree)
    rows_into_from(tree)
    source: Rel | None = None
    if tree.args.get("from_") is not None:
        source = bind_relation(scope, tree.args["from_"].this)
    for join in tree.args.get("joins") or ():
        source = (
            bind_join(scope, source, join)
            if source is not None
            else bind_relation(scope, join.this)
        )
    for each in tree.args.get("windows") or ():
        if name_of(each.this) in scope.windows:
            raise CairnError(f'window "{name_of(each.this)}" is already defined', sqlstate="42P20")
        scope.windows[name_of(each.this)] = each
    where = None
    if tree.args.get("where") is not None:
        scope.no_aggregates = scope.no_windows = "WHERE"
        where = bind_boolean(scope, tree.args["where"].this, "WHERE")
    if not tree.expressions:
        raise SyntaxProblem("syntax error: SELECT names no columns")
    scope.no_aggregates = scope.no_windows = None
    items = bind_items(scope, tree.expressions)
    group = _bind_group(scope, tree.args.get("group"), items)
    having = None
    if tree.args.get("having") is not None:
        scope.no_aggregates, scope.no_windows = None, "HAVING"
        having = bind_boolean(scope, tree.args["having"].this, "HAVING")
        scope.no_windows = None
    distinct = tree.args.get("distinct")
    on = _bind_distinct_on(scope, distinct, items)
    order = _bind_select_order(scope, tree.args.get("order"), items)
    limit, offset = bind_limits(scope, tree)
    is_distinct = distinct is not None and not on
    _check_comparable(items, is_distinct, (*(group or ()), *on))
    if scope.asked is not None and group is None:
        group = ()
    select = Select(items, source, where, group, having, is_distinct, order, limit, offset)
    checked = _check_grouping(select)
    if scope.asked is not None:
        if on:
            raise refuse(tree, "DISTINCT ON beside an aggregate of an outer query")
        checked = answered(checked, scope.asked)
    found = first_of_each(scope.binder, checked, on) if on else in_order_of_source(checked)
    node = tree.args.get("limit")
    return with_ties(scope.binder, found, node) if node and wants_ties(node) else found


def _note_locks(scope: Scope, tree: exp.Select) -> None:
    """FOR UPDATE and its like: a block compares what it has read when it ends."""
    for lock in tree.args.get("locks") or ():
        if lock.args.get("wait") is False:
            if not scope.binder.may_skip:
                raise Unsupported(
                    "SKIP LOCKED is not supported: nothing is locked here",
                    hint="take rows by an UPDATE or DELETE with this SELECT in it; or leave it out:"
                    " whoever comes second is answered 40001 at COMMIT",
                    position=walk_position(lock),
                )
            scope.binder.skips = lock
        scope.binder.locks = True


def _bind_distinct_on(
    scope: Scope, node: exp.Expr | None, items: tuple[Item, ...]
) -> tuple[Expr, ...]:
    on = node.args.get("on") if node is not None else None
    if on is None:
        return ()
    found = []
    for each in on.expressions if isinstance(on, exp.Tuple) else [on]:
        inner = each.this if isinstance(each, exp.Paren) else each
        expr = _ordinal(inner, items, "DISTINCT ON") or _alias_match(inner, items)
        found.append(expr if expr is not None else bind_expr(scope, inner))
    return tuple(found)


def bind_items(scope: Scope, nodes: list[exp.Expr]) -> tuple[Item, ...]:
    found: list[Item] = []
    unnamed = 0
    for node in nodes:
        if isinstance(node, exp.Star):
            allow(node, set())
            if not scope.visible:
                raise SyntaxProblem("SELECT * with no tables specified is not valid")
            found.extend(_star(scope))
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            visible = scope.by_alias(name_of(node.args["table"]), walk_position(node))
            found.extend(Item(name, visible.expr(at)) for at, name in visible.shown)
        else:
            alias = name_of(node.args["alias"]) if isinstance(node, exp.Alias) else None
            inner = node.this if isinstance(node, exp.Alias) else node
            expr = bind_expr(scope, inner)
            if expr.type is None:
                expr = scope.binder.coerce(expr, S) if isinstance(expr, Const) else expr
            is_named = alias is not None or isinstance(inner, exp.Column)
            unnamed += not is_named
            number = 0 if is_named else unnamed
            found.append(Item(alias or column_name(inner), expr, number))
    return tuple(found)


def _star(scope: Scope) -> list[Item]:
    found = [Item(name, expr) for name, expr in scope.merged.items()]
    for each in scope.visible:
        found.extend(
            Item(name, each.expr(at)) for at, name in each.shown if name not in each.hidden
        )
    return found


def _ordinal(node: exp.Expr, items: tuple[Item, ...], what: str) -> Expr | None:
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    at = int(str(node.this)) if str(node.this).isdigit() else 0
    if not 1 <= at <= len(items):
        raise CairnError(
            f"{what} position {node.this} is not in select list",
            sqlstate="42P10",
            position=walk_position(node),
        )
    return items[at - 1].expr


def _alias_match(node: exp.Expr, items: tuple[Item, ...]) -> Expr | None:
    if not isinstance(node, exp.Column) or node.args.get("table"):
        return None
    name = name_of(node.this)
    hits = {item.expr for item in items if item.name == name}
    if len(hits) > 1:
        raise CairnError(f'ORDER BY "{name}" is ambiguous', sqlstate="42702")
    return hits.pop() if hits else None


def _bind_group(
    scope: Scope, node: exp.Expr | None, items: tuple[Item, ...]
) -> tuple[Expr, ...] | None:
    if node is None:
        return None
    allow(node, {"expressions"})
    if not node.expressions:
        raise SyntaxProblem("syntax error: GROUP BY names nothing")
    scope.no_aggregates = scope.no_windows = "GROUP BY"
    found: list[Expr] = []
    for each in node.expressions:
        expr = _ordinal(each, items, "GROUP BY")
        if expr is None:
            try:
                expr = bind_expr(scope, each)
            except UndefinedColumn:
                expr = _alias_match(each, items)
                if expr is None:
                    raise
        if has_aggregate(expr):
            raise GroupingProblem("aggregate functions are not allowed in GROUP BY")
        if has_window(expr):
            raise CairnError("window functions are not allowed in GROUP BY", sqlstate="42P20")
        found.append(scope.binder.coerce(expr, S) if expr.type is None else expr)
    scope.no_aggregates = scope.no_windows = None
    return tuple(dict.fromkeys(found))


def _bind_select_order(
    scope: Scope, node: exp.Expr | None, items: tuple[Item, ...]
) -> tuple[Order, ...]:
    found: list[Order] = []
    for each in node.expressions if node is not None else ():
        expr = _ordinal(each.this, items, "ORDER BY") or _alias_match(each.this, items)
        if expr is None:
            expr = bind_expr(scope, each.this)
        found.append(ordered(scope, expr, each))
    return tuple(found)


def _check_comparable(
    items: tuple[Item, ...], distinct: bool, group: tuple[Expr, ...] | None
) -> None:
    exprs = [*(item.expr for item in items if distinct), *(group or ())]
    for expr in exprs:
        if expr.type in INCOMPARABLE:
            raise CairnError(
                f"could not identify an equality operator for type {expr.type}", sqlstate="42883"
            )


def _check_grouping(select: Select) -> Select:
    """Every column outside an aggregate is grouped by, or depends on a whole grouped key."""
    exprs = [item.expr for item in select.items] + [each.expr for each in select.order]
    having = [select.having] if select.having is not None else []
    grouped = select.group is not None or any(map(has_aggregate, (*exprs, *having)))
    if select.distinct:
        shown = {item.expr for item in select.items}
        hidden = [each.expr for each in select.order if each.expr not in shown]
        if hidden:
            raise CairnError(
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                sqlstate="42P10",
                position=hidden[0].place if isinstance(hidden[0], Col) else None,
            )
    if not grouped and not having:
        return select
    group = list(select.group or ())
    inside = rels_of(select.source)
    keyed = _keyed_relations(select.source, group)
    for expr in (*exprs, *having):
        _check_grouped(expr, group, inside, keyed)
    return replace(select, group=tuple(group))


def _keyed_relations(source: Rel | None, group: list[Expr]) -> set[int]:
    """Relations whose whole primary key is grouped by. Per bucket uniqueness is not enough."""
    match source:
        case Join(left=left, right=right):
            return _keyed_relations(left, group) | _keyed_relations(right, group)
        case Scan(rel=rel, table=table):
            places = {each.at for each in group if isinstance(each, Col) and each.rel == rel}
            sharding = table.sharding
            whole = sharding is None or set(sharding.columns) <= set(table.primary_key)
            if whole and set(table.key_positions) <= places:
                return {rel}
    return set()


def _check_grouped(expr: Any, group: list[Expr], inside: set[int], keyed: set[int]) -> None:
    if expr in group or isinstance(expr, Agg):
        return
    if isinstance(expr, Col) and expr.rel in inside:
        if expr.rel not in keyed:
            raise GroupingProblem(
                f'column "{expr.name}" must appear in the GROUP BY clause or be used in an '
                "aggregate function",
                position=expr.place,
            )
        group.append(expr)
    if isinstance(expr, Window):
        for each in (*expr.func.args, *expr.partition, *expr.order):
            _check_grouped(each, group, inside, keyed)
        return
    for child in children(expr):
        if not isinstance(child, (Select, SetOp, Values)):
            _check_grouped(child, group, inside, keyed)
        elif isinstance(expr, SubQuery):
            _check_grouped_inside(child, group, inside, keyed)


def _check_grouped_inside(
    query: Query, group: list[Expr], inside: set[int], keyed: set[int]
) -> None:
    for child in children(query):
        _check_grouped(child, group, inside, keyed)
