"""A cluster in one process: three SQLite databases as replicasets, and a fourth with everything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import apsw
import msgspec

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.members.topology import Tier
from cairn.model.sharding.parts import ByBuckets, bucket_dealer, dealer
from cairn.model.tables import rows, system_tables
from cairn.model.tables.altering import with_renamed
from cairn.model.tables.catalog import FIRST_ROUTINE_ID, Catalog, User
from cairn.model.tables.catalog_rows import with_labels
from cairn.model.tables.schema import (
    FIRST_USER_TABLE_ID,
    Index,
    Table,
    create_index_sql,
    create_table_sql,
    physical_column,
)
from cairn.model.types.json_text import JsonText, json_value
from cairn.model.types.shown import shown_reader
from cairn.model.types.values import to_physical
from cairn.native.loading import FUNCTIONS, load
from cairn.node.statements.asker.short.merges import ShortMerges, packed
from cairn.node.statements.changes.types import type_ops
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.functions.functions import register
from cairn.sql.plans import Prepared
from cairn.sql.render.constraints import translate
from cairn.sql.render.render import Renderer
from cairn.sql.render.sent import Parcel, Sent
from cairn.sql.render.slots import Slots, with_ranges
from cairn.storage.files.pieces import Piece
from cairn.storage.files.reshaping import check_rows, reshape
from cairn.storage.groups import Groups
from cairn.storage.packed_twin import packed_rows
from cairn.storage.sqlite_errors import translated

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATE = {
    "version": "picodata 26.1.0",
    "pico_instance_name": "i1",
    "pico_tier_name": "default",
    "current_user": "admin",
    "random": 0.25,
    "gen_random_uuid": bytes(range(16)),
}

_encode = msgspec.msgpack.Encoder().encode


def empty_catalog(bucket_count: int = 30) -> Catalog:
    tiers = {
        "default": Tier("default", 1, bucket_count=bucket_count, is_default=True),
        "cold": Tier("cold", 1, bucket_count=bucket_count),
    }
    tables = {table.name: table for table in system_tables.SYSTEM_TABLES}
    return Catalog(version=1, tables=tables, tiers=tiers, users={"admin": User(1, "admin")})


def connection() -> apsw.Connection:
    found = apsw.Connection(":memory:")
    register(found)
    load(found, FUNCTIONS)  # as instances do
    for name, value in LATE.items():
        found.create_scalar_function(name, lambda *args, value=value: value, -1)
    found.create_scalar_function("_pico_bucket", lambda tier: f'[{{"tier_name":"{tier}"}}]', 1)
    return found


def _comparable(rows: list[Any]) -> list[Any]:
    """Sums of reals depend on the order in which they are added."""
    return sorted(
        [tuple(f"{v:.9g}" if isinstance(v, float) else v for v in row) for row in rows], key=repr
    )


class _Reader:
    """Of the event loop, as far as a merge asks it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        Groups(connection)  # it knows `packed_rows`

    def quick_piece(self, sql: str, args: Any, most: int) -> Piece:
        return Piece(self._connection.execute(sql, args).fetchall(), b"", True)


