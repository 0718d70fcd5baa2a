"""EXPLAIN of schema changes: what would be done, where, and who would wait."""

from __future__ import annotations

from collections.abc import Iterator

from cairn.model.log import ops
from cairn.model.quoting import identifier
from cairn.model.tables.altering import newly_required
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Index, Table
from cairn.sql.plans import DdlPlan


def schema_lines(plan: DdlPlan, catalog: Catalog) -> list[str]:
    """As if it were run now."""
    found: list[str] = []
    for one in (plan, *plan.more):
        ddl = one.build(catalog, catalog.version + 1, 0)
        if ddl is None:
            found.append(f"nothing to do: {one.skipped}")
            continue
        found += _lines(ddl, catalog)
        if one.fill:
            found.append(f"then: {one.fill}")
    return found


def _lines(ddl: ops.Ddl, catalog: Catalog) -> Iterator[str]:
    table = ddl.table if isinstance(ddl, ops.CreateTable) else _known(ddl, catalog)
    name = identifier(table.name)
    match ddl:
        case ops.CreateTable(indexes=indexes):
            yield f"create table {name}, {_place(table)}"
            yield from (f"    {_index(index)}" for index in indexes)
        case ops.DropTable():
            yield f"drop table {name} with its rows and indexes"
        case ops.TruncateTable():
            yield f"truncate table {name}: its rows go page by page, streams are told of it"
        case ops.CreateIndex(index=index):
            yield f"create {_index(index)} on {name}: every owner reads all its rows"
        case ops.DropIndex(name=gone):
            yield f"drop index {identifier(gone)} of {name}"
        case ops.AlterTable(table=after, indexes=left):
            yield f"alter table {name}"
            yield from (f"    {line}" for line in _altered(catalog, table, after, left))
        case ops.RenameTable(new_name=new) | ops.RenameColumn(new=new):
            yield f"rename in the catalogue of {name}: {identifier(new)}, no row is touched"
        case ops.RenameIndex(new_name=new):
            yield f"rename an index of {name} to {identifier(new)}, no row is touched"
        case ops.Restate() | ops.AddColumns():
            yield f"change the catalogue of {name}, no row is touched"
    yield from _ways(table)


def _ways(table: Table) -> Iterator[str]:
    name = identifier(table.name)
    if table.sharding is None:
        yield "two entries of the Raft log: every instance does it when it applies the second"
    else:
        tier = identifier(table.sharding.tier)
        yield f"an entry of the Raft log, then every master of tier {tier}, then another entry"
    yield f"until the end, writes to {name} are refused (PC004)"


def _known(ddl: ops.Ddl, catalog: Catalog) -> Table:
    table = catalog.table_by_id(ops.table_of(ddl))
    assert table is not None
    return table


def _place(table: Table) -> str:
    if table.sharding is None:
        return "global: every instance has all its rows"
    columns = ", ".join(map(identifier, table.sharding.columns))
    return f"sharded by ({columns}) in tier {identifier(table.sharding.tier)}"


def _index(index: Index) -> str:
    columns = ", ".join(
        identifier(part) if isinstance(part, str) else part.text for part in index.parts
    )
    where = f" where {index.where}" if index.where else ""
    return f"{'unique ' * index.unique}index {identifier(index.name)} ({columns}){where}"


def _altered(
    catalog: Catalog, before: Table, after: Table, left: tuple[Index, ...]
) -> Iterator[str]:
    for index in catalog.indexes.get(before.id, ()):
        if all(each.id != index.id for each in left):
            yield f"drop {_index(index)}"
    for had, has in zip(before.columns, after.columns, strict=False):
        if has.is_dropped and not had.is_dropped:
            yield f"drop column {identifier(had.name)}: its place stays, no row is written"
        elif had.name != has.name:
            yield f"rename column {identifier(had.name)} to {identifier(has.name)}"
        if not had.nullable and has.nullable and not has.is_dropped:
            yield f"column {identifier(has.name)} may be null"
        if had.default != has.default and not has.is_dropped:
            yield f"column {identifier(has.name)}: {_default(has)} for rows to come"
    for column in after.columns[len(before.columns) :]:
        rows = "rows that are there read it" if column.missing else "rows that are there have null"
        yield f"add column {identifier(column.name)} {column.type}: {rows}, none is written"
    for at in newly_required(before, after):
        name = identifier(after.columns[at].name)
        yield f"column {name} not null: every owner reads all its rows first"
    for check in before.checks:
        if check not in after.checks:
            yield f"drop check {identifier(check.name)}"
    for check in after.checks:
        if check not in before.checks:
            yield f"check {identifier(check.name)}: every owner reads all its rows first"
    yield from _keys(before, after)


def _keys(before: Table, after: Table) -> Iterator[str]:
    for key in before.foreign_keys:
        if key not in after.foreign_keys:
            yield f"drop foreign key {identifier(key.name)}"
    for key in after.foreign_keys:
        if key not in before.foreign_keys:
            yield f"foreign key {identifier(key.name)}: the owner reads all its rows first"


def _default(column: Column) -> str:
    return "no default" if column.default is None else f"default {column.default}"
