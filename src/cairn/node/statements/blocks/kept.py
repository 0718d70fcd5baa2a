"""What statements of open blocks did when they were tried, so that it need not be found out again.

A statement is tried behind those before it in its block, and taken back. If nobody has changed rows
of the buckets that it touched since then, to run it again would give the same answer and the same
changes: its changes are put back instead, and its answer holds. If somebody has, or if that is not
known for sure, all statements are run again and compared with what was told: nothing is
ever kept for correctness, and nothing has to be kept at all.

All or nothing: a statement that is run again may do something else than before, and those behind
it have seen what it did.

The invariant: `Kept.done` gives changes only if every row that any of these statements has
looked at is as it was when it looked, but for what the statements before it did. What the
statements read besides rows of their buckets (global tables, rows that theirs are tied to) is not
watched, so such statements are not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import apsw

from cairn.model.errors import BlockConflict
from cairn.model.log.records import RowChange
from cairn.model.rpc import BlockItem
from cairn.replication.applier import Damaged
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.exact_changes import ExactChanges, Said
from cairn.storage.data_db.fence import Fence

MOST, MOST_BYTES = 20_000, 32 << 20  # statements of all blocks; the oldest are forgotten
MOST_CHANGES = 100  # of one statement
_SELF_BYTES, _BUCKET_BYTES = 500, 100  # of one statement, beside its rows; of a bucket in a set


class _Made(NamedTuple):
    """`then`, `fence` and `versions` are the writer's when it was tried."""

    told: bytes
    changes: tuple[RowChange, ...]
    said: tuple[Said, ...]
    tables: tuple[int, ...]
    buckets: frozenset[int]
    then: int
    fence: Fence
    versions: dict[int, int]
    size: int


class Done(NamedTuple):
    """Changes as the log has them, and as SQLite is told of them."""

    changes: Sequence[RowChange]
    said: Sequence[Said]


NOTHING = Done((), ())


class Kept:
    """Belongs to the writer, as the rows do. `first` is a number that no earlier life has used."""

    def __init__(self, store: DataStore, first: int) -> None:
        self._store, self._exact, self._next = store, ExactChanges(store), first
        self._made: OrderedDict[int, _Made] = OrderedDict()
        self._bytes = 0

    def keep(
        self, item: BlockItem, told: bytes, buckets: frozenset[int], changes: tuple[RowChange, ...]
    ) -> int:
        """Under which number it can be asked for; 0: it is not kept."""
        store = self._store
        if len(changes) > MOST_CHANGES or any(table in store.kin for table in item.tables):
            return 0
        size = _SELF_BYTES + _BUCKET_BYTES * len(buckets)
        size += sum(_bytes(change.old) + _bytes(change.new) for change in changes)
        if size > MOST_BYTES // 100:
            return 0
        tables, then = tuple(item.tables), store.touched.now
        as_it_is = (then, store.fence, store.versions)
        said = self._exact.said(changes)
        made = _Made(told, changes, said, tables, buckets, *as_it_is, size)
        self._next += 1
        self._made[self._next] = made
        self._bytes += size
        while self._bytes > MOST_BYTES or len(self._made) > MOST:
            self._bytes -= self._made.popitem(last=False)[1].size
        return self._next

    def done(self, items: Sequence[BlockItem]) -> Done | None:
        """What all of these did, in order; None: they have to be run again."""
        changes: list[RowChange] = []
        said: list[Said] = []
        for item in items:
            made = self._made.get(item.made)
            if made is None or made.told != item.told or not self._holds(made):
                return None
            changes += made.changes
            said += made.said
        return Done(changes, said)

    def do_again(self, done: Done) -> None:
        """In the transaction of the statement that is running."""
        if done.said:
            try:
                self._store.repeat(done.changes, lambda: self._exact.again(done.said))
            except (
                Damaged,
                apsw.ConstraintError,
            ) as problem:  # what we think of these rows is wrong: look again
                raise BlockConflict(f"could not serialize access: {problem}") from None

    def _holds(self, made: _Made) -> bool:
        store = self._store
        if made.fence is not store.fence or made.versions is not store.versions:
            return False  # another epoch, other buckets, other tables
        if store.newest is not store.fence:
            return False  # only who runs a statement asks whether each of its buckets stays here
        return not store.touched.is_since(made.then, made.tables, made.buckets)

    def forget(self, items: Iterable[BlockItem]) -> None:
        for item in items:
            made = self._made.pop(item.made, None)
            if made is not None:
                self._bytes -= made.size


def _bytes(row: Sequence[object] | None) -> int:
    if row is None:
        return 0
    return 60 * len(row) + sum(len(value) for value in row if isinstance(value, str | bytes))
