"""Who alone has a vote leads at once, and asks nobody: unless its files are old ones.

A machine may be put back to a snapshot of the time when it was the first and only one. It would
lead a second cluster beside the real one, whose members know of entries that it does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from cairn.model.errors import CairnError
from cairn.model.rpc import IndexResponse, WaitIndexRequest
from cairn.net.peers import Peers
from cairn.node.consensus.raft_runner import RaftRunner

log = logging.getLogger("cairn.boot")

ANSWER_S = 1.5


async def ask_if_alone(runner: RaftRunner, peers: Peers, addresses: Iterable[str]) -> None:
    """Before it starts. A sole voter has every entry that anybody has applied."""
    if runner.conf.voters != (runner.raft_id,):
        return  # whoever campaigns has to ask the others anyway

    async def applied(address: str) -> IndexResponse:
        try:
            body = WaitIndexRequest(0, ANSWER_S)
            return await peers.call(address, "wait_index", body, IndexResponse, ANSWER_S)
        except CairnError:
            return IndexResponse(0, 0)

    known = await asyncio.gather(*(applied(each) for each in sorted(set(addresses))))
    newest = max(known, key=lambda each: each.index, default=IndexResponse(0, 0))
    if newest.index > runner.view.last_index():
        log.warning(
            "others have entry %d of Raft's log and this instance, which had all, ends with %d: it "
            "was started with old files and waits for a leader; if there is none, stop all "
            "instances and run `cairn restore`",
            newest.index,
            runner.view.last_index(),
        )
        runner.core.log.owe(newest.term, newest.index)
