"""The leader dies at every step of every kind of migration: `… --queue-kills`.

A run without a fault counts the moments at which something became or could become durable; then
each of them is met again by a leader that dies there, is deposed there or is cut off there. What
was not synced is lost with a dead one.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
import traceback
from collections.abc import Iterator
from typing import Literal

import msgspec

from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.queue.queue_scene import QueueScene
from cairn.sim.main import say
from cairn.sim.workers import processes

RESTART_S = (0.0, 6.0)  # after its death: before and after others have noticed it
CUT_S = 4.0  # long enough for another leader

#: A deposed leader lives on and is told so; one that was cut off finds out by itself.
How = Literal["killed", "deposed", "cut off"]
HOWS: tuple[How, ...] = ("killed", "deposed", "cut off")


class Blow(msgspec.Struct, frozen=True):
    """What happens to the leader, and at which point of the fault-free run."""

    point: int  # from 1; 0: nothing happens
    leader_is_master: bool = True
    how: How = "killed"

    @property
    def restart_s(self) -> float | None:
        """Every other dead leader stays dead."""
        return RESTART_S[self.point // 2 % 2] if self.point % 2 else None

    @property
    def is_silent(self) -> bool:
        """Whether its connections are left hanging, as a lost machine leaves them."""
        return self.point % 4 in (0, 1)

    def __str__(self) -> str:
        who = "a master" if self.leader_is_master else "no master"
        return f"leader ({who}) {self.how} at point {self.point}"


class Struck(msgspec.Struct):
    blow: Blow
    points: list[str] = []  # what was passed, up to the blow
    failure: str | None = None
    virtual_s: float = 0.0


class Kill:
    """Counts the points of a scene and strikes at one of them."""

    def __init__(self, scene: QueueScene, blow: Blow) -> None:
        self.scene, self.blow = scene, blow
        self.points: list[str] = []
        self.is_struck = False
        scene.on_step = self._step

    def _step(self, node: SimNode, what: str) -> None:
        if self.is_struck or not node.is_running:
            return
        leader = self.scene.world.leader()
        if leader is None or (node is not leader and not what.startswith("after a synced")):
            return
        self.points.append(f"{'leader' if node is leader else 'follower'} {what}")
        if len(self.points) == self.blow.point:
            self.is_struck = True
            self._strike(leader)

    def _strike(self, leader: SimNode) -> None:
        if self.blow.how == "deposed":
            self._depose(leader)
            return
        if self.blow.how == "cut off":
            self._cut_off(leader)
            return
        leader.doom(silently=self.blow.is_silent)
        if self.blow.restart_s is not None:
            self.scene.world.loop.create_task(self._restart(leader), context=contextvars.Context())

    async def _restart(self, node: SimNode) -> None:
        world = self.scene.world
        await world.until(lambda: world.leader() not in (None, node), "another leader", 60.0)
        assert self.blow.restart_s is not None
        await asyncio.sleep(self.blow.restart_s)
        node.start()

    def _depose(self, leader: SimNode) -> None:
        """Another voter takes over while this one goes on with what it was doing."""
        assert leader.instance is not None and leader.process is not None
        runner = leader.instance.runner
        others = [raft_id for raft_id in runner.conf.voters if raft_id != runner.raft_id]
        heir = others[self.blow.point % len(others)]
        loop, context = self.scene.world.loop, leader.process.context
        loop.call_soon(runner.transfer_leader, heir, context=context)

    def _cut_off(self, leader: SimNode) -> None:
        world = self.scene.world
        for other in world.nodes:
            if other != leader.name:
                world.wire.cut(leader.name, other)
                world.wire.cut(other, leader.name)
        world.loop.call_later(CUT_S, world.wire.heal, context=contextvars.Context())


def strike(blow: Blow) -> Struck:
    """One run of the whole scene with one blow, or with none."""
    scene = QueueScene(leader_is_master=blow.leader_is_master)
    kill = Kill(scene, blow)
    outcome = Struck(blow)
    try:
        scene.world.run(scene.play)
    except Violation as broken:
        outcome.failure = str(broken)
    except Exception:
        outcome.failure = traceback.format_exc()
    if outcome.failure is None and blow.point and not kill.is_struck:
        outcome.failure = f"there is no point {blow.point}"
    outcome.points, outcome.virtual_s = kill.points, scene.world.loop.time()
    return outcome


def count_points(*, leader_is_master: bool) -> list[str]:
    outcome = strike(Blow(0, leader_is_master))
    if outcome.failure is not None:
        raise Violation(outcome.failure)
    return outcome.points


def all_blows() -> Iterator[Blow]:
    for leader_is_master in (True, False):
        points = len(count_points(leader_is_master=leader_is_master))
        for how in HOWS:
            for point in range(1, points + 1):
                yield Blow(point, leader_is_master, how)


def blows(every: int = 1, *, first: int = 1) -> list[Blow]:
    """Each `every`th of all blows."""
    return list(all_blows())[first - 1 :: every]


def run_all(workers: int = 1, every: int = 1, stop_after: int = 10) -> list[Struck]:
    """Strike everywhere and print what came of it; the failing outcomes."""
    started = time.monotonic()
    wanted = blows(every)
    failures: list[Struck] = []
    done = 0
    for outcome in _outcomes(wanted, workers):
        done += 1
        if outcome.failure is not None:
            failures.append(outcome)
            say(f"{outcome.blow} FAILED after {outcome.points[-1:]}: {outcome.failure}")
            if len(failures) >= stop_after:
                say(f"stopped after {stop_after} failures")
                break
    say(
        f"{done} of {len(wanted)} blows against the leader of a migrating cluster, "
        f"{len(failures)} failed, {time.monotonic() - started:.0f} s"
    )
    return failures


def _outcomes(wanted: list[Blow], workers: int) -> Iterator[Struck]:
    if workers <= 1:
        yield from map(_strike_quietly, wanted)
        return
    with processes(workers) as pool:
        yield from pool.imap_unordered(_strike_quietly, wanted)


def _strike_quietly(blow: Blow) -> Struck:
    logging.getLogger("cairn").setLevel("CRITICAL")
    return strike(blow)
