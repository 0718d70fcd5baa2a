"""A machine is put back to what it was some seconds ago, as from a snapshot of its virtual disk.

What it wrote since is gone at this one alone: votes, entries and rows that it acknowledged. One at
a time, and only while everybody else is there: what two of three forget is lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from cairn.model.members.topology import Grade
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.node import SimNode, drop_database
from cairn.sim.cluster.world import World

AWAY_S = (3.0, 6.0)  # long enough for the others to go on without it
BACK_S = 60.0


def files_of(node: SimNode) -> dict[Path, bytes]:
    """What is on its disk at this moment."""
    assert node.runtime is not None
    found: dict[Path, bytes] = {}
    for disk in node.runtime.disks:
        found.update(disk.survivors())
    return found


def put_back(node: SimNode, files: dict[Path, bytes]) -> None:
    """Of those files that are there: `raft.db`, `data.db`, or both."""
    node.world.checks.put_back.add(node.name)
    drop_database(node.dir, only=files)
    for path, content in files.items():
        path.write_bytes(content)


def all_online(world: World) -> bool:
    """As the leader has it: who was put back may believe anything."""
    leader = world.leader()
    if leader is None or leader.instance is None:
        return False
    instances = leader.instance.state.cluster.instances.values()
    return all(each.current_state == each.target_state for each in instances) and all(
        each.current_state.grade is Grade.ONLINE for each in instances
    )


async def old_files(nemesis: Nemesis) -> None:
    world, drawn = nemesis.world, nemesis.drawn

    await nemesis.mend()
    await world.until(lambda: all_online(world), "everybody Online", BACK_S)
    node = nemesis.master_or_any()
    if node is None:
        return
    files = files_of(node)
    await asyncio.sleep(drawn.uniform(0.2, 3.0))
    for _ in range(drawn.randint(0, 2)):
        await drawn.choice(
            (nemesis.switch, nemesis.alter_columns, nemesis.forget_logs, nemesis.weigh)
        )()
    await asyncio.sleep(drawn.uniform(0.2, 3.0))
    which = drawn.choice(("", "", "raft.db", "data.db"))
    chosen = {path: content for path, content in files.items() if path.name.startswith(which)}
    nemesis.note(f"{node} loses power, and gets old files: {sorted(p.name for p in chosen)}")
    node.crash(power=True)
    put_back(node, chosen)
    await asyncio.sleep(drawn.uniform(*AWAY_S))
    nemesis.back(node)
    await world.until(lambda: all_online(world), f"{node} to be back", BACK_S)
