"""Asking whoever leads Raft, from any instance and while the leader changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cairn.model.errors import CairnError, NotLeader, TimedOut, Unreachable
from cairn.model.rpc import Empty, IndexResponse
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.quorum import Patience, Voters
from cairn.node.consensus.raft_runner import RaftRunner

T = TypeVar("T")

ASK_S = 3.0
CATCH_UP_S = 10.0
ASK_ANYBODY_S = 1.0  # while nobody is known to lead: who is asked may not know either
_ONLY_ASK = ("read_index",)  # nothing is changed by it


class Leader:
    """`here` answers a call on this very instance. `contacts` are the addresses given at start, for
    when all others have moved."""

    def __init__(
        self,
        state: GlobalState,
        runner: RaftRunner,
        peers: Peers,
        voters: Voters,
        chance: random.Random,
        contacts: list[str],
        here: Callable[[str, Any], Awaitable[Any]],
    ) -> None:
        self._state, self._runner, self._peers, self._voters = state, runner, peers, voters
        self._chance, self._contacts, self._here = chance, contacts, here

    async def ask(self, method: str, body: Any, answer: type[T], timeout_s: float = 10.0) -> T:
        """The leader's answer to an idempotent request, whoever leads and wherever we are.

        While we know of no leader (nobody may know our new address yet), others are asked.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        problem: CairnError = TimedOut("no Raft leader is known")
        hint: int | str = 0
        may_be_done = False
        patience = Patience(self._voters)
        while loop.time() < deadline and not patience.is_over():
            leader = hint or self._runner.leader_id or self._somebody()
            hint = 0
            try:
                if leader == self._runner.raft_id:
                    found: T = await self._here(method, body)
                    return found
                if leader:
                    left = max(deadline - loop.time(), 0.01)
                    most = ASK_S if self._runner.leader_id else ASK_ANYBODY_S
                    return await self._peers.call(leader, method, body, answer, min(left, most))
            except NotLeader as redirect:
                problem, hint = redirect, redirect.detail or redirect.leader or 0
            except Unreachable as trouble:
                problem, hint = trouble, self._somebody()  # it may have moved: others know where
                may_be_done = method not in _ONLY_ASK
            await asyncio.sleep(0.05)
        if isinstance(problem, Unreachable):  # its own limit was what was left of ours
            told = f"the Raft leader did not answer within {timeout_s:g} s"
            problem = Unreachable(told, detail=problem.message)
        raise self._voters.no_quorum(may_be_done=may_be_done) or problem

    async def catch_up(self, timeout_s: float) -> None:
        """Until everything that was acknowledged anywhere before this call is applied here."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        found = await self.ask("read_index", Empty(), IndexResponse, min(timeout_s, CATCH_UP_S))
        await self._runner.wait_applied(found.index, max(deadline - loop.time(), 0.01))

    def _somebody(self) -> int | str:
        """Any other member that we know of or were told of at start; it will tell who leads."""
        known = sorted(self._state.peer_addresses().keys() - {self._runner.raft_id})
        others: list[int | str] = [*known, *self._contacts]
        return self._chance.choice(others) if others else 0
