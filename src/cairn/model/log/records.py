"""Records of the row log: what one committed statement did to rows, or one schema change.

A statement that changed much leaves several, one behind the other: all but the last say that there
is more. They are written in one transaction and applied in one: wherever somebody stands in a log
is the end of a statement.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.model.log.packed_rows import as_list, split_head, unpacked
from cairn.model.members.moves import MovePart
from cairn.model.tables.schema import Index, Table

Vclock = dict[str, int]  # origin uuid → last lsn


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """An operation that must not be done twice, and the buckets in which it was done.

    Buckets move: whoever owns one later has to know it of that bucket, and of no other.
    """

    id: str
    rows: int
    buckets: tuple[tuple[int, int], ...] | None = None  # ranges; None: whatever it was about


class RowOp(enum.IntEnum):
    INSERT = 1
    UPDATE = 2
    DELETE = 3


class Kind(enum.IntEnum):
    ROWS = 0
    DDL = 1
    MOVE = 2  # copying or dropping buckets: replicated, never told as a change of data
    MARK = 3  # nothing but a place in the log: the first record of an epoch


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """How one table shall look from here on; whoever applies it makes the difference himself."""

    table_id: int
    table: Table | None  # None: there is none any more
    indexes: tuple[Index, ...] = ()
    truncate: bool = False


class RowChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row before and after, as stored: the bucket first, then the columns."""

    table: int
    version: int  # schema version of the table when it was written
    op: int
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None


class Record(msgspec.Struct, frozen=True, array_like=True):
    """`(origin, epoch, lsn)` is used once, ever."""

    origin: str
    epoch: int
    lsn: int
    kind: int
    timestamp: int  # µs since 1970, the master's clock, for people
    changes: tuple[RowChange, ...] = ()
    shape: Shape | None = None  # of a DDL record
    operation: Operation | None = None  # something to be done once
    more: bool = False  # the statement goes on in the next record


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A record as it lies in the log and travels: only whoever applies it opens the body."""

    origin: str
    epoch: int
    lsn: int
    body: bytes


Bulk = tuple[int, int, msgspec.Raw]  # table, version, rows inserted: one packed list


class Body(msgspec.Struct, frozen=True, array_like=True):
    """What is stored beside (origin, epoch, lsn)."""

    kind: int
    timestamp: int
    changes: tuple[RowChange, ...] = ()
    shape: Shape | None = None
    operation: Operation | None = None
    bulk: Bulk | None = None
    move: MovePart | None = None  # of a record of kind MOVE


class Logged(Body, frozen=True, array_like=True):
    """As it is read. Few records have more behind them, and the others need not say it."""

    more: bool = False


QUICK_RECORDS, QUICK_BYTES = 16, 16_384
_ROWS = bytes([Kind.ROWS])
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Logged).decode


def encode_body(body: Body) -> bytes:
    return _encode(body)


def pack_changes(changes: Sequence[RowChange]) -> bytes:
    """For `encode_part`."""
    return _encode(changes)


def encode_part(timestamp: int, changes: bytes) -> bytes:
    """A body with more behind it."""
    told: Any = msgspec.Raw(changes)
    return _encode(Logged(Kind.ROWS, timestamp, told, more=True))


def head_of_insert(table: int, version: int, columns: int) -> bytes:
    """Of a body that has one new row of so many columns: from its changes to the row's bucket."""
    row = (0,) * (columns + 1)
    whole = _encode((RowChange(table, version, RowOp.INSERT, None, row),))
    return whole[: -len(row)]


def pack_value(value: Any) -> bytes:
    return _encode(value)


def is_one_row(body: Logged) -> bool:
    """Whether a change of one row is all that it says."""
    if body.kind != Kind.ROWS or len(body.changes) != 1 or body.more:
        return False
    return body.operation is None and body.bulk is None and body.move is None


def pack_rows(rows: Sequence[Any]) -> bytes:
    """A block of the rows of a bulk, for `join_rows`."""
    return _encode(rows)


def join_rows(packed: Sequence[bytes], count: int) -> msgspec.Raw:
    """Blocks as the one list of a body."""
    return msgspec.Raw(as_list([split_head(block)[0] for block in packed], count))


def decode_body(data: bytes) -> Logged:
    """Raises `msgspec.DecodeError` for bytes that are no body."""
    try:
        return _decode(data)
    except UnicodeDecodeError as problem:  # of a text; msgspec tells that in another way
        raise msgspec.DecodeError(str(problem)) from None


def record_of(origin: str, epoch: int, lsn: int, data: bytes) -> Record:
    body = _decode(data)
    if body.bulk is not None:
        table, version, packed = body.bulk
        insert = int(RowOp.INSERT)
        rows = unpacked(packed)
        changes = tuple(RowChange(table, version, insert, None, row) for row in rows)
        body = msgspec.structs.replace(body, changes=changes)
    return Record(
        origin,
        epoch,
        lsn,
        body.kind,
        body.timestamp,
        body.changes,
        body.shape,
        body.operation,
        body.more,
    )


def body_of(record: Record) -> Body:
    return Body(record.kind, record.timestamp, record.changes, record.shape, record.operation)


def are_quick(records: Sequence[Packed]) -> bool:
    """Whether they are applied in a moment: a few rows. A change of the schema is as short, and may
    take long; so its kind is looked at, which is the second byte."""
    if len(records) > QUICK_RECORDS or sum(len(record.body) for record in records) > QUICK_BYTES:
        return False
    return all(record.body[1:2] == _ROWS for record in records)


def covers(mine: Vclock, theirs: Vclock) -> bool:
    """Whether `mine` has everything that `theirs` has."""
    return all(mine.get(origin, 0) >= lsn for origin, lsn in theirs.items())
