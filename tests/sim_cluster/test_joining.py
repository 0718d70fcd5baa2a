"""A crash at any step of joining ends in a member or in none; told addresses are not forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cairn.model.members.topology import Grade
from cairn.model.rpc import Empty, ExpelRequest, JoinResponse
from cairn.node.boot.steps import Boot
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.instance import Instance
from cairn.raft.types import Entry
from cairn.sim.cluster import runtime
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World
from cairn.storage.raft_db.raft_store import RaftStore
from tests.sim_cluster.scenes import founded, inside, world_of

STEPS = (
    "before the request",
    "after the answer",
    "with half a store",
    "after the store",
    "before the node",
    "before activation",
)


class CrashingBoot(Boot):
    """Dies at one step, once."""

    step = ""
    crash: Callable[[], None]

    async def _die(self, step: str) -> None:
        if self.step == step:
            type(self).step = ""
            self.crash()
            await asyncio.get_running_loop().create_future()

    async def _join(self, leader: str) -> JoinResponse:
        await self._die("before the request")
        response = await super()._join(leader)
        await self._die("after the answer")
        return response

    async def start_join(self, path: Path, leader: str) -> RaftStore:
        if self.step == "with half a store":
            await super()._join(leader)
            RaftStore(path)
            await self._die("with half a store")
        store = await super().start_join(path, leader)
        await self._die("after the store")
        return store

    async def postjoin(self, store: RaftStore) -> Instance:
        await self._die("before the node")
        return await super().postjoin(store)

    async def activate(self, instance: Instance, reason: str) -> None:
        await self._die("before activation")
        await super().activate(instance, reason)


def newcomer(world: World, step: str) -> SimNode:
    node = world.add("c", ("a:3301",))

    class Crashing(CrashingBoot):
        pass

    Crashing.step = step
    Crashing.crash = staticmethod(node.crash)
    node.boot_class = Crashing
    return node


def rows_of(world: World, node: SimNode) -> list[str]:
    leader = world.leader()
    assert leader is not None and leader.instance is not None
    uuid = (node.dir / "instance_uuid").read_text()
    rows = leader.instance.state.cluster.instances.values()
    return [row.name for row in rows if row.uuid == uuid]


async def expel(world: World, name: str) -> Instance:
    """Asked of the leader, which is returned."""
    leader = world.leader()
    assert leader is not None and leader.instance is not None and leader.process is not None
    instance = leader.instance
    request = ExpelRequest(instance.identity.cluster_uuid, name)
    asked = instance.leader.ask("expel", request, Empty)
    await world.loop.create_task(asked, context=leader.process.context)
    return instance


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_while_joining_ends_in_one_member(step: str) -> None:
    world = world_of("a", "b")

    async def script() -> None:
        await founded(world)
        node = newcomer(world, step)
        node.start()
        await world.until(lambda: not node.is_running, "the crash", 30.0)
        await asyncio.sleep(5.0)
        if (node.dir / "instance_uuid").exists():
            assert len(rows_of(world, node)) <= 1
        node.start()
        await world.settled(60.0)
        assert rows_of(world, node) == ["c"]
        assert node.grade is Grade.ONLINE

    world.run(script)


def test_an_answer_lost_on_its_way_gives_the_same_place_again() -> None:
    world = world_of("a", "b")

    async def script() -> None:
        await founded(world)
        node = newcomer(world, "")
        node.start()
        uuid = node.dir / "instance_uuid"
        await world.until(uuid.exists, "the request", 10.0)
        for other in ("a", "b"):
            world.wire.cut(other, "c")
        await world.until(lambda: bool(rows_of(world, node)), "the admission", 10.0)
        node.crash()
        world.wire.heal()
        await asyncio.sleep(1.0)
        node.start()
        await world.settled(60.0)
        assert rows_of(world, node) == ["c"]
        leader = world.leader()
        assert leader is not None and leader.instance is not None
        assert leader.instance.state.cluster.last_raft_id == 3

    world.run(script)


def test_one_that_never_comes_back_can_be_expelled_and_another_takes_its_name() -> None:
    world = world_of("a", "b")

    async def script() -> None:
        await founded(world)
        node = newcomer(world, "before activation")
        node.start()
        await world.until(lambda: not node.is_running, "the crash", 30.0)
        instance = await expel(world, "c")
        await world.until(lambda: not rows_of(world, node), "the expulsion", 30.0)
        node.start()
        await world.until(lambda: node.exit_code == 5, "exit code 5", 30.0)
        again = world.add("d", ("b:3301",), instance_name="c")
        again.start()
        await world.online("d")
        assert instance.state.cluster.instances["c"].raft_id == 4

    world.run(script)


def test_one_that_is_expelled_while_it_asks_to_be_online_ends_at_once() -> None:
    world = world_of("a", "b")

    async def script() -> None:
        await founded(world)
        node = world.add("c", ("a:3301",))

        class Slow(Boot):
            async def activate(self, instance: Instance, reason: str) -> None:
                await asyncio.sleep(3.0)
                await super().activate(instance, reason)

        node.boot_class = Slow
        node.start()
        await world.until(lambda: node.instance is not None, "the newcomer's place", 10.0)
        await expel(world, "c")
        await world.until(lambda: node.exit_code == 5, "exit code 5", 10.0)

    world.run(script)


def test_a_member_that_moved_finds_a_leader_that_moved_meanwhile() -> None:
    """b knows only old addresses; c, which did not move, tells it where the leader is now."""
    world = world_of("a", "b", "c")

    async def moved(name: str) -> SimNode:
        node = world.nodes[name]
        node.stop()
        await world.until(lambda: not node.is_running, f"{name} to leave", 20.0)
        address = f"{name}:3302"
        node.config = msgspec.structs.replace(
            node.config, listen=address, advertise=address, peers=("c:3301",)
        )
        return node

    async def script() -> None:
        await founded(world)
        b = await moved("b")
        a = await moved("a")
        a.start()
        await world.online("a", "c")
        await world.settled(60.0)

        def a_leads() -> bool:
            now = world.leader()
            if now is not None and now is not a and now.instance is not None:
                now.instance.runner.transfer_leader(a.instance.raft_id if a.instance else 0)
            return now is a

        await world.until(a_leads, "a to lead", 20.0)
        b.start()
        await world.online("b", timeout_s=20.0)

    world.run(script)


@pytest.mark.parametrize("remembered", [True, False])
def test_an_address_that_changed_is_not_overwritten_by_older_entries(
    monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    """The newcomer replays entries that still tell the old address of b."""
    monkeypatch.setattr(runtime, "MAX_GROUP", 1)
    apply = RaftRunner._apply

    def one_by_one(self: RaftRunner, entries: list[Entry]) -> None:
        for entry in entries:
            apply(self, [entry])

    monkeypatch.setattr(RaftRunner, "_apply", one_by_one)
    world = world_of("a", "b")
    seen: set[str] = set()

    async def script() -> None:
        await founded(world)
        b = world.nodes["b"]
        b.stop()
        await world.until(lambda: not b.is_running, "b to leave", 20.0)
        b.config = msgspec.structs.replace(b.config, listen="b:3302", advertise="b:3302")
        b.start()
        await world.settled(60.0)
        node = world.add("c", ("a:3301",))

        class Listening(Boot):
            async def postjoin(self, store: RaftStore) -> Instance:
                if not remembered:
                    store.put("joined_at", 0)
                instance = await super().postjoin(store)
                state = instance.state
                instance.news.on_applied.append(
                    lambda _: seen.add(state.peer_addresses().get(2, "b:3302"))
                )
                return instance

        node.boot_class = Listening
        node.start()
        await world.settled(60.0)

    world.run(script)
    assert seen == ({"b:3302"} if remembered else {"b:3301", "b:3302"})


def test_who_joins_while_no_majority_is_there_asks_again_and_is_one_member() -> None:
    """The leader has proposed its place and cannot say whether it holds: that ended the newcomer,
    and left a member that nobody is."""
    world = world_of("a", "b")

    async def script() -> None:
        await founded(world)
        leader = world.leader()
        assert leader is not None
        [other] = [node for node in world.running() if node is not leader]
        world.wire.cut(leader.name, other.name)
        world.wire.cut(other.name, leader.name)
        newcomer = world.add("c", (f"{leader.name}:3301",))
        newcomer.start()
        await asyncio.sleep(15.0)
        assert newcomer.is_running, newcomer.problem
        world.wire.heal()
        await world.online("c")
        await world.settled()
        assert leader.instance is not None
        names = [row.name for row in leader.instance.state.cluster.instances.values()]
        assert sorted(names) == ["a", "b", "c"]

    world.run(script)


@pytest.mark.parametrize("seed", range(1, 7))
def test_who_was_just_admitted_is_not_taken_for_one_that_went_away(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is Offline until it is Online. Its links are kept, and it asks to be Online once."""
    world = world_of("a", "b", "c", "d", factor=2, seed=seed)

    async def script() -> None:
        with caplog.at_level("INFO", "cairn.net"), caplog.at_level("INFO", "cairn.sentinel"):
            await founded(world)
            world.add("e", ("a:3301",)).start()
            await world.settled(60.0)
        assert "was declared Offline" not in caplog.text
        leader = inside(world.nodes["a"])
        grades = {str(row.current_state) for row in leader.state.cluster.instances.values()}
        assert grades == {"Online(1)"}

    world.run(script)
