"""Blows that are aimed: at one moment of some work, or at two things that are done at once."""

from __future__ import annotations

import asyncio
from functools import partial

from cairn.model.members.topology import Grade
from cairn.node.watching.disks import STALLED_S
from cairn.sim.cluster.blows.moments import COMMITTED, MOMENTS
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.node import SimNode

WAITED_S = 4.0  # for a moment that does not come
HUNG_S = 45.0  # of a disk; longer than an instance waits for it
PAUSES_S = (0.2, 1.5, 4.0, 8.0)


async def exact_moment(nemesis: Nemesis) -> None:
    await strike_at(nemesis.drawn.choice((COMMITTED, *MOMENTS)), nemesis)


async def strike_at(name: str, nemesis: Nemesis) -> None:
    """Wait for a moment, and help it to come."""
    world, moments = nemesis.world, nemesis.moments
    moments.arm(name, partial(_strike, nemesis))
    if name != COMMITTED:
        provoke = getattr(nemesis, nemesis.drawn.choice(MOMENTS[name].provoked))
        await provoke()
    until = world.loop.time() + WAITED_S
    while moments.armed and world.loop.time() < until:
        await asyncio.sleep(0.05)


def _strike(nemesis: Nemesis, node: SimNode, name: str) -> bool:
    """Whether the work has to fail there. Runs inside of the instance that it hits."""
    world, drawn = nemesis.world, nemesis.drawn
    is_writing = name in MOMENTS and MOMENTS[name].is_writing
    kinds = ["pause", "pause", "kill", "power cut", "cut off", "stop"]
    kind = drawn.choice([*kinds, "full disk", "full disk"] if is_writing else kinds)
    nemesis.note(f"{name}: {kind} {node}")
    match kind:
        case "pause":
            node.pause()
            nemesis.later(drawn.choice(PAUSES_S), node.resume)
        case "kill" | "power cut":
            node.doom(silently=kind == "power cut")
            nemesis.back_later(node, 0.2, 5.0)
        case "cut off":
            for other in world.nodes.values():
                if other is not node:
                    world.wire.cut(node.name, other.name)
                    world.wire.cut(other.name, node.name)
            nemesis.later(drawn.choice(PAUSES_S), world.wire.heal)
        case "stop":
            node.stop()
            nemesis.back_later(node, 1.0, 6.0)
        case "full disk":
            nemesis.back_later(node, 1.0, 6.0)
    return is_writing and kind in ("kill", "power cut", "full disk")


async def switch_and_expel(nemesis: Nemesis) -> None:
    """The master, or who shall be it, is expelled while it is switched."""
    heir = nemesis.some(lambda node: node.grade is Grade.ONLINE)
    if heir is None:
        return
    leaving = heir if nemesis.drawn.random() < 0.5 else None
    await asyncio.gather(nemesis.switch(heir), nemesis.replace(leaving or nemesis.some_master()))


async def mode_and_strike(nemesis: Nemesis) -> None:
    """The mode of replication changes, and a master fails before everybody has heard of it."""
    await nemesis.mode()
    await asyncio.sleep(nemesis.drawn.choice((0.0, 0.005, 0.05, 0.3)))
    await nemesis.drawn.choice((nemesis.kill, nemesis.pause, nemesis.cut, nemesis.switch))()


async def release(nemesis: Nemesis) -> None:
    """A replica is expelled for good while another one is behind; then the master fails."""
    world, drawn = nemesis.world, nemesis.drawn
    replicas = [
        node
        for node in world.running()
        if node.grade is Grade.ONLINE and node not in nemesis.masters() and node.runtime is not None
    ]
    if len(replicas) < 2:
        return
    behind, leaving = drawn.sample(replicas, 2)
    assert behind.runtime is not None
    nemesis.note(f"the disk of {behind} takes 3 s, {leaving} shall leave")
    runtime, before = behind.runtime, min(behind.runtime.disk_delay_s, 0.01)
    runtime.disk_delay_s = 3.0
    nemesis.later(drawn.uniform(2.0, 9.0), partial(setattr, runtime, "disk_delay_s", before))
    await nemesis.replace(leaving)
    master = nemesis.some_master()
    if master is not None and drawn.random() < 0.6:
        nemesis.note(f"power cut of {master}")
        master.crash(power=True)
        nemesis.back_later(master, 0.0, 5.0)


async def hung_disk(nemesis: Nemesis) -> None:
    """A disk takes nothing for a while, or until its instance has given it up."""
    node = nemesis.master_or_any()
    if node is None or node.runtime is None or not node.runtime.disks:
        return
    disk = nemesis.drawn.choice(node.runtime.disks)
    seconds = nemesis.drawn.choice((1.0, 8.0, HUNG_S))
    nemesis.note(f"the disk of {node} hangs for {disk.path.name} for {seconds} s")
    disk.is_hung = True
    nemesis.later(seconds, partial(setattr, disk, "is_hung", False))
    process, waited_s = node.process, 0.0
    while disk.is_hung and node.process is process and node.is_running:
        await asyncio.sleep(0.5)
        waited_s = waited_s + 0.5 if disk.is_busy else 0.0
        if waited_s > STALLED_S + 5.0:
            raise Violation(f"{node} waits for its disk for ever")
    if node.process is process:
        nemesis.back_later(node, 0.5, 5.0)
