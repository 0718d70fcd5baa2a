"""Which statements ask for rows by the primary key of one sharded table: a range of keys, or the
first ones in their order. How they are read is `render/by_key.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.model.types.values import ColumnType, Physical
from cairn.sql.ir import (
    Agg,
    Call,
    Col,
    Const,
    Expr,
    Param,
    Query,
    Scan,
    Select,
    columns_in,
    conjuncts,
    scans_in,
    walk,
)
from cairn.sql.plan.buckets import bucket_count, hasher, key_positions
from cairn.sql.plan.closed import evaluator
from cairn.sql.plan.merging import aggregates_in
from cairn.sql.render.by_key import INT_MOST, SPANS, Bounds, ByKey, Edge, Page
from cairn.sql.render.render import Renderer
from cairn.sql.render.row_sql import key_columns
from cairn.sql.typing_rules import I

Params = Sequence[Any]
#: Types whose values lie in the file in the order of SQL.
_ORDERED = frozenset(
    {
        *(ColumnType.INTEGER, ColumnType.UNSIGNED, ColumnType.STRING, ColumnType.UUID),
        *(ColumnType.DATETIME, ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIME),
    }
)
#: What may be asked of a row more than once: it has no effect and never fails.
_HARMLESS = frozenset(
    {
        *("=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "in", "is", "is_not"),
        *("is_null", "is_true", "is_false", "same", "i_wide"),
    }
)
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}
_LOWER, _UPPER = (">", ">="), ("<", "<=")


def by_key(query: Query, catalog: Catalog, renderer: Renderer) -> ByKey | None:
    """How the owners read it by their keys. None: SQLite knows a better way, or there is none."""
    if not isinstance(query, Select) or not isinstance(query.source, Scan):
        return None
    if len(scans_in(query)) != 1:  # those of sub-queries have buckets, too
        return None
    scan, where = query.source, conjuncts(query.where)
    table = scan.table
    if table.is_global or table.is_temp or scan.index or table.has_hidden_key:
        return None
    if not _is_harmless(where) or len(key_positions(table)) == 0:
        return None
    types = [table.columns[at].type for at in table.key_positions]
    wanted = {col.at for col in columns_in((query.where, query.order))}
    if not _ORDERED.issuperset(types) or _has_index(table, catalog, wanted):
        return None
    edges = _edges(query, scan, catalog)
    if edges is not None:
        return _page(query, scan, catalog, renderer, *edges)
    return _bounds(query, scan, renderer)


def _is_harmless(where: list[Expr]) -> bool:
    return all(
        isinstance(each, (Col, Const, Param)) or (isinstance(each, Call) and each.name in _HARMLESS)
        for part in where
        for each in walk(part)
    )


def _has_index(table: Table, catalog: Catalog, wanted: set[int]) -> bool:
    """Whether an index begins with one of the columns: SQLite decides then."""
    named = {table.columns[at].name for at in wanted if at >= 0}
    return any(
        index.computed or index.columns[0] in named for index in catalog.indexes.get(table.id, ())
    )


# --- the first rows -------------------------------------------------------------------------------


def _edges(
    query: Select, scan: Scan, catalog: Catalog
) -> tuple[list[Edge], Callable[[Params], Physical]] | None:
    """In which order the first rows are wanted, and how many."""
    if query.having is not None or query.distinct:
        return None
    exprs = [item.expr for item in query.items]
    aggregates = [agg for expr in exprs for agg in aggregates_in(expr)]
    if aggregates:
        return _extremes(query, scan, catalog, aggregates)
    if query.group is not None or not query.order or any(map(_is_grouped, exprs)):
        return None
    limit, offset = query.limit, query.offset
    if limit is None:
        return None
    count = evaluator(limit if offset is None else Call(I, "i_add", (limit, offset)))
    positions = scan.table.key_positions
    is_descending = query.order[0].desc
    columns: list[int] = []
    for each in query.order[: len(positions)]:
        at = positions[len(columns)]
        if not _is_column(each.expr, scan, at) or each.desc is not is_descending:
            return None
        columns.append(at)
    if count is None:
        return None
    return [_edge(query, scan, catalog, columns, is_descending)], count


def _is_grouped(expr: Expr) -> bool:
    return any(not isinstance(each, (Col, Const, Param, Call)) for each in walk(expr))


def _extremes(
    query: Select, scan: Scan, catalog: Catalog, aggregates: list[Agg]
) -> tuple[list[Edge], Callable[[Params], Physical]] | None:
    """`min` and `max` of the key's first column, and nothing else of any row."""
    first = scan.table.key_positions[0]
    if query.group or query.order or query.limit is not None or query.offset is not None:
        return None
    inside = {agg.args[0] for agg in aggregates if agg.args}
    for agg in aggregates:
        plain = agg.name in ("min", "max") and agg.filter is None and len(agg.args) == 1
        if not plain or not _is_column(agg.args[0], scan, first):
            return None
    outside = replace(query, items=(), where=None)
    shown = [each for item in query.items for each in walk(item.expr) if isinstance(each, Col)]
    if columns_in(outside) or any(each not in inside for each in shown):
        return None
    if any(not aggregates_in(item.expr) for item in query.items):
        return None
    ways = sorted({agg.name == "max" for agg in aggregates})
    return [_edge(query, scan, catalog, [first], way) for way in ways], lambda params: 1


