"""Joins in parts while masters go and buckets move: each row once, with all that it meets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cairn.model.members.topology import Replicaset
from cairn.moves import shares
from cairn.node.statements.asker.gathering import Gathering
from cairn.node.statements.asker.owners import Owners
from cairn.node.statements.owner.guard import RowGuard
from cairn.node.statements.owner.reads import OwnerReads
from cairn.node.statements.owner.splits import SplitRead
from cairn.sim.cluster.loads.joins import JOINS, why_wrong
from cairn.sim.cluster.session_trials import JOIN_KINDS, JoinTrial
from cairn.storage.files.dealt import Dealt
from cairn.storage.files.pieces import Piece
from tests.sim_cluster.scenes import founded, inside, world_of
from tests.sim_cluster.test_registers import silence  # noqa: F401

Patch = pytest.MonkeyPatch


class Joining(JoinTrial):
    """Joins of a few seconds, and no blow but that of the test: buckets go there and back."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, "moves", "sync")
        self.rounds, self.is_moving = 1, True

    async def _round(self) -> None:
        for weight in (0.25, 4.0, 0.25) if self.is_moving else ():
            await self.weigh(weight)
            await asyncio.sleep(1.0)

    async def weigh(self, weight: float) -> None:
        def change(each: Replicaset) -> Replicaset:
            return msgspec.structs.replace(each, weight=weight, weight_origin="user")

        await self.nemesis._change_replicaset("default_1", change)


def told(trial: JoinTrial) -> str | None:
    return trial.run().failure


def test_joins_are_whole_while_buckets_move() -> None:
    trial = Joining()
    assert told(trial) is None
    assert trial.joins.reads > 50 and len(trial.joins.ways) == 3


def test_all_sides_are_dealt_out_by_one_map_whatever_moves_in_between(monkeypatch: Patch) -> None:
    """A side begun after a hand-over went by another map: rows and partners missed each other."""
    trial, deal = Joining(), Gathering.deal
    trial.is_moving = False
    weights = [0.25, 4.0, 0.25, 4.0]

    async def slow(self: Gathering, *arguments: Any, **named: Any) -> Any:
        found = await deal(self, *arguments, **named)
        if weights and named["buckets"] is not None:
            await trial.weigh(weights.pop())
            await asyncio.sleep(1.0)  # long enough for some of the moves
        return found

    monkeypatch.setattr(Gathering, "deal", slow)
    assert told(trial) is None
    assert not weights


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", JOIN_KINDS)
def test_every_kind_of_blow_against_joins(kind: str) -> None:
    for seed in range(100, 110):
        found = JoinTrial(seed, kind).run()
        assert found.failure is None, f"joins-{kind} {seed}: {found.failure}"


def test_reads_of_two_lives_of_an_instance_have_other_numbers() -> None:
    """Who joined a part for the first life, and has not heard that it is over, fetched rows from a
    read of the second: a join of that one missed them."""
    world = world_of("a")

    async def script() -> None:
        await founded(world)
        [node] = world.nodes.values()
        numbers: list[int] = []
        for _ in range(2):
            asking = inside(node).executor.reads._asking
            numbers += [asking.next_cursor() for _ in range(50)]
            node.crash(power=True)
            node.start()
            await world.settled()
        assert len(set(numbers)) == len(numbers)
        assert {number >> 40 for number in numbers} == {inside(node).raft_id}

    world.run(script)


# --- bugs -----------------------------------------------------------------------------------------


def rows_are_dealt_out_twice(patch: Patch) -> None:
    add = Dealt.add
    patch.setattr(Dealt, "add", lambda self, part, rows: add(self, part, [*rows, rows[0]]))


def a_piece_is_told_again(patch: Patch) -> None:
    """The first piece of a part, once more."""
    take = Dealt.take

    def again(self: Dealt, part: int, most: int, *, is_over: bool) -> Piece:
        if self._queues[part] and not hasattr(self, "again"):
            self.again = self._queues[part][0]  # type: ignore[attr-defined]
            self._queues[part].append(self.again)  # type: ignore[attr-defined]
            self.sizes[part] += len(self.again[1])  # type: ignore[attr-defined]
        return take(self, part, most, is_over=is_over)

    patch.setattr(Dealt, "take", again)


