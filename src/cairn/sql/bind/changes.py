"""What statements that change rows have in common: SET, ON CONFLICT and RETURNING."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from cairn.model.errors import (
    CairnError,
    GeneratedAlways,
    SyntaxProblem,
    UndefinedObject,
    Unsupported,
)
from cairn.model.tables.schema import BUCKET_COLUMN, Table
from cairn.sql.bind.defaults import default_of
from cairn.sql.bind.expressions.expr import bind_boolean, bind_wanted
from cairn.sql.bind.expressions.functions import AGGREGATES
from cairn.sql.bind.expressions.predicates import row_parts
from cairn.sql.bind.queries.bind import bind_items
from cairn.sql.bind.scope import Scope, Visible, no_column
from cairn.sql.bind.storing import assign, stored
from cairn.sql.functions.function_list import calls_late
from cairn.sql.ir import Col, Expr, Item, SubQuery, walk
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.tree import allow, name_of, refuse

OnConflict = Literal["fail", "nothing", "replace", "update"]
Sets = tuple[tuple[int, Expr], ...]


@dataclass(frozen=True)
class Conflict:
    """What INSERT does with a row that is there already.

    `columns` name the key or unique index that is meant, None: any. In `sets` and `where` the row
    that is there has the relation number `rel`, the one that was to be inserted `excluded`.
    """

    action: OnConflict = "fail"
    columns: tuple[str, ...] | None = None
    rel: int = 0
    excluded: int = 0
    sets: Sets = ()
    where: Expr | None = None


FAIL = Conflict()


# --- SET ------------------------------------------------------------------------------------------


def bind_assignments(scope: Scope, table: Table, nodes: list[exp.Expr]) -> Sets:
    """`a = 1, (b, c) = (2, 3)` by column position."""
    found: dict[int, Expr] = {}
    for target, value in _pairs(nodes):
        place, expr = _assignment(scope, table, target, value)
        if place in found:
            raise SyntaxProblem(
                f'multiple assignments to same column "{table.columns[place].name}"',
                position=walk_position(target),
            )
        found[place] = expr
    return tuple(found.items())


def _pairs(nodes: list[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise refuse(node, "this form of SET")
        if not isinstance(node.this, exp.Tuple):
            yield node.this, node.expression
            continue
        targets = node.this.expressions
        values = row_parts(node.expression) or _columns_of(node.expression, len(targets))
        if not values:
            raise refuse(node, "SET of several columns to anything but a list of values")
        if len(targets) != len(values):
            raise SyntaxProblem("number of columns does not match number of values")
        yield from zip(targets, values, strict=True)


def _columns_of(node: exp.Expr, count: int) -> list[exp.Expr]:
    """`(a, b) = (SELECT x, y …)`: a sub-query for each column, all of the same row."""
    query = node
    while isinstance(query, (exp.Subquery, exp.Paren)):
        query = query.this
    if not isinstance(query, exp.Select):
        return []
    if query.args.get("limit") or query.args.get("offset") or query.args.get("distinct"):
        raise Unsupported(
            "SET of several columns to a sub-query with LIMIT, OFFSET or DISTINCT is not supported",
            hint="UPDATE … FROM (SELECT …)",
            position=walk_position(query),
        )
    if query.is_star:
        raise refuse(query, "SET of several columns to a sub-query with *")
    if len(query.selects) != count:
        raise SyntaxProblem("number of columns does not match number of values")
    totals = [any(_aggregates(each)) for each in query.selects]
    if any(totals) and not all(totals):  # alone, a constant beside sum(x) would be of every row
        names = [exp.to_identifier(f"c{at}") for at in range(count)]
        alias = exp.TableAlias(this=exp.to_identifier("q"), columns=names)
        whole = exp.Subquery(this=query, alias=alias)
        return [
            exp.Subquery(this=exp.select(exp.column(f"c{at}")).from_(whole.copy()))
            for at in range(count)
        ]
    found: list[exp.Expr] = []
    for at in range(count):
        one = query.copy()
        one.set("expressions", [one.selects[at]])
        found.append(exp.Subquery(this=one))
    return found


def _aggregates(node: exp.Expr) -> Iterator[bool]:
    for call in node.find_all(exp.Anonymous):
        yield str(call.this).lower() in AGGREGATES


def _assignment(scope: Scope, table: Table, target: exp.Expr, value: exp.Expr) -> tuple[int, Expr]:
    if not isinstance(target, exp.Column):
        raise refuse(target, "this form of SET")
    name = name_of(target.this)
    if name == BUCKET_COLUMN and table.column(name) is None:
        raise CairnError('column "bucket_id" cannot be updated', sqlstate="428C9")
    column = table.column(name)
    if column is None:
        raise no_column(name, [each.name for each in table.columns], walk_position(target), table)
    if name in table.primary_key and table.is_global:
        raise Unsupported(
            f'unable to update primary key column "{name}" of a global table',
            hint="delete the row and insert it with its new key",
            position=walk_position(target),
        )
    if isinstance(value, exp.Column) and value.name.upper() == "DEFAULT":
        return table.position(name), default_of(scope.binder, table, column)
    if column.identity is not None and column.identity.always:
        raise GeneratedAlways(
            f'column "{name}" can only be updated to DEFAULT', position=walk_position(target)
        )
    scope.no_aggregates = scope.no_windows = "UPDATE"
    expr = assign(scope, bind_wanted(scope, value, column.type), column)
    return table.position(name), stored(expr, column)


# --- ON CONFLICT ----------------------------------------------------------------------------------


def bind_conflict(scope: Scope, table: Table, alias: str, node: exp.Expr | None) -> Conflict:
    if node is None:
        return Conflict()
    action = str(node.args.get("action") or "").upper().split()[-1:]
    columns = _conflict_columns(scope, table, node)
    match action:
        case ["NOTHING"]:
            allow(node, {"action", "duplicate", "conflict_keys", "constraint"})
            return Conflict("nothing", columns)
        case ["REPLACE"]:
            allow(node, {"action", "duplicate"})
            return Conflict("replace")
        case ["FAIL"]:
            allow(node, {"action", "duplicate"})
            return Conflict()
        case ["UPDATE"]:
            return _conflict_update(scope, table, alias, columns, node)
    raise SyntaxProblem("ON CONFLICT needs DO NOTHING, DO UPDATE, DO REPLACE or DO FAIL")


def _conflict_columns(scope: Scope, table: Table, node: exp.Expr) -> tuple[str, ...] | None:
    """The columns of the key or unique index that `ON CONFLICT (…)` names."""
    if node.args.get("index_predicate") is not None:
        raise refuse(node, "ON CONFLICT (…) WHERE")
    indexes = [index for index in scope.binder.catalog.indexes.get(table.id, ()) if index.is_key]
    constraint = node.args.get("constraint")
    if constraint is not None:
        name = name_of(constraint)
        if name == table.key_name:
            return table.primary_key
        found = next((tuple(index.columns) for index in indexes if index.name == name), None)
        if found is None:
            raise UndefinedObject(f'constraint "{name}" for table "{table.name}" does not exist')
        return found
    keys = node.args.get("conflict_keys")
    if not keys:
        return None
    names = [name_of(getattr(each.this, "this", each.this)) for each in keys]
    for each, name in zip(keys, names, strict=True):
        if table.column(name) is None:
            raise no_column(
                name, [column.name for column in table.columns], walk_position(each), table
            )
    for columns in (table.primary_key, *(tuple(index.columns) for index in indexes)):
        if set(columns) == set(names):
            return tuple(columns)
    raise CairnError(
        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        hint=f"the primary key of {table.name} is ({', '.join(table.primary_key)})",
        sqlstate="42P10",
    )


def _conflict_update(
    scope: Scope, table: Table, alias: str, columns: tuple[str, ...] | None, node: exp.Expr
) -> Conflict:
    if columns is None:
        raise SyntaxProblem(
            "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            hint=f"For example, ON CONFLICT ({', '.join(table.primary_key)}).",
        )
    inner = Scope(scope.binder, scope.parent)
    rel = add_target(inner, table, alias)
    excluded = add_target(inner, table, "excluded")
    sets = bind_assignments(inner, table, node.expressions)
    inner.no_aggregates = inner.no_windows = "WHERE"
    where = node.args.get("where")
    condition = bind_boolean(inner, where.this, "WHERE") if where is not None else None
    moved = [at for at, _ in sets if _is_sharding(table, table.columns[at].name)]
    if moved:
        raise Unsupported(
            f'ON CONFLICT DO UPDATE of "{table.columns[moved[0]].name}" is not supported: '
            "the table is distributed by it",
            hint="delete the row and insert it anew",
        )
    check_simple((*(expr for _, expr in sets), condition), "ON CONFLICT DO UPDATE")
    return Conflict("update", columns, rel, excluded, sets, condition)


def _is_sharding(table: Table, name: str) -> bool:
    return table.sharding is not None and name in table.sharding.columns


def add_target(scope: Scope, table: Table, alias: str) -> int:
    """Make the changed table visible; the number under which expressions know it."""
    rel = scope.binder.next_rel()
    key = set(table.primary_key)
    scope.add(
        Visible(
            alias,
            rel,
            [column.name for column in table.columns],
            [column.type for column in table.columns],
            [column.nullable and column.name not in key for column in table.columns],
            table,
        )
    )
    return rel


def check_simple(node: Any, what: str) -> None:
    """These run inside the owner's statement: they see its row and nothing else."""
    if any(isinstance(each, SubQuery) for each in walk(node)):
        raise Unsupported(f"a sub-query in {what} is not supported")
    if calls_late(node):
        raise Unsupported(f"a function that depends on the instance, in {what}, is not supported")


# --- RETURNING ------------------------------------------------------------------------------------


def bind_returning(
    scope: Scope, node: exp.Expr | None, rel: int, *, is_joined: bool
) -> tuple[Item, ...] | None:
    """The items of RETURNING, over the columns of the changed table alone."""
    if node is None:
        return None
    if node.args.get("into"):
        raise refuse(node, "RETURNING INTO")
    scope.no_aggregates = scope.no_windows = "RETURNING"
    items = bind_items(scope, node.expressions)
    other = any(
        isinstance(each, Col) and each.rel != rel for item in items for each in walk(item.expr)
    )
    if is_joined and other:
        raise Unsupported(
            "RETURNING of another table's columns is not supported",
            hint="name the columns of the table that is changed",
            position=walk_position(node),
        )
    check_simple(tuple(items), "RETURNING")
    return items
