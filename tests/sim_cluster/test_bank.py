"""A bank over real sessions: money that is moved and counted while masters go and buckets move."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from cairn.model.members.topology import Replicaset
from cairn.node.statements.blocks import block_owner, open_block
from cairn.node.statements.changes.under_way import UnderWay
from cairn.node.statements.owner.guard import RowGuard
from cairn.node.statements.owner.reads import OwnerReads
from cairn.sim.cluster.loads.bank_books import (
    ACCOUNTS,
    CUSTOMERS,
    EACH,
    Books,
    Outcome,
    Transfer,
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


# --- bugs -----------------------------------------------------------------------------------------


def nobody_looks_who_owns_the_rows(patch: Patch) -> None:
    patch.setattr(RowGuard, "check_read", lambda self, request: self.check_lease())
    patch.setattr(OwnerReads, "_still", lambda self, request, fence: lambda: None)


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


BUGS: list[tuple[Callable[[Patch], None], str]] = [
    (nobody_looks_who_owns_the_rows, " told of "),
    (wide_writes_are_not_registered, "half done"),
    (a_commit_compares_nothing, "transfers make"),
    (a_move_forgets_what_changed_meanwhile, ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "words"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_is_found(
    bug: Callable[[Patch], None], words: str, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    found = next((f for seed in range(1, 5) if (f := Banking(seed).run().failure)), None)
    assert found is not None and words in found
