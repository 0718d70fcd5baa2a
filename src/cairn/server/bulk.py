"""The calls behind the Spark connector: chunks in, staged chunks promoted, row changes out.

Each checks the caller's rights on the table as a statement would. `cairn_promote` inserts a chunk
under an operation id that the owner's writer keeps with the rows: repeating it changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from cairn.model.errors import CairnError, InvalidParameter, UndefinedTable, Unsupported
from cairn.model.records import Kind, Record, RowChange, RowOp
from cairn.model.schema import Table
from cairn.model.values import ColumnType, from_physical
from cairn.server.arrow import BatchDecoder
from cairn.storage.row_log import LogReader

if TYPE_CHECKING:
    from cairn.server.session import Session

MAX_RECORDS = 2_000  # of the row log, read at a time
_INSERTS = {"error": "INSERT", "ignore": "INSERT OR IGNORE", "replace": "INSERT OR REPLACE"}
_OPS = {RowOp.INSERT: "insert", RowOp.UPDATE: "update", RowOp.DELETE: "delete"}


# --- chunks in ------------------------------------------------------------------------------------


async def ingest(session: Session, table: str, columns: str, conflict: str, body: str) -> Any:
    """`CALL cairn_ingest('t', '["a","b"]', 'replace', 'base64 of an Arrow stream')`."""
    return {"rows": await _insert(session, table, columns, conflict, body, None)}


async def promote(
    session: Session,
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
    service = session.service
    sql = (
        f"SELECT body FROM {_quoted(stage)} WHERE slot = {int(slot)} AND write_id = "
        f"{_literal(write_id)} AND part = {int(part)} AND attempt = {int(attempt)} "
        f"AND seq = {int(seq)}"
    )
    query = service.statements.get(sql.encode(), (), session.user_id, service.catalog)
    query.check_rights(session.user_id, session.user, service.catalog)
    found = await service.dispatcher.read(
        query.prepared.plan,  # type: ignore[arg-type]
        query.prepared.start((), session.now()),
        query.sharded,
    )
    if not found:
        raise InvalidParameter(
            f"chunk {seq} of partition {part} of write {write_id} is not staged",
            hint="it was swept or promoted by somebody else; look at cairn_spark_commit",
        )
    operation = f"spark:{write_id}:{part}:{attempt}:{seq}"
    return {"rows": await _insert(session, table, columns, conflict, found[0][0], operation)}


async def _insert(
    session: Session, name: str, columns: str, conflict: str, body: str, operation: str | None
) -> int:
    service = session.service
    table = _sharded_table(session, name)
    names = json.loads(columns)
    verb = _INSERTS.get(conflict)
    if verb is None:
        raise InvalidParameter(f"conflict {conflict}: one of {', '.join(_INSERTS)}")
    marks = ", ".join(f"${at}" for at in range(1, len(names) + 1))
    listed = ", ".join(map(_quoted, names))
    text = f"INSERT INTO {_quoted(name)} ({listed}) VALUES ({marks})"
    statement = service.statements.get(text.encode(), (), session.user_id, service.catalog)
    statement.check_rights(session.user_id, session.user, service.catalog)
    decoder = BatchDecoder(table, names, service.catalog)
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParameter("the chunk is not base64") from None
    rows = await asyncio.to_thread(decoder.decode, data)
    sql = decoder.insert_sql.replace("INSERT", verb, 1)
    assert table.sharding is not None
    return await service.dispatcher.insert_rows(
        table, table.sharding.tier, sql, [(row[0], row) for row in rows], operation
    )


def _sharded_table(session: Session, name: str) -> Table:
    table = session.service.catalog.table(name)
    if table is None:
        raise UndefinedTable(f'table with name "{name}" not found')
    if table.is_global:
        raise Unsupported(f"{name} is a global table")
    return table


def _quoted(name: str) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + str(text).replace("'", "''") + "'"


# --- row changes out ------------------------------------------------------------------------------


async def rows(session: Session, name: str, after: str, limit: int = 10_000) -> Any:
    """Changes of a table on this replicaset after a position, oldest first, about `limit` at most.

    `after` is JSON, origin uuid → last lsn taken; `{}` is the beginning of the log, `"latest"`
    asks only where the log stands. Records of moved buckets are not told (rule 19). The answer
    has the position to ask from next; a statement is told whole.
    """
    table = _sharded_table(session, name)
    service = session.service
    query = service.statements.get(
        f"SELECT * FROM {_quoted(name)}".encode(), (), session.user_id, service.catalog
    )
    query.check_rights(session.user_id, session.user, service.catalog)
    instance = service.instance
    service.execution.check_lease()
    vclock = dict(instance.data.vclock)
    asked = json.loads(after)
    if asked == "latest":
        return {"changes": [], "after": vclock, "is_last": True}
    if not isinstance(asked, dict):
        raise InvalidParameter(f"not a position: {after}", hint='{"origin uuid": lsn, …}')
    path = instance.data.store.path
    answer = await asyncio.to_thread(_changes, path, table, asked, vclock, max(1, int(limit)))
    service.execution.check_lease()
    return answer


def _changes(
    path: Any, table: Table, asked: dict[str, int], vclock: dict[str, int], limit: int
) -> Any:
    reader = LogReader(path)
    try:
        records: list[Record] = []
        is_last = True
        for origin, last in vclock.items():
            known = int(asked.get(origin, 0))
            _check_position(reader, origin, known, last)
            found = reader.read(origin, known, MAX_RECORDS)
            is_last = is_last and len(found) < MAX_RECORDS
            records += [record for record in found if record.lsn <= last]
        for origin in asked:
            if origin not in vclock and asked[origin]:
                raise _lost(f"origin {origin} is not known here")
    finally:
        reader.close()
    records.sort(key=lambda record: (record.epoch, record.lsn))
    position = dict(asked)
    changes: list[dict[str, Any]] = []
    for record in records:
        if len(changes) >= limit:
            is_last = False
            break
        position[record.origin] = record.lsn
        if record.kind == Kind.ROWS:
            changes += _told(table, record)
    return {"changes": changes, "after": position, "is_last": is_last}


def _check_position(reader: LogReader, origin: str, known: int, last: int) -> None:
    if known > last:
        raise _lost(f"{origin} stands at {last}, the position is {known}: lost in a failover")
    oldest = reader.oldest(origin)
    if known < last and (oldest == 0 or oldest > known + 1):
        raise _lost(f"the log of {origin} begins at {oldest}, the position is {known}")


def _lost(why: str) -> CairnError:
    return CairnError(
        f"the position is not in the row log: {why}",
        hint="start anew from a snapshot of the table",
        sqlstate="PC005",
    )


def _told(table: Table, record: Record) -> list[dict[str, Any]]:
    return [
        {
            "op": _OPS[RowOp(change.op)],
            "bucket": (change.new or change.old or (0,))[0],
            "old": _row(table, change.old),
            "new": _row(table, change.new),
            "epoch": record.epoch,
            "origin": record.origin,
            "lsn": record.lsn,
            "n": n,
            "timestamp": record.timestamp,
        }
        for n, change in enumerate(record.changes, 1)
        if _is_of(table, change)
    ]


def _is_of(table: Table, change: RowChange) -> bool:
    return change.table == table.id


def _row(table: Table, stored: tuple[Any, ...] | None) -> dict[str, Any] | None:
    """A row as JSON values; a column added later is missing in older records."""
    if stored is None:
        return None
    found: dict[str, Any] = {}
    for column, value in zip(table.columns, stored[1:], strict=False):
        plain = from_physical(column.type, value)
        if plain is not None and column.type in (
            ColumnType.DECIMAL,
            ColumnType.UUID,
            ColumnType.DATETIME,
        ):
            plain = plain.isoformat() if column.type is ColumnType.DATETIME else str(plain)
        found[column.name] = plain
    return found
