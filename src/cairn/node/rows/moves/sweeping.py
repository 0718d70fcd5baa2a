"""Rows that no move remembers: those of buckets that are at rest with another replicaset."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from cairn.model.errors import CairnError
from cairn.model.members.topology import BucketState
from cairn.model.sharding.spans import Ranges, merged
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.node.runtime import spawn
from cairn.storage.data_db.moving_in import sweep_some
from cairn.storage.data_db.moving_out import MoveReader

log = logging.getLogger("cairn.moves")

SWEEP_ROWS = 1_000
RETRY_S = 0.5


class Sweeping:
    """A master deletes them, in small pieces."""

    def __init__(self, name: str, state: GlobalState, data: DataPlane) -> None:
        self._name, self._state, self._data = name, state, data
        self._swept = -1  # the epoch in which they were last looked for
        self._is_involved = False  # in a move that is open
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def follow(self) -> None:
        """Once in an epoch, and whenever the last move that concerns us has ended."""
        cluster, fence = self._state.cluster, self._data.fence
        me = cluster.instances.get(self._name)
        mine = me.replicaset_name if me is not None else ""
        before, self._is_involved = (
            self._is_involved,
            any(
                move.is_open and mine in (move.source, move.target)
                for move in cluster.moves.values()
            ),
        )
        if before and not self._is_involved:
            self._swept = -1
        is_at_it = self._task is not None and not self._task.done()
        if fence.is_master and fence.epoch != self._swept and not is_at_it:
            self._task = spawn(self._sweep(fence.epoch), "sweep rows of others")

    async def _sweep(self, epoch: int) -> None:
        while self._data.fence.is_master and self._data.fence.epoch == epoch:
            foreign = self._foreign()
            found = await asyncio.to_thread(self._first_of, foreign) if foreign else None
            if found is None:
                self._swept = epoch
                return
            log.warning("buckets %d–%d belong to others: their rows here are deleted", *found)
            try:
                while await self._data.run(
                    partial(sweep_some, self._data.store, *found, SWEEP_ROWS)
                ):
                    await asyncio.sleep(0)
            except CairnError as problem:
                log.info("rows of buckets %d–%d stay for now: %s", *found, problem)
                await asyncio.sleep(RETRY_S)

    def _foreign(self) -> Ranges:
        """Buckets of our tier that are at rest with others, if the picture can be read whole."""
        cluster = self._state.cluster
        me = cluster.instances.get(self._name)
        tier = cluster.tiers.get(me.tier) if me is not None else None
        if me is None or tier is None or cluster.problems:
            return ()
        return merged(
            (row.start, row.end)
            for row in cluster.tier_buckets(tier.name)
            if row.owner != me.replicaset_name
            and row.state is BucketState.ACTIVE
            and row.move_id is None
        )

    def _first_of(self, ranges: Ranges) -> tuple[int, int] | None:
        reader = MoveReader(self._data.store.path)
        try:
            return reader.first_of(ranges)
        finally:
            reader.close()
