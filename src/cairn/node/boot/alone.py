"""Who alone has a vote leads at once, and asks nobody: unless its files are old ones.

A machine may be put back to a snapshot of the time when it was the first and only one. It would
lead a second cluster beside the real one, whose members know of entries that it does not have.

Two things tell it. `members.json`, beside `raft.db`, says up to where this instance had Raft's log
when the members last changed: an older log was put back. And those whom it knows are asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cairn.model.errors import CairnError
from cairn.model.rpc import IndexResponse, WaitIndexRequest
from cairn.net.peers import Peers
from cairn.node.boot.identity import write_durably
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.raft.types import ConfState

log = logging.getLogger("cairn.boot")

ANSWER_S = 1.5
FILE = "members.json"


class Known(msgspec.Struct, frozen=True):
    """Entries up to there were applied here, and others had a place in Raft."""

    cluster_uuid: str
    raft_id: int
    term: int
    index: int
    others: tuple[str, ...]  # addresses


class MembersFile:
    """What was noted of a cluster before it was restored, or by a member that was expelled, says
    nothing about this one."""

    def __init__(self, directory: Path, cluster_uuid: str, runner: RaftRunner) -> None:
        self._path, self._uuid, self._runner = directory / FILE, cluster_uuid, runner
        self._noted: ConfState | None = None

    def read(self) -> Known | None:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=Known)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        is_ours = (found.cluster_uuid, found.raft_id) == (self._uuid, self._runner.raft_id)
        return found if is_ours else None

    def note(self, others: Iterable[str]) -> None:
        """Entries are applied. What is written here is never newer than `raft.db`."""
        runner = self._runner
        if runner.conf is self._noted:
            return
        self._noted = runner.conf
        if runner.conf.voters == (runner.raft_id,) and not runner.conf.learners:
            return
        known = Known(
            self._uuid,
            runner.raft_id,
            runner.applied_term,
            runner.applied_index,
            tuple(sorted(others)),
        )
        write_durably(self._path, msgspec.json.encode(known))


async def ask_if_alone(
    runner: RaftRunner, peers: Peers, noted: Known | None, addresses: Iterable[str]
) -> None:
    """Before it starts. A sole voter has every entry that anybody has applied."""
    if noted is not None and noted.index > runner.view.last_index():
        _owe(runner, noted.term, noted.index)
    if runner.conf.voters != (runner.raft_id,):
        return  # whoever campaigns has to ask the others anyway

    async def applied(address: str) -> IndexResponse:
        try:
            body = WaitIndexRequest(0, ANSWER_S)
            return await peers.call(address, "wait_index", body, IndexResponse, ANSWER_S)
        except CairnError:
            return IndexResponse(0, 0)

    asked = {*addresses, *(noted.others if noted is not None else ())}
    known = await asyncio.gather(*(applied(each) for each in sorted(asked)))
    newest = max(known, key=lambda each: each.index, default=IndexResponse(0, 0))
    if newest.index > runner.view.last_index():
        _owe(runner, newest.term, newest.index)


def _owe(runner: RaftRunner, term: int, index: int) -> None:
    log.warning(
        "entry %d of Raft's log was here or is known to others, and the log of this instance, "
        "which had all, ends with %d: it was started with old files and waits for a leader; if "
        "there is none, stop all instances and run `cairn restore`",
        index,
        runner.view.last_index(),
    )
    runner.core.log.owe(term, index)
