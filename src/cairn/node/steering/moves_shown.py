"""`_cairn_rebalance` on every instance: the leader alone knows how far moves have come."""

from __future__ import annotations

import logging

from cairn.model.errors import CairnError
from cairn.model.rpc import Empty, StatusResponse
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.leader import Leader
from cairn.node.rows.local_tables import LocalTables
from cairn.node.runtime import spawn

log = logging.getLogger("cairn.moves")

IDLE_BEATS = 5  # between two questions while nothing moves
ANSWER_S = 1.0


class MovesShown:
    def __init__(self, state: GlobalState, leader: Leader, local: LocalTables) -> None:
        self._state, self._leader, self._local = state, leader, local
        self._beats = 0
        self._is_busy = False  # something moves, or is planned
        self._is_asking = False

    def beat(self) -> None:
        """Once a second."""
        self._beats += 1
        moves = self._state.cluster.moves.values()
        is_due = self._is_busy or self._beats % IDLE_BEATS == 0
        if not self._is_asking and (is_due or any(move.is_open for move in moves)):
            self._is_asking = True
            spawn(self._ask(), "moves shown")

    async def _ask(self) -> None:
        try:
            found = await self._leader.ask("status", Empty(), StatusResponse, ANSWER_S)
            self._local.write_rebalance(found.moves)
            self._is_busy = bool(found.moves)
        except CairnError as problem:
            log.debug("the leader did not tell of moves: %s", problem)
        finally:
            self._is_asking = False
