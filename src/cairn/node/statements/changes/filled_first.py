"""CREATE INDEX on a large table: its entries are made first, and the table is not held up for it.

While a schema change is being made its table cannot be used, and its masters write nothing else.
So every instance that has rows of the table is asked to fill the index beforehand
(`node/rows/upkeep/filling.py`), for as long as that takes.

An instance fills one index of a table at a time. So instances are taken in one order, and the next
one is asked only when all before it have begun: else two statements that wait for each other, each
with some of the instances, would wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cairn.model.errors import TimedOut, Unreachable
from cairn.model.members.topology import Grade
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.rpc import FillIndexRequest, FillIndexResponse
from cairn.model.tables.schema import Index, Table
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState

log = logging.getLogger("cairn.ddl")

ASK_S = 5.0
LOOK_S = 0.2
TELL_S = 10.0
SILENT_S = 10.0  # who does not answer for so long makes the index when the schema change comes

Fill = Callable[[FillIndexRequest], Awaitable[FillIndexResponse]]


class Asked:
    """What is known of the instances that are asked for one index."""

    def __init__(self, index: Index | None = None) -> None:
        self.index = index
        self.heard: dict[int, float] = {}  # when each of them answered last
        self.begun = 0  # so many, the first ones in their order, had begun


class FilledFirst:
    """`here` fills at this instance."""

    def __init__(self, raft_id: int, state: GlobalState, peers: Peers, here: Fill) -> None:
        self._raft_id, self._state, self._peers, self._here = raft_id, state, peers, here

    async def wait(
        self,
        find: Callable[[], tuple[Table, Index] | None],
        deadline: float,
        wanted: Callable[[], object],
    ) -> None:
        """Until all have filled it, or `find` says that there is nothing to be filled any more.
        `wanted` raises when nobody waits for the index any more."""
        loop = asyncio.get_running_loop()
        asked = Asked()
        told_at = loop.time()
        while (found := find()) is not None:
            index = found[1]
            seen = await self.look(*found, asked)
            if seen.is_filled:
                return
            wanted()
            if loop.time() - told_at > TELL_S:
                told_at = loop.time()
                log.info("index %s: %d of %d entries are made", index.name, seen.done, seen.count)
            if loop.time() >= deadline:
                raise TimedOut(
                    f"index {index.name} was not filled in time",
                    hint="nothing was changed; allow more time",
                )
            await asyncio.sleep(LOOK_S)

    async def look(self, table: Table, index: Index, asked: Asked) -> FillIndexResponse:
        """How far all of them are; asked for the first time, they begin. Where all tables are small
        nobody has to, and that takes one round trip."""
        rows = self._holders(table)
        if not asked.heard:
            request = FillIndexRequest(index, only_look=True)
            seen = await asyncio.gather(*(self._ask(row, request, asked) for row in rows))
            if all(each.is_filled for each in seen):
                return FillIndexResponse(is_filled=True)
        request = FillIndexRequest(index)
        known = rows[: asked.begun]
        found = [*await asyncio.gather(*(self._ask(row, request, asked) for row in known))]
        for row in rows[len(known) :]:
            if any(each.is_busy for each in found):
                break
            found.append(await self._ask(row, request, asked))
        busy = [at for at, each in enumerate(found) if each.is_busy]
        asked.begun = busy[0] if busy else len(found)
        return FillIndexResponse(
            all(each.is_filled for each in found),
            sum(each.done for each in found),
            sum(each.count for each in found),
        )

    def _holders(self, table: Table) -> list[InstanceRow]:
        """In an order that is the same for everybody."""
        tier = table.sharding.tier if table.sharding is not None else ""
        cluster = self._state.cluster
        rows = [
            row
            for row in cluster.instances.values()
            if row.tier == tier
            and row.current_state.grade is row.target_state.grade is Grade.ONLINE
            and row.replicaset_name in cluster.replicasets
        ]
        return sorted(rows, key=lambda row: row.raft_id)

    async def _ask(
        self, row: InstanceRow, request: FillIndexRequest, asked: Asked
    ) -> FillIndexResponse:
        now = asyncio.get_running_loop().time()
        try:
            if row.raft_id == self._raft_id:
                answer = await self._here(request)
            else:
                answer = await self._peers.call(
                    row.raft_id, "fill_index", request, FillIndexResponse, ASK_S
                )
        except Unreachable:
            return FillIndexResponse(now - asked.heard.setdefault(row.raft_id, now) > SILENT_S)
        asked.heard[row.raft_id] = now
        return answer
