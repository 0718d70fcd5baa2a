"""One machine of three is put back to an older snapshot of its disk, and the cluster notices."""

from __future__ import annotations

import asyncio
import random

import pytest

from cairn.model.members.topology import Grade
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.blows.old_files import files_of, put_back
from cairn.sim.cluster.trial import run_trial
from tests.sim_cluster.scenes import Triple, inside, played


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_voter_whose_disk_went_back_gets_what_it_acknowledged_again(mode: str) -> None:
    """Its leader believed the old word and sent it nothing: it was Offline for ever, in silence."""

    async def script(scene: Triple) -> None:
        world, leader, victim = scene.world, scene.leader, scene.third
        old, nemesis = files_of(victim), Nemesis(world, random.Random(1))
        for key in range(2, 12):
            await scene.write(key)
            assert await nemesis.set("scrub_rows_per_s", key)
        await world.settled()
        acknowledged = inside(victim).runner.applied_index
        victim.crash(power=True)
        put_back(victim, old)
        await asyncio.sleep(4.0)
        victim.start()
        await world.until(lambda: victim.grade is Grade.ONLINE, f"{victim} to be back", 30.0)
        await world.settled()
        assert world.leader() is leader, "the one that believed it has to lead all the time"
        assert inside(victim).runner.applied_index >= acknowledged
        assert scene.load.rows_of(victim) == scene.load.rows_of(scene.master)

    played(mode, script)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_old_files_of_one_instance_lose_nothing(seed: int) -> None:
    """Seeds that failed: in the second one entries of Raft were replaced."""
    result = run_trial("old-files")(seed)
    assert result.failure is None, result.failure
