"""What travels from the source of a move to its target, and when the target may take it.

Invariant: the target's rows with keys up to `after` are exactly the source's at the position `at`.
One delta is made in one read transaction of the source: first the records after `at` as far as they
concern keys that are copied already, then the next rows. It moves `at` and `after` on. Rows come
only with a delta whose log part reached the present: they are of that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cairn.model.errors import CairnError
from cairn.model.log.packed_rows import split_head
from cairn.model.log.records import RowChange, RowOp
from cairn.model.members.moves import END, Amount, DoneIn, Mark, Stamp
from cairn.model.tables.schema import Table, filled_row

NEAR_RECORDS = 100
Row = tuple[object, ...]
Rows = tuple[tuple[int, int, msgspec.Raw], ...]  # (table, schema version, packed rows)


class Progress(msgspec.Struct, frozen=True):
    """How far a target has come; it lies beside its rows and is replicated with them."""

    move: int
    attempt: int
    start: int
    end: int
    at: Stamp = {}
    after: Mark = ()
    done: Amount = (0, 0)  # copied in this attempt
    total: Amount | None = None  # what there was when it began; changes since are not counted


class Delta(msgspec.Struct, frozen=True):
    """From (`at`, `after`) of the request to those of the answer."""

    epoch: int  # of the source
    at: Stamp
    after: Mark
    changes: tuple[RowChange, ...] = ()
    rows: Rows = ()
    operations: tuple[DoneIn, ...] = ()
    tables: dict[int, int] = {}  # schema versions at the source, in the same moment
    lag: int = 0  # records that were left for the next one
    bytes: int = 0  # of `rows`
    total: Amount | None = None  # to an attempt that begins: all that is to be copied
    is_final: bool = False  # behind the freeze that was asked for: nothing can follow
    is_writing: bool = False  # the source is busy with a long write: a freeze would wait for it

    @property
    def count(self) -> int:
        return sum(split_head(rows)[1] for _, _, rows in self.rows)


class MoveRefused(CairnError):
    """A delta that does not fit what the target has, or a question without an answer."""

    sqlstate = "55000"


class MoveMustRestart(MoveRefused):
    """The source cannot go on from where the target stands: its log is too short or another."""


def is_copied(table: int, key: Sequence[object], after: Mark) -> bool:
    """Whether a row with this key had been read when the mark was set."""
    return (table, *key) <= after


def cut(
    changes: Iterable[RowChange],
    keys: Mapping[int, Sequence[int]],
    start: int,
    end: int,
    after: Mark,
) -> list[RowChange]:
    """Of what a record did, the part that concerns buckets of the move that are copied already.

    `keys` are the places of each table's physical key. A row whose key went over the mark is an
    insert or a delete for the target: its other half comes, or came, with the rows.
    """
    found: list[RowChange] = []
    for change in changes:
        places = keys.get(change.table)
        if places is None:
            continue  # a table that is gone: its rows are of no use to anybody
        old, new = change.old, change.new
        had = old is not None and _concerns(change.table, old, places, start, end, after)
        has = new is not None and _concerns(change.table, new, places, start, end, after)
        if had and has:
            found.append(change)
        elif had:
            found.append(RowChange(change.table, change.version, RowOp.DELETE, old, None))
        elif has:
            found.append(RowChange(change.table, change.version, RowOp.INSERT, None, new))
    return found


def _concerns(
    table: int, row: Row, places: Sequence[int], start: int, end: int, after: Mark
) -> bool:
    bucket: int = row[0]  # type: ignore[assignment]
    return start <= bucket <= end and (
        after == END or is_copied(table, [row[at] for at in places], after)
    )


def fits(progress: Progress | None, move: int, attempt: int, at: Stamp, after: Mark) -> bool:
    """Whether a delta that was asked for from (`at`, `after`) continues what is on disk now.

    A late answer, a repeated one and one of an attempt that was given up do not.
    """
    return progress is not None and (
        (progress.move, progress.attempt, progress.at, progress.after) == (move, attempt, at, after)
    )


def is_empty(progress: Progress, delta: Delta) -> bool:
    """Whether nothing would be written but a position that moved a little.

    One that ends before the present is never empty: whoever does not move on is given it again.
    """
    if delta.changes or delta.rows or delta.operations or delta.after != progress.after:
        return False
    moved = sum(lsn - progress.at.get(origin, (0, 0))[0] for origin, (lsn, _) in delta.at.items())
    return moved < NEAR_RECORDS and not delta.lag


def adapted(change: RowChange, table: Table, truncated_at: int) -> RowChange | None:
    """A change of an older schema version as the target's table takes it; None: of no use.

    Columns are only ever added at the end, and what was before a TRUNCATE is gone.
    """
    if change.version == table.schema_version:
        return change
    if change.version < truncated_at:
        return None
    old, new = (None if row is None else filled_row(table, row) for row in (change.old, change.new))
    return RowChange(change.table, table.schema_version, change.op, old, new)
