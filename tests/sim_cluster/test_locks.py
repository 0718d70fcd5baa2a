"""Advisory locks: of all sessions that are told they have one, only one has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.log.ranges import Predicate
from cairn.model.rpc import Empty, UpdateInstanceRequest
from cairn.model.tables import locks
from cairn.node.consensus.leader import Leader
from cairn.node.rows.leases import LeaseGiver
from cairn.node.statements.advisory_locks import AdvisoryLocks, lost_locks
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.lockers import Books, Held
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.session_trials import LOCK_KINDS, LockTrial
from cairn.sim.cluster.sessions import PASSWORD, Faces, WireClient
from tests.sim_cluster.scenes import founded, inside, world_of
from tests.sim_cluster.test_registers import silence  # noqa: F401

Patch = pytest.MonkeyPatch
NAMES = ("a", "b", "c")


class Scene:
    """Three instances; the leader is none of `here` and `there`."""

    def __init__(self) -> None:
        self.world = world_of()
        self.faces, self.books = Faces(self.world), Books()
        peers = tuple(f"{name}:3301" for name in NAMES)
        for name in NAMES:
            self.world.add(name, peers, admin_password=PASSWORD)

    def play(self, script: Callable[[Scene], Awaitable[None]]) -> None:
        async def run() -> None:
            await founded(self.world)
            leader = self.world.leader()
            assert leader is not None
            self.leader = leader
            self.here, self.there = (each for each in self.world.running() if each is not leader)
            await script(self)

        self.world.run(run)

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def inside(self, node: SimNode, work: Callable[[WireClient], Awaitable[Any]]) -> Any:
        """A session of its own, inside of the process."""

        async def run() -> Any:
            client = WireClient(self.faces.of(node))
            await client.connect()
            return await work(client)

        assert node.process is not None
        return self.world.loop.create_task(run(), context=node.process.context)

    def holder(self, node: SimNode, held: list[Held]) -> Any:
        """Takes the lock and goes on as long as it is answered; how that ended."""

        async def work(client: WireClient) -> Any:
            asked = self.books.asked(f"{node}", 1, False, self.now)
            await client.ask("SELECT pg_advisory_lock(1)")
            asked.told = self.now
            held.append(asked)
            try:
                while True:
                    begun = self.now
                    await client.ask("SELECT 1")
                    self.books.had(asked, begun)
                    await asyncio.sleep(0.01)
            except CairnError as problem:
                return str(problem)

        return self.inside(node, work)


def ended(task: Any) -> str:
    return str(task.result()) if task.done() else "it goes on"


async def after(scene: Scene, blow: Callable[[], Any], until_s: float = 12.0) -> tuple[Any, Any]:
    """One session has the lock, another one waits at another instance; then the blow."""
    held: list[Held] = []
    first = scene.holder(scene.here, held)
    await scene.world.until(lambda: len(held) == 1, "the lock", 5.0)
    second = scene.holder(scene.there, held)
    await asyncio.sleep(0.5)
    assert len(held) == 1
    if (work := blow()) is not None:
        await work
    await scene.world.until(lambda: len(held) == 2, "the lock to be had by the other", until_s)
    return first, second


def dead(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        _, second = await after(scene, lambda: scene.here.crash())
        await asyncio.sleep(1.0)
        assert ended(second) == "it goes on"

    scene.play(script)


def test_the_lock_of_an_instance_that_died_goes_to_who_waits() -> None:
    dead(Scene())


def restarted(scene: Scene) -> None:
    """Its next life begins before anybody has missed it."""

    async def script(scene: Scene) -> None:
        def blow() -> None:
            scene.here.crash()
            scene.here.start()

        _, second = await after(scene, blow, 3.0)
        await scene.world.settled()
        assert ended(second) == "it goes on"

    scene.play(script)


def test_the_lock_of_a_life_before_goes_to_who_waits() -> None:
    restarted(Scene())


def paused(scene: Scene) -> None:
    """Its session asks in the very moment in which it goes on, and before any news come."""

    async def script(scene: Scene) -> None:
        first, second = await after(scene, lambda: scene.here.pause())
        await asyncio.sleep(1.0)
        scene.here.resume()
        await asyncio.sleep(2.0)
        assert "advisory locks were lost" in ended(first)
        assert ended(second) == "it goes on"

    scene.play(script)


def test_a_session_that_lost_its_lock_while_it_stood_still_runs_nothing_more() -> None:
    paused(Scene())


def cut_off(scene: Scene) -> None:
    """The leader is told to give it up at once, while its session counts on the lock."""

    async def script(scene: Scene) -> None:
        async def blow() -> None:
            for other in scene.world.nodes.values():
                if other is not scene.here:
                    scene.world.wire.cut(scene.here.name, other.name)
                    scene.world.wire.cut(other.name, scene.here.name)
            leader, row = inside(scene.leader), inside(scene.here).row
            assert row is not None and scene.leader.process is not None
            request = UpdateInstanceRequest(
                cluster_uuid=leader.state.cluster.cluster_uuid,
                instance_name=row.name,
                instance_uuid=row.uuid,
                target_grade="Offline",
                reason="a test",
            )
            context = scene.leader.process.context
            asked = leader.leader.ask("update_instance", request, Empty, 3.0)
            await scene.world.loop.create_task(asked, context=context)

        first, second = await after(scene, blow)
        await asyncio.sleep(1.0)
        scene.world.wire.heal()
        await scene.world.settled()
        assert "advisory locks were lost" in ended(first)
        assert ended(second) == "it goes on"

    scene.play(script)


def test_a_lock_is_not_given_on_while_its_session_may_count_on_it() -> None:
    cut_off(Scene())


def test_who_waits_gets_the_lock_from_another_leader() -> None:
    async def script(scene: Scene) -> None:
        async def work(client: WireClient) -> None:
            await client.ask("SELECT pg_advisory_lock(1)")
            await asyncio.sleep(1.0)
            scene.leader.crash()
            await client.ask("SELECT pg_advisory_unlock(1)")

        first = scene.inside(scene.here, work)
        await asyncio.sleep(0.5)
        held: list[Held] = []
        scene.holder(scene.there, held)
        await scene.world.until(lambda: len(held) == 1, "the lock", 10.0)
        await first

    Scene().play(script)


def test_of_those_who_wait_in_a_circle_one_gives_up() -> None:
    async def script(scene: Scene) -> None:
        def work(*keys: int) -> Callable[[WireClient], Awaitable[str]]:
            async def run(client: WireClient) -> str:
                try:
                    for key in keys:
                        await client.ask(f"SELECT pg_advisory_lock({key})")
                        await asyncio.sleep(0.2)
                    return "both"
                except CairnError as problem:
                    client.close()
                    return problem.sqlstate

            return run

        both = scene.inside(scene.here, work(1, 2)), scene.inside(scene.there, work(2, 1))
        assert sorted(await asyncio.gather(*both)) == ["40P01", "both"]

    Scene().play(script)


# --- under fire -----------------------------------------------------------------------------------


def fire(_: Scene) -> None:
    for seed in (1, 2, 3):
        found = LockTrial(seed, "pauses").run()
        if found.failure is not None:
            raise Violation(found.failure)


def test_nobody_has_a_lock_that_somebody_else_has() -> None:
    assert LockTrial(1, "pauses").run().failure is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", LOCK_KINDS)
def test_every_kind_of_blow_against_locks(kind: str) -> None:
    for seed in range(100, 103):
        found = LockTrial(seed, kind).run()
        assert found.failure is None, f"locks-{kind} {seed}: {found.failure}"


# --- planted bugs ---------------------------------------------------------------------------------


async def blindly(self: AdvisoryLocks, changes: Any, _: Any) -> None:
    seen = Predicate(self._state.cluster.position.index, self._runner.term, ())
    await self._proposer.cas(ops.Batch(changes), seen)


def everybody(rows: Any) -> list[locks.Lock]:
    return [msgspec.structs.replace(each, is_held=True) for each in locks.line(rows)]


async def at_once(*_: Any) -> bool:
    return True


async def not_asked(*_: Any) -> None:
    pass


BUGS: dict[str, tuple[Any, str, Any, Callable[[Scene], None]]] = {
    "a session is always sure": (AdvisoryLocks, "is_sure", lambda *_: True, paused),
    "locks are taken away at once": (LeaseGiver, "may_keep_locks", lambda *_: False, cut_off),
    "a session is not ended": (AdvisoryLocks, "_lose", lambda *_: lost_locks(), cut_off),
    "locks are taken blindly": (AdvisoryLocks, "_propose", blindly, fire),
    "all who wait get it": (locks, "next_ones", everybody, fire),
    "an old picture is believed": (Leader, "catch_up", not_asked, fire),
    "nobody waits for the end of a lock": (AdvisoryLocks, "_gone", at_once, fire),
    "the next one is not named": (locks, "next_ones", lambda _: [], dead),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug: str, monkeypatch: Patch) -> None:
    owner, name, wrong, scene = BUGS[bug]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((Violation, AssertionError, TimeoutError)):
        scene(Scene())


# --- the judge ------------------------------------------------------------------------------------


def told(books: Books, who: str, told_at: float, *, is_shared: bool = False) -> Held:
    made = books.asked(who, 1, is_shared, told_at - 1.0)
    made.told = told_at
    return made


def test_two_who_had_it_at_once_are_noticed() -> None:
    books = Books()
    books.had(told(books, "a", 1.0), 3.0)
    books.had(told(books, "b", 3.0), 4.0)
    books.had(told(books, "c", 5.0, is_shared=True), 7.0)
    books.had(told(books, "d", 6.0, is_shared=True), 8.0)
    with pytest.raises(Violation, match="was had by e"):
        books.had(told(books, "e", 7.5), 9.0)


def test_a_refusal_without_a_reason_is_noticed() -> None:
    books = Books()
    first = told(books, "a", 1.0)
    books.was_refused(told(books, "b", 3.0), 3.0)
    first.may = 4.0
    with pytest.raises(Violation, match="nobody had"):
        books.was_refused(told(books, "c", 6.0), 6.0)
