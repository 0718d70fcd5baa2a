"""A bank over real sessions: money that is moved and counted while masters go and buckets move."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from cairn.model.members.topology import Replicaset
from cairn.model.rpc import ReadRequest
from cairn.node.statements.blocks import block_owner, open_block
from cairn.node.statements.changes.under_way import UnderWay
from cairn.node.statements.owner.guard import RowGuard
from cairn.node.statements.owner.reads import OwnerReads
from cairn.sim.cluster.loads.banking.bank_books import (
    ACCOUNTS,
    CUSTOMERS,
    EACH,
    Books,
    Outcome,
    Transfer,
    account,
    why_wrong_sum,
)
from cairn.sim.cluster.session_trials import BANK_KINDS, BankTrial
from cairn.storage.data_db import moving_in
from tests.sim_cluster.test_registers import silence  # noqa: F401

Patch = pytest.MonkeyPatch


class Banking(BankTrial):
    """A bank of a few seconds; buckets go there and back, columns come, and nobody fails."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, "moves", "sync")
        self.rounds, self.drops_soon, self.bank.change_s = 1, True, 0.4
        self.world.loop.thread_delay_s = 0.0

    async def _round(self) -> None:
        for weight in (0.25, 4.0):
            await self.nemesis._change_replicaset("default_1", weighing(weight))
            await asyncio.sleep(1.0)


def weighing(weight: float) -> Callable[[Replicaset], Replicaset]:
    return lambda each: msgspec.structs.replace(each, weight=weight, weight_origin="user")


def test_all_the_money_is_there_while_buckets_move() -> None:
    trial = Banking()
    found = trial.run()
    assert found.failure is None, found.failure
    ways = trial.bank.ways
    every = ("blind", "informed", "do", "single", "write wide", "events", "COPY side", "INSE side")
    assert all(ways[f"{way} done"] for way in every), ways
    assert ways["change done"] and trial.bank.reads > 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", BANK_KINDS)
def test_every_kind_of_blow_against_a_bank(kind: str) -> None:
    for seed in range(100, 103):
        found = BankTrial(seed, kind).run()
        assert found.failure is None, f"bank-{kind} {seed}: {found.failure}"


# --- the judge ------------------------------------------------------------------------------------


class Told:
    """Books of customer 0, whose other accounts nobody touches."""

    def __init__(self, *, is_strict: bool = True) -> None:
        self.books = Books(is_strict=is_strict)
        self._time = 0.0

    def transfer(self, name: str, outcome: Outcome = "done") -> Transfer:
        made = Transfer(name, 0, 0, 1, 5)
        self.books.transferred(made, (), *self._when(), outcome)
        return made

    def informed(self, name: str, seen: Any) -> Transfer:
        made = Transfer(name, 0, 0, 1, 5)
        read = [account(row) for row in seen]
        self.books.transferred(made, [(False, read)], *self._when(), "done")
        return made

    def read(self, rows: Any) -> str | None:
        return self.books.told(rows, *self._when())

    def end(self, rows: Any) -> str | None:
        return self.books.why_wrong([*rows, *EVERYBODY_ELSE])

    def _when(self) -> tuple[float, float]:
        self._time += 2.0
        return self._time - 1.0, self._time


EVERYBODY_ELSE = [(who, no, EACH, "") for who in range(1, CUSTOMERS) for no in range(ACCOUNTS)]


def accounts(*done: Transfer) -> list[tuple[int, int, int, str]]:
    """Of customer 0, after these transfers from its first account to its second."""
    money = sum(each.money for each in done)
    out, into = (
        "".join(f"+{tag}" for tag in tags)
        for tags in ([each.out for each in done], [each.into for each in done])
    )
    return [(0, 0, EACH - money, out), (0, 1, EACH + money, into), (0, 2, EACH, "")]


def test_a_right_story_is_right() -> None:
    told = Told()
    one = told.transfer("1")
    assert told.read(accounts(one)) is None
    two = told.transfer("2", "unknown")
    told.transfer("3", "undone")
    assert told.read(accounts(one, two)) is None
    four = told.informed("4", accounts(one, two))
    assert told.end(accounts(one, two, four)) is None


@pytest.mark.parametrize("what", ["half", "money", "twice", "missing", "undone"])
def test_an_answer_that_is_wrong_by_itself_is_noticed(what: str) -> None:
    told = Told()
    one, undone = told.transfer("1"), told.transfer("2", "undone")
    first, second, third = accounts(one)
    wrong = {
        "half": [first, (0, 1, EACH, ""), third],
        "money": [(0, 0, EACH, first[3]), second, third],
        "twice": accounts(one, one),
        "missing": [first, second],
        "undone": accounts(one, undone),
    }
    assert told.read(wrong[what]) is not None
    assert told.read(accounts(one)) is None


def test_what_only_the_whole_story_shows_is_noticed_in_the_end() -> None:
    lost = Told()
    assert lost.transfer("1") and "not in list" in (lost.end(accounts()) or "")
    stale = Told()
    one = stale.transfer("1")
    assert stale.read(accounts()) is None and "circle" in (stale.end(accounts(one)) or "")
    update = Told()  # both have seen nothing, and both were committed
    one, two = (update.informed(name, accounts()) for name in ("1", "2"))
    assert "circle" in (update.end(accounts(one, two)) or "")
    assert "nobody made" in (Told().end(accounts(Transfer("9", 0, 0, 1, 5))) or "")


