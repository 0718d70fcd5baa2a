"""INSERT, UPDATE and DELETE to bound form: target, values, conditions, all typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from cairn.model.errors import (
    DuplicateColumn,
    SyntaxProblem,
)
from cairn.model.tables.schema import Table
from cairn.sql.bind.changes import (
    FAIL,
    Conflict,
    OnConflict,
    Sets,
    add_target,
    bind_assignments,
    bind_conflict,
    bind_returning,
)
from cairn.sql.bind.defaults import check_may_be_given, default_of
from cairn.sql.bind.expressions.expr import bind_boolean, bind_wanted
from cairn.sql.bind.queries.bind import bind_query
from cairn.sql.bind.queries.relations import bind_ctes, bind_relation
from cairn.sql.bind.scope import Scope, no_column
from cairn.sql.bind.storing import assign, is_text, stored
from cairn.sql.ir import (
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Join,
    Query,
    Rel,
    Scan,
    Select,
    output,
)
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import allow, name_of, refuse
from cairn.sql.scales import known
from cairn.sql.typing_rules import S, plain


@dataclass(frozen=True)
class BoundInsert:
    """`rows` of VALUES, or `query` with a column for each of the table's."""

    table: Table
    rows: tuple[tuple[Expr, ...], ...] | None
    query: Query | None
    conflict: Conflict = FAIL
    returning: tuple[Item, ...] | None = None

    @property
    def on_conflict(self) -> OnConflict:
        return self.conflict.action


@dataclass(frozen=True)
class BoundChange:
    """UPDATE (`sets` by column position) or DELETE (`sets` is None) of one table."""

    scan: Scan
    source: Rel  # the scan itself, joined with FROM when there is one
    where: Expr | None
    sets: Sets | None
    returning: tuple[Item, ...] | None = None

    def select(self, items: tuple[Item, ...]) -> Select:
        return Select(items, self.source, self.where)


def bind_insert(scope: Scope, tree: exp.Insert) -> BoundInsert:
    allow(tree, {"this", "expression", "conflict", "with_", "stored", "returning", "default"})
    target = tree.this
    names: list[exp.Expr] | None = None
    if isinstance(target, exp.Schema):
        names, target = list(target.expressions), target.this
    table = target_table(scope, target)
    alias = target.args.get("alias")
    shown = name_of(alias.this) if alias is not None else table.name
    places = _listed_places(table, names)
    conflict = bind_conflict(scope, table, shown, tree.args.get("conflict"))
    returning = _insert_returning(scope, table, shown, tree)
    if tree.args.get("default"):
        row = value_row(scope, table, [], [])
        return BoundInsert(table, (row,), None, conflict, returning)
    source = tree.expression
    bind_ctes(scope, tree)
    if isinstance(source, exp.Values) and not source.args.get("order"):
        check_even([[walk_position(cell) for cell in _cells(row)] for row in source.expressions])
        rows = tuple(_value_row(scope, table, places, row, names) for row in source.expressions)
        return BoundInsert(table, rows, None, conflict, returning)
    if source is None:
        raise SyntaxProblem("INSERT needs VALUES or a query")
    query = bind_query(scope, source)
    return BoundInsert(table, None, _arranged(scope, table, places, query), conflict, returning)


def _insert_returning(
    scope: Scope, table: Table, alias: str, tree: exp.Insert
) -> tuple[Item, ...] | None:
    inner = Scope(scope.binder, scope.parent)
    rel = add_target(inner, table, alias)
    return bind_returning(inner, tree.args.get("returning"), rel, is_joined=False)


def _listed_places(table: Table, names: list[exp.Expr] | None) -> list[int]:
    if names is None:
        return target_places(table, None)
    return target_places(table, [(name_of(each), walk_position(each)) for each in names])


def target_table(scope: Scope, node: exp.Expr) -> Table:
    if not isinstance(node, exp.Table):
        raise refuse(node)
    name, catalog = name_of(node.this), scope.binder.catalog
    if node.args.get("db") and name_of(node.args["db"]) != "public":
        name = f"{name_of(node.args['db'])}.{name}"
    elif node.args.get("db"):
        catalog = catalog.public
    return scope.binder.table(name, walk_position(node), catalog)


def target_places(table: Table, names: list[tuple[str, int | None]] | None) -> list[int]:
    """Where in the table the named columns are; each name comes with its place in the text."""
    if names is None:
        return [at for at, column in enumerate(table.columns) if not column.is_hidden]
    found = []
    for name, position in names:
        column = table.column(name)
        if column is None:
            raise no_column(name, [each.name for each in table.shown_columns], position, table)
        place = table.position(name)
        if place in found:
            raise DuplicateColumn(f'column "{name}" specified more than once', position=position)
        found.append(place)
    return found


def _value_row(
    scope: Scope,
    table: Table,
    places: list[int],
    node: exp.Expr,
    names: list[exp.Expr] | None,
) -> tuple[Expr, ...]:
    cells = _cells(node)
    listed = None if names is None else [walk_position(each) for each in names]
    check_width(len(places), [walk_position(cell) for cell in cells], listed)
    bound = [
        None
        if isinstance(cell, (exp.Column, exp.Var)) and cell.name.upper() == "DEFAULT"
        else bind_wanted(scope, cell, table.columns[place].type)
        for cell, place in zip(cells, places, strict=False)
    ]
    return value_row(scope, table, places, bound)


def _cells(row: exp.Expr) -> list[exp.Expr]:
    return row.expressions if isinstance(row, exp.Tuple) else [row]


