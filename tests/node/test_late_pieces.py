"""A piece that waited for a thread longer than its asker touches nobody else's connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import QueryCanceled
from cairn.model.rpc import ReadRequest, SplitRequest
from cairn.node.statements.asker.streams import Merge
from cairn.node.statements.context import Context
from cairn.node.statements.owner.fair_threads import FairThreads
from cairn.node.statements.owner.open_reads import OpenReads
from cairn.node.statements.owner.splits import SplitRead

USER, OTHER = 7, 8


@pytest.fixture
def reads(tmp_path: Path) -> OpenReads:
    """One thread for those who have one already; a user without any gets another."""
    data, raft = tmp_path / "data.db", tmp_path / "raft.db"
    apsw.Connection(str(data)).execute("CREATE TABLE origin (x)")
    apsw.Connection(str(raft)).execute("CREATE TABLE t (x)")
    return OpenReads(data, raft, lambda _: None, FairThreads(1, 3, "pieces"))


class Busy:
    """The user's one thread, until it is let go."""

    def __init__(self, reads: OpenReads) -> None:
        self._let_go, begun = threading.Event(), threading.Event()
        self._pool: Any = reads._pool
        self.work = self._pool.submit(USER, lambda: (begun.set(), self._let_go.wait()))
        begun.wait()

    def let_go(self) -> None:
        self._let_go.set()


@pytest.fixture
def busy(reads: OpenReads) -> Iterator[Busy]:
    found = Busy(reads)
    yield found
    found.let_go()


async def given_up(waiting: asyncio.Task[Any]) -> None:
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def until_idle(reads: OpenReads) -> None:
    pool: Any = reads._pool
    while pool._running.total() or pool._waiting:
        await asyncio.sleep(0.001)


def test_a_reader_that_was_given_back_is_not_used_late(reads: OpenReads, busy: Busy) -> None:
    async def story() -> None:
        late = reads.open("SELECT 1", (), 0, 0, None, lambda: None, whose=USER)
        await given_up(asyncio.ensure_future(late.take()))
        while not reads._spare:
            await asyncio.sleep(0.001)
        mine = reads.open("SELECT 2", (), 0, 0, None, lambda: None, whose=OTHER)
        assert mine._cursor.reader is late._cursor.reader
        busy.let_go()
        assert list((await mine.take()).rows) == [(2,)]
        with pytest.raises(QueryCanceled):
            late._cursor.take(1)
        await until_idle(reads)

    asyncio.run(story())


def test_a_merger_that_was_given_back_is_not_used_late(reads: OpenReads, busy: Busy) -> None:
    async def story() -> None:
        late, touched = Merge(reads, Context(user_id=USER)), []
        await given_up(asyncio.ensure_future(late.run(touched.append)))
        while not late._is_given_back:
            await asyncio.sleep(0.001)
        busy.let_go()
        await until_idle(reads)
        assert touched == []

    asyncio.run(story())


def test_rows_in_parts_end_with_who_waited_last_for_its_turn(reads: OpenReads) -> None:
    """The one before it is done, the asker has closed it, and this one is not wanted any more."""

    async def story() -> None:
        request = SplitRequest(ReadRequest("SELECT 1", (), {}, piece_bytes=1), 2, (0,), 1, False)
        cursor = reads.cursor("SELECT 1", (), 0, 0, lambda: None)
        split = SplitRead(reads, cursor, request, None)
        await split.take()
        await split._turn.acquire()  # as the one before it
        last = asyncio.ensure_future(split.take_part(1))
        await asyncio.sleep(0)
        split._turn.release()
        split.close()
        last.cancel()
        await asyncio.wait({last})
        assert last.cancelled() and reads.count == 0

    asyncio.run(story())
