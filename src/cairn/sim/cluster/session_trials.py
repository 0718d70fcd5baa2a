"""The same blows against clients that speak SQL over real sessions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from cairn.model.log import ops
from cairn.node.statements.asker import streams
from cairn.sim.cluster.blows.exact import exact_moment
from cairn.sim.cluster.history import Result
from cairn.sim.cluster.loads.banking.bank import Bank
from cairn.sim.cluster.loads.banking.bank_texts import NAMES
from cairn.sim.cluster.loads.counters import COUNTERS, Counters
from cairn.sim.cluster.loads.joins import TABLES, Joins
from cairn.sim.cluster.loads.kin import Kin
from cairn.sim.cluster.loads.lockers import Lockers
from cairn.sim.cluster.loads.marks import Marks
from cairn.sim.cluster.loads.operations import Operations
from cairn.sim.cluster.loads.wire_registers import WireRegisters, check_ways
from cairn.sim.cluster.sessions import PASSWORD, Faces
from cairn.sim.cluster.trial import KINDS, Trial
from cairn.sim.linear import FOREVER


class LaneTrial(Trial):
    """Rows by their keys. Only in async mode may a session answer in the turn it is asked."""

    options = {"admin_password": PASSWORD}
    schema = (ops.CreateTable(COUNTERS),)

    def __init__(self, seed: int, name: str, mode: str | None = None) -> None:
        super().__init__(seed, name, mode)
        before, faces = self.registers, Faces(self.world)
        self.counters = Counters(self.load, faces, random.Random(seed))
        self.registers = WireRegisters(
            self.load,
            faces,
            self.chance,
            count=4 * self.kind.replicasets,
            is_strict=self.is_strict,
            pause_s=0.2 if exact_moment in self.kind.blows else 0.05,  # moments are waited for
        )
        self.registers.quiet = before.quiet
        may_write = before.quiet.may_write
        self.marks = Marks(self.load, random.Random(seed), self.registers.groups, may_write)
        self.marks.is_strict = self.is_strict
        self._truncating: list[asyncio.Task[None]] = []

    async def _begin(self) -> None:
        await self.counters.fill()
        self._counting = asyncio.ensure_future(self.counters.run(3.0 + 3.0 * self.rounds))

    async def _truncate(self) -> None:
        """Asked for by a session, while the blows go on: it is over when that is told so."""
        self._truncating.append(asyncio.ensure_future(self._truncate_by_session()))

    async def _truncate_by_session(self) -> None:
        begun = self.world.loop.time()
        outcome = await self.registers.truncate()
        if outcome != "refused":
            end = self.world.loop.time() if outcome == "done" else float(FOREVER)
            self._emptied(begun, end, "by a session")

    async def _answered(self) -> None:
        await asyncio.gather(*self._truncating)

    async def _live(self) -> None:
        await super()._live()
        await self._counting
        await asyncio.sleep(2.0)  # what was acknowledged a moment ago reaches everybody
        await self.world.settled()
        await self.counters.check()
        if self.mode == "async":
            check_ways(self.registers, replicasets=self.kind.replicasets)


class JoinTrial(Trial):
    """Joins in parts. Their answers come in small pieces, as those of large tables do."""

    options = {"admin_password": PASSWORD}
    schema = tuple(ops.CreateTable(each) for each in TABLES)

    def __init__(self, seed: int, name: str, mode: str | None = None) -> None:
        super().__init__(seed, name, mode)
        faces = Faces(self.world)
        self.joins = Joins(self.load, faces, self.chance, is_strict=self.is_strict)
        self.registers = self.joins
        self.world.loop.thread_delay_s = self.chance.choice((0.0, 0.002, 0.05))
        self.piece_bytes = self.chance.choice((1, 60, 1_000_000))
        self.drops_soon = self.chance.random() < 0.7  # rows that were handed over

    def run(self) -> Result:
        before = streams.LEAST_PIECE, streams.HELD_BYTES
        streams.LEAST_PIECE = streams.HELD_BYTES = self.piece_bytes
        try:
            return super().run()
        finally:
            streams.LEAST_PIECE, streams.HELD_BYTES = before

    async def _begin(self) -> None:
        if self.drops_soon:
            await self.nemesis.set("rebalance_drop_delay", 0)
        await self.joins.fill()


class OnceTrial(Trial):
    """Operations that are asked for again, where nothing acknowledged may be lost."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(seed, name, None if KINDS[name].is_planned else "sync")
        self.registers = Operations(self.load, self.chance)


