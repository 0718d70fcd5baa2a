"""Before anything of a staged write becomes visible: would all of its rows go in?

Chunks are read as they will be promoted: a value that a column cannot hold is found here, and so is
a key that is there twice, in the write itself or in the table. Keys are compared as they are
stored. What a concurrent writer inserts after the check is met by the promotion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cairn.model.errors import InvalidParameter, UniqueViolation, Unsupported
from cairn.model.quoting import identifier
from cairn.model.rpc import Chunk, ReadRequest
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.model.tables.violations import not_unique
from cairn.model.types.values import from_physical
from cairn.server.caller import Caller
from cairn.server.calls.bulk import (
    arrow_of,
    column_names,
    decoder_for,
    sharded_table,
    staged_body,
)
from cairn.server.scan.arrow_types import load_pyarrow

PASS_ROWS = 4_000_000  # whose keys are in memory at once; more rows are read in several passes
ASKED_VALUES = 30_000  # bound to one query: SQLite takes 32,766
ENDLESS = 1 << 50  # steps: it only makes the query run on a thread
_AGAINST = ("table", "itself", "nothing")


class Unique(msgspec.Struct, frozen=True):
    """Columns of which a table has no two equal sets of values."""

    name: str
    columns: tuple[str, ...]


class Keys(msgspec.Struct, frozen=True):
    """The values of some rows under one of the table's unique indexes."""

    buckets: list[int]
    columns: list[Any]  # Arrow's

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(self.buckets, *(each.to_pylist() for each in self.columns), strict=True)


async def check(
    caller: Caller, table: str, columns: str, against: str, stage: str, write_id: str, chunks: str
) -> Any:
    """`CALL cairn_check('t', '["a"]', 'table', 'stage', 'id', '[[slot,part,attempt,seq,rows]]')`.

    `against` says whose keys must differ: those of the table and the chunks, of the chunks
    themselves, or nobody's.
    """
    if against not in _AGAINST:
        raise InvalidParameter(f"against {against}: one of {', '.join(_AGAINST)}")
    found, names = sharded_table(caller, table), column_names(columns)
    if any(key.is_global for key in found.foreign_keys):
        raise Unsupported(  # who deletes what they name in between would leave half of the write
            f"a staged write of table {found.name} cannot be kept together with its foreign keys",
            hint='write with option("commit", "direct")',
        )
    decoder = decoder_for(caller, found, names)
    listed = _chunks(chunks)
    uniques = _uniques(caller, found, names) if against != "nothing" else []
    is_new = against != "table" or await _is_empty(caller, found)
    rows = sum(chunk.rows for chunk in listed)
    passes = -(-rows // PASS_ROWS) if uniques and rows else 1

    def keys_of(body: str | bytes, number: int) -> list[Keys]:
        batch, stored = decoder.checked(arrow_of(body))
        needs_buckets = uniques and (passes > 1 or not is_new)
        buckets = decoder.buckets(batch, stored) if needs_buckets else [0] * batch.num_rows
        return [_keys(names, unique, buckets, stored, number, passes) for unique in uniques]

    for number in range(passes):
        gathered: list[list[Keys]] = [[] for _ in uniques]
        for chunk in listed:
            place = (chunk.slot, write_id, chunk.part, chunk.attempt, chunk.seq)
            body = await staged_body(caller, stage, *place)
            for at, keys in enumerate(await asyncio.to_thread(keys_of, body, number)):
                gathered[at].append(keys)
                if not is_new:
                    await _refuse_known(caller, found, uniques[at], keys)
        for unique, parts in zip(uniques, gathered, strict=True):
            await asyncio.to_thread(_refuse_twins, found, unique, parts)
    return {"rows": rows}


def _chunks(text: str) -> list[Chunk]:
    try:
        return msgspec.json.decode(text, type=list[Chunk])
    except msgspec.MsgspecError:
        raise InvalidParameter(
            f"not a list of chunks: {text[:100]}", hint="[[slot, part, attempt, seq, rows], …]"
        ) from None


def _uniques(caller: Caller, table: Table, names: list[str]) -> list[Unique]:
    """An index with a column that is not given has NULL there, which equals nothing."""
    indexes = caller.catalog.indexes.get(table.id, ())
    some = [index.name for index in indexes if index.unique and not index.is_key]
    if some:  # nobody has looked whether two rows would clash, and half of them would be there
        raise Unsupported(
            f"a staged write cannot be checked against the unique index {some[0]} ",
            hint='write with option("commit", "direct")',
        )
    return [
        Unique(table.key_name, table.primary_key),
        *(
            Unique(index.name, index.columns)
            for index in indexes
            if index.unique and set(index.columns) <= set(names)
        ),
    ]


async def _is_empty(caller: Caller, table: Table) -> bool:
    query = caller.understood(f"SELECT 1 FROM {identifier(table.name)} LIMIT 1")
    return not await caller.rows(query)


def _keys(
    names: list[str],
    unique: Unique,
    buckets: list[int],
    stored: list[Any],
    number: int,
    passes: int,
) -> Keys:
    """Of the rows that are looked at in this pass; equal keys are in one bucket, so in one pass."""
    pa = load_pyarrow()
    import pyarrow.compute as pc

    columns = [stored[names.index(name)] for name in unique.columns]
    table = pa.table([pa.array(buckets, pa.int64()), *columns], ["b", *unique.columns])
    if passes > 1:
        rest = pa.array([bucket % passes == number for bucket in buckets])
        table = table.filter(rest)
    for name in unique.columns:
        if table.column(name).null_count:
            table = table.filter(pc.is_valid(table.column(name)))
    return Keys(table.column("b").to_pylist(), table.columns[1:])


def _refuse_twins(table: Table, unique: Unique, parts: Sequence[Keys]) -> None:
    """Two rows of the write that exclude each other."""
    pa = load_pyarrow()
    import pyarrow.compute as pc

    tables = [pa.table(part.columns, list(unique.columns)) for part in parts]
    if not tables:
        return
    if len(unique.columns) == 1 and not _has_twins(pa, [part.columns[0] for part in parts]):
        return
    counts = pa.concat_tables(tables).group_by(list(unique.columns)).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 1).to_pylist()
    if twice:
        values = [twice[0][name] for name in unique.columns]
        raise _refused(table, unique, values, "is in the rows to be written more than once")


