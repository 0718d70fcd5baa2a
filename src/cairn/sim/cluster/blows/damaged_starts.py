"""Files that change while nobody runs on them: found at the next start, whatever is wrong.

One instance at a time, and only while everybody is there: what is damaged in two places is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from cairn.sim.cluster.blows.nemesis import PAGE, Nemesis
from cairn.sim.cluster.blows.old_files import BACK_S, all_online
from cairn.sim.cluster.world import World


async def damaged_start(nemesis: Nemesis) -> None:
    world, drawn = nemesis.world, nemesis.drawn
    await nemesis.mend()
    await world.until(lambda: _is_whole(world), "everybody with all rows", BACK_S)
    node = nemesis.master_or_any()
    if node is None or node.instance is None:
        return
    store = node.instance.data.store
    if drawn.random() < 0.7:  # else some of it is in the write-ahead log alone
        store.connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchall()
    hit = [node] if drawn.random() < 0.5 else [*world.running()]
    for each in hit:
        each.crash(power=drawn.random() < 0.3)
    path = store.path
    size = path.stat().st_size if path.exists() else 0

    def flip(at: int) -> None:
        content = bytearray(path.read_bytes())
        content[at] ^= 1 << drawn.randrange(8)
        path.write_bytes(content)

    def cut(to: int) -> None:
        path.write_bytes(path.read_bytes()[:to])

    damages: dict[str, Callable[[], object]] = {
        "removed": lambda: _remove(path),
        "emptied": lambda: cut(0),
        "cut": lambda: cut(drawn.randrange(size)),
        "cut at a page": lambda: cut(drawn.randrange(size // PAGE) * PAGE),
        "changed in its head": lambda: flip(drawn.randrange(100)),
        "changed in its first page": lambda: flip(drawn.randrange(PAGE)),
        "changed": lambda: flip(drawn.randrange(size)),
    }
    if size < PAGE:
        damages = {"removed": damages["removed"]}
    what = drawn.choice(sorted(damages))
    nemesis.note(f"{', '.join(map(str, hit))} end; data.db of {node} is {what}")
    damages[what]()
    await asyncio.sleep(drawn.uniform(0.0, 4.0))
    for each in drawn.sample(hit, len(hit)):
        nemesis.back(each)
        await asyncio.sleep(drawn.choice((0.0, 0.0, 1.0)))
    await world.until(lambda: _is_whole(world), f"{node} to be back", BACK_S)


def _is_whole(world: World) -> bool:
    """Everybody is there and has its rows: who says so by its row may mean its last life."""
    found = [node.instance for node in world.nodes.values() if node.exit_code != 5]
    return all_online(world) and all(
        each is not None and each.replication.place.is_complete and not each.health.problems()
        for each in found
    )


def _remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
