"""What an instance that lives long must not gather, and clocks that must be one."""

from __future__ import annotations

import asyncio

from cairn.model.log import ops
from cairn.model.tables.system_tables import PICO_DB_CONFIG, PICO_PROPERTY
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_data_rules import in_process


def test_a_leader_forgets_old_proposals_together_with_its_log() -> None:
    async def script(scene: Triple) -> None:
        leader = inside(scene.leader)

        async def put(table: int, *row: str) -> None:
            change = ops.Batch((ops.Replace(table, row),))
            propose = leader.proposer.cas
            await in_process(scene.leader, lambda: propose(change, leader.proposer.predicate(())))

        await put(PICO_DB_CONFIG.id, "raft_wal_count_max", "", "20")
        for number in range(200):
            await put(PICO_PROPERTY.id, "test_number", str(number))
        assert len(leader.proposer._log._records) <= 40
        assert leader.state.cluster.properties["test_number"] == 199

    played("async", script)


def test_the_age_of_a_replicas_rows_is_told_by_the_clock_that_measured_it() -> None:
    async def script(scene: Triple) -> None:
        third = inside(scene.third).replication.follower
        fresh = third.stale_s()
        scene.cut(scene.third, scene.master)
        await asyncio.sleep(30.0)
        assert fresh is not None and fresh < 5.0
        old = third.stale_s()
        assert old is not None and 25.0 < old < 40.0

    played("async", script)