def test_where_rows_may_be_lost_nothing_may_be_half_or_invented() -> None:
    told = Told(is_strict=False)
    one, undone = told.transfer("1"), told.transfer("2", "undone")
    assert told.end(accounts()) is None
    assert told.read([*accounts(one)[:2], (0, 2, EACH + 1, "")]) is not None
    assert told.read(accounts(undone)) is not None


def everybody(tags: str, *last: str) -> list[tuple[int, str]]:
    lists = [*[tags] * (CUSTOMERS - len(last)), *last]
    return list(enumerate(lists))


@pytest.mark.parametrize(
    ("outcome", "rows", "words"),
    [
        ("done", everybody("+w"), None),
        ("done", everybody("+w", ""), "acknowledged"),
        ("undone", everybody("", "+w"), "refused"),
        ("unknown", everybody("", "+w"), None),
    ],
)
def test_wide_writes_are_all_or_told(outcome: Outcome, rows: Any, words: str | None) -> None:
    books = Books(is_strict=True)
    books.wrote_wide("w", 1.0, 2.0, outcome)
    assert books.told_wide(rows, 3.0) is None
    why = books.why_wrong_wide()
    assert why is None if words is None else why is not None and words in why
    assert books.told_wide(everybody("+w+w"), 3.0) and books.told_wide(rows[1:], 3.0)


def test_side_rows_are_there_unless_their_table_was_emptied() -> None:
    def judged(told: list[int], begun: float) -> str | None:
        books = Books(is_strict=True)
        books.put([1, 2], 1.0, 2.0, "done")
        books.put([3], 1.0, 2.0, "undone")
        books.emptied(5.0, 6.0, "done")
        books.put([4], 5.5, 7.0, "done")
        assert books.told_side(told, begun, begun + 0.5) is None
        return books.why_wrong_side()

    assert judged([1, 2], 3.0) is None
    assert "not there" in (judged([1], 3.0) or "")
    assert "refused" in (judged([1, 2, 3], 3.0) or "")
    assert judged([1], 5.2) is None  # just then
    assert "emptied" in (judged([1, 4], 8.0) or "")
    assert judged([], 8.0) is None and judged([4], 8.0) is None
    assert Books(is_strict=True).told_side([1, 1], 1.0, 2.0)


def test_numbers_come_once_and_events_stay() -> None:
    books = Books(is_strict=True)
    assert books.number("numbers", 1) is None and books.event(1, "a") is None
    assert books.number("numbers", 1) and books.event(1, "b")
    books = Books(is_strict=True)
    assert books.event(1, "a") is None and books.why_wrong_events([(1, "a"), (2, "z")]) is None
    assert books.why_wrong_events([(1, "b")]) and books.why_wrong_events([])
    assert why_wrong_sum(1, 1) and why_wrong_sum(None, None)


# --- bugs -----------------------------------------------------------------------------------------


def nobody_looks_who_owns_the_rows(patch: Patch) -> None:
    def check_read(self: RowGuard, request: ReadRequest) -> None:
        self.check_versions(request)
        if request.preference == "leader" and request.tables:
            self.check_lease()

    patch.setattr(RowGuard, "check_read", check_read)
    patch.setattr(OwnerReads, "_still", lambda self, request, fence: lambda: fence.epoch)


def wide_writes_are_not_registered(patch: Patch) -> None:
    """A change of their table does not wait for them."""

    @contextlib.contextmanager
    def write(self: UnderWay, table: int) -> Iterator[None]:
        yield

    patch.setattr(UnderWay, "write", write)


def a_commit_compares_nothing(patch: Patch) -> None:
    for module in (block_owner, open_block):
        patch.setattr(module, "digest", lambda told, ordered: b"same")


def a_move_forgets_what_changed_meanwhile(patch: Patch) -> None:
    apply = moving_in.apply_part

    def forgetting(store: Any, exact: Any, place: Any, part: Any, changes: Any) -> None:
        apply(store, exact, place, part, () if part.action == "delta" else changes)

    patch.setattr(moving_in, "apply_part", forgetting)


#: What has to be told of it, and where it shows.
BUGS: list[tuple[Callable[[Patch], None], str, Callable[[], BankTrial]]] = [
    (nobody_looks_who_owns_the_rows, " told of ", lambda: BankTrial(2, "moves")),
    (wide_writes_are_not_registered, "half done", lambda: BankTrial(1, "columns")),
    (a_commit_compares_nothing, "half of a transfer", Banking),
    (a_move_forgets_what_changed_meanwhile, "", Banking),
]


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "words", "trial"), BUGS, ids=[bug.__name__ for bug, *_ in BUGS])
def test_a_planted_bug_is_found(
    bug: Callable[[Patch], None],
    words: str,
    trial: Callable[[], BankTrial],
    monkeypatch: Patch,
) -> None:
    bug(monkeypatch)
    found = trial().run().failure
    assert found is not None and words in found
