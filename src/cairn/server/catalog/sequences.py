"""Sequences as PostgreSQL's catalogue shows them. Those of identity columns have no rows here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cairn.model.tables.schema import Table
from cairn.model.tables.sequences import numbering_of
from cairn.model.types.values import INT64_MAX

BIGINT = 20


def sequence_rows(table: Table, owner: str, database: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Without its row in pg_class."""
    found = numbering_of(table)
    if found is None:
        return
    yield (
        "pg_sequence",
        {
            "seqrelid": table.id,
            "seqtypid": BIGINT,
            "seqstart": found.start,
            "seqincrement": found.step,
            "seqmax": INT64_MAX,
            "seqmin": 1,
            "seqcache": 1,
            "seqcycle": 0,
        },
    )
    yield (
        "pg_sequences",
        {
            "schemaname": "public",
            "sequencename": table.name,
            "sequenceowner": owner,
            "data_type": "bigint",
            "start_value": found.start,
            "min_value": 1,
            "max_value": INT64_MAX,
            "increment_by": found.step,
            "cycle": 0,
            "cache_size": 1,
        },
    )
    yield (
        "information_schema_sequences",
        {
            "sequence_catalog": database,
            "sequence_schema": "public",
            "sequence_name": table.name,
            "data_type": "bigint",
            "numeric_precision": 64,
            "start_value": str(found.start),
            "minimum_value": "1",
            "maximum_value": str(INT64_MAX),
            "increment": str(found.step),
            "cycle_option": "NO",
        },
    )
