"""INSERT into global tables: conflicts are decided against what is read at one position."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cairn.model.errors import CardinalityViolation
from cairn.model.log.ops import Dml, Insert, Replace, Update
from cairn.model.log.ranges import KeyRange, one_key, whole_table
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import (
    Index,
    Table,
    compared_column,
    compared_values,
    physical_column,
)
from cairn.sql.bind.changes import Conflict
from cairn.sql.bind.dml import BoundInsert
from cairn.sql.ir import Col, Expr, Query, Values
from cairn.sql.plan.closed import evaluator
from cairn.sql.plan.global_rows import (
    Chosen,
    clash_in,
    find_key,
    places_of,
    reading,
    returned_rows,
    source_ranges,
    unique_violation,
)
from cairn.sql.plan.read import Numbers
from cairn.sql.plan.write import check_not_null
from cairn.sql.plans import GlobalChange, GlobalWrite, ReadLocal, Row, Rows
from cairn.sql.render.render import Renderer
from cairn.sql.render.slots import Params, Slots
from cairn.sql.typing_rules import plain


def plan_global_insert(bound: BoundInsert, catalog: Catalog, numbers: Numbers) -> GlobalWrite:
    table = bound.table
    if bound.rows is not None:
        known = [[evaluator(cell) for cell in row] for row in bound.rows]
        if all(cell is not None for row in known for cell in row):
            cells: Any = known

            def execute(read: ReadLocal, params: Params) -> GlobalChange:
                rows = [tuple([cell(params) for cell in row]) for row in cells]
                return _Inserting(bound, catalog, read, params).rows(rows, ())

            def given(read: ReadLocal, params: Params, rows: Rows) -> GlobalChange:
                return _Inserting(bound, catalog, read, params).rows(list(rows), ())

            return GlobalWrite(
                table, execute, execute_rows=given, returns=bound.returning is not None
            )
        query: Query = Values(
            bound.rows,
            tuple(column.name for column in table.columns),
            tuple(plain(column.type) for column in table.columns),
        )
    else:
        assert bound.query is not None
        query = bound.query
    sources = source_ranges(query)

    def finish(read: ReadLocal, params: Params, rows: Rows) -> GlobalChange:
        found = [tuple(row) for row in rows]
        return _Inserting(bound, catalog, read, params).rows(found, sources)

    return reading(bound.table, query, catalog, numbers, finish, bound.returning is not None)


class _Inserting:
    """One INSERT at one position."""

    def __init__(
        self, bound: BoundInsert, catalog: Catalog, read: ReadLocal, params: Params
    ) -> None:
        self.bound, self.table, self.conflict = bound, bound.table, bound.conflict
        self.read, self.params = read, params
        self.unique = [i for i in catalog.indexes.get(self.table.id, ()) if i.unique]
        self.asked = tuple(map(self.table.position, bound.conflict.columns or ()))
        unique = (places_of(self.table, index) for index in self.unique)
        self.chosen = Chosen(self.table, {*unique, self.asked} - {()})
        self.ops: list[Dml] = []
        self.told: list[Row] = []  # of RETURNING

    def rows(self, rows: list[Row], sources: tuple[KeyRange, ...]) -> GlobalChange:
        ranges: list[KeyRange] = list(sources)
        if self.unique:
            ranges.append(whole_table(self.table.id))
        for row in rows:
            check_not_null(self.table, row)
            key = self._key(row)
            if not self.unique:
                ranges.append(one_key(self.table.id, key))
            self._row(row, key)
        returned = returned_rows(self.bound.returning, self.told, self.read, self.params)
        return GlobalChange(tuple(self.ops), tuple(dict.fromkeys(ranges)), len(self.told), returned)

    def _key(self, row: Row) -> Row:
        return tuple(row[at] for at in self.table.key_positions)

    def _row(self, row: Row, key: Row) -> None:
        action = self.conflict.action
        if action == "update" and self._updates(row):
            return
        where = self._taken(row, key)
        if where is None or (action == "replace" and where == self.table.primary_key):
            clash = self._clash(row, key)
            if clash is None:
                make = Replace if action == "replace" else Insert
                self.ops.append(make(self.table.id, row))
                self._done(key, row)
                return
            if action != "nothing" or self.conflict.columns not in (None, tuple(clash.columns)):
                raise unique_violation(self.table, clash.columns, row, clash.name)
        elif action != "nothing" or self.conflict.columns not in (None, where):
            raise unique_violation(self.table, self.table.primary_key, row)

    def _done(self, key: Row, row: Row) -> None:
        self.chosen.put(key, row)
        self.told.append(row)

    def _taken(self, row: Row, key: Row) -> tuple[str, ...] | None:
        """The primary key when a row has it already."""
        table = self.table
        if (
            key in self.chosen.rows
            or find_key(table, table.key_positions, key, self.read) is not None
        ):
            return table.primary_key
        return None

    def _clash(self, row: Row, key: Row) -> Index | None:
        return clash_in(self.table, self.unique, row, key, self.chosen, self.read)

    def _updates(self, row: Row) -> bool:
        """DO UPDATE: whether a row was there, and then changed unless WHERE said no."""
        mine = compared_values(self.table, self.asked, row)
        if None not in mine and self.chosen.key_of(self.asked, mine) is not None:
            raise CardinalityViolation(
                "ON CONFLICT DO UPDATE command cannot affect row a second time"
            )
        sql, more = _update_query(self.table, self.conflict, self.asked)
        found = self.read(sql, (*row, *more(self.params)))
        if not found:
            return False
        wanted, values = found[0][0], tuple(found[0][1:])
        if not wanted:
            return True
        check_not_null(self.table, values)
        key = self._key(values)
        clash = self._clash(values, key)
        if clash is not None:
            raise unique_violation(self.table, clash.columns, values, clash.name)
        sets = tuple((at, values[at]) for at, _ in self.conflict.sets)
        self.ops.append(Update(self.table.id, key, sets))
        self._done(key, values)
        return True


def _update_query(
    table: Table, conflict: Conflict, places: Iterable[int]
) -> tuple[str, Callable[[Params], tuple[Any, ...]]]:
    """The row that is there as it would become; the one to be inserted is bound from ?1 on."""
    slots = Slots(len(table.columns))
    renderer = Renderer(slots)
    sets = dict(conflict.sets)
    old, new = f"r{conflict.rel}", f"r{conflict.excluded}"
    columns: list[Expr] = [
        sets.get(at) or Col(plain(column.type), conflict.rel, at, column.name)
        for at, column in enumerate(table.columns)
    ]
    shown = ", ".join(renderer.expr(each) for each in columns)
    wanted = renderer.expr(conflict.where) if conflict.where is not None else "1"
    given = ", ".join(f"?{at + 1} AS {physical_column(at)}" for at in range(len(table.columns)))
    same = " AND ".join(
        f"{compared_column(table, at, old)} = {compared_column(table, at, new)}" for at in places
    )
    return (
        f"SELECT {wanted}, {shown} FROM {table.physical_name} AS {old}, "
        f"(SELECT {given}) AS {new} WHERE {same}",
        slots.bind(),
    )
