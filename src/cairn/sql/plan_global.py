"""DML on global tables: what to read, what to propose, what must not have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn.model.catalog import Catalog
from cairn.model.errors import UniqueViolation
from cairn.model.ops import Delete, Dml, Insert, Replace, Update
from cairn.model.ranges import KeyRange, one_key, whole_table
from cairn.model.schema import Index, Table, physical_column
from cairn.sql.bind_dml import BoundChange, BoundInsert, OnConflict
from cairn.sql.buckets import equal_classes
from cairn.sql.closed import evaluator
from cairn.sql.ir import Col, Expr, Item, Query, Values, conjuncts, scans_in
from cairn.sql.plan_read import Numbers, check_operable, plan_read
from cairn.sql.plan_write import check_not_null, scan_column
from cairn.sql.plans import GlobalChange, GlobalWrite, PointRead, ReadLocal, Row, Rows
from cairn.sql.render import Params
from cairn.sql.typing_rules import plain


def unique_violation(table: Table, name: str | None = None) -> UniqueViolation:
    index = name or f"{table.name}_pkey"
    return UniqueViolation(
        f'Duplicate key exists in unique index "{index}" in space "{table.name}"'
    )


def plan_global_insert(bound: BoundInsert, catalog: Catalog, numbers: Numbers) -> GlobalWrite:
    table = bound.table
    if bound.rows is not None:
        known = [[evaluator(cell) for cell in row] for row in bound.rows]
        if all(cell is not None for row in known for cell in row):
            cells: Any = known

            def execute(read: ReadLocal, params: Params) -> GlobalChange:
                rows = [tuple([cell(params) for cell in row]) for row in cells]
                return insert_rows(catalog, table, rows, bound.on_conflict, read, ())

            return GlobalWrite(table, execute)
        query: Query = Values(
            bound.rows,
            tuple(column.name for column in table.columns),
            tuple(plain(column.type) for column in table.columns),
        )
    else:
        assert bound.query is not None
        query = bound.query
    sources = _source_ranges(query)

    def finish(read: ReadLocal, params: Params, rows: Rows) -> GlobalChange:
        found = [tuple(row) for row in rows]
        return insert_rows(catalog, table, found, bound.on_conflict, read, sources)

    return _reading(table, query, catalog, numbers, finish)


def _source_ranges(query: Query) -> tuple[KeyRange, ...]:
    tables = {scan.table.id for scan in scans_in(query) if scan.table.is_global}
    return tuple(whole_table(each) for each in sorted(tables))


Finish = Callable[[ReadLocal, Params, Rows], GlobalChange]


def _reading(
    table: Table, query: Query, catalog: Catalog, numbers: Numbers, finish: Finish
) -> GlobalWrite:
    """A write whose rows come from a query: read here, or first by the executor when sharded."""
    plan = plan_read(query, catalog, numbers)
    if isinstance(plan, PointRead) and plan.bucket is None:
        local = plan

        def execute(read: ReadLocal, params: Params) -> GlobalChange:
            return finish(read, params, read(local.sql, local.bind(params)))

        return GlobalWrite(table, execute)

    def refuse(read: ReadLocal, params: Params) -> GlobalChange:
        raise AssertionError("this statement has a read plan; call execute_rows")

    return GlobalWrite(table, refuse, plan, finish)


def insert_rows(
    catalog: Catalog,
    table: Table,
    rows: list[Row],
    on_conflict: OnConflict,
    read: ReadLocal,
    sources: tuple[KeyRange, ...],
) -> GlobalChange:
    """Inserts as operations, conflicts decided against what `read` sees at one position."""
    check_operable_table(table)
    unique = [index for index in catalog.indexes.get(table.id, ()) if index.unique]
    chosen: dict[Row, Row] = {}
    ranges: list[KeyRange] = list(sources)
    if unique:
        ranges.append(whole_table(table.id))
    ops: list[Dml] = []
    count = 0
    for row in rows:
        check_not_null(table, row)
        key = tuple(row[at] for at in table.key_positions)
        if not unique:
            ranges.append(one_key(table.id, key))
        taken = key in chosen or _find(table, table.key_positions, key, read) is not None
        if taken and on_conflict == "fail":
            raise unique_violation(table)
        if taken and on_conflict == "nothing":
            continue
        clash = _clash(table, unique, row, key, list(chosen.values()), read)
        if clash is not None and on_conflict != "nothing":
            raise unique_violation(table, clash)
        if clash is not None:
            continue
        chosen[key] = row
        count += 1
        make = Replace if on_conflict == "replace" else Insert
        ops.append(make(table.id, row))
    return GlobalChange(tuple(ops), tuple(dict.fromkeys(ranges)), count)


def check_operable_table(table: Table) -> None:
    from cairn.sql.ir import Scan

    check_operable([Scan(0, table, table.name)])


def _find(table: Table, places: tuple[int, ...], values: Row, read: ReadLocal) -> Row | None:
    key = ", ".join(physical_column(at) for at in table.key_positions)
    where = " AND ".join(f"{physical_column(at)} = ?{n}" for n, at in enumerate(places, 1))
    found = read(f"SELECT {key} FROM {table.physical_name} WHERE {where}", tuple(values))
    return found[0] if found else None


def _clash(
    table: Table, unique: list[Index], row: Row, key: Row, others: list[Row], read: ReadLocal
) -> str | None:
    """The unique index in which another row already has these values; NULLs never clash."""
    for index in unique:
        places = tuple(table.position(name) for name in index.columns)
        values = tuple(row[at] for at in places)
        if None in values:
            continue
        found = _find(table, places, values, read)
        if found is not None and tuple(found) != key:
            return index.name
        for other in others:
            same_key = tuple(other[at] for at in table.key_positions) == key
            if not same_key and tuple(other[at] for at in places) == values:
                return index.name
    return None


# --- UPDATE and DELETE ----------------------------------------------------------------------------


def plan_global_change(bound: BoundChange, catalog: Catalog, numbers: Numbers) -> GlobalWrite:
    table, scan = bound.scan.table, bound.scan
    size = len(table.primary_key)
    columns: list[Expr] = [scan_column(scan, at) for at in table.key_positions]
    if bound.sets is not None:
        sets = dict(bound.sets)
        columns += [sets.get(at) or scan_column(scan, at) for at in range(len(table.columns))]
    query = bound.select(tuple(Item("", expr) for expr in columns))
    key = _whole_key(bound)
    sources = tuple(each for each in _source_ranges(query) if each.table != table.id or not key)
    unique = [index for index in catalog.indexes.get(table.id, ()) if index.unique]
    changed = [at for at, _ in bound.sets or ()]
    touched = [
        index for index in unique if any(table.position(n) in changed for n in index.columns)
    ]

    def finish(read: ReadLocal, params: Params, rows: Rows) -> GlobalChange:
        check_operable_table(table)
        ranges = list(sources)
        if key is not None:
            ranges.append(one_key(table.id, [part(params) for part in key]))
        if key is None or touched:
            ranges.append(whole_table(table.id))
        ops: list[Dml] = []
        done: dict[Row, Row] = {}
        for row in rows:
            old, values = tuple(row[:size]), tuple(row[size:])
            if old in done:
                continue
            if bound.sets is None:
                ops.append(Delete(table.id, old))
            else:
                check_not_null(table, values)
                clash = _clash(table, touched, values, old, list(done.values()), read)
                if clash is not None:
                    raise unique_violation(table, clash)
                ops.append(Update(table.id, old, tuple((at, values[at]) for at in changed)))
            done[old] = values
        return GlobalChange(tuple(ops), tuple(dict.fromkeys(ranges)), len(done))

    return _reading(table, query, catalog, numbers, finish)


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
        found.append(part)
    return found
