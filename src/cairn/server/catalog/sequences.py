"""Sequences, and identity columns: each of these has one too, named as PostgreSQL names it.

Numbers are given out in blocks (`_cairn_sequence`), so there is no last value to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.model.types.values import INT64_MAX
from cairn.server.catalog.schema import DATABASE

Values = dict[str, Any]
_BLOCK = 1000  # numbers that an instance takes at least
_SCHEMA = "public"
_CLASSES = 1259  # the number of pg_class itself


class Sequence(NamedTuple):
    name: str
    table: Table
    at: int  # the column's number, from 1
    start: int
    step: int


def sequences(catalog: Catalog) -> Iterator[Sequence]:
    for table in catalog.tables.values():
        for at, column in enumerate(table.columns, 1):
            if column.identity is not None and not column.is_hidden:
                own = table.name if table.is_sequence else f"{table.name}_{column.name}_seq"
                yield Sequence(own, table, at, column.identity.start, table.step or 1)


def sequence_rows(found: Sequence, oid: int, owner: str) -> Iterator[tuple[str, Values]]:
    """All but the row of pg_class."""
    yield (
        "pg_sequence",
        {
            "seqrelid": oid,
            "seqtypid": 20,
            "seqstart": found.start,
            "seqincrement": found.step,
            "seqmax": INT64_MAX,
            "seqmin": 1,
            "seqcache": _BLOCK,
            "seqcycle": 0,
        },
    )
    yield (
        "pg_sequences",
        {
            "schemaname": _SCHEMA,
            "sequencename": found.name,
            "sequenceowner": owner,
            "data_type": "bigint",
            "start_value": found.start,
            "min_value": 1,
            "max_value": INT64_MAX,
            "increment_by": found.step,
            "cycle": 0,
            "cache_size": _BLOCK,
        },
    )
    yield (
        "information_schema_sequences",
        {
            "sequence_catalog": DATABASE,
            "sequence_schema": _SCHEMA,
            "sequence_name": found.name,
            "data_type": "bigint",
            "numeric_precision": 64,
            "start_value": str(found.start),
            "minimum_value": "1",
            "maximum_value": str(INT64_MAX),
            "increment": str(found.step),
            "cycle_option": "NO",
        },
    )
    if found.table.is_sequence:
        return  # it belongs to nobody's column
    yield (
        "pg_depend",
        {
            "classid": _CLASSES,
            "objid": oid,
            "objsubid": 0,
            "refclassid": _CLASSES,
            "refobjid": found.table.id,
            "refobjsubid": found.at,
            "deptype": "i",
        },
    )
