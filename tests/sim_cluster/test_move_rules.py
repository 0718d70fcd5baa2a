"""Directed scripts for rules of moves that need links, replicas and time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cairn.model.errors import NotOwner
from cairn.model.log.records import pack_rows
from cairn.model.members.moves import END, TAKES, Move, MovePart, Phase
from cairn.model.rpc import ReadRequest
from cairn.model.tables.system_tables import CAIRN_REBALANCE
from cairn.moves import shares
from cairn.moves.delta import Progress
from cairn.sim.cluster.loads.load import TABLE, Load
from cairn.sim.cluster.loads.registers import Registers, standing, why_misplaced
from cairn.sim.cluster.node import SimNode
from cairn.storage.data_db.moving_in import write_part
from tests.sim_cluster.scenes import inside, world_of
from tests.sim_cluster.test_data_rules import in_process
from tests.sim_cluster.test_moves import Growing

READ_ALL = (
    f"SELECT * FROM {TABLE.physical_name} WHERE bucket_id BETWEEN {{}} AND {{}} ORDER BY 1, 2"
)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "PIECE", 4)


def phases(scene: Growing) -> list[Phase]:
    leader = scene.world.leader()
    if leader is None or leader.instance is None:
        return []
    return [move.phase for move in leader.instance.state.cluster.moves.values()]


def cut(scene: Growing, one: str, other: str) -> None:
    scene.world.wire.cut(one, other)
    scene.world.wire.cut(other, one)


async def grown(scene: Growing) -> None:
    await scene.ready()
    await scene.registers.run(1.0)
    await scene.grow()


async def calm(scene: Growing) -> None:
    scene.world.wire.heal()
    await scene.halved()
    await scene.world.settled()
    await scene.registers.check()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_range_is_handed_over_only_when_the_target_s_replica_has_it(mode: str) -> None:
    scene = Growing(mode)

    async def cut_with_the_first_move() -> None:
        """At once: the rows of a small range are there in a moment."""
        while not phases(scene):
            await asyncio.sleep(0.001)
        assert set(phases(scene)) == {Phase.COPYING}
        cut(scene, "c", "d")

    async def script() -> None:
        await scene.ready()
        await scene.registers.run(1.0)
        async with asyncio.timeout(30.0), asyncio.TaskGroup() as both:
            both.create_task(cut_with_the_first_move())
            both.create_task(scene.grow())
        await asyncio.sleep(6.0)
        assert not {Phase.COPIED, Phase.DONE} & set(phases(scene))
        await calm(scene)

    scene.world.run(script)


def test_how_far_a_move_had_come_in_another_epoch_is_read_anew() -> None:
    """A master that was one before may remember rows that a failover has taken back since."""
    scene = Growing("async")

    async def script() -> None:
        await grown(scene)
        giver = scene.master("default_1")
        assert giver is not None
        at = await in_process(giver, inside(giver).giving.stamp_here)

        def is_misled() -> bool:
            taker = scene.master("default_2")
            for move in inside(giver).state.cluster.moves.values():
                if taker is not None and taker.instance is not None and move.phase in TAKES:
                    all_of_it = Progress(move.id, 1, move.start, move.end, at, END)
                    before = taker.instance.data.fence.epoch - 1
                    taker.instance.moving._known[move.id] = before, all_of_it
                    return True
            return False

        await scene.world.until(is_misled, "a move to begin", 30.0)
        await calm(scene)

    scene.world.run(script)


def shown(node: SimNode) -> list[tuple[object, ...]]:
    """`_cairn_rebalance` as SQL reads it there."""
    assert node.instance is not None
    return node.instance.state.rows(CAIRN_REBALANCE)


def test_every_instance_shows_how_far_moves_are_and_what_they_wait_for() -> None:
    scene = Growing("async")

    async def script() -> None:
        await grown(scene)
        await scene.world.until(lambda: bool(phases(scene)), "a move to begin", 30.0)
        cut(scene, "c", "d")

        def waits() -> bool:
            return all(
                any("to have the rows" in str(row[-1]) for row in shown(node))
                for node in scene.world.nodes.values()
            )

        await scene.world.until(waits, "all to show what a move waits for", 30.0)
        [here, *others] = [shown(node) for node in scene.world.nodes.values()]
        [first] = [row for row in here if row[6] is not None]
        planned = [row for row in here if row is not first]
        assert first[0] == "default" and first[5] in ("copying", "frozen")
        assert first[8] > 0 and first[9] == 0  # type: ignore[operator]
        assert {row[5] for row in planned} == {"planned"}
        assert {row[:5] for rows in others for row in rows} == {row[:5] for row in here}
        await calm(scene)
        await scene.world.until(
            lambda: not any(map(shown, scene.world.nodes.values())), "all to be shown as done", 30.0
        )

    scene.world.run(script)


def test_a_master_that_starts_sweeps_rows_that_its_replicaset_does_not_own() -> None:
    """A move that nobody remembers left them there."""
    scene = Growing("async")

    async def script() -> None:
        await grown(scene)
        await scene.halved()
        master = scene.master("default_2")
        assert master is not None and master.instance is not None
        instance = master.instance
        [first, *_] = instance.state.cluster.owned("default_1")
        row: tuple[object, ...] = (first.start, 1_000_001, "nobody's")
        packed = msgspec.Raw(pack_rows([row]))
        rows = ((TABLE.id, instance.data.versions[TABLE.id], packed),)
        part = MovePart(99, 1, "delta", first.start, first.start, rows=rows)
        store = instance.data.store
        await in_process(master, lambda: instance.data.run(lambda: write_part(store, part)))
        assert "which it does not own" in str(why_misplaced(scene.world))
        master.crash()
        master.start()
        await scene.world.until(
            lambda: (
                all(node.instance is not None for node in scene.world.nodes.values())
                and not why_misplaced(scene.world)
            ),
            "the rows to be swept",
            60.0,
        )
        await calm(scene)

    scene.world.run(script)


def test_a_move_is_done_only_when_the_source_s_replica_has_dropped_the_rows() -> None:
    scene = Growing("async")

    async def script() -> None:
        await grown(scene)
        await scene.world.until(lambda: Phase.COPIED in phases(scene), "a hand-over", 30.0)
        assert Phase.DONE not in phases(scene)
        cut(scene, "a", "b")
        await asyncio.sleep(10.0)
        assert Phase.COPIED in phases(scene)
        assert Phase.DONE not in phases(scene)
        await calm(scene)

    scene.world.run(script)


def test_a_replica_answers_for_new_buckets_when_it_has_their_rows() -> None:
    """It hears of the hand-over by Raft. Its rows come by the log, from which it is cut off."""
    scene = Growing("sync")
    scene.world = world_of("a", "b", "c", factor=3, mode="sync")
    scene.load = Load(scene.world)
    scene.registers = Registers(scene.load, scene.world.chance, groups=15)

    async def script() -> None:
        await scene.ready()
        await scene.registers.run(2.0)
        rows = standing(scene.world.nodes["a"])[1][TABLE.physical_name][2]
        used = {row[0] for row in rows}
        for name in "def":
            scene.world.add(name, ("a:3301", "b:3301", "c:3301")).start()
        await scene.world.online("d", "e", "f")
        await scene.world.until(lambda: bool(phases(scene)), "a move to begin", 30.0)
        master = scene.master("default_2")
        assert master is not None
        [last, other] = [scene.world.nodes[name] for name in "fed" if name != master.name]
        instance = last.instance
        assert instance is not None
        have = instance.data
        await scene.world.until(lambda: TABLE.id in have.versions, "its table", 30.0)
        before = {  # rows of a move may be there before its replica has heard of the move
            move for node in scene.world.nodes.values() for move in inside(node).state.cluster.moves
        }
        for node in (master, other):
            cut(scene, last.name, node.name)

        def new() -> list[Move]:
            """Moves of buckets with rows in them."""
            found = instance.state.cluster.moves.values()
            return [
                move
                for move in found
                if move.phase is Phase.COPIED
                and move.id not in before
                and any(move.start <= bucket <= move.end for bucket in used)
            ]

        await scene.world.until(lambda: bool(new()), "the replica to hear of a hand-over", 30.0)
        move = new()[0]
        text = READ_ALL.format(move.start, move.end)
        span = ((move.start, move.end),)
        request = ReadRequest(text, (), {TABLE.id: 1}, ranges=span, preference="any")
        execution, theirs = scene.load.execution(last), scene.load.execution(master)
        with pytest.raises(NotOwner, match="on their way"):
            await in_process(last, lambda: execution.reads.read(request))
        scene.world.wire.heal()
        await scene.world.settled()
        await scene.world.until(
            lambda: have.vclock == inside(master).data.vclock, "the replica to have all rows", 10.0
        )
        rows = await in_process(last, lambda: execution.reads.read(request))
        wanted = await in_process(master, lambda: theirs.reads.read(request))
        assert rows == wanted != []

    scene.world.run(script)
