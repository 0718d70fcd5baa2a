"""DML on global tables: what to read, what to propose, what must not have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cairn.model.errors import CasRetry, UniqueViolation
from cairn.model.log.ops import Delete, Dml, Update
from cairn.model.log.ranges import KeyRange, one_key, whole_table
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import (
    Index,
    Table,
    compared_column,
    compared_values,
    physical_column,
)
from cairn.model.tables.violations import not_unique
from cairn.model.types.decimals import key_form
from cairn.model.types.values import ColumnType
from cairn.sql.bind.dml import BoundChange
from cairn.sql.ir import Col, Expr, Item, Query, conjuncts, scans_in, walk
from cairn.sql.plan.buckets import equal_classes
from cairn.sql.plan.closed import evaluator
from cairn.sql.plan.read import Numbers, plan_read
from cairn.sql.plan.write import check_not_null, scan_column, seen_columns
from cairn.sql.plans import GlobalChange, GlobalWrite, PointRead, ReadLocal, Row, Rows
from cairn.sql.render.constraints import key_exists
from cairn.sql.render.render import Renderer
from cairn.sql.render.slots import Params, Slots


def unique_violation(
    table: Table, columns: Sequence[str], row: Row, name: str | None = None
) -> UniqueViolation:
    return not_unique(table, name or table.key_name, key_exists(table, columns, row))


def source_ranges(query: Query) -> tuple[KeyRange, ...]:
    tables = {scan.table.id for scan in scans_in(query) if scan.table.is_global}
    return tuple(whole_table(each) for each in sorted(tables))


Finish = Callable[[ReadLocal, Params, Rows], GlobalChange]


def reading(
    table: Table,
    query: Query,
    catalog: Catalog,
    numbers: Numbers,
    finish: Finish,
    returns: bool = False,
    finish_there: Finish | None = None,
) -> GlobalWrite:
    """A write whose rows come from a query: read here, or first by the executor when sharded."""
    plan = plan_read(query, catalog, numbers)
    if isinstance(plan, PointRead) and plan.bucket is None:
        local = plan

        def execute(read: ReadLocal, params: Params) -> GlobalChange:
            return finish(read, params, read(local.sql, local.bind(params)))

        return GlobalWrite(table, execute, returns=returns)

    def refuse(read: ReadLocal, params: Params) -> GlobalChange:
        raise AssertionError("this statement has a read plan; call execute_rows")

    return GlobalWrite(table, refuse, plan, finish_there or finish, returns)


def find_key(table: Table, places: tuple[int, ...], values: Row, read: ReadLocal) -> Row | None:
    key = ", ".join(physical_column(at) for at in table.key_positions)
    where = " AND ".join(f"{compared_column(table, at)} = ?{n}" for n, at in enumerate(places, 1))
    found = read(f"SELECT {key} FROM {table.physical_name} WHERE {where}", tuple(values))
    return found[0] if found else None


class Chosen:
    """Rows as one statement makes them, found by their key and by what has to be unique.

    `places` are those of the columns that are asked for. There may be very many rows: nobody looks
    at all of them for each one.
    """

    def __init__(self, table: Table, places: Iterable[tuple[int, ...]]) -> None:
        self._table, self._places = table, set(places)
        self._keys: dict[tuple[tuple[int, ...], Row], Row] = {}
        self.rows: dict[Row, Row] = {}  # by primary key

    def put(self, key: Row, row: Row) -> None:
        before = self.rows.get(key)
        for places in self._places:
            if before is not None:
                self._keys.pop((places, compared_values(self._table, places, before)), None)
            self._keys[places, compared_values(self._table, places, row)] = key
        self.rows[key] = row

    def key_of(self, places: tuple[int, ...], values: Row) -> Row | None:
        """Of the row that has these values, if none of them is NULL."""
        return self._keys.get((places, values))


def places_of(table: Table, index: Index) -> tuple[int, ...]:
    return tuple(map(table.position, index.columns))


def clash_in(
    table: Table, unique: list[Index], row: Row, key: Row, chosen: Chosen, read: ReadLocal
) -> Index | None:
    """The unique index in which another row already has these values; NULLs never clash."""
    for index in unique:
        places = places_of(table, index)
        values = compared_values(table, places, row)
        if None in values:
            continue
        found = find_key(table, places, values, read)
        if found is not None and tuple(found) != key:
            return index
        if chosen.key_of(places, values) not in (None, key):
            return index
    return None


# --- UPDATE and DELETE ----------------------------------------------------------------------------


def plan_global_change(bound: BoundChange, catalog: Catalog, numbers: Numbers) -> GlobalWrite:
    table, scan = bound.scan.table, bound.scan
    size = len(table.primary_key)
    columns: list[Expr] = [scan_column(scan, at) for at in table.key_positions]
    if bound.sets is not None or bound.returning is not None:
        sets = dict(bound.sets or ())
        columns += [sets.get(at) or scan_column(scan, at) for at in range(len(table.columns))]
    seen, width = seen_columns(bound), len(columns)
    columns += [scan_column(scan, at) for at in seen]
    query = bound.select(tuple(Item("", expr) for expr in columns))
    key = _whole_key(bound)
    sources = tuple(each for each in source_ranges(query) if each.table != table.id or not key)
    unique = [index for index in catalog.indexes.get(table.id, ()) if index.unique]
    changed = [at for at, _ in bound.sets or ()]
    touched = [
        index for index in unique if any(table.position(n) in changed for n in index.columns)
    ]

    def finish(read: ReadLocal, params: Params, rows: Rows) -> GlobalChange:
        ranges = list(sources)
        if key is not None:
            ranges.append(one_key(table.id, [part(params) for part in key]))
        if key is None or touched:
            ranges.append(whole_table(table.id))
        ops: list[Dml] = []
        done = Chosen(table, (places_of(table, index) for index in touched))
        for row in rows:
            old, values = tuple(row[:size]), tuple(row[size:width])
            if old in done.rows:
                continue
            if bound.sets is None:
                ops.append(Delete(table.id, old))
            else:
                check_not_null(table, values)
                clash = clash_in(table, touched, values, old, done, read)
                if clash is not None:
                    raise unique_violation(table, clash.columns, values, clash.name)
                ops.append(Update(table.id, old, tuple((at, values[at]) for at in changed)))
            done.put(old, values)
        returned = returned_rows(bound.returning, list(done.rows.values()), read, params)
        return GlobalChange(tuple(ops), tuple(dict.fromkeys(ranges)), len(done.rows), returned)

    places = (*table.key_positions, *seen)
    where = " AND ".join(f"{physical_column(at)} IS ?{n}" for n, at in enumerate(places, 1))

    def finish_there(read: ReadLocal, params: Params, rows: Rows) -> GlobalChange:
        """What owners have told of the changed table has to be so here too: a change that one of
        them did not know yet would be lost."""
        for row in rows:
            held = (*row[:size], *row[width:])
            if not read(f"SELECT 1 FROM {table.physical_name} WHERE {where}", held):
                raise CasRetry("a row changed between reading and writing; try again")
        return finish(read, params, rows)

    returns = bound.returning is not None
    return reading(table, query, catalog, numbers, finish, returns, finish_there)


def returned_rows(
    items: tuple[Item, ...] | None, rows: list[Row], read: ReadLocal, params: Params
) -> tuple[Row, ...] | None:
    """What RETURNING says of changed rows, all their columns given."""
    if items is None:
        return None
    if not rows:
        return ()
    rels = {node.rel for node in walk(tuple(items)) if isinstance(node, Col)}
    slots = Slots(len(rows[0]))
    renderer = Renderer(slots)
    renderer.aliases = dict.fromkeys(rels, "")
    shown = ", ".join(renderer.expr(item.expr) for item in items)
    given = ", ".join(f"?{at + 1} AS {physical_column(at)}" for at in range(len(rows[0])))
    sql, more = f"SELECT {shown} FROM (SELECT {given})", slots.bind()(params)
    return tuple(tuple(read(sql, (*row, *more))[0]) for row in rows)


def _whole_key(bound: BoundChange) -> list[Callable[[Params], Any]] | None:
    """How to compute the primary key when WHERE gives all of it and nothing else is read."""
    table, scan = bound.scan.table, bound.scan
    if bound.source is not scan or len(scans_in(bound.select(()))) != 1:
        return None
    classes = equal_classes(conjuncts(bound.where))
    found = []
    for at in table.key_positions:
        part = None
        for expr, equals in classes.items():
            if isinstance(expr, Col) and expr.rel == scan.rel and expr.at == at:
                part = next((e for each in equals if (e := evaluator(each)) is not None), None)
        if part is None:
            return None
        is_number = table.columns[at].type is ColumnType.DECIMAL
        found.append(_key_part(part) if is_number else part)
    return found


def _key_part(part: Callable[[Params], Any]) -> Callable[[Params], Any]:
    """A number as keys have it: without its zeros."""

    def key(params: Params) -> Any:
        value = part(params)
        return value if value is None else key_form(value)

    return key
