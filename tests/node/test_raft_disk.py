"""What Raft's file has when an entry is acknowledged: enough for after a power cut."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.runtime import RealRuntime
from cairn.raft.types import (
    ConfChangeSingle,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    Message,
    MsgKind,
)
from cairn.raft.wire import decode_message
from cairn.storage.files.groups import Job, run_group
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.storage.raft_db.state_machine import StateMachine


class SlowDisk:
    """Jobs are written one by one, when it is told to."""

    def __init__(self, store: RaftStore) -> None:
        self._store, self.jobs = store, deque[Job]()
        self.reads: Callable[[], int] = lambda: 0

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def write_together(self) -> None:
        """What is queued, in one group; then everybody hears of it."""
        jobs = [*self.jobs]
        self.jobs.clear()
        run_group(self._store.connection, jobs)
        for job in jobs:
            job.done(job.result)

    def close(self) -> None:
        self.jobs.clear()


class Post:
    """What was sent, and to whom."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def tell(self, to: int, method: str, body: bytes) -> bool:
        self.sent.append(decode_message(msgspec.msgpack.decode(body, type=bytes)))
        return True


class Follower:
    """Instance 2 of three, whose leader is 1 in term 1."""

    def __init__(self, directory: Path, *, is_started: bool = True) -> None:
        self.store = RaftStore(directory / "raft.db")
        self.store.connection.execute("BEGIN")
        self.store.put("term", 1)
        self.store.put_applied(0, 0, ConfState((1, 2, 3)))
        self.store.connection.execute("COMMIT")
        self.disk, self.post = SlowDisk(self.store), Post()
        self.runner = RaftRunner(
            2,
            self.store,
            StateMachine(self.store.connection),
            self.disk,
            self.post,  # type: ignore[arg-type]
            RealRuntime(directory, ""),
            on_applied=lambda done: None,
            on_installed=lambda one, other: None,
            on_role=lambda: None,
            on_broken=self._broken,
        )
        if is_started:
            self.runner.start()

    @staticmethod
    def _broken(problem: BaseException) -> None:
        raise problem

    async def hears(self, kind: MsgKind, **fields: Any) -> None:
        self.runner.core.step(Message(kind, 1, 2, term=1, **fields))
        self.runner.wake()
        await self.turns()

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def writes(self) -> None:
        self.disk.write_together()
        await self.turns()

    def acknowledged(self) -> int:
        return max(
            each.index
            for each in self.post.sent
            if each.kind is MsgKind.APP_RESP and not each.reject
        )


def test_who_is_spoken_to_before_it_starts_hears_everything(tmp_path: Path) -> None:
    """Peers are served first: a message of the leader that came then made it deaf for ever."""

    async def play() -> int:
        node = Follower(tmp_path, is_started=False)
        await node.hears(
            MsgKind.APP, index=0, log_term=0, entries=(Entry(1, 1, EntryType.NORMAL, b""),)
        )
        node.runner.start()
        await node.turns()
        await node.writes()
        return node.acknowledged()

    assert asyncio.run(play()) == 1


def test_a_commit_that_was_heard_before_an_entry_was_acknowledged_is_on_disk_with_it(
    tmp_path: Path,
) -> None:
    """Whoever has the entry that ends a change of voters knows that the change had begun.

    Else, after a power cut that takes back what was applied, it would ask the old voters alone.
    """

    async def play() -> tuple[int, int]:
        node = Follower(tmp_path)
        long = Entry(1, 1, EntryType.NORMAL, bytes(5 << 20))  # nothing else is applied beside it
        change = ConfChangeV2(changes=(ConfChangeSingle("add_voter", 4),)).encode()
        begins, ends = (
            Entry(1, 2, EntryType.CONF_CHANGE, change),
            Entry(1, 3, EntryType.NORMAL, b""),
        )
        await node.hears(MsgKind.APP, entries=[long, begins])
        await node.writes()
        await node.hears(MsgKind.HEARTBEAT, commit=1)
        await node.hears(MsgKind.HEARTBEAT, commit=2)
        await node.hears(MsgKind.APP, index=2, log_term=1, entries=[ends], commit=2)
        assert len(node.disk.jobs) == 2  # the first entry is applied, the last one written
        node.disk.write_together()
        acknowledged, commit = node.acknowledged(), node.store.hard_state.commit
        node.runner.close()
        node.store.close()
        return acknowledged, commit

    assert asyncio.run(play()) == (3, 2)
