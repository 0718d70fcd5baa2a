"""Foreign keys, kept by the one writer: inside its transaction, from what SQLite really changed.

Invariant: whatever a statement of a client leaves behind, each row that names another finds it in
its own bucket, or in a global table. The order: the statement; then, change by change, what ON
DELETE and ON UPDATE ask for, which are changes too, or whether somebody still names the row; then
the look at rows that came. What fails is taken back with the statement.

Only clients are judged. Rows of replicas, full copies and moves come as some master left them: as a
prefix of its log, or all of a bucket as of one moment, in which the invariant holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apsw
import msgspec

from cairn.model.errors import ForeignKeyViolation, Unsupported
from cairn.model.log.records import RowChange, RowOp
from cairn.model.tables.schema import BUCKET_COLUMN, ForeignKey, Table, physical_column
from cairn.model.tables.violations import not_there, still_named
from cairn.storage.data_db.global_parents import has_parent, lacking, parent_name

Key = tuple[Any, ...]  # the bucket, then values


class Tie(msgspec.Struct, frozen=True):
    """A foreign key with both of its tables, whose rows lie together."""

    key: ForeignKey
    child: Table
    parent: Table

    def of_child(self, row: Sequence[Any]) -> Key | None:
        """What a row names; None: nothing, one of its columns is NULL."""
        found = (row[0], *(row[at + 1] for at in self.key.columns))
        return None if None in found else found

    def of_parent(self, row: Sequence[Any]) -> Key:
        """What others name it by; with NULL among its values nobody does."""
        return (row[0], *(row[at + 1] for at in self.key.parent_columns))


_FIRM = ("no action", "restrict")


class Kin:
    """Which tables are tied to which, as the writer knows them."""

    def __init__(self, tables: dict[int, Table]) -> None:
        self.parents_of: dict[int, list[Tie]] = {}  # by child
        self.children_of: dict[int, list[Tie]] = {}  # by parent
        self.globals_of: dict[int, list[ForeignKey]] = {}  # by child: towards global tables
        self.tables = tables
        for child in tables.values():
            for key in child.foreign_keys:
                if key.is_global:
                    self.globals_of.setdefault(child.id, []).append(key)
                    continue
                parent = tables.get(key.parent)
                if parent is not None:
                    tie = Tie(key, child, parent)
                    self.parents_of.setdefault(child.id, []).append(tie)
                    self.children_of.setdefault(parent.id, []).append(tie)

    def __contains__(self, table: int) -> bool:
        return table in self.children_of or self.names(table)

    def names(self, table: int) -> bool:
        """Whether its rows name others."""
        return table in self.parents_of or table in self.globals_of


class Enforcing:
    """One statement's changes. `changes` grows while actions are carried out: the hook tells."""

    def __init__(
        self, connection: apsw.Connection, kin: Kin, changes: list[RowChange], fenced_at: int
    ) -> None:
        self._connection, self._kin, self._changes = connection, kin, changes
        self._fenced_at = fenced_at  # the entry of Raft that says what the writer may do

    def has_lost(self, since: int) -> bool:
        """Whether rows that others may name went or got another key: that may take long."""
        return any(True for _ in self._lost(since))

    def act(self, since: int, is_rekeyed: Callable[[int], Sequence[Any] | None]) -> None:
        """ON DELETE and ON UPDATE, for all changes from `since` on, theirs included.

        `is_rekeyed` gives the new key of a row that was deleted to be inserted with another one.
        """
        self._check_apart(since, is_rekeyed)
        # As in PostgreSQL: row by row, key by key in the order they were made, and what an action
        # changed comes before the rest.
        begun = [self._losses(range(since, len(self._changes)), is_rekeyed)]
        while begun:
            found = next(begun[-1], None)
            if found is None:
                begun.pop()
                continue
            before = len(self._changes)
            self._act(*found)
            if len(self._changes) > before:
                begun.append(self._losses(range(before, len(self._changes)), no_pairs))

    def _check_apart(self, since: int, is_rekeyed: Callable[[int], Sequence[Any] | None]) -> None:
        """Keys that are given to one row while another had them: who named which is not known any
        more when children are to follow."""
        had: dict[str, set[Key]] = {}
        got: dict[str, set[Key]] = {}
        for at in range(since, len(self._changes)):
            for tie, old, new in self._lost_by(at, is_rekeyed(at)):
                if new is not None and tie.key.on_update not in _FIRM:
                    had.setdefault(tie.key.name, set()).add(old)
                    got.setdefault(tie.key.name, set()).add(new)
        for name, keys in had.items():
            if keys & got[name]:
                raise Unsupported(
                    "an UPDATE gives keys to rows that others of its rows had, and rows of another "
                    "table follow them (ON UPDATE)",
                    hint="change them one by one",
                )

    def check(self, since: int, *, deferred: bool) -> None:
        """With `deferred` those that wait for the end of a block, else the others. Parents that
        have to stay were looked at in their turn, unless that waits too."""
        for tie, old in self._gone(since) if deferred else ():
            if not tie.key.is_deferred:
                continue
            if self._finds(tie.parent, tie.key.parent_columns, old):
                continue
            if self._finds(tie.child, tie.key.columns, old):
                raise still_named(tie.key, tie.child, tie.parent, old[1:])
        there: set[tuple[str, int, Key]] = set()
        for tie, new, row in self._came(since):
            mark = (tie.key.name, tie.child.id, new)
            if tie.key.is_deferred is not deferred or mark in there:
                continue
            if self._finds(tie.parent, tie.key.parent_columns, new):
                there.add(mark)
            elif self._is_left(tie.child, tie.key, row):  # not gone again meanwhile
                raise not_there(tie.key, tie.child, tie.parent.name, new[1:])
        self._check_globals(since, deferred)

    def _check_globals(self, since: int, deferred: bool) -> None:
        there: set[tuple[str, int, Key]] = set()
        for child, key, row in self._came_global(since):
            values = tuple(row[at + 1] for at in key.columns)
            mark = (key.name, child.id, values)
            if key.is_deferred is not deferred or mark in there:
                continue
            if not self._is_left(child, key, row):
                continue
            if not has_parent(self._connection, key, values, self._fenced_at):
                name = parent_name(self._connection, key)
                raise not_there(key, child, name, values, in_copy=True)
            there.add(mark)

    # --- what changed ---------------------------------------------------------------------------

    def _losses(
        self, places: range, is_rekeyed: Callable[[int], Sequence[Any] | None]
    ) -> Iterator[tuple[Tie, Key, Key | None]]:
        for at in places:
            yield from self._lost_by(at, is_rekeyed(at))

    def _lost(self, since: int) -> Iterator[tuple[Tie, Key, Key | None]]:
        return self._losses(range(since, len(self._changes)), no_pairs)

    def _lost_by(
        self, at: int, rekeyed: Sequence[Any] | None
    ) -> Iterator[tuple[Tie, Key, Key | None]]:
        """Keys that rows may name and that this change took away, with what they became: None for
        a row that is gone, NULL among the values for one that nobody can name any more."""
        change = self._changes[at]
        if change.old is None:
            return
        after = change.new if change.new is not None else rekeyed
        for tie in self._kin.children_of.get(change.table, ()):
            old = tie.of_parent(change.old)
            new = None if after is None else tie.of_parent(after)
            if None not in old and old != new:
                yield tie, old, new

    def _gone(self, since: int) -> Iterator[tuple[Tie, Key]]:
        seen: set[tuple[str, int, Key]] = set()
        for tie, old, _ in self._lost(since):
            mark = (tie.key.name, tie.child.id, old)
            if mark not in seen:
                seen.add(mark)
                yield tie, old

    def _came(self, since: int) -> Iterator[tuple[Tie, Key, Sequence[Any]]]:
        """What rows name since then, with the row: one that got another key is a row that came."""
        for change in self._changes[since:]:
            if change.new is None:
                continue
            for tie in self._kin.parents_of.get(change.table, ()):
                new = tie.of_child(change.new)
                if new is not None and not _is_same(tie.child, tie.key, change):
                    yield tie, new, change.new

    def _came_global(self, since: int) -> Iterator[tuple[Table, ForeignKey, Sequence[Any]]]:
        """The same for those that name rows of global tables."""
        for change in self._changes[since:]:
            for key in self._kin.globals_of.get(change.table, ()):
                child = self._kin.tables[change.table]
                row = change.new
                if row is None or any(row[at + 1] is None for at in key.columns):
                    continue
                if not _is_same(child, key, change):
                    yield child, key, row

    # --- the rows -------------------------------------------------------------------------------

    def _act(self, tie: Tie, old: Key, new: Key | None) -> None:
        action = tie.key.on_delete if new is None else tie.key.on_update
        if self._finds(tie.parent, tie.key.parent_columns, old):
            return
        if action in _FIRM:
            is_late = tie.key.is_deferred and action != "restrict"
            if not is_late and self._finds(tie.child, tie.key.columns, old):
                raise still_named(tie.key, tie.child, tie.parent, old[1:])
            return
        where = _where(tie.key.columns)
        table = tie.child.physical_name
        if action == "cascade" and new is None:
            self._connection.execute(f"DELETE FROM {table} WHERE {where}", old)
            return
        values = new[1:] if action == "cascade" and new is not None else (None,) * (len(old) - 1)
        sets = ", ".join(f"{physical_column(at)} = ?" for at in tie.key.columns)
        self._connection.execute(f"UPDATE {table} SET {sets} WHERE {where}", (*values, *old))

    def _finds(self, table: Table, columns: Sequence[int], key: Key) -> bool:
        text = f"SELECT 1 FROM {table.physical_name} WHERE {_where(columns)} LIMIT 1"
        return self._connection.execute(text, key).fetchone() is not None

    def _is_left(self, child: Table, key: ForeignKey, row: Sequence[Any]) -> bool:
        """By its own key: what it names may have no index, and this may be the event loop."""
        columns = (*child.key_positions, *key.columns)
        return self._finds(child, columns, (row[0], *_values(row, columns)))


