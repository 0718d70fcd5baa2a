"""Most voters are gone: whoever needs the leader hears so, and who is missing."""

from __future__ import annotations

import pytest

from cairn.model.errors import NoQuorum
from cairn.model.rpc import Empty, ExpelRequest, IndexResponse
from tests.sim_cluster.scenes import Triple, inside, played


def test_without_a_quorum_the_missing_voters_are_named() -> None:
    async def script(scene: Triple) -> None:
        alone = inside(scene.third)
        scene.leader.crash()
        scene.master.crash()
        with pytest.raises(NoQuorum) as caught:
            await alone.ask_leader("read_index", Empty(), IndexResponse, 10.0)
        told = caught.value
        missing = tuple(sorted((scene.leader.name, scene.master.name)))
        assert (told.sqlstate, told.voters, told.missing) == ("PC002", ("a", "b", "c"), missing)
        assert told.message == f"there is no Raft leader: {', '.join(missing)} cannot be reached"
        assert told.hint == "start what is missing: 2 of the voters a, b, c must run"
        request = ExpelRequest(alone.identity.cluster_uuid, missing[0], False)
        with pytest.raises(NoQuorum) as caught:
            await alone.ask_leader("expel", request, Empty, 10.0)
        assert caught.value.sqlstate == "40003"  # it was sent, and nobody knows what became of it

    played("async", script)
