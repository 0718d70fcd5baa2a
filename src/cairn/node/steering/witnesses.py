"""Whether others reach an instance that the leader does not hear: two see more than one."""

from __future__ import annotations

import asyncio

from cairn.model.errors import CairnError
from cairn.model.members.topology import Grade, Instance
from cairn.model.rpc import ReachRequest, ReachResponse
from cairn.net.link import PING
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState

PING_S = 0.3
ANSWER_S = 0.5
MOST = 3  # witnesses, those of its own replicaset first


class Witnesses:
    def __init__(self, name: str, state: GlobalState, peers: Peers) -> None:
        self._name, self._state, self._peers = name, state, peers

    async def agree(self, suspect: Instance) -> bool:
        """Whether somebody was there to be asked, and none of them reaches it."""
        others = [
            row
            for row in self._state.cluster.instances.values()
            if row.name not in (self._name, suspect.name)
            and row.current_state.grade is row.target_state.grade is Grade.ONLINE
        ]
        others.sort(key=lambda row: (row.replicaset_name != suspect.replicaset_name, row.name))
        found = await asyncio.gather(*(self._ask(row, suspect) for row in others[:MOST]))
        answers = [answer for answer in found if answer is not None]
        return bool(answers) and not any(answer.is_reached for answer in answers)

    async def _ask(self, witness: Instance, suspect: Instance) -> ReachResponse | None:
        request = ReachRequest(suspect.raft_id)
        try:
            return await self._peers.call(
                witness.raft_id, "reach", request, ReachResponse, ANSWER_S
            )
        except CairnError:
            return None

    async def answer(self, request: ReachRequest) -> ReachResponse:
        try:
            await self._peers.call(request.raft_id, PING, None, type(None), PING_S)
        except CairnError:
            return ReachResponse(False)
        return ReachResponse(True)