def _values(row: Sequence[Any], columns: Sequence[int]) -> Key:
    return tuple(row[at + 1] for at in columns)


def _is_same(child: Table, key: ForeignKey, change: RowChange) -> bool:
    """Whether a row names what it named before: the same row, by its key and its bucket."""
    if change.old is None or change.new is None:
        return False
    columns = (*child.key_positions, *key.columns)
    is_there = change.old[0] == change.new[0]
    return is_there and _values(change.old, columns) == _values(change.new, columns)


def no_pairs(at: int) -> None:
    """Rows that were deleted are gone."""


def rekeyed_rows(changes: Sequence[RowChange], since: int) -> Callable[[int], Sequence[Any] | None]:
    """For a statement that gives rows other keys by taking them away and putting them in again.

    It deletes all of them first, and inserts them in the same order.
    """
    gone = [at for at in range(since, len(changes)) if changes[at].op == RowOp.DELETE]
    come = [change.new for change in changes[since:] if change.op == RowOp.INSERT]
    pairs = dict(zip(gone, come, strict=True)) if len(gone) == len(come) else {}
    return pairs.get


def check_ties(
    connection: apsw.Connection, have: Table, want: Table, kin: Kin, span: tuple[int, int]
) -> None:
    """Raises if rows of a table break a key that it gets, or rows of others name what a TRUNCATE
    takes away: those of some buckets. Inside the transaction that makes the change."""
    known = have.foreign_keys
    for tie in kin.parents_of.get(want.id, ()):
        if tie.key in known:
            continue
        own = tuple(f"c.{physical_column(at)}" for at in tie.key.columns)
        same = " AND ".join(
            f"p.{physical_column(at)} = {name}"
            for at, name in zip(tie.key.parent_columns, own, strict=True)
        )
        given = " AND ".join(f"{name} IS NOT NULL" for name in own)
        found = connection.execute(
            f"SELECT c.{BUCKET_COLUMN}, {', '.join(own)} FROM {want.physical_name} AS c "
            f"WHERE {given} AND NOT EXISTS (SELECT 1 FROM {tie.parent.physical_name} AS p "
            f"WHERE p.{BUCKET_COLUMN} = c.{BUCKET_COLUMN} AND {same}) "
            f"AND c.{BUCKET_COLUMN} BETWEEN ? AND ? LIMIT 1",
            span,
        ).fetchone()
        if found is not None:
            raise not_there(tie.key, tie.child, tie.parent.name, found[1:])
    _check_global_ties(connection, want, kin, known, span)
    if have.truncated_at == want.truncated_at:
        return
    for tie in kin.children_of.get(want.id, ()):
        given = " AND ".join(f"{physical_column(at)} IS NOT NULL" for at in tie.key.columns)
        within = f"{BUCKET_COLUMN} BETWEEN ? AND ?"
        text = f"SELECT 1 FROM {tie.child.physical_name} WHERE {within} AND {given} LIMIT 1"
        if tie.child.id != want.id and connection.execute(text, span).fetchone() is not None:
            raise ForeignKeyViolation(
                f'cannot truncate table "{want.name}": rows of table "{tie.child.name}" name its '
                "rows",
                hint="empty that one first, or name both: children come first",
            )


def _check_global_ties(
    connection: apsw.Connection,
    want: Table,
    kin: Kin,
    known: Sequence[ForeignKey],
    span: tuple[int, int],
) -> None:
    """The change is prepared, and known to the copy: until it has ended no row goes from there."""
    for key in kin.globals_of.get(want.id, ()):
        if key in known:
            continue
        own = [f"c.{physical_column(at)}" for at in key.columns]
        given = " AND ".join(f"{name} IS NOT NULL" for name in own)
        found: Any = connection.execute(
            f"SELECT {', '.join(own)} FROM {want.physical_name} AS c WHERE {given} "
            f"AND {lacking(key, own)} AND c.{BUCKET_COLUMN} BETWEEN ? AND ? LIMIT 1",
            span,
        ).fetchone()
        if found is not None:
            raise not_there(key, want, parent_name(connection, key), found)


def _where(columns: Sequence[int]) -> str:
    names = (BUCKET_COLUMN, *(physical_column(at) for at in columns))
    return " AND ".join(f"{name} = ?" for name in names)
