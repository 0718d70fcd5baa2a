"""The calls behind the Spark connector's writes: chunks in, staged chunks promoted.

Each checks the caller's rights on the table as a statement would. What is inserted by its primary
key alone is recognised when it comes again (`same`); ignoring and replacing happen under an
operation id that the owner's writer keeps with the rows: repeating them changes nothing.
"""

from __future__ import annotations

import asyncio
import binascii
import dataclasses
import json
from collections import defaultdict
from contextlib import suppress
from typing import Any

import msgspec

from cairn.model.errors import (
    InvalidParameter,
    NotNullViolation,
    UndefinedTable,
    UniqueViolation,
    Unsupported,
)
from cairn.model.log.ops import Ddl
from cairn.model.quoting import identifier, literal
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.model.tables.violations import not_unique
from cairn.native.library import library
from cairn.node.statements.asker.writing import put_by_bucket
from cairn.node.statements.context import Context
from cairn.server.caller import Caller
from cairn.server.scan.arrow import BatchDecoder
from cairn.sql.plans import DdlPlan
from cairn.storage.data_db.packed_insert import insert_text

_INSERTS = {
    "error": "INSERT",
    "ignore": "INSERT OR IGNORE",
    "replace": "INSERT OR REPLACE",
    "same": "INSERT",  # a row that is there exactly as given is accepted
}
_PLAIN = ("error", "same")  # rows are usually new, and then these are the same


# --- chunks in ------------------------------------------------------------------------------------


async def ingest(caller: Caller, table: str, columns: str, conflict: str, body: str) -> Any:
    """`CALL cairn_ingest('t', '["a","b"]', 'replace', 'base64 of an Arrow stream')`."""
    return {"rows": await _insert(caller, table, columns, conflict, body, None)}


async def promote(
    caller: Caller,
    table: str,
    columns: str,
    conflict: str,
    stage: str,
    slot: int,
    write_id: str,
    part: int,
    attempt: int,
    seq: int,
) -> Any:
    """Insert a chunk that was kept in table `stage`, once."""
    body = await staged_body(caller, stage, slot, write_id, part, attempt, seq)
    operation = f"spark:{write_id}:{part}:{attempt}:{seq}"
    return {"rows": await _insert(caller, table, columns, conflict, body, operation)}


async def truncate(caller: Caller, table: str, table_id: int, after: int) -> Any:
    """Empty a table once, whoever asks how often: unless it was emptied since version `after`.

    It is compared at the position where the change is proposed: of two callers one comes first.
    """
    statement = caller.allowed(f"TRUNCATE TABLE {identifier(table)}")
    plan = statement.prepared.plan
    assert isinstance(plan, DdlPlan)
    build = plan.build

    def unless_done(now: Catalog, version: int, next_id: int) -> Ddl | None:
        found = sharded_in(now, table)
        if found.id != table_id:
            raise InvalidParameter(f"table {table} is not the one that was to be emptied any more")
        return build(now, version, next_id) if found.truncated_at == after else None

    once = dataclasses.replace(plan, build=unless_done)
    user, by = caller.context.user_id, caller.context.deadline
    return {"truncated": await caller.instance.schema_changes.run(once, user, deadline=by)}


async def staged_body(
    caller: Caller, stage: str, slot: int, write_id: str, part: int, attempt: int, seq: int
) -> str | bytes:
    """A chunk as it was kept, for who may read the stage."""
    sql = (
        f"SELECT body FROM {identifier(stage)} WHERE slot = {int(slot)} AND write_id = "
        f"{literal(write_id)} AND part = {int(part)} AND attempt = {int(attempt)} "
        f"AND seq = {int(seq)}"
    )
    found = await caller.rows(caller.allowed(sql))
    if not found:
        raise InvalidParameter(
            f"chunk {seq} of partition {part} of write {write_id} is not staged",
            hint="it was swept or promoted by somebody else; look at cairn_spark_commit",
        )
    body: str | bytes = found[0][0]
    return body


