"""One write inside the writer's transaction: its statements, and the row at which it failed."""

from __future__ import annotations

from contextlib import suppress

import apsw
import msgspec

from cairn.model.errors import CasRetry
from cairn.model.log.packed_rows import only_of, unpacked
from cairn.model.log.records import Operation
from cairn.model.rpc import WriteRequest
from cairn.model.sharding.spans import contains, merged, of_buckets, subtract
from cairn.node.statements.owner.write_kinds import WriteKind
from cairn.sql.render.constraints import row_query
from cairn.sql.render.slots import with_ranges
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.packed_insert import insert_text
from cairn.storage.files.pieces import Row

QUICK_ROWS = 16
QUICK_BYTES = 65_536  # a longer value is not written on the event loop
PROBED_ROWS = 1000  # of a statement that failed, looked at again for its error
_SIZED = (str, bytes)


def left_of(request: WriteRequest, done: Operation) -> WriteRequest | None:
    """What of an operation was not done before: buckets that came here without it, or are here
    while others came with it. None: all was done.

    A statement by ranges gets narrower ones; other rows begin with their bucket.
    """
    if done.buckets is None:
        return None
    if request.ranges is not None:
        left = subtract(request.ranges, done.buckets)
        if not left or not request.open_sql:
            return None
        text = with_ranges(request.open_sql, list(left))
        return msgspec.structs.replace(request, sql=text, ranges=left)
    left = subtract(of_buckets(request.buckets), done.buckets)
    if not left:
        return None

    def kept(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(row for row in rows if contains(left, row[0]))

    rows = kept(request.rows)
    return msgspec.structs.replace(
        request,
        rows=rows,
        buckets=tuple(bucket for bucket in request.buckets if contains(left, bucket)),
        more=tuple((sql, kept(more)) for sql, more in request.more),
        must_change=None if request.must_change is None else len(rows),
        packed=only_of(request.packed, left),
    )


def is_quick(request: WriteRequest, kind: WriteKind) -> bool:
    """Whether it touches a few short rows by their keys: short enough for the event loop."""
    if request.ranges is not None or request.more or kind.has_query or request.packed:
        return False
    if not 0 < len(request.rows) <= QUICK_ROWS or request.is_bulk:
        return False
    for row in request.rows:  # a hot path: quicker than any()
        for value in row:
            if type(value) in _SIZED and len(value) > QUICK_BYTES:
                return False
    return True


def takes_long(request: WriteRequest, kind: WriteKind) -> bool:
    return request.ranges is not None or request.count > 1000 or kind.has_query


def is_plain(request: WriteRequest) -> bool:
    """Whether SQLite itself takes an insert back when it fails, so that no savepoint is needed."""
    return (
        request.operation is None
        and len(request.rows) == 1
        and not request.check_only
        and request.must_change is None
        and not request.returning
    )


def carry_out(store: DataStore, request: WriteRequest, told: list[Row]) -> int:
    """Rows changed; those that are wanted back are put into `told`."""
    if request.packed:
        count = store.packed_insert(request.table, request.packed)
    elif request.is_bulk:
        count = store.bulk_insert(request.table, request.sql, request.rows)
    else:
        for at, (sql, rows) in enumerate(((request.sql, request.rows), *request.more)):
            before = store.connection.total_changes()
            if request.returning and at in request.told:
                for row in rows:
                    told += store.connection.execute(sql + request.returning, row).fetchall()
            elif len(rows) == 1:
                store.connection.execute(sql, rows[0])
            elif rows:
                store.connection.executemany(sql, rows)
            changed = store.connection.total_changes() - before
            if request.must_change is not None and changed != len(rows):
                raise CasRetry("a row changed between reading and writing; try again")
        count = store.count_rows()
        store.enforce(is_rekeying=request.must_change is not None and bool(request.more))
    if request.operation is not None:
        ranges = request.ranges if request.ranges is not None else of_buckets(request.buckets)
        store.put_operation(Operation(request.operation, count, merged(ranges)))
    if request.check_only:
        raise TakenBack(count)
    return count


def refused_row(store: DataStore, request: WriteRequest, is_alone: bool) -> Row | None:
    """The row that could not be inserted, for an error that names its key."""
    sql = insert_text(store.tables[request.table]) if request.packed else request.sql
    query = row_query(sql)
    if query is None or request.more or request.count > PROBED_ROWS:
        return None
    found = [*request.rows, *unpacked(request.packed)]
    if len(found) > 1:  # once more, to see at which one it stops

        def probe() -> int:
            while found:
                store.connection.execute(sql, found[0])
                del found[0]
            raise TakenBack(0)

        with suppress(apsw.ConstraintError, TakenBack):
            store.statement(probe, alone=is_alone)
    return store.connection.execute(query, found[0]).fetchone() if found else None


class TakenBack(Exception):
    """The check round of a write is over; its savepoint is rolled back."""

    def __init__(self, count: int) -> None:
        self.count = count
