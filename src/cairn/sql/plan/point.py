"""A query that one instance answers: rows of one bucket, of one replicaset, or of tables that are
everywhere."""

from __future__ import annotations

from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import ColumnType
from cairn.sql.functions.function_list import calls_late
from cairn.sql.ir import (
    Col,
    Derived,
    Gathered,
    Item,
    Join,
    Param,
    Query,
    Select,
    columns_in,
    has_given,
    output,
    scans_in,
    walk,
)
from cairn.sql.plan.buckets import (
    Key,
    all_needed,
    bucket_count,
    check_one_tier,
    key_bucket,
    key_positions,
    keys_of,
    reads,
)
from cairn.sql.plan.links import linked
from cairn.sql.plan.shaping.by_key import by_key
from cairn.sql.plan.shaping.copied import copied
from cairn.sql.plan.shaping.subqueries import asked_at_once
from cairn.sql.plans import Fragment, Places, PointRead, ScatterRead
from cairn.sql.render.render import Renderer
from cairn.sql.render.slots import Slots
from cairn.sql.typing_rules import I, S

BUCKET = "bucket"  # among the values that are computed


def read_anywhere(query: Query) -> PointRead:
    slots = Slots()
    sql = Renderer(slots).query(query)
    found = slots.numbers()
    places = Places(tuple(found[0]), found[1]) if found is not None else None
    return PointRead(sql, slots.bind(), query=query, places=places)


def read_by_key(query: Query, catalog: Catalog, key: Key, tier: str | None) -> PointRead:
    slots = Slots()
    bucket = key_bucket(catalog, key)
    mark = slots.computed(BUCKET, bucket)
    asked = copied(query, catalog, in_one_bucket=True)
    sql = Renderer(slots, bucket=mark).query(asked)
    return PointRead(sql, slots.bind(), bucket, tier, query, places_of(slots, catalog, key))


def read_alone(query: Query, catalog: Catalog, rel: int) -> ScatterRead | None:
    """The whole query as one statement, for when one replicaset has all rows that it can need.

    Nothing has to be merged then: SQLite has the real tables with their indexes, and stops at a
    LIMIT. Whether it is so is known when the statement is run, so this is another way of its plan.
    `rel` is a number that no relation of the query has. None: the asker has a part in it.
    """
    scans = scans_in(query)
    if has_given(query) or calls_late(query) or any(scan.table.is_temp for scan in scans):
        return None
    if _meets_what_is_computed(query):
        return None
    tier = check_one_tier(scan for scan in scans if not scan.table.is_global)
    if tier is None:
        return None
    asked = asked_at_once(query, catalog)
    slots = Slots()
    renderer = Renderer(slots, marks=True)
    tied = linked(asked) if isinstance(asked, Select) else asked
    sql = renderer.query(copied(tied, catalog))
    way = by_key(asked, catalog, renderer)
    columns = output(query)
    types = tuple(type_ for _, type_ in columns)
    tables = tuple(dict.fromkeys(scan.table.id for scan in scans))
    found = reads(query)
    whole = Fragment(
        *(sql, slots.bind(), types, tier, tables, all_needed(catalog, found), query),
        keys=keys_of(catalog, found),
        by_key=way,
    )
    shown = tuple(Item(name, Col(type_, rel, at, name)) for at, (name, type_) in enumerate(columns))
    merged = Select(shown, Gathered(rel, 0))
    return ScatterRead((), (whole,), Renderer(Slots()).query(merged), lambda params: (), merged)


def _meets_what_is_computed(query: Query) -> bool:
    """Whether rows are joined by what a sub-query computes. SQLite puts the sub-query into the one
    around it, and looks at every pair; for gathered rows it makes an index."""
    computed = {
        (each.rel, at)
        for each in walk(query)
        if isinstance(each, Derived) and isinstance(each.query, Select)
        for at, item in enumerate(each.query.items)
        if each.query.group is None and not isinstance(item.expr, Col)
    }
    conditions = [each.on for each in walk(query) if isinstance(each, Join)]
    conditions += [
        each.where
        for each in walk(query)
        if isinstance(each, Select) and isinstance(each.source, Join)
    ]
    found = (columns_in(each) for each in conditions if each is not None)
    return bool(computed) and any((col.rel, col.at) in computed for cols in found for col in cols)


def places_of(slots: Slots, catalog: Catalog, key: Key) -> Places | None:
    """None: some value has to be calculated, or is hashed in a way that is not plain."""
    found = slots.numbers(BUCKET)
    assert key.table.sharding is not None
    if found is None or not key.parts:
        return None
    bindings, types = found
    numbers: list[int] = []
    for part, at in zip(key.parts, key_positions(key.table), strict=True):
        type_ = key.table.columns[at].type
        hashed = I if type_ is ColumnType.UNSIGNED else type_
        if not isinstance(part, Param) or part.type is not hashed or hashed not in (I, S):
            return None
        numbers.append(part.number)
        types[part.number] = hashed
    count = bucket_count(catalog, key.table.sharding.tier)
    return Places(tuple(bindings), types, tuple(numbers), count)
