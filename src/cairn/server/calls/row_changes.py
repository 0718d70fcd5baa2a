"""The calls behind streams of a table: changes after a position, and the rows as of one.

A position is JSON, origin uuid → last lsn taken, or → [lsn, its epoch]: after a failover an lsn may
be used again, and only the epoch tells that another record has it. `cairn_rows` reads the row log
after a position; `cairn_rows_at` tells the rows as they were at it: what is there now, with
everything that the log has since then taken back. So a snapshot can be told again exactly, as long
as the log reaches back to it, and the changes after its position follow without a gap or a
repetition.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cairn.model import stops
from cairn.model.errors import InvalidParameter, LimitExceeded, NotOwner, PositionLost
from cairn.model.log.records import Kind, Record, RowChange, RowOp, Vclock
from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import TAKES, Phase
from cairn.model.quoting import identifier
from cairn.model.tables.schema import BUCKET_COLUMN, Sharded, Table, missing_value
from cairn.model.types.byte_text import bytes_text
from cairn.model.types.json_text import JsonText
from cairn.model.types.values import ELEMENTS, ColumnType, from_physical
from cairn.moves.steps import LAST_ID
from cairn.server.caller import Caller
from cairn.server.calls.bulk import sharded_table
from cairn.storage.data_db.row_log import LogReader

MAX_RECORDS = 2_000  # of the row log, read at a time
MAX_ANSWER_BYTES = 256 * 1024 * 1024
LONG_ANSWER_BYTES = 32 * 1024 * 1024  # of changes: the rest is asked for again
_encode = msgspec.json.Encoder().encode
_OPS = {RowOp.INSERT: "insert", RowOp.UPDATE: "update", RowOp.DELETE: "delete"}
_AS_TEXT = (ColumnType.DECIMAL, ColumnType.UUID, ColumnType.INTERVAL)
_POSITION = 'it is JSON: "latest", "earliest" or {"origin uuid": lsn or [lsn, epoch], …}'
Key = tuple[Any, ...]
Row = tuple[Any, ...]


async def rows(caller: Caller, name: str, after: str, limit: int = 10_000) -> Any:
    """Changes of a table on this replicaset after a position, oldest first, about `limit` at most.

    `"latest"` and `"earliest"` ask only where the log ends and begins; limit 0 asks whether the
    position is still in it. Records of moved buckets are not told. The answer has the
    position to ask from next, a statement is told whole if it is not longer than an answer may
    be; `buckets` is what this replicaset owned
    when it was made.
    """
    table = _readable(caller, name)
    instance, execution = caller.instance, caller.execution
    execution.guard.check_lease()
    acks, epoch = instance.replication.acks, instance.data.fence.epoch
    if instance.data.fence.is_sync:
        await acks.wait_safe(0, epoch)  # for what earlier epochs left
    asked = _json(after)
    # Hand-overs are asked for before the vclock: a change that is told was made after them.
    buckets = instance.data.fence.owned
    moves = _handed_over(instance.state.cluster, table.sharding) if isinstance(asked, str) else {}
    vclock = dict(instance.data.vclock)
    upto = acks.tellable(vclock)
    path = instance.data.store.path
    changes = msgspec.Raw(b"[]")
    if asked == "latest":
        reached = upto
    elif asked == "earliest":
        reached = _oldest(path, upto)
    else:
        place, most = _position(after), max(0, int(limit))
        changes, reached = await execution.reads.apart(
            caller.context, lambda: _changes(path, table, place, (vclock, upto), most)
        )
        execution.guard.check_lease(epoch)
        reached = reached if limit else upto
    epochs = _epochs(path, reached)
    return {
        "key": table.primary_key,
        "changes": changes,
        "after": reached,
        "epochs": epochs,
        "buckets": buckets,
        **moves,
    }


def _handed_over(cluster: Cluster, sharding: Sharded | None) -> dict[str, Any]:
    """Buckets that changed hands: where each giver ended, and where the taker began.

    A stream reads the giver to its end before it goes past the beginning at the taker, so that the
    changes of each key come in order. Both are known by the origins of their records: a name may
    be that of another replicaset by now. All moves up to `settled` have ended one way or the
    other; of those up to `forgotten` some are not known any more.
    """
    known = sorted(cluster.moves.values(), key=lambda move: move.id)
    last = int(cluster.properties.get(LAST_ID) or 0)
    under_way = [move.id for move in known if move.phase in TAKES]
    ids = {move.id for move in known}
    return {
        "moves": [
            {
                "id": move.id,
                "buckets": [move.start, move.end],
                "final": {origin: at[0] for origin, at in move.source_final.items()},
                "first": {origin: at[0] for origin, at in move.target_first.items()},
                "epochs": {origin: at[1] for origin, at in move.source_final.items()},
            }
            for move in known
            if sharding and move.tier == sharding.tier and move.phase in (Phase.COPIED, Phase.DONE)
        ],
        "settled": min([last, *(number - 1 for number in under_way)]),
        "forgotten": next((number for number in range(last, 0, -1) if number not in ids), 0),
    }


async def rows_at(caller: Caller, name: str, at: str, low: int, high: int) -> Any:
    """Rows of buckets `low`…`high` as they were at a position."""
    table = _readable(caller, name)
    instance, execution = caller.instance, caller.execution
    epoch = instance.data.fence.epoch

    def check() -> None:
        execution.guard.check_lease(epoch)
        if not instance.giving.has_rows(low, high):
            raise NotOwner(f"buckets {low} to {high} do not all belong to this replicaset")

    check()
    path = instance.data.store.path
    place, buckets = _position(at), (int(low), int(high))
    found = await execution.reads.apart(
        caller.context, lambda: _rows_at(path, table, place, buckets)
    )
    check()
    return {"key": table.primary_key, "rows": found}


def _readable(caller: Caller, name: str) -> Table:
    """The table, if the caller may read it."""
    table = sharded_table(caller, name)
    caller.allowed(f"SELECT * FROM {identifier(name)}")
    return table


class Place(NamedTuple):
    """A position: the last lsn taken of each origin, and its epoch as far as it was told."""

    lsns: Vclock
    epochs: Vclock


def _position(text: str) -> Place:
    found = _json(text)
    if not isinstance(found, dict):
        raise InvalidParameter(f"not a position: {text}", hint=_POSITION)
    place = Place({}, {})
    for origin, value in found.items():
        match value:
            case int() if 0 <= value < 2**63:
                place.lsns[origin] = value
            case [int(lsn), int(epoch)] if min(lsn, epoch) >= 0 and max(lsn, epoch) < 2**63:
                place.lsns[origin], place.epochs[origin] = value
            case _:
                raise InvalidParameter(f"not a position: {text}", hint=_POSITION)
    return place


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidParameter(f"not a position: {text}", hint=_POSITION) from None


# --- reading the log ------------------------------------------------------------------------------


def _changes(
    path: Path, table: Table, place: Place, ends: tuple[Vclock, Vclock], limit: int
) -> tuple[msgspec.Raw, Vclock]:
    """`ends`: where the log ends, and up to where it may be told."""
    vclock, upto = ends
    asked = place.lsns
    reader = LogReader(path)
    try:
        reader.connection.execute("BEGIN")  # nothing is forgotten before it is read
        _check_position(reader, place, vclock)
        if limit == 0:
            return msgspec.Raw(b"[]"), asked
        records = _next_records(reader, asked, upto)
    finally:
        reader.close()
    position = dict(asked)
    told, goes_on = _Answer(), False
    for record in records:
        if told.is_long or (told.count >= limit and not goes_on):
            break
        goes_on = record.more
        position[record.origin] = record.lsn
        for change in _told(table, record):
            told.add(change)
    return told.raw(), position


def _epochs(path: Path, at: Vclock) -> Vclock:
    reader = LogReader(path)
    try:
        return reader.epochs_at(at)
    finally:
        reader.close()


def _oldest(path: Path, vclock: Vclock) -> Vclock:
    """The position before the oldest record of each origin."""
    reader = LogReader(path)
    try:
        return {
            origin: (oldest - 1 if (oldest := reader.oldest(origin)) else last)
            for origin, last in vclock.items()
        }
    finally:
        reader.close()


def _next_records(reader: LogReader, asked: Vclock, vclock: Vclock) -> list[Record]:
    """In order of epochs: a later one is not begun before all that is known of an earlier one."""
    records: list[Record] = []
    epochs: list[int] = []  # of which there is more than was read
    for origin, last in vclock.items():
        found = reader.read(origin, asked.get(origin, 0), MAX_RECORDS)
        if found and found[-1].lsn < last:
            epochs.append(found[-1].epoch)
        records += [record for record in found if record.lsn <= last]
    if epochs:
        records = [record for record in records if record.epoch <= min(epochs)]
    return sorted(records, key=lambda record: (record.epoch, record.lsn))


def _check_position(reader: LogReader, place: Place, vclock: Vclock) -> None:
    asked, here = place.lsns, reader.epochs_at(place.lsns)
    for origin, epoch in place.epochs.items():
        if here.get(origin, epoch) != epoch:
            which = f"{origin}:{asked[origin]} is of epoch {here[origin]}"
            raise _lost(f"{which}, the position of {epoch}: lost in a failover")
    for origin, known in asked.items():
        if known > vclock.get(origin, 0):
            last = vclock.get(origin, 0)
            raise _lost(f"{origin} stands at {last}, the position is {known}: lost in a failover")
    for origin, last in vclock.items():
        known, oldest = asked.get(origin, 0), reader.oldest(origin)
        if known < last and (oldest == 0 or oldest > known + 1):
            raise _lost(f"the log of {origin} begins at {oldest}, the position is {known}")


def _lost(why: str) -> PositionLost:
    return PositionLost(
        f"the position is not in the row log: {why}",
        hint="start anew from a snapshot; row_log_max sets how many records are kept",
    )


def _rows_at(path: Path, table: Table, at: Place, buckets: tuple[int, int]) -> msgspec.Raw:
    """In one read transaction: what was done since to the rows of now, and these."""
    told = _Answer()

    def tell(row: Row) -> None:
        told.add([row[0], told_row(table, row[1:])])
        if told.size > MAX_ANSWER_BYTES:
            raise LimitExceeded(
                f"the rows of buckets {buckets[0]} to {buckets[1]} take more than "
                f"{MAX_ANSWER_BYTES >> 20} MiB",
                hint="ask for fewer buckets at a time",
            )

    reader = LogReader(path)
    try:
        execute = reader.connection.execute
        execute("BEGIN")
        vclock: Vclock = dict(execute("SELECT origin, lsn FROM vclock"))
        _check_position(reader, at, vclock)
        before, key = _before(reader, table, at.lsns, vclock), _key_reader(table)
        text = f"SELECT * FROM {table.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ?"
        for row in execute(text, buckets):
            if key(row) not in before:
                tell(row)
    finally:
        reader.close()
    for earlier in before.values():
        if earlier is not None and buckets[0] <= earlier[0] <= buckets[1]:
            tell(earlier)
    return told.raw()


def _before(reader: LogReader, table: Table, at: Vclock, vclock: Vclock) -> dict[Key, Row | None]:
    """Rows that were changed since `at`, as they were then; None: not there."""

    def of(origin: str, known: int, last: int) -> Iterator[Record]:
        while known < last:
            stops.check()
            found = reader.read(origin, known, MAX_RECORDS)
            yield from found
            known = found[-1].lsn if found else last

    sources = [of(origin, at.get(origin, 0), last) for origin, last in vclock.items()]
    records = heapq.merge(*sources, key=lambda record: (record.epoch, record.lsn))
    key = _key_reader(table)
    before: dict[Key, Row | None] = {}
    for record in records:
        if _is_truncate(table, record):
            raise _lost("the table was truncated since")
        for change in record.changes:
            if change.table != table.id:
                continue
            if change.old is not None:
                before.setdefault(key(change.old), change.old)
            if change.new is not None:
                before.setdefault(key(change.new), None)
    return before


def _key_reader(table: Table) -> Any:
    places = [0, *(at + 1 for at in table.key_positions)]
    return lambda row: tuple(row[at] for at in places)


# --- telling --------------------------------------------------------------------------------------


class _Answer:
    """A list as JSON, made on the thread that reads: the event loop only sends it."""

    def __init__(self) -> None:
        self._text, self.count = bytearray(b"["), 0

    @property
    def size(self) -> int:
        return len(self._text)

    @property
    def is_long(self) -> bool:
        return self.size > LONG_ANSWER_BYTES

    def add(self, value: Any) -> None:
        if self.count % 256 == 0:
            stops.check()
        if self.count:
            self._text += b","
        self._text += _encode(value)
        self.count += 1

    def raw(self) -> msgspec.Raw:
        self._text += b"]"
        return msgspec.Raw(self._text)


def _is_truncate(table: Table, record: Record) -> bool:
    shape = record.shape
    return shape is not None and shape.table_id == table.id and shape.truncate


def _told(table: Table, record: Record) -> list[dict[str, Any]]:
    """What a record says of the table: its changes of rows, or that it was emptied."""
    if _is_truncate(table, record):
        return [_event(record, 1, "truncate", None, None, None)]
    if record.kind != Kind.ROWS:
        return []
    return [
        _told_change(table, record, n, change)
        for n, change in enumerate(record.changes, 1)
        if change.table == table.id
    ]


def _told_change(table: Table, record: Record, n: int, change: RowChange) -> dict[str, Any]:
    bucket = (change.new or change.old or (0,))[0]
    old, new = (
        None if row is None else told_row(table, row[1:]) for row in (change.old, change.new)
    )
    return _event(record, n, _OPS[RowOp(change.op)], bucket, old, new)


def _event(
    record: Record, n: int, op: str, bucket: int | None, old: Any, new: Any
) -> dict[str, Any]:
    return {
        "op": op,
        "bucket": bucket,
        "old": old,
        "new": new,
        "epoch": record.epoch,
        "origin": record.origin,
        "lsn": record.lsn,
        "n": n,
        "timestamp": record.timestamp,
    }


def told_row(table: Table, stored: Row) -> dict[str, Any]:
    """A row as JSON values. A column that was added later with a DEFAULT has it, as a query tells
    it; else it is missing in older records."""
    found: dict[str, Any] = {}
    late = ((each, missing_value(each)) for each in table.columns[len(stored) :] if each.missing)
    for column, value in chain(zip(table.columns, stored, strict=False), late):
        if column.is_dropped:
            continue
        found[column.name] = _told_value(column.type, from_physical(column.type, value))
    return found


def _told_value(type_: ColumnType, plain: Any) -> Any:
    of = ELEMENTS.get(type_)
    if plain is None:
        return None
    if of is not None:
        return [_told_value(of, each) for each in plain]
    if type_ in _AS_TEXT:
        return str(plain)
    if isinstance(plain, bytes):
        return bytes_text(plain)
    if isinstance(plain, date):
        return plain.isoformat()
    if isinstance(plain, JsonText):
        return msgspec.Raw(plain.encode())
    return plain
