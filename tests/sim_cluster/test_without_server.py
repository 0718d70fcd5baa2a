"""The server is a face that can be left out: peers and the queue are served without it."""

from __future__ import annotations

import pytest

from cairn.model.errors import PeerRefused
from cairn.model.rpc import ReadRequest, ReadResponse
from cairn.model.tables.system_tables import PICO_INSTANCE
from cairn.node.peer_calls import Right
from tests.sim_cluster.scenes import founded, inside, world_of

COUNT = f"SELECT count(*) FROM {PICO_INSTANCE.physical_name}"


def test_an_instance_without_a_server_answers_the_reads_of_peers() -> None:
    world = world_of("a", "b")

    async def script() -> None:
        await founded(world)
        one, other = (inside(node) for node in world.nodes.values())
        request = ReadRequest(COUNT, (), {})
        answer = await one.peers.call(other.raft_id, "read_rows", request, ReadResponse, 5.0)
        assert answer == ReadResponse([(2,)])
        with pytest.raises(PeerRefused, match="does not know the call nothing"):
            await one.peers.call(other.raft_id, "nothing", request, ReadResponse, 5.0)

    world.run(script)


def test_all_that_peers_may_ask_stands_in_one_table() -> None:
    world = world_of("a")

    async def script() -> None:
        await founded(world)
        [instance] = (inside(node) for node in world.nodes.values())
        names = [call.name for call in instance._calls]
        assert sorted(names) == sorted(instance.peers.handlers)
        assert len(set(names)) == len(names)
        admin = {call.name for call in instance._calls if call.right is Right.ADMIN}
        assert admin == {"expel", "restart", "signal_session", "status", "watch"}

    world.run(script)
