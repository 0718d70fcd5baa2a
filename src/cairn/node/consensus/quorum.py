"""Why nobody leads: which voters this instance cannot reach, and when waiting for them is vain."""

from __future__ import annotations

import asyncio

from cairn.model.errors import NoQuorum, OutcomeUnknown
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import RaftRunner

#: Longer than an election: who has reached too few voters for so long tells it, and does not wait.
PATIENCE_S = 3.0


class Voters:
    """The voters of the Raft group, as this instance sees them."""

    def __init__(self, runner: RaftRunner, peers: Peers, state: GlobalState) -> None:
        self._runner, self._peers, self._state = runner, peers, state

    def missing(self) -> list[int]:
        mine = self._runner.raft_id
        voters = self._runner.core.conf.voters
        return [each for each in voters if each != mine and not self._peers.is_linked(each)]

    def is_leaderless(self) -> bool:
        return not self._runner.leader_id

    def are_too_few(self) -> bool:
        """Whether those that can be reached are no majority, so that none of them can lead."""
        voters = len(self._runner.core.conf.voters)
        return not self._runner.leader_id and voters - len(self.missing()) <= voters // 2

    def no_quorum(self, *, may_be_done: bool = False) -> NoQuorum | None:
        """What to tell whoever waited for the leader in vain; None: there is one.

        With `may_be_done` the request was sent to somebody who never answered.
        """
        if self._runner.leader_id:
            return None
        found = NoQuorum(
            voters=self._names(self._runner.core.conf.voters), missing=self._names(self.missing())
        )
        if may_be_done:
            found.sqlstate = OutcomeUnknown.sqlstate
            found.detail = "a leader that is gone may have carried out the request"
        return found

    def _names(self, raft_ids: list[int] | frozenset[int] | tuple[int, ...]) -> tuple[str, ...]:
        cluster = self._state.cluster
        rows = [(each, cluster.by_raft_id(each)) for each in raft_ids]
        return tuple(sorted(row.name if row else str(each) for each, row in rows))


class Patience:
    """One wait for a leader. Over when too few voters were within reach for PATIENCE_S, or when
    none was heard of for twice that: voters may be linked and stand still.
    """

    def __init__(self, voters: Voters) -> None:
        self._voters = voters
        self._few_since: float | None = None
        self._none_since: float | None = None

    def is_over(self) -> bool:
        now = asyncio.get_running_loop().time()
        if not self._voters.is_leaderless():
            self._few_since = self._none_since = None
            return False
        self._none_since = now if self._none_since is None else self._none_since
        if not self._voters.are_too_few():
            self._few_since = None
        elif self._few_since is None:
            self._few_since = now
        few_s = 0.0 if self._few_since is None else now - self._few_since
        return few_s >= PATIENCE_S or now - self._none_since >= 2 * PATIENCE_S