def _has_twins(pa: Any, columns: Sequence[Any]) -> bool:
    """Whether numbers may be there twice. Sorting them costs a third of counting each."""
    import numpy as np

    if any(each.type != pa.int64() for each in columns):
        return True
    numbers = np.sort(np.concatenate([each.to_numpy() for each in columns]))
    return bool((numbers[1:] == numbers[:-1]).any())


async def _refuse_known(caller: Caller, table: Table, unique: Unique, keys: Keys) -> None:
    """Rows of the table that exclude rows of the write."""
    assert table.sharding is not None
    rows = list(keys.rows())
    most = ASKED_VALUES // (len(unique.columns) + 1)
    for start in range(0, len(rows), most):
        by_bucket: dict[int, list[tuple[Any, ...]]] = {}
        for row in rows[start : start + most]:
            by_bucket.setdefault(row[0], []).append(row)

        def request(
            owned: tuple[int, ...], asked: dict[int, list[tuple[Any, ...]]] = by_bucket
        ) -> ReadRequest:
            wanted = [row for bucket in owned for row in asked[bucket]]
            return ReadRequest(
                _known_sql(table, unique, len(wanted)),
                tuple(value for row in wanted for value in row),
                {table.id: table.schema_version},
                ranges=tuple((bucket, bucket) for bucket in owned),
                opcode_max=ENDLESS,
            )

        reads, context = caller.executor.reads, caller.context.at_masters()
        there = await reads.read_buckets(table.sharding.tier, by_bucket, request, context)
        if there:
            raise _refused(table, unique, there[0], "is in the table")


def _known_sql(table: Table, unique: Unique, count: int) -> str:
    """One of `count` keys that the table has, each looked up by its index."""
    width = len(unique.columns)
    places = [physical_column(table.position(name)) for name in unique.columns]
    marks = ", ".join("?" * (width + 1))
    values = ", ".join([f"({marks})"] * count)
    names = ", ".join(f"k{at}" for at in range(width))
    same = " AND ".join(f"t.{place} = w.k{at}" for at, place in enumerate(places))
    return (
        f"WITH w(b, {names}) AS (VALUES {values}) SELECT {names} FROM w CROSS JOIN "
        f"{table.physical_name} AS t WHERE t.{BUCKET_COLUMN} = w.b AND {same} LIMIT 1"
    )


def _refused(table: Table, unique: Unique, values: Sequence[Any], why: str) -> UniqueViolation:
    shown = []
    for name, value in zip(unique.columns, values, strict=True):
        column = table.column(name)
        assert column is not None
        shown.append(str(from_physical(column.type, value))[:60])
    key = f"({', '.join(unique.columns)})=({', '.join(shown)})"
    return not_unique(table, unique.name, f"Key {key} {why}; nothing was written.")
