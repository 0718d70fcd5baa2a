"""An entry that takes seconds to apply: many rows of a global table, changed by one statement."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cairn.storage.files.groups import Job
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_global_writes import prepared_scene, running

APPLIES_S = 3.0  # three times as long as a lease


class SlowToApply:
    """A writer of `raft.db` that needs long for entries, and stores the log at once."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def submit(self, job: Job) -> None:
        if job.must_sync:
            self._disk.submit(job)
        else:
            asyncio.get_running_loop().call_later(APPLIES_S, self._disk.submit, job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


@pytest.mark.parametrize(
    ("text", "is_held"),
    [
        ("UPDATE words SET b = b + 1", True),
        ("ALTER SYSTEM SET sql_motion_row_max = 7", False),  # may be anything that counts
    ],
)
def test_masters_keep_their_leases_while_rows_of_a_global_table_are_applied(
    text: str, is_held: bool
) -> None:
    seen = set()

    async def script(scene: Triple) -> None:
        await prepared_scene(scene)
        master = inside(scene.master)
        epoch, runner = master.data.fence.epoch, master.runner
        before, runner._disk = runner._disk, SlowToApply(runner._disk)  # type: ignore[assignment]
        leader, known = inside(scene.leader).runner, runner.applied_index
        asked = running(scene.leader, text)
        while leader.applied_index == known:
            await asyncio.sleep(0.05)
        index = leader.applied_index
        await asyncio.sleep(1.5)  # whatever lease it has by then was given behind the entry
        while runner.applied_index < index:
            seen.add(master.lease.is_held(epoch))
            await asyncio.sleep(0.05)
        runner._disk = before
        await asked
        await scene.calm()

    played("async", script)
    assert seen == {is_held}
