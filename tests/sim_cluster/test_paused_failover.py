"""`automatic_failover = false`: a silent master stays master until somebody says otherwise."""

from __future__ import annotations

import asyncio

from cairn.model.log import ops
from cairn.model.members.topology import Grade
from cairn.model.tables import system_tables as system
from cairn.node.instance import Instance
from tests.sim_cluster.scenes import Triple, inside, played


async def put(instance: Instance, *, automatic: bool) -> None:
    row = ("automatic_failover", "", "true" if automatic else "false")
    change = ops.Batch((ops.Replace(system.PICO_DB_CONFIG.id, row),))
    await instance.proposer.cas(change, instance.proposer.predicate(()))


def test_a_dead_master_is_replaced_only_after_failover_was_resumed() -> None:
    async def script(scene: Triple) -> None:
        leader = inside(scene.leader)
        [replicaset] = leader.state.cluster.replicasets.values()

        def master() -> str:
            return leader.state.cluster.replicasets[replicaset.name].current_master_name

        await put(leader, automatic=False)
        scene.master.crash()
        await asyncio.sleep(20.0)
        grade = leader.state.cluster.instances[scene.master.name].target_state.grade
        assert (master(), grade) == (scene.master.name, Grade.ONLINE)
        await put(leader, automatic=True)
        await scene.world.until(
            lambda: master() in (scene.leader.name, scene.third.name), "another master", 10.0
        )

    played("async", script)


def test_a_master_that_is_told_to_stop_hands_over_all_the_same() -> None:
    async def script(scene: Triple) -> None:
        leader = inside(scene.leader)
        await put(leader, automatic=False)
        scene.master.stop()
        await scene.world.until(
            lambda: (
                leader.state.cluster.instances[scene.master.name].current_state.grade
                is Grade.OFFLINE
            ),
            "the end of the old master",
            20.0,
        )
        [replicaset] = leader.state.cluster.replicasets.values()
        assert replicaset.current_master_name in (scene.leader.name, scene.third.name)

    played("async", script)
