"""Rows that are changed over and over while everything fails; and what judges them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from cairn.node.rows.leases import LeaseHolder
from cairn.sim.cluster import world
from cairn.sim.cluster.blows import nemesis
from cairn.sim.cluster.blows.damaged_starts import damaged_start
from cairn.sim.cluster.blows.exact import mode_and_strike
from cairn.sim.cluster.blows.old_files import old_files
from cairn.sim.cluster.trial import KINDS, Kind, Trial
from cairn.storage.raft_db.global_tables import TableDump
from cairn.storage.raft_db.state_machine import StateMachine
from cairn.storage.readers import RowReader


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="cairn")


def check(seed: int, kind: str, mode: str | None = None) -> Trial:
    trial = Trial(seed, kind, mode)
    result = trial.run()
    how = f"python -m cairn.sim.cluster --kind {kind} --seeds {seed} --trace"
    assert result.failure is None, f"{how} ({result.about}): {result.failure}"
    return trial


@pytest.mark.parametrize(("kind", "mode"), [("strikes", "sync"), ("masters", "async")])
def test_masters_go_back_and_forth_and_rows_stay(kind: str, mode: str) -> None:
    """And clients have gone every way that a session goes."""
    ways = check(1, kind, mode).registers.ways
    expected = {"write here", "write away", "read away"}
    assert expected | ({"read here"} if mode == "async" else set()) <= set(ways)


@pytest.mark.parametrize(
    "kind", ["lost-tails", "full-disks", "calm-alone"]
)  # "members" is below, and slow
def test_rows_outlive_a_blow_of_each_kind(kind: str) -> None:
    check(1, kind)


#: Seeds that found a bug, each of another kind.
FOUND = {
    ("lost-tails", 2): "a master that lost its last records used their numbers again",
    ("members", 1): "whoever had promised waited for a naming that never came",
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), sorted(FOUND))
def test_what_was_found_once_stays_mended(kind: str, seed: int) -> None:
    check(seed, kind)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["mix", *KINDS])
def test_every_kind_of_blow_in_many_ways(kind: str) -> None:
    for seed in range(100, 110):
        check(seed, kind)


# --- bugs that a load of fresh inserts does not see -----------------------------------------------


class ThereAndBack(Trial):
    """Twice: somebody is away while mastership goes to the other one and back, the schema changes
    and Raft's logs are forgotten.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "masters", "async")
        self.rounds = 1

    async def _round(self) -> None:
        world, blows = self.world, self.nemesis
        for _ in range(2):
            masters = self.load.masters()
            others = [node for node in world.running() if node not in masters]
            away = next(node for node in others if not node.is_leader)
            away.crash()
            await asyncio.sleep(0.5)
            await blows.alter()
            for heir in [node for node in others if node is not away] + masters:
                await blows.switch(heir)
                await world.until(lambda to=heir: self.load.masters() == [to], "heir", 20.0)  # type: ignore[misc]
                await asyncio.sleep(0.7)
            await blows.forget_logs()
            await blows.mend()
            await asyncio.sleep(1.0)
            for _ in range(5):
                await self._write_global()


def a_snapshot_brings_no_indexes(patch: pytest.MonkeyPatch) -> None:
    install = StateMachine.install

    def without(self: StateMachine, contents: Iterable[TableDump]) -> None:
        install(self, [msgspec.structs.replace(dump, indexes=[]) for dump in contents])

    patch.setattr(StateMachine, "install", without)


def test_there_and_back_is_fine_without_a_bug() -> None:
    result = ThereAndBack(1).run()
    assert result.failure is None, result.failure


def test_there_and_back_finds_a_snapshot_without_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order of epochs that is wrong it finds in one of four seeds: see `test_epochs`."""
    a_snapshot_brings_no_indexes(monkeypatch)
    found = ThereAndBack(1).run().failure
    assert found is not None and "differ between" in found


def test_a_mix_draws_from_all_blows_but_those_that_lose_rows() -> None:
    drawn: set[str] = set()
    for seed in range(200):
        trial = Trial(seed, "mix", "sync")
        trial.world.close()
        assert isinstance(trial.kind, Kind) and not trial.kind.loses
        drawn |= {blow.__name__ for blow in trial.kind.blows}
    known = {blow.__name__ for kind in KINDS.values() for blow in kind.blows}
    blows = nemesis.Nemesis
    never = blows.lose_tail, blows.rot, blows.blackout, blows.mode, mode_and_strike, old_files
    apart = {blow.__name__ for blow in (*never, damaged_start)}
    assert drawn == known - apart


def test_reads_of_a_moment_that_outlives_a_commit_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RowReader, "_leave", lambda self: None)
    found = Trial(2, "masters", "async").run().failure
    assert found is not None and "no order explains it" in str(found)


def test_a_lease_that_never_ends_is_found_by_what_readers_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the oracle that looks inside: real processes have none."""
    monkeypatch.setattr(world, "check_masters", lambda _: None)
    monkeypatch.setattr(LeaseHolder, "is_held", lambda self, epoch: epoch == self._epoch)
    found = Trial(1, "readers", "sync").run().failure
    assert found is not None and "no order explains it" in str(found)