class Cluster:
    """Runs plans as an executor would, without a network. `oracle` runs the query unplanned."""

    def __init__(self, replicasets: int = 3, bucket_count: int = 30) -> None:
        self.catalog = empty_catalog(bucket_count)
        self.nodes = [connection() for _ in range(replicasets)]
        self.groups = [Groups(each) for each in self.nodes]
        self.hashed = 0  # fragments whose groups C has made
        self.oracle_node = connection()
        edges = [round(bucket_count * k / replicasets) for k in range(replicasets + 1)]
        self.ranges = [(edges[k] + 1, edges[k + 1]) for k in range(replicasets)]
        self.asked: list[int] = []  # replicasets asked by the last statement
        self._merges, self.merged_shortly = ShortMerges(), 0
        self.ways = 0  # in how many other ways the last statement could be read
        self.way: int | None = None  # one of them: rows go to where others stay
        self.moved = 0  # rows that went from one replicaset to another, or to the asker
        self.telling: plans.Returning | None = None
        self.clause = ""
        self.told: list[Any] = []
        self.inserted: list[Any] = []
        for table in system_tables.SYSTEM_TABLES:
            self._create(table)

    def everyone(self) -> list[apsw.Connection]:
        return [*self.nodes, self.oracle_node]

    def _create(self, table: Table) -> None:
        for node in self.everyone():
            node.execute(create_table_sql(table))

    def owner(self, bucket: int) -> int:
        for at, (low, high) in enumerate(self.ranges):
            if low <= bucket <= high:
                return at
        raise AssertionError(bucket)

    # --- statements ---

    def run(self, text: str, params: Sequence[Any] = (), oids: Sequence[int] = ()) -> Any:
        """Rows as Python values for a query, the row count for DML, None for DDL."""
        prepared = prepare(text, self.catalog, param_oids=oids, user_id=1)
        return self.execute(prepared, params)

    def execute(self, prepared: Prepared, params: Sequence[Any] = ()) -> Any:
        self.asked, self.moved = [], 0
        plan = prepared.plan
        self.ways = len(_ways(plan)) if isinstance(plan, plans.ScatterRead) else 0
        values = prepared.start(params, NOW)
        try:
            result = self._execute(prepared.plan, values)
        except apsw.ConstraintError as error:
            problem = translate(str(error), self.catalog)
            if problem is None:
                raise
            raise problem from None
        except apsw.SQLError as error:  # of arithmetic in C, or a mistake of ours
            raise translated(error) from None
        if prepared.columns and isinstance(result, list):
            return [self._python(prepared, row) for row in result]
        return result

    def _python(self, prepared: Prepared, row: Any) -> tuple[Any, ...]:
        readers = [shown_reader(column.type, column.scale) for column in prepared.columns]
        found = (
            value if value is None or read is None else read(value)
            for read, value in zip(readers, row, strict=True)
        )
        return tuple(
            json_value(str(each)) if isinstance(each, JsonText) else each for each in found
        )

    def _execute(self, plan: plans.Plan, values: list[Any]) -> Any:
        match plan:
            case plans.PointRead() | plans.ScatterRead():
                return self.read(plan, values)
            case plans.PointWrite():
                bindings = plan.bind(values)
                bucket = plan.bucket(values)
                assert bindings[0] == bucket
                return self._write([(self.owner(bucket), plan.sql, bindings)])
            case plans.ShardedInsert():
                self.inserted = rows = plan.rows(values)
                return self._write([(self.owner(b), plan.sql, row) for b, row in rows])
            case plans.InsertSelect():
                self.inserted = rows = plan.rows(self.read(plan.read, values))
                return self._write([(self.owner(b), plan.sql, row) for b, row in rows])
            case plans.ScatterWrite():
                self._steps(plan.steps, values)
                work = [
                    (at, plan.fragment.with_ranges([r]), plan.fragment.bind(values))
                    for at, r in self._targets(plan.fragment, values)
                ]
                return self._write(work)
            case plans.KeyedWrite():
                return self._keyed(plan, values)
            case plans.Returning():
                return self._returning(plan, values)
            case plans.GlobalWrite():
                return self._global(plan, values)
            case plans.DdlPlan():
                return self._ddl(plan)
            case plans.RoutinePlan(kind="type"):
                return self._type(plan)
            case _:
                return None

    def _steps(self, steps: Sequence[plans.Step], values: list[Any]) -> None:
        for step in steps:
            values[step.number - 1] = step.value(self.read(step.plan, values))

    def _targets(self, fragment: plans.Fragment, values: list[Any]) -> list[Any]:
        buckets = fragment.bucket_set(values)
        found = []
        for at, (low, high) in enumerate(self.ranges):
            if buckets is None or any(low <= each <= high for each in buckets):
                found.append((at, (low, high)))
        return found

    def read(self, plan: plans.ReadPlan, values: list[Any]) -> list[Any]:
        if isinstance(plan, plans.PointRead):
            at = 0 if plan.bucket is None else self.owner(plan.bucket(values))
            if plan.bucket is not None:
                self.asked.append(at)
            return self.nodes[at].execute(plan.sql, plan.bind(values)).fetchall()
        self._steps(plan.steps, values)
        if (ways := _ways(plan)) and self.way is not None:
            chosen = ways[self.way % len(ways)]
            if chosen is plan.alone:
                return self._alone(chosen.fragments[0], values)
            plan = chosen
        merge = self.nodes[0]
        gathered: list[list[Any]] = []
        try:
            for k, fragment in enumerate(plan.fragments):
                parcels = [each.parcel(gathered[each.table]) for each in fragment.sent]
                gathered.append([])
                names = ", ".join(f"x{at} {of}" for at, of in enumerate(fragment.storage))
                merge.execute(f"CREATE TEMP TABLE m{k} ({names})")
                marks = ", ".join("?" * len(fragment.types))
                if fragment.splits:
                    gathered[-1] = self._joined(plan, fragment, gathered, values)
                    merge.executemany(f"INSERT INTO m{k} VALUES ({marks})", gathered[-1])
                    continue
                for at, bounds in self._targets(fragment, values):
                    if any(not _reaches(each, bounds) for each in parcels):
                        continue
                    self.asked.append(at)
                    sent = [each.of([bounds]) for each in parcels]
                    rows = self._told(at, fragment, bounds, values, sent)
                    gathered[-1] += rows
                    self.moved += len(rows) + sum(
                        len(list(packed_rows(data, width_of(each))))
                        for data, each in zip(sent, fragment.sent, strict=True)
                    )
                    merge.executemany(f"INSERT INTO m{k} VALUES ({marks})", rows)
            for k, columns in plan.indexes:
                shown = ", ".join(f"x{at}" for at in columns)
                name = "_".join(map(str, columns))
                merge.execute(f"CREATE INDEX temp.i{k}_{name} ON m{k} ({shown})")
            found = merge.execute(plan.sql, plan.bind(values)).fetchall()
        finally:
            for k in range(len(plan.fragments)):
                merge.execute(f"DROP TABLE IF EXISTS temp.m{k}")
        return self._shortly(plan, values, gathered, found)

    def _shortly(
        self, plan: plans.ScatterRead, values: list[Any], gathered: list[list[Any]], found: Any
    ) -> list[Any]:
        """The same answer as it is merged on the event loop, where it can be."""
        if len(plan.fragments) != 1 or plan.fragments[0].sent or plan.fragments[0].splits:
            return list(found)
        way, args = self._merges.of(plan, values) or (None, ())
        if way is None:
            return list(found)
        parts = [packed(_encode([row])) for row in gathered[0]]
        rows = way.rows(_Reader(self.nodes[0]), args, parts)  # type: ignore[arg-type]
        assert rows is not None and _comparable(rows) == _comparable(found), (way.text, rows, found)
        self.merged_shortly += 1
        return rows

    def _alone(self, whole: plans.Fragment, values: list[Any]) -> list[Any]:
        """By one that has all rows, of the buckets that it is asked for."""
        needed = whole.bucket_set(values)
        ranges = [(1, self.ranges[-1][1])] if needed is None else [(b, b) for b in sorted(needed)]
        return self.oracle_node.execute(*whole.asked(values, tuple(ranges))).fetchall()

    def _told(
        self,
        at: int,
        fragment: plans.Fragment,
        bounds: tuple[int, int],
        values: list[Any],
        sent: list[bytes],
    ) -> list[Any]:
        """What an owner tells. Groups that C can make are those that SQLite makes."""
        sql, given = fragment.asked(values, [bounds])
        args, by_hash = (*given, *sent), with_ranges(fragment.grouped, [bounds])
        rows = self.nodes[at].execute(sql, args).fetchall()
        if not by_hash:
            return rows
        found = self.groups[at].asked(sql, args, by_hash).fetchall()
        self.hashed += by_hash not in self.groups[at]._left
        assert _comparable(found) == _comparable(rows), by_hash
        return found

    def _joined(
        self,
        plan: plans.ScatterRead,
        fragment: plans.Fragment,
        gathered: list[list[Any]],
        values: list[Any],
    ) -> list[Any]:
        """The rows that were dealt out, joined by each instance; the merge may have no others."""
        tables: list[list[list[Any]]] = [[rows] * len(self.nodes) for rows in gathered]
        for split in fragment.splits:
            self.nodes[0].execute(f"DELETE FROM temp.m{split.table}")
            source = split.fragment
            parts = tables[split.table] = [[] for _ in self.nodes]
            deal = dealer(len(parts), split.places, keeps_null=split.keeps_null)
            if (by := split.by) is not None:
                lows, all_ = tuple(low for low, _ in self.ranges), tuple(range(len(parts)))
                places = ByBuckets(by.types, by.bucket_count, by.hash_version, lows, all_)
                deal = bucket_dealer(places, split.places, keeps_null=split.keeps_null)
            for at, bounds in self._targets(source, values):
                text = source.with_ranges([bounds])
                for row in self.nodes[at].execute(text, source.bind(values)):
                    part = deal(row)
                    if by is not None and split.table == by.stays:
                        assert part in (at, None), part  # it is there already, or meets nobody
                    elif part not in (None, at):
                        self.moved += 1
                    if part is not None:
                        parts[part].append(row[: split.width])
        found: list[Any] = []
        for at, node in reversed(list(enumerate(self.nodes))):  # the first one merges after that
            for k, each in enumerate(tables[:-1]):
                self._hold(node, k, len(plan.fragments[k].types), each[at])
            found += node.execute(fragment.sql, fragment.bind(values)).fetchall()
            for k in range(len(tables) - 1) if at else (each.table for each in fragment.splits):
                node.execute(f"DELETE FROM temp.m{k}" if not at else f"DROP TABLE temp.m{k}")
        return found

    def _hold(self, node: apsw.Connection, number: int, width: int, rows: list[Any]) -> None:
        names = ", ".join(f"x{at}" for at in range(width))
        node.execute(f"DROP TABLE IF EXISTS temp.m{number}")
        node.execute(f"CREATE TEMP TABLE m{number} ({names})")
        node.executemany(f"INSERT INTO m{number} VALUES ({', '.join('?' * width)})", rows)

    def _write(self, work: list[Any]) -> int:
        """All or nothing over the replicasets, as the check round makes it; the oracle follows."""
        count = 0
        for node in self.everyone():
            node.execute("SAVEPOINT s")
        try:
            for at, sql, bindings in work:
                self.asked.append(at)
                node = self.nodes[at]
                told = self.telling is not None and self.telling.is_told(sql)
                clause = self.clause if told else ""
                self.told += node.execute(sql + clause, bindings).fetchall()
                count += node.changes()
        except BaseException:
            for node in self.everyone():
                node.execute("ROLLBACK TO s")
            raise
        finally:
            for node in self.everyone():
                node.execute("RELEASE s")
        self._mirror()
        return count

    def _returning(self, plan: plans.Returning, values: list[Any]) -> list[Any]:
        """The write with its clause, and what it told in the order of INSERT."""
        self.telling, self.clause, self.told = plan, plan.clause(values), []
        try:
            self._execute(plan.write, values)
            return plan.arranged(self.told, self.inserted)
        finally:
            self.telling = None

    def _keyed(self, plan: plans.KeyedWrite, values: list[Any]) -> int:
        changes = plan.changes(self.read(plan.read, values))
        work: list[Any] = [
            (self.owner(c.old_bucket), plan.update_sql, c.update)
            if c.update is not None
            else (self.owner(c.old_bucket), plan.delete_sql, (c.old_bucket, *c.key))
            for c in changes
        ]
        work += [
            (self.owner(c.new_bucket), plan.insert_sql, c.new)
            for c in changes
            if c.new is not None and c.new_bucket is not None
        ]
        self._write(work)
        return len(changes)

    def _global(self, plan: plans.GlobalWrite, values: list[Any]) -> Any:
        def read(sql: str, bindings: Any) -> list[Any]:
            return self.nodes[0].execute(sql, bindings).fetchall()

        if plan.read is not None and plan.execute_rows is not None:
            change = plan.execute_rows(read, values, self.read(plan.read, values))
        else:
            change = plan.execute(read, values)
        self.last_change = change
        for node in self.everyone():
            for op in change.ops:
                apply_op(node, plan.table, op)
        return change.row_count if change.rows is None else list(change.rows)

    def _type(self, plan: plans.RoutinePlan) -> None:
        """As the executor does it, and as a picture of the catalogue is made of the rows."""
        number = FIRST_ROUTINE_ID + len(self.catalog.types)
        known = {each.id: each for each in self.catalog.types.values()}
        for op in type_ops(plan, self.catalog, 1, number):
            if isinstance(op, ops.Delete):
                del known[op.key[0]]
            elif isinstance(op, ops.Replace):
                known[op.row[0]] = rows.enum_of(op.row)
        types = {each.name: each for each in known.values()}
        tables = {name: with_labels(table, known) for name, table in self.catalog.tables.items()}
        version = self.catalog.version + 1
        self.catalog = msgspec.structs.replace(
            self.catalog, types=types, tables=tables, version=version
        )

    def _ddl(self, plan: plans.DdlPlan) -> ops.Ddl | None:
        used = [table.id for table in self.catalog.tables.values()]
        next_id = max([FIRST_USER_TABLE_ID - 1, *used]) + 1
        version = self.catalog.version + 1
        ddl = plan.build(self.catalog, version, next_id)
        if ddl is not None:
            self._apply_ddl(ddl, version)
        for other in plan.more:
            self._ddl(other)
        return ddl

    def _apply_ddl(self, ddl: ops.Ddl, version: int) -> None:
        tables, indexes = dict(self.catalog.tables), dict(self.catalog.indexes)
        match ddl:
            case ops.CreateTable(table=table, indexes=made):
                tables[table.name] = msgspec.structs.replace(table, operable=True)
                indexes[table.id] = made
                self._create(table)
                for node in self.everyone():
                    for index in made:
                        node.execute(create_index_sql(table, index))
            case ops.AlterTable(table=table, indexes=left):
                [have] = [each for each in tables.values() if each.id == table.id]
                self._reshape(have, table, [i for i in indexes.get(table.id, ()) if i not in left])
                del tables[have.name]
                tables[table.name] = msgspec.structs.replace(table, schema_version=version)
                indexes[table.id] = left
            case ops.RenameColumn(table_id=table_id, old=old, new=new):
                [have] = [each for each in tables.values() if each.id == table_id]
                tables[have.name], indexes[table_id] = with_renamed(
                    have, indexes.get(table_id, ()), old, new
                )
            case ops.DropTable(name=name):
                table = tables.pop(name)
                for node in self.everyone():
                    node.execute(f"DROP TABLE {table.physical_name}")
            case ops.CreateIndex(index=index):
                table = next(t for t in tables.values() if t.id == index.table_id)
                indexes[table.id] = (*indexes.get(table.id, ()), index)
                for node in self.everyone():
                    node.execute(create_index_sql(table, index))
            case ops.TruncateTable(name=name):
                for node in self.everyone():
                    node.execute(f"DELETE FROM {tables[name].physical_name}")
            case ops.RenameTable(old_name=old, new_name=new):
                table = tables.pop(old)
                tables[new] = msgspec.structs.replace(table, name=new, schema_version=version)
            case _:
                raise NotImplementedError(ddl)
        self.catalog = msgspec.structs.replace(
            self.catalog, version=version, tables=tables, indexes=indexes
        )

    def _reshape(self, have: Table, want: Table, gone: list[Index]) -> None:
        """As the masters do it: all of them, or none when rows of one do not fit."""
        for node in self.everyone():
            node.execute("SAVEPOINT shape")
        try:
            for node in self.everyone():
                for index in gone:
                    node.execute(f"DROP INDEX {index.physical_name}")
                reshape(node, have, want)
                check_rows(node, have, want)
        except BaseException:
            for node in self.everyone():
                node.execute("ROLLBACK TO shape")
            raise
        finally:
            for node in self.everyone():
                node.execute("RELEASE shape")

    # --- the oracle ---

    def _mirror(self) -> None:
        """Make the one big database equal to the union of the replicasets."""
        for table in self.catalog.tables.values():
            if table.is_global:
                continue
            name = table.physical_name
            marks = ", ".join("?" * len(table.physical_columns))
            self.oracle_node.execute(f"DELETE FROM {name}")
            for node in self.nodes:
                rows = node.execute(f"SELECT * FROM {name}").fetchall()
                self.oracle_node.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

    def oracle(self, text: str, params: Sequence[Any] = ()) -> list[Any]:
        """The same query, unplanned, on one database with all rows."""
        prepared = prepare(text, self.catalog, user_id=1)
        slots = Slots()
        sql = Renderer(slots).query(prepared.bound)
        values = prepared.start(params, NOW)
        try:
            rows = self.oracle_node.execute(sql, slots.bind()(values)).fetchall()
        except apsw.SQLError as error:
            raise translated(error) from None
        return [self._python(prepared, row) for row in rows]

    def put(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Rows of Python values straight into a system table."""
        table = self.catalog.tables[name]
        marks = ", ".join("?" * len(table.columns))
        for row in rows:
            physical = [to_physical(c.type, v) for c, v in zip(table.columns, row, strict=False)]
            physical += [None] * (len(table.columns) - len(physical))
            for node in self.everyone():
                node.execute(f"INSERT INTO {table.physical_name} VALUES ({marks})", physical)


def _ways(plan: plans.ScatterRead) -> list[plans.ScatterRead]:
    """Other than to gather all: one fragment's rows stay, some are dealt out, or one has all."""
    found = [each.plan for each in (*plan.meetings, *plan.exchanges)]
    return found if plan.alone is None else [*found, plan.alone]


def width_of(sent: Sent) -> int:
    """Columns of its packed rows."""
    if sent.bucket is None and not sent.is_set:
        return sent.width
    return len(sent.columns) + (sent.bucket is not None)


def _reaches(parcel: Parcel, bounds: tuple[int, int]) -> bool:
    buckets = parcel.buckets
    return buckets is None or any(bounds[0] <= each <= bounds[1] for each in buckets)


def apply_op(node: apsw.Connection, table: Table, op: ops.Dml) -> None:
    name = table.physical_name
    where = " AND ".join(f"{physical_column(at)} = ?" for at in table.key_positions)
    match op:
        case ops.Insert(row=row):
            node.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        case ops.Replace(row=row):
            node.execute(f"REPLACE INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        case ops.Update(key=key, changes=changes):
            sets = ", ".join(f"{physical_column(at)} = ?" for at, _ in changes)
            node.execute(
                f"UPDATE {name} SET {sets} WHERE {where}", (*(v for _, v in changes), *key)
            )
        case ops.Delete(key=key):
            node.execute(f"DELETE FROM {name} WHERE {where}", key)


def sqlstate_of(call: Any) -> str:
    """The SQLSTATE that `call()` fails with, or "" when it does not."""
    try:
        call()
    except CairnError as error:
        return error.sqlstate
    return ""