class BankTrial(Trial):
    """Money that is moved and counted, in every way that SQL has for it."""

    is_in_nobodys_way = False

    options = {"admin_password": PASSWORD}
    schema = (ops.CreateTable(NAMES),)

    def __init__(self, seed: int, name: str, mode: str | None = None) -> None:
        super().__init__(seed, name, mode)
        self.bank = Bank(self.load, Faces(self.world), self.chance, is_strict=self.is_strict)
        self.registers = self.bank
        self.bank.is_calm = self.kind.is_planned
        is_of_schema = name in ("schema", "columns")
        self.bank.change_s = 0.5 if is_of_schema else self.chance.choice((1.0, 4.0))
        self.world.loop.thread_delay_s = self.chance.choice((0.0, 0.0, 0.002, 0.05))
        self.drops_soon = self.chance.random() < 0.7  # rows that were handed over

    async def _begin(self) -> None:
        if self.drops_soon:
            await self.nemesis.set("rebalance_drop_delay", 0)
        await self.bank.fill()


class LockTrial(Trial):
    """Advisory locks: nobody has one that somebody else has."""

    options = {"admin_password": PASSWORD}

    def __init__(self, seed: int, name: str, mode: str | None = None) -> None:
        super().__init__(seed, name, mode)
        self.lockers = Lockers(self.load, Faces(self.world), self.chance)
        self.registers = self.lockers


class KinTrial(Trial):
    """Upserts, cascades and indexes of some rows."""

    is_in_nobodys_way = False

    options = {"admin_password": PASSWORD}

    def __init__(self, seed: int, name: str, mode: str | None = None) -> None:
        super().__init__(seed, name, mode)
        self.kin = Kin(self.load, Faces(self.world), self.chance, is_strict=self.is_strict)
        self.registers = self.kin
        self.world.loop.thread_delay_s = self.chance.choice((0.0, 0.0, 0.002, 0.05))
        self.drops_soon = self.chance.random() < 0.7  # rows that were handed over

    async def _begin(self) -> None:
        if self.drops_soon:
            await self.nemesis.set("rebalance_drop_delay", 0)
        await self.kin.fill()


class IndexTrial(KinTrial):
    """The same, while several make and drop indexes at once. Theirs may refuse each other."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(seed, name)
        self.kin.make_indexes(random.Random(seed))


#: What keeps rows: those of joins are written once, before anything happens.
JOIN_KINDS = tuple(
    name
    for name, kind in KINDS.items()
    if not (kind.scrubs or kind.loses or kind.leaves) and kind.replicasets > 1
)
#: What was done is forgotten after days of the clock on the wall.
ONCE_KINDS = (*(name for name in JOIN_KINDS if not KINDS[name].truncates), "clocks")
BANK_KINDS = tuple(name for name, kind in KINDS.items() if not (kind.scrubs or kind.leaves))
LANE_KINDS = tuple(name for name, kind in KINDS.items() if not kind.scrubs)


LOCK_KINDS = KIN_KINDS = INDEX_KINDS = BANK_KINDS


def run_lane_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: LaneTrial(seed, name).run()


def run_join_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: JoinTrial(seed, name).run()


def run_once_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: OnceTrial(seed, name).run()


def run_bank_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: BankTrial(seed, name).run()


def run_lock_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: LockTrial(seed, name).run()


def run_kin_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: KinTrial(seed, name).run()


def run_index_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: IndexTrial(seed, name).run()
