"""INSERT, UPDATE and DELETE on sharded tables to plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cairn.model.errors import Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.model.tables.violations import null_value
from cairn.model.types.values import ColumnType, from_physical, physical_reader
from cairn.sql.bind.dml import BoundChange, BoundInsert
from cairn.sql.functions.function_list import calls_late
from cairn.sql.ir import (
    BUCKET_AT,
    Call,
    Col,
    Const,
    Derived,
    Expr,
    Given,
    Item,
    Join,
    Param,
    Recursion,
    Scan,
    Select,
    Values,
    conjuncts,
    walk,
)
from cairn.sql.plan.buckets import (
    Key,
    common_key,
    hasher,
    key_bucket,
    key_positions,
    reads,
)
from cairn.sql.plan.closed import evaluator
from cairn.sql.plan.links import linked_change
from cairn.sql.plan.locality import remote_ok, source_locality
from cairn.sql.plan.point import BUCKET, places_of
from cairn.sql.plan.read import Gather, Numbers, plan_read
from cairn.sql.plans import (
    Change,
    Fragment,
    InsertSelect,
    KeyedWrite,
    PlainRow,
    Plan,
    PointWrite,
    Row,
    Rows,
    ScatterWrite,
    ShardedInsert,
)
from cairn.sql.render.render import Renderer, named_scan
from cairn.sql.render.row_sql import check_each_once, delete_sql, insert_sql, update_sql, upsert_sql
from cairn.sql.render.slots import Params, Slots
from cairn.sql.typing_rules import plain


def unwrapped(expr: Expr) -> Expr:
    """The value without the check that storing adds."""
    if isinstance(expr, Call) and expr.name in ("store_n", "store_z", "store_u", "i_fit"):
        return expr.args[0]
    return expr


def check_not_null(table: Table, row: Sequence[Any]) -> None:
    """`row` without its bucket."""
    for column, value in zip(table.columns, row, strict=True):
        if value is None and (not column.nullable or column.name in table.primary_key):
            raise null_value(table, column.name)


def bucket_of_row(catalog: Catalog, table: Table) -> Callable[[Row], int]:
    """The bucket of a physical row in table order."""
    hash_key, places = hasher(catalog, table), key_positions(table)
    readers = [(at, physical_reader(plain(table.columns[at].type))) for at in places]
    if all(reader is None for _, reader in readers):
        return lambda row: hash_key([row[at] for at in places])
    types = [plain(table.columns[at].type) for at in places]
    return lambda row: hash_key(
        [from_physical(type_, row[at]) for type_, at in zip(types, places, strict=True)]
    )


def insert_key(bound: BoundInsert) -> Key | None:
    """The distribution key's expressions of a single VALUES row."""
    if bound.rows is None or len(bound.rows) != 1 or bound.table.sharding is None:
        return None
    return Key(
        bound.table, tuple(unwrapped(bound.rows[0][at]) for at in key_positions(bound.table))
    )


def plan_insert(bound: BoundInsert, catalog: Catalog, numbers: Numbers) -> Plan:
    table = bound.table
    assert table.sharding is not None
    tier = table.sharding.tier
    if bound.rows is not None:
        evaluators = [[evaluator(cell) for cell in row] for row in bound.rows]
        known = [[cell for cell in row if cell is not None] for row in evaluators]
        if all(len(row) == len(table.columns) for row in known):
            key = insert_key(bound)
            if key is not None:
                return _point_insert(bound, catalog, key)
            return _sharded_insert(bound, catalog, known)
        types = tuple(plain(column.type) for column in table.columns)
        names = tuple(column.name for column in table.columns)
        query: Any = _values_select(Values(bound.rows, names, types), numbers)
    else:
        query = bound.query
    # Parameters of DO UPDATE come along as further columns of each row.
    slots = _Collected(len(table.physical_columns))
    sql = upsert_sql(table, bound.conflict, slots)
    read = plan_read(_with_columns(query, slots.found), catalog, numbers)
    place = bucket_of_row(catalog, table)
    width = len(table.columns)

    def rows(found: Rows) -> list[tuple[int, Row]]:
        check_each_once(bound.conflict, table, found)
        result = []
        for row in found:
            check_not_null(table, row[:width])
            bucket = place(row)
            result.append((bucket, (bucket, *row)))
        return result

    return InsertSelect(read, table, tier, bound.on_conflict, sql, rows)


def _values_select(values: Values, numbers: Numbers) -> Select:
    rel = numbers.next_rel()
    columns = zip(values.names, values.types, strict=True)
    items = tuple(Item(name, Col(type_, rel, at, name)) for at, (name, type_) in enumerate(columns))
    return Select(items, Derived(rel, values, "", values.names))


