"""sqlglot's queries to IR. Past this module nobody sees sqlglot's tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from cairn.model.errors import (
    CairnError,
    DatatypeMismatch,
    GroupingProblem,
    SyntaxProblem,
    UndefinedColumn,
)
from cairn.model.values import ColumnType
from cairn.sql.bind_expr import bind_boolean, bind_expr, compare, name_of, ordered, refuse
from cairn.sql.dialect import walk_position
from cairn.sql.ir import (
    Agg,
    Call,
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
    conjunction,
    has_aggregate,
    output,
    rels_of,
)
from cairn.sql.naming import column_name
from cairn.sql.scope import Cte, Scope, Visible
from cairn.sql.typing_rules import JSON, B, I, S, cast, common_type, plain

_SELECT_ARGS = frozenset(
    (
        *("with_", "expressions", "from_", "joins", "where", "group", "having"),
        *("distinct", "order", "limit", "offset", "windows"),
    )
)
_SETOP: dict[type[Any], str] = {
    exp.Union: "UNION",
    exp.Except: "EXCEPT",
    exp.Intersect: "INTERSECT",
}


def allow(node: exp.Expr, names: frozenset[str] | set[str]) -> None:
    """Refuse whatever else sqlglot understood: nothing is ignored in silence."""
    for key, value in node.args.items():
        if key not in names and value and value is not True:
            shown = value[0] if isinstance(value, list) else value
            what = type(shown).__name__ if isinstance(shown, exp.Expr) else key
            raise refuse(node, f"{what.upper()} in {type(node).__name__.upper()}")


def bind_query(outer: Scope, tree: exp.Expr) -> Query:
    """Any query: SELECT, VALUES, a set operation, or one of them in parentheses."""
    if isinstance(tree, exp.Subquery):
        return _parenthesised(outer, tree)
    scope = Scope(outer.binder, outer)
    _bind_ctes(scope, tree)
    if isinstance(tree, exp.Select):
        return _bind_select(scope, tree)
    if isinstance(tree, exp.Values):
        return _bind_values(scope, tree)
    if type(tree) in _SETOP:
        return _bind_set_operation(scope, tree)
    raise refuse(tree)


def _parenthesised(outer: Scope, tree: exp.Subquery) -> Query:
    modifiers = [key for key in ("order", "limit", "offset") if tree.args.get(key)]
    scope = Scope(outer.binder, outer)
    _bind_ctes(scope, tree)
    query = bind_query(scope, tree.this)
    if not modifiers:
        return query
    rel = outer.binder.next_rel()
    columns = output(query)
    items = tuple(
        Item(name, Col(plain(type_), rel, at, name)) for at, (name, type_) in enumerate(columns)
    )
    derived = Derived(rel, query, "", tuple(name for name, _ in columns))
    select = Select(items, derived)
    order = tuple(
        Order(items[at].expr, desc, nulls) for at, desc, nulls in _positions(tree, columns, scope)
    )
    limit, offset = _limits(scope, tree)
    return replace(select, order=order, limit=limit, offset=offset)


def _bind_ctes(scope: Scope, tree: exp.Expr) -> None:
    with_ = tree.args.get("with_")
    if with_ is None:
        return
    if with_.args.get("recursive"):
        raise refuse(with_, "WITH RECURSIVE")
    for cte in with_.expressions:
        alias = cte.args["alias"]
        name = name_of(alias.this)
        if name in scope.ctes:
            raise CairnError(f'WITH query name "{name}" specified more than once', sqlstate="42712")
        inner = Scope(scope.binder, scope.parent)
        inner.ctes = dict(scope.ctes)
        columns = [name_of(each) for each in alias.args.get("columns") or ()]
        found = Cte(name, cte.this, columns, inner)
        scope.ctes[name] = found
        # Bound once even if nobody uses it, for its errors; each use binds it anew (see _table).
        _cte_query(found)


def _cte_query(cte: Cte) -> Query:
    query = bind_query(cte.scope, cte.tree)
    if len(cte.columns) > len(output(query)):
        raise CairnError(
            f'WITH query "{cte.name}" has {len(output(query))} columns available but '
            f"{len(cte.columns)} columns specified",
            sqlstate="42P10",
        )
    return query


# --- FROM -----------------------------------------------------------------------------------------


def _derived(scope: Scope, query: Query, alias: str, columns: list[str]) -> Rel:
    shown = output(query)
    if len(columns) > len(shown):
        raise CairnError(
            f'table "{alias}" has {len(shown)} columns available but {len(columns)} specified',
            sqlstate="42P10",
        )
    names = columns + [name for name, _ in shown[len(columns) :]]
    rel = scope.binder.next_rel()
    types = [type_ for _, type_ in shown]
    scope.add(Visible(alias, rel, names, types, [True] * len(names)))
    return Derived(rel, query, alias, tuple(names))


def _table(scope: Scope, node: exp.Table) -> Rel:
    allow(node, {"this", "alias", "db", "joins", "only"})
    if not isinstance(node.this, exp.Identifier):
        raise refuse(node, "a function in FROM")
    name, position = name_of(node.this), walk_position(node)
    schema = name_of(node.args["db"]) if node.args.get("db") else None
    alias = node.args.get("alias")
    shown = name_of(alias.this) if alias is not None and alias.this else name
    columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
    cte = scope.cte(name) if schema is None else None
    if cte is not None:
        scope.binder.enter_select(expanded=True)
        return _derived(scope, _cte_query(cte), shown, columns or cte.columns)
    if schema is not None and schema != "public":
        name = f"{schema}.{name}"
    elif scope.binder.catalog.table(name) is None and name.startswith("pg_"):
        name = f"pg_catalog.{name}"
    table = scope.binder.table(name, position)
    rel = scope.binder.next_rel()
    names = columns + [each.name for each in table.columns[len(columns) :]]
    key = set(table.primary_key)
    nullable = [each.nullable and each.name not in key for each in table.columns]
    types = [each.type for each in table.columns]
    scope.add(Visible(shown, rel, names, types, nullable, table), position)
    return Scan(rel, table, shown)


def _relation(scope: Scope, node: exp.Expr) -> Rel:
    found: Rel
    if isinstance(node, exp.Table):
        found = _table(scope, node)
    elif isinstance(node, exp.Paren) or (
        isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table)
    ):
        found = _relation(scope, node.this)
    elif isinstance(node, exp.Subquery):
        alias = node.args.get("alias")
        allow(node, {"this", "alias", "joins", "with_"})
        # A derived table sees what is around the query, but not its neighbours in FROM.
        query = bind_query(_without_relations(scope), node.this)
        columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
        shown = name_of(alias.this) if alias is not None else f"*{scope.binder.next_rel()}"
        found = _derived(scope, query, shown, columns)
    elif isinstance(node, exp.Values):
        alias = node.args.get("alias")
        query = _bind_values(Scope(scope.binder, scope.parent), node)
        columns = [name_of(each) for each in (alias.args.get("columns") or ())] if alias else []
        shown = name_of(alias.this) if alias is not None else f"*{scope.binder.next_rel()}"
        found = _derived(scope, query, shown, columns)
    else:
        raise refuse(node, f"{type(node).__name__} in FROM")
    for join in node.args.get("joins") or ():
        found = _join(scope, found, join)
    return found


def _without_relations(scope: Scope) -> Scope:
    bare = Scope(scope.binder, scope.parent)
    bare.ctes = scope.ctes
    return bare


def _join(scope: Scope, left: Rel, node: exp.Join) -> Rel:
    allow(node, {"this", "on", "using", "side", "kind", "method"})
    before = list(scope.visible)
    right = _relation(scope, node.this)
    after = scope.visible[len(before) :]
    side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
    if kind not in ("", "INNER", "OUTER", "CROSS") or side not in ("", "LEFT", "RIGHT", "FULL"):
        raise refuse(node, f"{side} {kind} JOIN".strip())
    using = [name_of(each) for each in node.args.get("using") or ()]
    if str(node.args.get("method") or "").upper() == "NATURAL":
        theirs = {name for each in after for name in each.names}
        using = [name for each in before for name in each.names if name in theirs]
    on: Expr | None = None
    if using:
        on = _using(scope, before, after, using, side)
    elif node.args.get("on") is not None:
        scope.no_aggregates = scope.no_windows = "JOIN conditions"
        on = bind_boolean(scope, node.args["on"], "JOIN/ON")
    elif side:
        raise SyntaxProblem("a join of this kind needs ON or USING", position=walk_position(node))
    if side in ("LEFT", "FULL"):
        _make_nullable(after)
    if side in ("RIGHT", "FULL"):
        _make_nullable(before)
    if side == "RIGHT":
        return Join("left", right, left, on)
    return Join({"LEFT": "left", "FULL": "full"}.get(side, "inner"), left, right, on)


def _make_nullable(visible: list[Visible]) -> None:
    for each in visible:
        each.nullable = [True] * len(each.names)


def _using(
    scope: Scope, before: list[Visible], after: list[Visible], using: list[str], side: str
) -> Expr | None:
    parts: list[Expr] = []
    for name in using:
        left = scope.merged.get(name) or _one(before, name)
        right = _one(after, name)
        equal = compare(scope, "=", left, right)
        parts.append(equal)
        for each in (*before, *after):
            each.hidden.add(name)
        merged = right if side == "RIGHT" else left
        if side == "FULL":
            type_ = common_type((left.type, right.type), "USING") or S
            merged = Call(type_, "coalesce", (cast(left, type_), cast(right, type_)))
        scope.merged[name] = merged
    return conjunction(parts)


def _one(visible: list[Visible], name: str) -> Expr:
    hits = [each.column(each.names.index(name)) for each in visible if name in each.names]
    if len(hits) != 1:
        word = "not found" if not hits else "ambiguous"
        raise UndefinedColumn(f'column with name "{name}" in USING is {word}')
    return hits[0]


# --- SELECT ---------------------------------------------------------------------------------------


def _bind_select(scope: Scope, tree: exp.Select) -> Select:
    scope.binder.enter_select(expanded=False)
    allow(tree, _SELECT_ARGS)
    source: Rel | None = None
    if tree.args.get("from_") is not None:
        source = _relation(scope, tree.args["from_"].this)
    for join in tree.args.get("joins") or ():
        source = _join(scope, source, join) if source is not None else _relation(scope, join.this)
    for each in tree.args.get("windows") or ():
        scope.windows[name_of(each.this)] = each
    where = None
    if tree.args.get("where") is not None:
        scope.no_aggregates = scope.no_windows = "WHERE"
        where = bind_boolean(scope, tree.args["where"].this, "WHERE")
    scope.no_aggregates = scope.no_windows = None
    items = _bind_items(scope, tree.expressions)
    group = _bind_group(scope, tree.args.get("group"), items)
    having = None
    if tree.args.get("having") is not None:
        scope.no_aggregates, scope.no_windows = None, "HAVING"
        having = bind_boolean(scope, tree.args["having"].this, "HAVING")
        scope.no_windows = None
    distinct = tree.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise refuse(distinct, "DISTINCT ON")
    order = _bind_select_order(scope, tree.args.get("order"), items)
    limit, offset = _limits(scope, tree)
    _check_comparable(items, distinct is not None, group)
    select = Select(items, source, where, group, having, distinct is not None, order, limit, offset)
    return _check_grouping(select)


def _bind_items(scope: Scope, nodes: list[exp.Expr]) -> tuple[Item, ...]:
    found: list[Item] = []
    for node in nodes:
        if isinstance(node, exp.Star):
            allow(node, set())
            if not scope.visible:
                raise SyntaxProblem("SELECT * with no tables specified is not valid")
            found.extend(_star(scope))
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            visible = scope.by_alias(name_of(node.args["table"]), walk_position(node))
            found.extend(Item(name, visible.column(at)) for at, name in enumerate(visible.names))
        else:
            alias = name_of(node.args["alias"]) if isinstance(node, exp.Alias) else None
            inner = node.this if isinstance(node, exp.Alias) else node
            expr = bind_expr(scope, inner)
            if expr.type is None:
                expr = scope.binder.coerce(expr, S) if isinstance(expr, Const) else expr
            found.append(Item(alias or column_name(inner), expr))
    return tuple(found)


def _star(scope: Scope) -> list[Item]:
    found = [Item(name, expr) for name, expr in scope.merged.items()]
    for each in scope.visible:
        found.extend(
            Item(name, each.column(at))
            for at, name in enumerate(each.names)
            if name not in each.hidden
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


def _limits(scope: Scope, tree: exp.Expr) -> tuple[Expr | None, Expr | None]:
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    found: list[Expr | None] = []
    for node, what in ((limit, "LIMIT"), (offset, "OFFSET")):
        inner = None
        if isinstance(node, exp.Fetch):
            inner = node.args.get("count")
        elif node is not None:
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


def _check_comparable(
    items: tuple[Item, ...], distinct: bool, group: tuple[Expr, ...] | None
) -> None:
    exprs = [*(item.expr for item in items if distinct), *(group or ())]
    for expr in exprs:
        if expr.type in JSON:
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
        if any(each.expr not in shown for each in select.order):
            raise CairnError(
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                sqlstate="42P10",
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
                "aggregate function"
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


# --- VALUES and set operations --------------------------------------------------------------------


def _bind_values(scope: Scope, tree: exp.Values) -> Query:
    rows = []
    for node in tree.expressions:
        cells = node.expressions if isinstance(node, exp.Tuple) else [node]
        rows.append([bind_expr(scope, cell) for cell in cells])
    if any(len(row) != len(rows[0]) for row in rows):
        raise SyntaxProblem("VALUES lists must all be the same length")
    types = [
        common_type([row[at].type for row in rows], "VALUES") or S for at in range(len(rows[0]))
    ]
    coerce = scope.binder.coerce
    cast_rows = tuple(
        tuple(coerce(cell, type_) for cell, type_ in zip(row, types, strict=True)) for row in rows
    )
    names = tuple(f"column{at}" for at in range(1, len(types) + 1))
    columns = list(zip(names, types, strict=True))
    order = tuple(_positions(tree, columns, scope))
    limit, offset = _limits(scope, tree)
    return Values(cast_rows, names, tuple(types), order, limit, offset)


def _bind_set_operation(scope: Scope, tree: exp.Expr) -> Query:
    allow(tree, {"this", "expression", "distinct", "order", "limit", "offset", "with_"})
    left = bind_query(scope, tree.args["this"])
    right = bind_query(scope, tree.args["expression"])
    ours, theirs = output(left), output(right)
    word = _SETOP[type(tree)]
    if len(ours) != len(theirs):
        raise SyntaxProblem(f"each {word} query must have the same number of columns")
    types = []
    for (_, a), (_, b) in zip(_known(left), _known(right), strict=True):
        types.append(common_type((a, b), word) or S)
    every = not tree.args.get("distinct", True)
    if not every and any(type_ in JSON for type_ in types):
        raise CairnError("could not identify an equality operator for type json", sqlstate="42883")
    names = tuple(name for name, _ in ours)
    order = tuple(_positions(tree, list(zip(names, types, strict=True)), scope))
    limit, offset = _limits(scope, tree)
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


def _known(query: Query) -> list[tuple[str, Any]]:
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
            Item(item.name, _cast_item(scope, item.expr, type_))
            for item, type_ in zip(query.items, types, strict=True)
        )
        return replace(query, items=items)
    rel = scope.binder.next_rel()
    items = tuple(
        Item(name, _cast_item(scope, Col(plain(had), rel, at, name), type_))
        for at, ((name, had), type_) in enumerate(zip(shown, types, strict=True))
    )
    return Select(items, Derived(rel, query, "", tuple(name for name, _ in shown)))


def _cast_item(scope: Scope, expr: Expr, type_: ColumnType) -> Expr:
    if isinstance(expr, Const) and expr.type is S and type_ is not S:
        expr = Const(None, expr.value)
    return scope.binder.coerce(expr, type_)


def _positions(
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
        else:
            raise refuse(inner, "ORDER BY an expression on a set operation")
        order = ordered(scope, Col(columns[at][1], 0, at, names[at]), each)
        found.append((at, order.desc, order.nulls_first))
    return found


def assign(scope: Scope, expr: Expr, to: ColumnType, column: str) -> Expr:
    """A value for a column; what PostgreSQL would not assign is refused by name."""
    try:
        return scope.binder.coerce(expr, plain(to), 1)
    except DatatypeMismatch as error:
        if error.sqlstate != "42804":
            raise
        raise DatatypeMismatch(
            f'column "{column}" is of type {to} but expression is of type {expr.type}',
            hint="You will need to rewrite or cast the expression.",
        ) from None


__all__ = ["B", "assign", "bind_query", "retyped"]
