"""A query that one instance answers: the rows of one bucket, or of tables that are everywhere."""

from __future__ import annotations

from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import ColumnType
from cairn.sql.ir import Param, Query
from cairn.sql.plan.buckets import Key, bucket_count, key_bucket, key_positions
from cairn.sql.plans import Places, PointRead
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
    sql = Renderer(slots, bucket=mark).query(query)
    return PointRead(sql, slots.bind(), bucket, tier, query, places_of(slots, catalog, key))


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
