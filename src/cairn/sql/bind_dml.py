"""INSERT, UPDATE and DELETE to bound form: target, values, conditions, all typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from cairn.model.errors import (
    CairnError,
    DuplicateColumn,
    SyntaxProblem,
    UndefinedColumn,
    Unsupported,
)
from cairn.model.schema import BUCKET_COLUMN, Table
from cairn.model.values import ColumnType
from cairn.sql.bind import bind_query
from cairn.sql.bind_expr import bind_boolean, bind_expr
from cairn.sql.bind_from import bind_ctes, bind_relation
from cairn.sql.bind_sets import assign
from cairn.sql.dialect import walk_position
from cairn.sql.ir import (
    Call,
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
from cairn.sql.scope import Scope
from cairn.sql.tree import allow, name_of, refuse
from cairn.sql.typing_rules import S, plain

OnConflict = Literal["fail", "nothing", "replace"]


@dataclass(frozen=True)
class BoundInsert:
    """`rows` of VALUES, or `query` with a column for each of the table's."""

    table: Table
    rows: tuple[tuple[Expr, ...], ...] | None
    query: Query | None
    on_conflict: OnConflict


@dataclass(frozen=True)
class BoundChange:
    """UPDATE (`sets` by column position) or DELETE (`sets` is None) of one table."""

    scan: Scan
    source: Rel  # the scan itself, joined with FROM when there is one
    where: Expr | None
    sets: tuple[tuple[int, Expr], ...] | None

    def select(self, items: tuple[Item, ...]) -> Select:
        return Select(items, self.source, self.where)


def stored(expr: Expr, type_: ColumnType) -> Expr:
    """The value as the column takes it: rules that only storing has."""
    if type_ is ColumnType.DECIMAL:
        return Call(type_, "store_n", (expr,))
    if type_ is ColumnType.UNSIGNED:
        return Call(ColumnType.INTEGER, "store_u", (expr,))
    return expr


def bind_insert(scope: Scope, tree: exp.Insert) -> BoundInsert:
    allow(tree, {"this", "expression", "conflict", "with_", "stored"})
    target = tree.this
    names: list[str] | None = None
    if isinstance(target, exp.Schema):
        names = [name_of(each) for each in target.expressions]
        target = target.this
    table = target_table(scope, target)
    places = target_places(table, names, walk_position(tree))
    if tree.args.get("default"):
        raise refuse(tree, "INSERT DEFAULT VALUES")
    on_conflict = _on_conflict(tree.args.get("conflict"))
    source = tree.expression
    bind_ctes(scope, tree)
    if isinstance(source, exp.Values) and not source.args.get("order"):
        listed = names is not None
        rows = tuple(
            _value_row(scope, table, places, row, listed=listed) for row in source.expressions
        )
        return BoundInsert(table, rows, None, on_conflict)
    if source is None:
        raise SyntaxProblem("INSERT needs VALUES or a query")
    query = bind_query(scope, source)
    return BoundInsert(table, None, _arranged(scope, table, places, query), on_conflict)


def target_table(scope: Scope, node: exp.Expr) -> Table:
    if not isinstance(node, exp.Table):
        raise refuse(node)
    name = name_of(node.this)
    if node.args.get("db") and name_of(node.args["db"]) != "public":
        name = f"{name_of(node.args['db'])}.{name}"
    return scope.binder.table(name, walk_position(node))


def target_places(table: Table, names: list[str] | None, position: int | None) -> list[int]:
    if names is None:
        return list(range(len(table.columns)))
    found = []
    for name in names:
        column = table.column(name)
        if column is None:
            raise UndefinedColumn(f'column with name "{name}" not found', position=position)
        place = table.position(name)
        if place in found:
            raise DuplicateColumn(f'column "{name}" specified more than once')
        found.append(place)
    return found


def _on_conflict(node: exp.Expr | None) -> OnConflict:
    if node is None:
        return "fail"
    action = str(node.args.get("action") or "").upper().split()[-1:]
    if action == ["UPDATE"]:
        raise refuse(node, "ON CONFLICT DO UPDATE")
    allow(node, {"action", "duplicate"})
    match action:
        case ["NOTHING"]:
            return "nothing"
        case ["REPLACE"]:
            return "replace"
        case ["FAIL"]:
            return "fail"
    raise SyntaxProblem("ON CONFLICT needs DO NOTHING, DO REPLACE or DO FAIL")


def _value_row(
    scope: Scope, table: Table, places: list[int], node: exp.Expr, *, listed: bool
) -> tuple[Expr, ...]:
    cells = node.expressions if isinstance(node, exp.Tuple) else [node]
    bound = [
        None
        if isinstance(cell, (exp.Column, exp.Var)) and cell.name.upper() == "DEFAULT"
        else bind_expr(scope, cell)
        for cell in cells
    ]
    return value_row(scope, table, places, bound, listed=listed)