def _page(
    query: Select,
    scan: Scan,
    catalog: Catalog,
    renderer: Renderer,
    edges: list[Edge],
    count: Callable[[Params], Physical],
) -> Page:
    assert scan.table.sharding is not None
    table, key, alias = scan.table, key_columns(scan.table), f"r{scan.rel}"
    renderer.aliases = {scan.rel: "k"}
    where = " AND ".join(renderer.expr(part) for part in conjuncts(query.where))
    renderer.aliases = {}
    sql = _over(query, scan, renderer, [f"{alias}.{name} = e.{name}" for name in key])
    count_of = bucket_count(catalog, scan.table.sharding.tier)
    return Page(table.physical_name, sql, tuple(key), where, tuple(edges), count, count_of)


def _edge(
    query: Select, scan: Scan, catalog: Catalog, columns: list[int], is_descending: bool
) -> Edge:
    names = tuple(map(physical_column, columns))
    return Edge(names, is_descending, _near(query, scan, catalog, is_descending))


def _near(
    query: Select, scan: Scan, catalog: Catalog, is_descending: bool
) -> Callable[[Params, int], list[tuple[int, int]]] | None:
    """The whole numbers that follow the one that is named. Most keys are numbers without gaps: then
    the next rows are found as single rows are, and no other bucket is looked at."""
    table = scan.table
    [*positions] = table.key_positions
    if positions != key_positions(table) or len(positions) != 1:
        return None
    type_ = table.columns[positions[0]].type
    words = _UPPER if is_descending else _LOWER
    bound = next(
        (
            (name, value)
            for name, value in _compared(query, scan, positions[0])
            if name in words and value.type is I
        ),
        None,
    )
    start = evaluator(bound[1]) if bound is not None else None
    if type_ not in (I, ColumnType.UNSIGNED) or start is None or bound is None:
        return None
    step, past = -1 if is_descending else 1, len(bound[0]) == 1
    least = 0 if type_ is ColumnType.UNSIGNED else -INT_MOST
    hash_key = hasher(catalog, table)

    def near(params: Params, count: int) -> list[tuple[int, int]]:
        value = start(params)
        if not isinstance(value, int):
            return []
        first = value + (step if past else 0)
        if not is_descending:
            first = max(first, least)
        numbers = range(first, first + step * count, step)
        return [(hash_key((each,)), each) for each in numbers if least <= each <= INT_MOST]

    return near


# --- a range --------------------------------------------------------------------------------------


def _bounds(query: Select, scan: Scan, renderer: Renderer) -> Bounds | None:
    """Equal values of the first columns of the key, and limits of the one after them."""
    alias, low, high = f"r{scan.rel}", ["e.low"], ["e.high"]
    names = [f"{alias}.{BUCKET_COLUMN}"]
    for at in scan.table.key_positions:
        found = dict(_compared(query, scan, at))
        if (equal := found.get("=")) is not None:
            text = renderer.expr(equal)
            names.append(f"{alias}.{physical_column(at)}")
            low.append(text)
            high.append(text)
            continue
        for words, edge in ((_LOWER, low), (_UPPER, high)):
            bound = next((found[word] for word in words if word in found), None)
            if bound is not None:
                edge.append(renderer.expr(bound))
        if max(len(low), len(high)) > len(names):
            names.append(f"{alias}.{physical_column(at)}")
        break
    if len(names) == 1:
        return None
    conditions = [
        f"({', '.join(names[: len(edge)])}) {word} ({', '.join(edge)})"
        for word, edge in ((">=", low), ("<=", high))
    ]
    return Bounds(scan.table.physical_name, _over(query, scan, renderer, conditions))


def _over(query: Select, scan: Scan, renderer: Renderer, conditions: list[str]) -> str:
    """The statement with the rows that `e` says."""
    source = f"{SPANS} AS e CROSS JOIN {scan.table.physical_name} AS r{scan.rel}"
    renderer.scanned = {scan.rel: (source, conditions)}
    sql = renderer.query(query)
    renderer.scanned = {}
    return sql


# --- conditions -----------------------------------------------------------------------------------


def _compared(query: Select, scan: Scan, at: int) -> list[tuple[str, Expr]]:
    """What a column is compared with: the operator as if the column stood on its left."""
    found: list[tuple[str, Expr]] = []
    for part in conjuncts(query.where):
        if not isinstance(part, Call) or part.name not in _MIRRORED:
            continue
        left, right = part.args
        if _is_column(left, scan, at) and _is_value(right, left):
            found.append((part.name, right))
        elif _is_column(right, scan, at) and _is_value(left, right):
            found.append((_MIRRORED[part.name], left))
    return found


def _is_column(expr: Expr, scan: Scan, at: int) -> bool:
    return isinstance(expr, Col) and expr.rel == scan.rel and expr.at == at


def _is_value(expr: Expr, column: Expr) -> bool:
    whole = (I, ColumnType.UNSIGNED)
    same = expr.type is column.type or (expr.type in whole and column.type in whole)
    return isinstance(expr, (Const, Param)) and same
