"""What a Raft entry says: operations on global tables, schema changes, and their envelope.

Values inside are physical (see `values`), so applying an entry needs no interpretation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.model.log.ranges import KeyRange, one_key, whole_table
from cairn.model.tables.schema import Column, Index, Table


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    table: int
    row: tuple[Any, ...]


class Replace(msgspec.Struct, frozen=True, tag="replace"):
    table: int
    row: tuple[Any, ...]


class Update(msgspec.Struct, frozen=True, tag="update"):
    """Sets columns by position. A missing row is not an error: the effect is simply nothing."""

    table: int
    key: tuple[Any, ...]
    changes: tuple[tuple[int, Any], ...]


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    table: int
    key: tuple[Any, ...]


Dml = Insert | Replace | Update | Delete


def dml_of(op: Op) -> tuple[Dml, ...]:
    """The rows that `op` names itself; schema changes write theirs when they are applied."""
    match op:
        case Batch(ops=several):
            return several
        case Insert() | Replace() | Update() | Delete():
            return (op,)
        case _:
            return ()


class Nop(msgspec.Struct, frozen=True, tag="nop"):
    pass


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    """All or nothing: one entry, one position, one transaction."""

    ops: tuple[Dml, ...]


# --- schema changes ------------------------------------------------------------------------------


class CreateTable(msgspec.Struct, frozen=True, tag="create_table"):
    table: Table
    indexes: tuple[Index, ...] = ()  # unique ones: what UNIQUE says in it


class DropTable(msgspec.Struct, frozen=True, tag="drop_table"):
    table_id: int
    name: str


class TruncateTable(msgspec.Struct, frozen=True, tag="truncate_table", omit_defaults=True):
    table_id: int
    name: str
    restarts: bool = False  # the numbers of its identity column begin anew


class RenameTable(msgspec.Struct, frozen=True, tag="rename_table"):
    table_id: int
    old_name: str
    new_name: str


class AddColumns(msgspec.Struct, frozen=True, tag="add_columns"):
    table_id: int
    name: str
    columns: tuple[Column, ...]


class RenameColumn(msgspec.Struct, frozen=True, tag="rename_column"):
    table_id: int
    name: str
    old: str
    new: str


class Restate(msgspec.Struct, frozen=True, tag="restate"):
    """What the catalogue alone says of a table: comments, and the DEFAULT of rows to come."""

    table_id: int
    name: str
    columns: tuple[Column, ...] = ()  # in the place of those with the same names
    description: str | None = None  # None: as it was


class AlterTable(msgspec.Struct, frozen=True, tag="alter_table"):
    """Any number of changes of columns and constraints at once: how the table shall look then."""

    table: Table
    indexes: tuple[Index, ...]  # all but the primary key


class CreateIndex(msgspec.Struct, frozen=True, tag="create_index"):
    index: Index


class DropIndex(msgspec.Struct, frozen=True, tag="drop_index"):
    table_id: int
    index_id: int
    name: str


class RenameIndex(msgspec.Struct, frozen=True, tag="rename_index"):
    table_id: int
    index_id: int
    old_name: str
    new_name: str


Ddl = (
    CreateTable
    | DropTable
    | TruncateTable
    | RenameTable
    | AddColumns
    | RenameColumn
    | Restate
    | AlterTable
    | CreateIndex
    | DropIndex
    | RenameIndex
)


def table_of(ddl: Ddl) -> int:
    """The table a schema change is about."""
    match ddl:
        case CreateTable(table=table) | AlterTable(table=table):
            return table.id
        case CreateIndex(index=index):
            return index.table_id
        case _:
            return ddl.table_id


class DdlPrepare(msgspec.Struct, frozen=True, tag="ddl_prepare"):
    schema_version: int
    ddl: Ddl
    governor_op_id: int | None = None


class DdlCommit(msgspec.Struct, frozen=True, tag="ddl_commit"):
    schema_version: int


class DdlAbort(msgspec.Struct, frozen=True, tag="ddl_abort"):
    schema_version: int
    reason: str
    instance: str = ""
    is_verdict: bool = True  # False: a master was silent, the statement itself may be good
    sqlstate: str = ""  # of the refusal; likewise its hint
    hint: str | None = None


Op = Nop | Insert | Replace | Update | Delete | Batch | DdlPrepare | DdlCommit | DdlAbort


class Envelope(msgspec.Struct, frozen=True):
    """One Raft entry. The request id lets a proposer recognise its own entry."""

    op: Op
    request_id: str
    timestamp: str  # the proposer's UTC clock, for people; order comes from Raft
    user: int = 1


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    return _encoder.encode(envelope)


def encode_op(op: Op) -> bytes:
    return _encoder.encode(op)


def decode(data: bytes) -> Envelope:
    return _decoder.decode(data)


class _Part(msgspec.Struct, frozen=True):
    table: int


class _Outlined(msgspec.Struct, frozen=True):
    type: str
    table: int = 0
    ops: tuple[_Part, ...] = ()


class Outline(msgspec.Struct, frozen=True):
    """What an entry is about, without its rows: much less work where there are many of them."""

    op: _Outlined
    request_id: str

    @property
    def tables(self) -> frozenset[int] | None:
        """Those whose rows it changes; None: it is a change of the schema."""
        match self.op.type:
            case "nop":
                return frozenset()
            case "batch":
                return frozenset(each.table for each in self.op.ops)
            case "insert" | "replace" | "update" | "delete":
                return frozenset((self.op.table,))
            case _:
                return None


_outlines = msgspec.msgpack.Decoder(Outline)


def outline(data: bytes) -> Outline:
    return _outlines.decode(data)


#: Changes of one entry that are remembered row by row for the compare-and-swap. Past it the whole
#: table counts as changed: others may have to look again, and nobody waits while keys are noted.
ROWS_APART = 1_000

#: The range every schema change touches, so that two of them never pass each other.
SCHEMA_RANGE = KeyRange(-1)


def touched(op: Op, keys: KeyPositions) -> tuple[KeyRange, ...]:
    """What `op` writes; `keys` tells the primary key of each global table."""
    match op:
        case Nop():
            return ()
        case Insert(table=table, row=row) | Replace(table=table, row=row):
            positions = keys.get(table)
            if positions is None or len(row) <= max(positions, default=-1):
                return (whole_table(table),)
            return (_place(table, [row[at] for at in positions]),)
        case Update(table=table, key=key) | Delete(table=table, key=key):
            return (_place(table, key),)
        case Batch(ops=ops) if len(ops) > ROWS_APART:
            return tuple(map(whole_table, {each.table for each in ops}))
        case Batch(ops=ops):
            return tuple(found for each in ops for found in touched(each, keys))
        case DdlPrepare(ddl=ddl):
            return (SCHEMA_RANGE, whole_table(table_of(ddl)))
        case DdlCommit() | DdlAbort():
            return (SCHEMA_RANGE,)


def _place(table: int, key: Sequence[Any]) -> KeyRange:
    """Where a key is. One that cannot be is refused when it is applied, and counts as anywhere."""
    try:
        return one_key(table, key)
    except (TypeError, ValueError, struct.error):
        return whole_table(table)


KeyPositions = dict[int, tuple[int, ...]]