def check_even(rows: Sequence[Sequence[int | None]]) -> None:
    """All rows have as many values as the first; of each value its place in the text."""
    for cells in rows:
        if len(cells) != len(rows[0]):
            what = "VALUES lists must all be the same length"
            raise SyntaxProblem(what, position=cells[0] if cells else None)


def check_width(
    width: int, cells: Sequence[int | None], names: Sequence[int | None] | None
) -> None:
    """As many values as columns; `cells` and `names` are where they stand in the text."""
    if len(cells) > width:
        raise SyntaxProblem(
            "INSERT has more expressions than target columns", position=cells[width]
        )
    if names is not None and len(cells) < len(names):
        raise SyntaxProblem(
            "INSERT has more target columns than expressions", position=names[len(cells)]
        )


def value_row(
    scope: Scope, table: Table, places: list[int], cells: list[Expr | None]
) -> tuple[Expr, ...]:
    """One VALUES row in table order; None stands for DEFAULT."""
    if len(cells) < len(places):
        # Without a column list the rest is filled with defaults.
        places = places[: len(cells)]
    given = {place for place, cell in zip(places, cells, strict=True) if cell is not None}
    row = _defaults(scope, table, given)
    for place, cell in zip(places, cells, strict=True):
        column = table.columns[place]
        if cell is not None:
            check_may_be_given(column)
            row[place] = stored(assign(scope, cell, column), column)
    return tuple(row)


def _defaults(scope: Scope, table: Table, given: set[int]) -> list[Expr]:
    """A row that nothing is given for, but at the places in `given`."""
    return [
        Const(plain(column.type), None) if at in given else default_of(scope.binder, table, column)
        for at, column in enumerate(table.columns)
    ]


def _arranged(scope: Scope, table: Table, places: list[int], query: Query) -> Query:
    """The query with its columns in table order, typed as the table's, NULL where none is given."""
    shown = output(query)
    if len(shown) > len(places):
        raise SyntaxProblem("INSERT has more expressions than target columns")
    if len(shown) < len(places) and len(places) < len(table.shown_columns):
        raise SyntaxProblem("INSERT has more target columns than expressions")
    simple = isinstance(query, Select) and not query.order and not query.distinct
    row, told = _defaults(scope, table, set(places[: len(shown)])), known(query)
    rel = scope.binder.next_rel()
    for at, place in enumerate(places[: len(shown)]):
        column = table.columns[place]
        check_may_be_given(column)
        expr: Expr = Col(plain(shown[at][1]), rel, at, shown[at][0], scale=told[at])
        if simple and isinstance(query, Select):
            expr = query.items[at].expr
            if isinstance(expr, Const) and expr.type is S and not is_text(column):
                expr = Const(None, expr.value)
        row[place] = stored(assign(scope, expr, column), column)
    items = tuple(Item(column.name, expr) for column, expr in zip(table.columns, row, strict=True))
    if simple and isinstance(query, Select):
        from dataclasses import replace

        return replace(query, items=items)
    return Select(items, Derived(rel, query, "", tuple(name for name, _ in shown)))


def _check_no_view(scope: Scope, tree: exp.Expr) -> None:
    target = tree.this
    if isinstance(target, exp.Table) and isinstance(target.this, exp.Identifier):
        name = name_of(target.this)
        if name in scope.binder.catalog.views and scope.cte(name) is None:
            scope.binder.table(name)  # says why not


def bind_update(scope: Scope, tree: exp.Update) -> BoundChange:
    allow(tree, {"this", "expressions", "from_", "where", "with_", "returning"})
    scope.binder.may_skip = True
    bind_ctes(scope, tree)
    _check_no_view(scope, tree)
    scan = bind_relation(scope, tree.this)
    if not isinstance(scan, Scan):
        raise refuse(tree, "UPDATE of this")
    source: Rel = scan
    if tree.args.get("from_") is not None:
        other = bind_relation(scope, tree.args["from_"].this)
        source = Join("inner", scan, other, None)
    if not tree.expressions:
        raise SyntaxProblem("syntax error at end of input: UPDATE needs SET")
    sets = bind_assignments(scope, scan.table, tree.expressions)
    return _change(scope, tree, scan, source, sets)


def bind_delete(scope: Scope, tree: exp.Delete) -> BoundChange:
    for table in tree.args.get("tables") or ():
        raise SyntaxProblem(
            f'syntax error at or near "{table.name}"',
            hint="write DELETE FROM",
            position=walk_position(table),
        )
    allow(tree, {"this", "where", "with_", "using", "returning"})
    scope.binder.may_skip = True
    bind_ctes(scope, tree)
    _check_no_view(scope, tree)
    scan = bind_relation(scope, tree.this)
    if not isinstance(scan, Scan):
        raise refuse(tree, "DELETE from this")
    source: Rel = scan
    for other in tree.args.get("using") or ():
        source = Join("inner", source, bind_relation(scope, other), None)
    return _change(scope, tree, scan, source, None)


def _change(
    scope: Scope, tree: exp.Expr, scan: Scan, source: Rel, sets: Sets | None
) -> BoundChange:
    where = None
    if tree.args.get("where") is not None:
        scope.no_aggregates = scope.no_windows = "WHERE"
        where = bind_boolean(scope, tree.args["where"].this, "WHERE")
    returning = bind_returning(
        scope, tree.args.get("returning"), scan.rel, is_joined=source is not scan
    )
    return BoundChange(scan, source, where, sets, returning)
