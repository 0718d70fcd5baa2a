"""Rows that were read first: changed by their keys, or put into another table, where their owners
are told by bucket.

To look at each of many rows takes long, so it is done on a thread and asks nobody who owns what;
who owns which bucket is asked on the event loop, as often as buckets move. To forget many rows
takes long as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from cairn.model.errors import Unsupported
from cairn.model.log.packed_rows import PackedRows
from cairn.model.rpc import WriteRequest
from cairn.model.sharding.spans import Ranges, contains
from cairn.native.batches import RowBatch
from cairn.native.library import library
from cairn.node.rows.routes import Routes
from cairn.node.waiting import on_thread
from cairn.sql import plans
from cairn.sql.render.row_sql import insert_sql
from cairn.storage.files.pieces import Row

QUICK_ROWS = 500  # that are looked at on the event loop
ByBucket = dict[int, list[Row]]
T = TypeVar("T")


async def made_of(rows: list[Any], make: Callable[[list[Any]], T], *, forget: bool = True) -> T:
    """What is made of these rows, one by one."""
    if len(rows) <= QUICK_ROWS:
        return make(rows)

    def work() -> T:
        found = make(rows)
        if forget:
            rows.clear()
        return found

    return await on_thread(work)


async def forgotten(rows: ByBucket | KeyedChanges) -> None:
    """They are not needed any more."""
    await on_thread(rows.clear)


def by_bucket(rows: Iterable[tuple[int, Row]]) -> ByBucket:
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for bucket, row in rows:
        found[bucket].append(row)
    return found


def may_pack(plan: plans.InsertSelect, found: list[Row]) -> bool:
    """Not with ON CONFLICT: packed rows are put in, and that is all."""
    is_plain = plan.sql == insert_sql(plan.table, "fail")
    return len(found) > QUICK_ROWS and is_plain and library() is not None


async def packed_rows(plan: plans.InsertSelect, found: list[Row], buckets: int) -> PackedRows:
    return await made_of(found, partial(_packed, plan, buckets))


def _packed(plan: plans.InsertSelect, buckets: int, found: list[Row]) -> PackedRows:
    """Piece by piece: nobody can come between one step of C."""
    batch = RowBatch()
    for at in range(0, len(found), QUICK_ROWS):
        batch.add([row for _, row in plan.rows(found[at : at + QUICK_ROWS])])
    return batch.sorted(buckets)


class KeyedChanges:
    """What each bucket loses, gets and keeps with other values."""

    def __init__(self, changes: Sequence[plans.Change]) -> None:
        self.count = len(changes)
        gone: defaultdict[int, list[Row]] = defaultdict(list)
        come: defaultdict[int, list[Row]] = defaultdict(list)
        stay: defaultdict[int, list[Row]] = defaultdict(list)
        self._moves: set[tuple[int, int]] = set()
        for change in changes:
            old, new = change.old_bucket, change.new_bucket
            if change.update is not None:
                stay[old].append(change.update)
                continue
            gone[old].append((old, *change.key))
            if change.new is not None and new is not None:
                come[new].append(change.new)
                self._moves.add((old, new))
        self._gone, self._come, self._stay = gone, come, stay
        self._buckets = sorted({*gone, *come, *stay})

    @property
    def moves(self) -> bool:
        """Whether rows come, with a new key or in another bucket."""
        return bool(self._come)

    def clear(self) -> None:
        for rows in (self._gone, self._come, self._stay):
            rows.clear()

    def requests(
        self, plan: plans.KeyedWrite, routes: Routes, only: Ranges | None, operation: str | None
    ) -> dict[str, WriteRequest]:
        """What each replicaset does: delete by key, insert what comes, update what stays.

        An operation is repeated after a crash. Where a row leaves one replicaset for another, the
        first half would hide it from the second: that cannot be repeated, so it is refused.
        """
        if operation is not None:
            self._check_stays(plan.tier, routes, only)
        wanted = [each for each in self._buckets if only is None or contains(only, each)]
        return {
            owner: self._request(plan, buckets, operation)
            for owner, buckets in routes.group(plan.tier, wanted).items()
        }

    def _request(
        self, plan: plans.KeyedWrite, buckets: tuple[int, ...], operation: str | None
    ) -> WriteRequest:
        gone = _of(self._gone, buckets)
        parts = ((plan.insert_sql, self._come), (plan.update_sql, self._stay))
        more = [(sql, _of(rows, buckets)) for sql, rows in parts if sql is not None]
        return WriteRequest(
            plan.table.id,
            plan.table.schema_version,
            plan.delete_sql,
            gone,
            buckets=buckets,
            more=tuple(each for each in more if each[1]),
            must_change=len(gone),
            operation=operation,
        )

    def _check_stays(self, tier: str, routes: Routes, only: Ranges | None) -> None:
        for old, new in self._moves:
            if only is not None and not contains(only, new):
                continue
            if routes.owner(tier, old) != routes.owner(tier, new):
                raise Unsupported(
                    "an operation of the queue cannot move a row to another replicaset",
                    hint="run the UPDATE of the distribution key in a session",
                )


def _of(rows: ByBucket, buckets: Iterable[int]) -> tuple[Row, ...]:
    return tuple(chain.from_iterable(rows[each] for each in buckets if each in rows))