def value_row(
    scope: Scope, table: Table, places: list[int], cells: list[Expr | None], *, listed: bool
) -> tuple[Expr, ...]:
    """One VALUES row in table order; None stands for DEFAULT."""
    if len(cells) > len(places):
        raise SyntaxProblem("INSERT has more expressions than target columns")
    if len(cells) < len(places):
        # Without a column list PostgreSQL fills the rest with defaults; ours are all NULL.
        if listed:
            raise SyntaxProblem("INSERT has more target columns than expressions")
        places = places[: len(cells)]
    row: list[Expr] = [Const(plain(each.type), None) for each in table.columns]
    for place, cell in zip(places, cells, strict=True):
        column = table.columns[place]
        if cell is not None:
            row[place] = stored(assign(scope, cell, column.type, column.name), column.type)
    return tuple(row)


def _arranged(scope: Scope, table: Table, places: list[int], query: Query) -> Query:
    """The query with its columns in table order, typed as the table's, NULL where none is given."""
    shown = output(query)
    if len(shown) > len(places):
        raise SyntaxProblem("INSERT has more expressions than target columns")
    if len(shown) < len(places) and len(places) != len(table.columns):
        raise SyntaxProblem("INSERT has more target columns than expressions")
    simple = isinstance(query, Select) and not query.order and not query.distinct
    row: list[Expr] = [Const(plain(each.type), None) for each in table.columns]
    rel = scope.binder.next_rel()
    for at, place in enumerate(places[: len(shown)]):
        column = table.columns[place]
        expr: Expr = Col(plain(shown[at][1]), rel, at, shown[at][0])
        if simple and isinstance(query, Select):
            expr = query.items[at].expr
            if isinstance(expr, Const) and expr.type is S and column.type is not ColumnType.STRING:
                expr = Const(None, expr.value)
        row[place] = stored(assign(scope, expr, column.type, column.name), column.type)
    items = tuple(Item(column.name, expr) for column, expr in zip(table.columns, row, strict=True))
    if simple and isinstance(query, Select):
        from dataclasses import replace

        return replace(query, items=items)
    return Select(items, Derived(rel, query, "", tuple(name for name, _ in shown)))


def bind_update(scope: Scope, tree: exp.Update) -> BoundChange:
    allow(tree, {"this", "expressions", "from_", "where", "with_"})
    bind_ctes(scope, tree)
    scan = bind_relation(scope, tree.this)
    if not isinstance(scan, Scan):
        raise refuse(tree, "UPDATE of this")
    source: Rel = scan
    if tree.args.get("from_") is not None:
        other = bind_relation(scope, tree.args["from_"].this)
        source = Join("inner", scan, other, None)
    if not tree.expressions:
        raise SyntaxProblem("syntax error at end of input: UPDATE needs SET")
    sets = tuple(_assignment(scope, scan.table, node) for node in tree.expressions)
    places = [place for place, _ in sets]
    for place in places:
        if places.count(place) > 1:
            raise SyntaxProblem(
                f'multiple assignments to same column "{scan.table.columns[place].name}"'
            )
    return BoundChange(scan, source, _where(scope, tree), sets)


def _assignment(scope: Scope, table: Table, node: exp.Expr) -> tuple[int, Expr]:
    if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column):
        raise refuse(node, "this form of SET")
    name = name_of(node.this.this)
    if name == BUCKET_COLUMN and table.column(name) is None:
        raise CairnError('column "bucket_id" cannot be updated', sqlstate="428C9")
    column = table.column(name)
    if column is None:
        raise UndefinedColumn(f'column with name "{name}" not found', position=walk_position(node))
    if name in table.primary_key:
        raise Unsupported(
            f'unable to update primary key column "{name}"',
            hint="delete the row and insert it with its new key",
            position=walk_position(node),
        )
    if isinstance(node.expression, exp.Column) and node.expression.name.upper() == "DEFAULT":
        return table.position(name), Const(plain(column.type), None)
    scope.no_aggregates = scope.no_windows = "UPDATE"
    expr = assign(scope, bind_expr(scope, node.expression), column.type, name)
    return table.position(name), stored(expr, column.type)


def bind_delete(scope: Scope, tree: exp.Delete) -> BoundChange:
    allow(tree, {"this", "where", "with_"})
    bind_ctes(scope, tree)
    scan = bind_relation(scope, tree.this)
    if not isinstance(scan, Scan):
        raise refuse(tree, "DELETE from this")
    return BoundChange(scan, scan, _where(scope, tree), None)


def _where(scope: Scope, tree: exp.Expr) -> Expr | None:
    node = tree.args.get("where")
    if node is None:
        return None
    scope.no_aggregates = scope.no_windows = "WHERE"
    return bind_boolean(scope, node.this, "WHERE")
