"""Who has an advisory lock, who is next, and whose locks the governor takes away."""

from __future__ import annotations

import random

import msgspec
import pytest

from cairn.governor.actions import Propose
from cairn.governor.rules.locks import release_lost_locks
from cairn.governor.view import ClusterView
from cairn.model.log.applied import Change
from cairn.model.members.topology import Grade, State
from cairn.model.tables.locks import (
    ONE,
    Lock,
    LockKey,
    Locks,
    Mode,
    Owner,
    asked,
    deadlock,
    given_up,
    victim,
)
from cairn.model.tables.system_tables import CAIRN_LOCK
from tests.governor.builders import instance, view_of

KEY = LockKey(ONE, 7)


def owner(session: int, raft_id: int = 1) -> Owner:
    return Owner(raft_id, 1, session)


class Rows:
    """`_cairn_lock`, and what sessions do to it."""

    def __init__(self) -> None:
        self.locks = Locks()

    def ask(self, session: int, mode: Mode = "exclusive", *, number: int = 7) -> bool:
        key = LockKey(ONE, number)
        made = asked(self.locks.of(key), key, owner(session), mode, waits=True)
        self.locks.follow([Change(CAIRN_LOCK.id, None, made.row)])
        return made.is_held

    def end(self, session: int, mode: Mode = "exclusive") -> None:
        found = self.locks.find(KEY, owner(session), mode)
        assert found is not None
        self.apply(given_up(self.locks.of(KEY), [found]))

    def apply(self, changes: tuple[object, ...]) -> None:
        for change in changes:
            key = change.row[:6] if hasattr(change, "row") else change.key  # type: ignore[attr-defined]
            old = next(each.row for each in self.locks if each.row[:6] == key)
            new = getattr(change, "row", None)
            self.locks.follow([Change(CAIRN_LOCK.id, old, new)])

    def holders(self) -> list[int]:
        return [each.owner.session for each in self.locks.of(KEY) if each.is_held]


def test_those_who_wait_get_it_in_turn_and_readers_together() -> None:
    rows = Rows()
    assert [rows.ask(1), rows.ask(2, "shared"), rows.ask(3, "shared"), rows.ask(4)] == [
        True, False, False, False,
    ]  # fmt: skip
    assert not rows.ask(5, "shared")  # it does not pass the fourth
    rows.end(1)
    assert rows.holders() == [2, 3]
    rows.end(2, "shared")
    assert rows.holders() == [3]
    rows.end(3, "shared")
    assert rows.holders() == [4]
    rows.end(4)
    assert rows.holders() == [5]


def test_who_has_it_goes_before_those_who_wait_for_it() -> None:
    rows = Rows()
    assert rows.ask(1, "shared") and not rows.ask(2)
    assert rows.ask(1)
    rows.end(1)
    rows.end(1, "shared")
    assert rows.holders() == [2]


def test_who_does_not_wait_passes_nobody() -> None:
    rows = Rows()
    rows.ask(1, "shared")
    rows.ask(2)
    locks = rows.locks.of(KEY)
    assert not asked(locks, KEY, owner(3), "shared", waits=False).is_held
    assert not asked(locks, KEY, owner(1), "exclusive", waits=False).is_held


def test_a_circle_is_found_by_all_who_are_in_it_and_they_name_one_victim() -> None:
    rows = Rows()
    for session in range(3):
        rows.ask(session, number=session)
    for session in range(3):
        rows.ask(session, number=(session + 1) % 3)
    rows.ask(9, number=0)  # it waits, and nobody waits for it
    waiting = [each for each in rows.locks if not each.is_held]
    circles = {each.owner.session: deadlock(rows.locks, each) for each in waiting}
    assert {who: len(circle) for who, circle in circles.items()} == {0: 3, 1: 3, 2: 3, 9: 0}
    assert len({victim(circle) for circle in circles.values() if circle}) == 1


def test_a_long_line_is_no_circle() -> None:
    rows = Rows()
    for session in range(3_000):
        rows.ask(session, number=session)
    for session in range(2_999):
        rows.ask(session, number=session + 1)
    first = rows.locks.find(LockKey(ONE, 1), owner(0), "exclusive")
    assert first is not None
    assert deadlock(rows.locks, first) == []


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_only_those_have_it_who_may(seed: int) -> None:
    chance, rows = random.Random(seed), Rows()
    for _ in range(300):
        session = chance.randrange(6)
        mode: Mode = chance.choice(("exclusive", "shared"))
        if rows.locks.find(KEY, owner(session), mode) is None:
            rows.ask(session, mode)
        else:
            rows.end(session, mode)
        held = [each for each in rows.locks.of(KEY) if each.is_held]
        assert not any(one.hinders(other) for one in held for other in held), seed
        if rows.locks.of(KEY):
            assert held, f"everybody waits, and for nobody: {seed}"
        assert rows.locks.count == len(rows.locks.of(KEY)) == len(list(rows.locks))


# --- the governor ---------------------------------------------------------------------------------


def lock(raft_id: int, incarnation: int, *, is_held: bool, ticket: int) -> Lock:
    return Lock(KEY, Owner(raft_id, incarnation, 1), "exclusive", is_held, ticket)


def released(target: State, *, keeps: bool = False) -> list[Propose]:
    """What is done about a lock of i2's first life, for which a session of i1 waits."""
    locks = Locks([lock(2, 1, is_held=True, ticket=1).row, lock(1, 1, is_held=False, ticket=2).row])
    made: ClusterView = view_of(
        instance("i1", 1), instance("i2", 2, State(Grade.ONLINE, 1), target)
    )
    kept = frozenset({2} if keeps else ())
    made = msgspec.structs.replace(made, locks=locks, keeps_locks=kept)
    return [each for each in release_lost_locks(made) if isinstance(each, Propose)]


def test_the_locks_of_a_life_that_counts_stay() -> None:
    assert released(State(Grade.ONLINE, 1)) == []


@pytest.mark.parametrize(
    "target", [State(Grade.OFFLINE, 1), State(Grade.ONLINE, 2), State(Grade.EXPELLED, 1)]
)
def test_the_locks_of_a_life_that_is_over_go_to_those_who_wait(target: State) -> None:
    [action] = released(target)
    assert (action.subject, len(action.ops)) == ("i2", 2)
    [gone, given] = action.ops
    lost = lock(2, 1, is_held=True, ticket=1)
    assert gone == given_up([lost], [lost])[0]
    assert given.row == lock(1, 1, is_held=True, ticket=2).row  # type: ignore[union-attr]
    assert released(target, keeps=True) == []