class _Collected(Slots):
    """Remembers parameters in the order of their places."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.found: list[Param] = []

    def param(self, param: Param) -> str:
        if param not in self.found:
            self.found.append(param)
        return super().param(param)


def _with_columns(query: Any, params: list[Param]) -> Any:
    if not params:
        return query
    if isinstance(query, Select) and query.group is None and not query.distinct:
        return replace(query, items=(*query.items, *(Item("", param) for param in params)))
    raise Unsupported("a parameter in ON CONFLICT DO UPDATE after this query is not supported")


def _point_insert(bound: BoundInsert, catalog: Catalog, key: Key) -> PointWrite:
    assert bound.rows is not None and bound.table.sharding is not None
    slots = Slots()
    bucket = key_bucket(catalog, key)
    values = [slots.computed(BUCKET, bucket)]
    renderer = Renderer(slots)
    for at, cell in enumerate(bound.rows[0]):
        if isinstance(cell, Const) or _given(cell) is not None:
            values.append(renderer.expr(cell))
        else:
            source = evaluator(cell)
            assert source is not None
            values.append(slots.computed(("cell", at), source))
    sql = upsert_sql(bound.table, bound.conflict, slots, values)
    tier, row = bound.table.sharding.tier, _plain_row(bound, catalog, key, slots)
    return PointWrite(sql, slots.bind(), bucket, tier, bound.table, row)


def _given(cell: Expr) -> Param | None:
    """A parameter that is stored as it is, if it is not too wide."""
    inner = cell.args[0] if isinstance(cell, Call) and cell.name == "i_fit" else cell
    return inner if isinstance(inner, Param) else None


def _plain_row(bound: BoundInsert, catalog: Catalog, key: Key, slots: Slots) -> PlainRow | None:
    assert bound.rows is not None
    places = places_of(slots, catalog, key)
    if places is None or bound.on_conflict not in ("fail", "nothing"):
        return None
    cells: list[tuple[int, Any]] = []
    for cell, column in zip(bound.rows[0], bound.table.columns, strict=True):
        given = _given(cell)
        if given is not None and given.type is plain(column.type):
            cells.append((given.number, None))
        elif isinstance(cell, Const) and (cell.value is None or cell.type is plain(column.type)):
            cells.append((0, cell.value))
        else:
            return None
    return PlainRow(places, tuple(cells))


def _sharded_insert(
    bound: BoundInsert, catalog: Catalog, cells: list[list[Callable[[Params], Any]]]
) -> ShardedInsert:
    table = bound.table
    assert table.sharding is not None
    place = bucket_of_row(catalog, table)
    slots = Slots(len(table.physical_columns))
    sql = upsert_sql(table, bound.conflict, slots)
    more = slots.bind()

    def rows(params: Params) -> list[tuple[int, Row]]:
        result, extra = [], more(params)
        for row in cells:
            values = tuple([cell(params) for cell in row])
            check_not_null(table, values)
            bucket = place(values)
            result.append((bucket, (bucket, *values, *extra)))
        check_each_once(bound.conflict, table, (row[1:] for _, row in result))
        return result

    return ShardedInsert(table, table.sharding.tier, bound.on_conflict, sql, rows)


# --- UPDATE and DELETE ----------------------------------------------------------------------------


def change_reads(bound: BoundChange) -> Select:
    """What an UPDATE or DELETE looks at, as a query: the same rules bind its buckets."""
    items = tuple(Item("", expr) for _, expr in bound.sets or ()) or (
        Item("", Const(ColumnType.INTEGER, 1)),
    )
    return bound.select(items)


def change_key(bound: BoundChange) -> Key | None:
    query = change_reads(bound)
    return None if calls_late(query) else common_key(reads(query))


def plan_change(bound: BoundChange, catalog: Catalog, numbers: Numbers) -> Plan:
    table = bound.scan.table
    assert table.sharding is not None
    moves = _moves(bound)
    # SQLite has no DELETE … USING: its rows are found first.
    joined_delete = bound.sets is None and bound.source is not bound.scan
    key = None if _has_recursion(bound) else change_key(bound)
    if not moves and key is not None and not joined_delete:
        slots = Slots()
        bucket = key_bucket(catalog, key)
        mark = slots.computed("bucket", bucket)
        sql = render_change(bound, Renderer(slots, bucket=mark))
        return PointWrite(sql, slots.bind(), bucket, table.sharding.tier, table)
    if not moves and not joined_delete:
        gather = Gather(catalog, numbers)
        taken = _with_steps(bound, gather)
        query = change_reads(taken)
        holds = conjuncts(taken.where)
        local = source_locality(taken.source, holds)
        exprs = [expr for _, expr in taken.sets or ()]
        if local is not None and all(remote_ok(e, local, holds) for e in (*holds, *exprs)):
            slots = Slots()
            sql = render_change(linked_change(taken), Renderer(slots, marks=True))
            narrowed = gather.fragment(query)
            fragment = Fragment(
                sql, slots.bind(), (), table.sharding.tier, narrowed.tables, narrowed.buckets, taken
            )
            return ScatterWrite(tuple(gather.steps), fragment, table)
    return _keyed(bound, catalog, numbers)


def _moves(bound: BoundChange) -> bool:
    """Whether rows get another key, so that they are taken away and put in anew."""
    table = bound.scan.table
    assert table.sharding is not None
    keys = {*table.sharding.columns, *table.primary_key}
    return any(table.columns[at].name in keys for at, _ in bound.sets or ())


def _has_recursion(bound: BoundChange) -> bool:
    """It may have no end, and must not run where nothing can end it: inside the writer. Neither can
    rows that another part of the statement told: they are in no table there."""
    parts = (bound.source, bound.where, *(expr for _, expr in bound.sets or ()))
    return any(isinstance(node, (Recursion, Given)) for part in parts for node in walk(part))


def _with_steps(bound: BoundChange, gather: Gather) -> BoundChange:
    where = gather.take_steps(bound.where) if bound.where is not None else None
    sets = None
    if bound.sets is not None:
        sets = tuple((at, gather.take_steps(expr)) for at, expr in bound.sets)
    return BoundChange(bound.scan, bound.source, where, sets)


def render_change(bound: BoundChange, renderer: Renderer) -> str:
    _, conditions = renderer.scan(bound.scan, nullable=False)
    target = named_scan(bound.scan)
    if bound.sets is None:
        text = f"DELETE FROM {target}"
    else:
        source = ""
        if isinstance(bound.source, Join):
            source, more = renderer._source(bound.source.right, nullable=False)
            source, conditions = f" FROM {source}", [*conditions, *more]
        sets = ", ".join(f"{physical_column(at)} = {renderer.expr(e)}" for at, e in bound.sets)
        text = f"UPDATE {target} SET {sets}{source}"
    if bound.where is not None:
        conditions.append(renderer.expr(bound.where))
    return text + (f" WHERE {' AND '.join(conditions)}" if conditions else "")


def scan_column(scan: Scan, at: int) -> Col:
    column = scan.table.columns[at]
    return Col(plain(column.type), scan.rel, at, column.name, column.nullable)


def seen_columns(bound: BoundChange) -> list[int]:
    """Columns of the changed table that decide what happens; its key is looked up anyway."""
    parts = (bound.source, bound.where, *(expr for _, expr in bound.sets or ()))
    cols = (node for part in parts for node in walk(part) if isinstance(node, Col))
    found = {col.at for col in cols if col.rel == bound.scan.rel and col.at >= 0}
    return sorted(found - set(bound.scan.table.key_positions))


def _keyed(bound: BoundChange, catalog: Catalog, numbers: Numbers) -> KeyedWrite:
    """Read the rows' keys (and their values) first, then change each row by its key.

    It is changed only if what the statement has seen of it is still so: else somebody's change in
    between would be lost. A row that moves is put in with what was read, so all of it counts.
    """
    table, scan = bound.scan.table, bound.scan
    assert table.sharding is not None
    bucket = Col(ColumnType.INTEGER, scan.rel, BUCKET_AT, BUCKET_COLUMN, nullable=False)
    key_size, width, moves = len(table.primary_key), len(table.columns), _moves(bound)
    exprs: list[Expr] = [bucket, *(scan_column(scan, at) for at in table.key_positions)]
    seen = list(range(width)) if moves else seen_columns(bound)
    exprs += [scan_column(scan, at) for at in seen]
    if bound.sets is not None:
        sets = dict(bound.sets)
        exprs += [sets.get(at) or scan_column(scan, at) for at in range(width)]
    query = bound.select(tuple(Item("", expr) for expr in exprs))
    read = plan_read(query, catalog, numbers)
    place = bucket_of_row(catalog, table)
    updates = bound.sets is not None
    changed = [at for at, _ in bound.sets or ()]

    def changes(rows: Rows) -> list[Change]:
        found: dict[Row, Change] = {}
        for row in rows:
            old, key = row[: key_size + 1], row[1 : key_size + 1]
            if old in found:
                continue  # UPDATE … FROM with several matches: the first one counts
            was = row[0]
            assert isinstance(was, int)
            held = row[key_size + 1 : key_size + 1 + len(seen)]
            if not updates:
                found[old] = Change(was, (*key, *held))
                continue
            values = tuple(row[-width:])
            check_not_null(table, values)
            bucket = place(values)
            if bucket == was and tuple(values[at] for at in table.key_positions) == key:
                update = (*old, *(values[at] for at in changed), *held)
                found[old] = Change(was, key, update)
            else:
                found[old] = Change(was, (*key, *held), None, bucket, (bucket, *values))
        return list(found.values())

    return KeyedWrite(
        read,
        table,
        table.sharding.tier,
        delete_sql(table, seen),
        insert_sql(table, "fail") if updates else None,
        update_sql(table, changed, seen) if updates else None,
        changes,
    )