async def _insert(
    caller: Caller,
    name: str,
    columns: str,
    conflict: str,
    body: str | bytes,
    operation: str | None,
) -> int:
    if conflict not in _INSERTS:
        raise InvalidParameter(f"conflict {conflict}: one of {', '.join(_INSERTS)}")
    table, names = sharded_table(caller, name), column_names(columns)
    decoder = decoder_for(caller, table, names, "DO REPLACE" if conflict == "replace" else "")
    data = arrow_of(body)
    context = msgspec.structs.replace(caller.context, operation=operation)
    try:
        if conflict in _PLAIN:
            return await _insert_new(caller, table, decoder, data, context)
    except UniqueViolation:
        if conflict == "error":
            raise
    sql = insert_text(table).replace("INSERT", _INSERTS[conflict], 1)
    if conflict == "same":
        sql += _unless_same(table)
    try:
        return await _insert_rows(caller, table, sql, decoder, data, context)
    except NotNullViolation:
        if conflict != "same":
            raise
        detail = "a row with this key and other values is there"
        raise not_unique(table, table.key_name, detail) from None


async def _insert_new(
    caller: Caller, table: Table, decoder: BatchDecoder, data: bytes, context: Context
) -> int:
    """The quickest way: rows that are all new need not be looked at."""
    if library() is None:
        return await _insert_rows(caller, table, insert_text(table), decoder, data, context, True)
    assert table.sharding is not None
    rows = await asyncio.to_thread(decoder.packed, data)
    return await caller.executor.writes.insert_packed(table, table.sharding.tier, rows, context)


async def _insert_rows(
    caller: Caller,
    table: Table,
    sql: str,
    decoder: BatchDecoder,
    data: bytes,
    context: Context,
    is_bulk: bool = False,
) -> int:
    assert table.sharding is not None
    by_bucket: defaultdict[int, list[Any]] = defaultdict(list)
    put_by_bucket(await asyncio.to_thread(decoder.decode, data), by_bucket)
    return await caller.executor.writes.insert_rows(
        table, table.sharding.tier, sql, by_bucket, context, is_bulk
    )


def decoder_for(caller: Caller, table: Table, names: list[str], conflict: str = "") -> BatchDecoder:
    """For whoever may insert these columns, and replace rows where it comes to that."""
    marks = ", ".join(f"${at}" for at in range(1, len(names) + 1))
    listed = ", ".join(map(identifier, names))
    text = f"INSERT INTO {identifier(table.name)} ({listed}) VALUES ({marks})"
    if conflict:
        text += f" ON CONFLICT {conflict}"
    caller.allowed(text)
    return BatchDecoder(table, names, caller.catalog)


def column_names(columns: str) -> list[str]:
    with suppress(ValueError):
        found = json.loads(columns)
        if isinstance(found, list) and found and all(isinstance(each, str) for each in found):
            return found
    raise InvalidParameter(f"not a list of columns: {columns}", hint='it is JSON: ["a", "b"]')


def arrow_of(body: str | bytes) -> bytes:
    """In the text of a CALL, and in the stage of an older version, it is base64."""
    return body if isinstance(body, bytes) else from_base64(body)


def from_base64(body: str) -> bytes:
    try:
        return binascii.a2b_base64(body, strict_mode=True)
    except (binascii.Error, ValueError):
        raise InvalidParameter("the chunk is not base64") from None


def _unless_same(table: Table) -> str:
    """For a repeated insert: nothing happens to an equal row, and another one breaks a rule.

    SQLite has no "raise" here, but a bucket is never NULL; the decoder has refused other NULLs.
    """
    keys = set(table.key_positions)
    target = ", ".join([BUCKET_COLUMN, *(physical_column(at) for at in table.key_positions)])
    values = [
        physical_column(at)
        for at, column in enumerate(table.columns)
        if at not in keys and not column.is_dropped
    ]
    if not values:
        return f" ON CONFLICT ({target}) DO NOTHING"
    same = " AND ".join(f"{name} IS excluded.{name}" for name in values)
    return f" ON CONFLICT ({target}) DO UPDATE SET {BUCKET_COLUMN} = NULL WHERE NOT ({same})"


def sharded_table(caller: Caller, name: str) -> Table:
    return sharded_in(caller.catalog, name)


def sharded_in(catalog: Catalog, name: str) -> Table:
    table = catalog.table(name)
    if table is None:
        raise UndefinedTable(f'table with name "{name}" not found')
    if table.is_global:
        raise Unsupported(f"{name} is a global table")
    return table
