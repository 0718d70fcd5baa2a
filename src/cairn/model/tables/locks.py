"""Advisory locks, as the rows of `_cairn_lock` have them: who holds what, who waits, who is next.

A lock has a row for each session that holds it or waits for it. Whoever changes the rows of a lock
writes at once what follows from it: who gives it up also names those who have it from then on. So
nobody has to ask again and again, and they get it in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from cairn.model.log.applied import Change
from cairn.model.log.ops import Delete, Dml, Insert, Replace
from cairn.model.log.ranges import KeyRange, encode_key
from cairn.model.tables.system_tables import CAIRN_LOCK

Mode = Literal["exclusive", "shared"]
ONE, TWO = 1, 2  # the spaces of keys: one bigint, or two integers
MOST = 65_536  # of the whole cluster: every instance keeps them in memory


class LockKey(NamedTuple):
    space: int
    number: int  # two integers are one number of 64 bits


class Owner(NamedTuple):
    """A session: it is one of a life of an instance."""

    raft_id: int
    incarnation: int
    session: int


class Lock(msgspec.Struct, frozen=True):
    """One row: a session holds the lock, or waits for it."""

    key: LockKey
    owner: Owner
    mode: Mode
    is_held: bool
    ticket: int  # in the order of tickets

    @property
    def row(self) -> tuple[Any, ...]:
        return (*self.key, *self.owner, self.mode, int(self.is_held), self.ticket)

    def hinders(self, other: Lock) -> bool:
        """Whether both cannot have it."""
        return self.owner != other.owner and "exclusive" in (self.mode, other.mode)


def lock_of(row: Sequence[Any]) -> Lock:
    space, number, raft_id, incarnation, session, mode, is_held, ticket = row[:8]
    owner = Owner(raft_id, incarnation, session)
    return Lock(LockKey(space, number), owner, mode, bool(is_held), ticket)


def rows_of(key: LockKey) -> KeyRange:
    """All rows of one lock. The key of a row is longer than its first two columns."""
    low = encode_key(key)
    return KeyRange(CAIRN_LOCK.id, low, True, low + b"\xff", True)


class Locks:
    """The rows of now, by lock and by the lives of instances."""

    def __init__(self, rows: Iterable[Sequence[Any]] = ()) -> None:
        self._by_key: dict[LockKey, tuple[Lock, ...]] = {}
        self._of_lives: dict[tuple[int, int], dict[LockKey, int]] = {}
        self.count = 0
        for row in rows:
            self._put(lock_of(row), 1)

    def follow(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.table == CAIRN_LOCK.id:
                if change.old is not None:
                    self._put(lock_of(change.old), -1)
                if change.new is not None:
                    self._put(lock_of(change.new), 1)

    def _put(self, lock: Lock, more: int) -> None:
        known = self._by_key.pop(lock.key, ())
        known = (*known, lock) if more > 0 else tuple(each for each in known if each != lock)
        if known:
            self._by_key[lock.key] = known
        life = lock.owner[:2]
        keys = self._of_lives.setdefault(life, {})
        keys[lock.key] = keys.get(lock.key, 0) + more
        if not keys[lock.key]:
            del keys[lock.key]
        if not keys:
            del self._of_lives[life]
        self.count += more

    def of(self, key: LockKey) -> tuple[Lock, ...]:
        return self._by_key.get(key, ())

    def find(self, key: LockKey, owner: Owner, mode: Mode) -> Lock | None:
        for each in self.of(key):
            if each.owner == owner and each.mode == mode:
                return each
        return None

    def lives(self) -> list[tuple[int, int]]:
        """(raft_id, incarnation) of all whose sessions hold locks or wait."""
        return sorted(self._of_lives)

    def of_life(self, raft_id: int, incarnation: int) -> list[LockKey]:
        return sorted(self._of_lives.get((raft_id, incarnation), ()))

    def __iter__(self) -> Iterator[Lock]:
        for key in sorted(self._by_key):
            yield from self._by_key[key]


# --- who has it ---------------------------------------------------------------------------------


def line(locks: Iterable[Lock]) -> list[Lock]:
    """Those who wait, in their order. Who holds the lock in the other mode goes first: it would
    wait for those who wait for it."""
    locks = tuple(locks)
    holders = {each.owner for each in locks if each.is_held}
    waiting = [each for each in locks if not each.is_held]
    return sorted(waiting, key=lambda each: (each.owner not in holders, each.ticket))


def asked(locks: Sequence[Lock], key: LockKey, owner: Owner, mode: Mode, *, waits: bool) -> Lock:
    """The row of a session that asks, held or waiting. Who does not wait is not let past others
    who do, as in PostgreSQL."""
    ticket = 1 + max((each.ticket for each in locks), default=0)
    wanted = Lock(key, owner, mode, False, ticket)
    before = [each for each in locks if each.is_held]
    if not waits or not any(each.owner == owner for each in before):
        before = list(locks)
    is_free = not any(each.hinders(wanted) for each in before)
    return msgspec.structs.replace(wanted, is_held=is_free)


def next_ones(locks: Iterable[Lock]) -> list[Lock]:
    """Those who wait and may have it now, as rows that hold it."""
    locks = tuple(locks)
    held = [each for each in locks if each.is_held]
    found: list[Lock] = []
    for each in line(locks):
        if any(other.hinders(each) for other in held):
            break
        given = msgspec.structs.replace(each, is_held=True)
        held.append(given)
        found.append(given)
    return found


def taken(lock: Lock) -> Dml:
    return Insert(CAIRN_LOCK.id, lock.row)


def given_up(locks: Sequence[Lock], gone: Iterable[Lock]) -> tuple[Dml, ...]:
    """Rows of one lock are deleted, and whoever is next has it."""
    gone = tuple(gone)
    left = [each for each in locks if each not in gone]
    return (
        *(Delete(CAIRN_LOCK.id, each.row[:6]) for each in gone),
        *(Replace(CAIRN_LOCK.id, each.row) for each in next_ones(left)),
    )


# --- who waits for whom -------------------------------------------------------------------------


def waited_for(locks: Sequence[Lock], waiting: Lock) -> list[Lock]:
    """Who holds the lock, or is before it in the line and has to have it first."""
    found = [each for each in locks if each.is_held and each.hinders(waiting)]
    in_line = line(locks)
    before = in_line[: in_line.index(waiting)] if waiting in in_line else []
    for each in reversed(before):
        if each.hinders(waiting):
            found.append(each)
        if each.mode == "exclusive":
            break  # who is before that one is what it waits for itself
    return found


def deadlock(locks: Locks, waiting: Lock) -> list[Lock]:
    """The circle of sessions that wait for each other, with this one; empty: none.

    All rows are of one moment, and a session waits for one lock at a time: so such a circle stays
    until one of them gives up.
    """
    waits = {each.owner: each for each in locks if not each.is_held}
    came_from: dict[Owner, Lock] = {}
    to_look_at = [waiting]
    for at in to_look_at:
        for other in waited_for(locks.of(at.key), at):
            if other.owner == waiting.owner:
                circle = [at]
                while circle[-1].owner != waiting.owner:
                    circle.append(came_from[circle[-1].owner])
                return circle
            following = waits.get(other.owner)
            if following is not None and other.owner not in came_from:
                came_from[other.owner] = at
                to_look_at.append(following)
    return []


def victim(circle: Sequence[Lock]) -> Lock:
    """The one of a circle that gives up: all instances name the same."""
    return max(circle, key=lambda each: (each.ticket, each.owner))