def a_part_ends_early(patch: Patch) -> None:
    take = SplitRead.take_part

    async def short(self: SplitRead, part: int) -> Piece:
        piece = await take(self, part)
        self._left.discard(part)
        return Piece(piece.rows, piece.data, True)

    patch.setattr(SplitRead, "take_part", short)


def nobody_looks_who_owns_the_rows(patch: Patch) -> None:
    """Neither at first nor when the rows are those of one moment."""
    patch.setattr(RowGuard, "check_read", lambda self, request: self.check_lease())


def only_the_first_look_counts(patch: Patch) -> None:
    """Buckets that left before the thread began to read."""
    patch.setattr(OwnerReads, "_still", lambda self, request, fence: lambda: None)


class Slow(Joining):
    """Threads that begin late, answers of many pieces, ranges of few buckets."""

    def __init__(self, patch: Patch, seed: int = 1) -> None:
        super().__init__(seed)
        self.world.loop.thread_delay_s, self.piece_bytes, self.drops_soon = 0.005, 1, True
        patch.setattr(shares, "PIECE", 2)


def threads_are_busy(patch: Patch) -> None:
    """Some reads begin long after they were let in: their rows may have been swept away by then."""
    take, count = SplitRead.take, itertools.count()

    async def late(self: SplitRead) -> Piece:
        await asyncio.sleep(1.5 if next(count) % 5 == 0 else 0.0)
        return await take(self)

    patch.setattr(SplitRead, "take", late)


def askers_hear_late(patch: Patch) -> None:
    """Whoever asks has the map of a moment ago."""
    now: Any = Owners.routes.fget
    seen: dict[int, list[tuple[float, Any]]] = {}

    def late(self: Owners) -> Any:
        time, kept = asyncio.get_running_loop().time(), seen.setdefault(id(self), [])
        kept.append((time, now(self)))
        while len(kept) > 1 and kept[1][0] < time - 0.5:
            del kept[0]
        return kept[0][1]

    patch.setattr(Owners, "routes", property(late))


Circumstance = Callable[[Patch], None]
BUGS: list[tuple[Circumstance, Circumstance | None]] = [
    (rows_are_dealt_out_twice, None),
    (a_piece_is_told_again, None),
    (a_part_ends_early, None),
    (nobody_looks_who_owns_the_rows, askers_hear_late),
    (only_the_first_look_counts, threads_are_busy),
]


@pytest.mark.parametrize(("bug", "when"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_is_found(
    bug: Circumstance, when: Circumstance | None, monkeypatch: Patch
) -> None:
    if when is not None:
        when(monkeypatch)
    bug(monkeypatch)
    found = next(filter(None, (told(Slow(monkeypatch, seed)) for seed in (1, 2, 3))), None)
    assert found is not None and " told of SELECT " in found


@pytest.mark.parametrize("when", [askers_hear_late, threads_are_busy])
def test_all_is_right_without_a_bug(when: Circumstance, monkeypatch: Patch) -> None:
    when(monkeypatch)
    assert told(Slow(monkeypatch)) is None


def test_what_a_wrong_answer_is() -> None:
    right = [(1, 5, 2), (2, 5, 3)]
    least, most = [0, 5, 4], [0, 6, 5]
    met = {1: 2, 2: 3}
    assert why_wrong(right, met, least, most) is None
    for wrong in (
        [*right, (1, 5, 2)],
        [*right, (1, 6, 2)],
        right[:1],
        [*right, (3, 1, 1)],
        [(1, 5, 1), right[1]],
        [(1, 4, 2), right[1]],
        [right[0], (2, 6, 3)],
    ):
        assert why_wrong(wrong, met, least, most), wrong


def test_every_join_of_the_load_expects_something() -> None:
    assert all(join.met and any(join.met.values()) for join in JOINS)


@pytest.mark.slow
def test_a_seed_says_everything_whatever_was_run_before(monkeypatch: Patch) -> None:
    """Of answers that came in one moment, one was taken first by its place in memory."""

    def story() -> tuple[float, str | None]:
        trial = Slow(monkeypatch)
        found = told(trial)
        return trial.world.loop.time(), found

    askers_hear_late(monkeypatch)
    nobody_looks_who_owns_the_rows(monkeypatch)
    assert story() == story() == story()
