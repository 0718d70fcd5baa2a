"""A moment of a backup at one master; and its parts that wait while another one is fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cairn.model.backups import ALIVE, CopyRequest, HoldRequest, Piece, PieceRequest
from cairn.model.members.cluster import Cluster
from cairn.node.rows.upkeep.backups import IDLE_S, Backups
from cairn.node.steering.backup_taker import BackupTaker, Moment
from cairn.node.waiting import until
from cairn.storage.data_db.data_store import DataStore
from tests.replication.builders import Site


class Links:
    """Whom the taker asks, and what."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []  # raft_id and offset

    async def call(
        self, raft_id: int, method: str, body: PieceRequest, answer: Any, timeout_s: float
    ) -> Piece:
        assert method == "backup_piece"
        self.asked.append((raft_id, body.offset))
        return Piece(b"x", 1, 1, True)


def taker(links: Links, moment: Moment) -> BackupTaker:
    others = cast(Any, None)  # what taking the moment needs, which has happened
    found = BackupTaker(
        9, Path(), others, others, others, cast(Any, links), others, others, voters=others
    )
    found._moments[moment.id] = moment
    return found


def test_those_who_wait_are_told_that_they_are_still_wanted() -> None:
    async def story() -> list[tuple[int, int]]:
        now = asyncio.get_running_loop().time()
        givers = {"r1": 1, "r2": 2, "r3": 3}
        moment = Moment("m", Cluster(), 1, "", {}, givers, b"", [], used=now, told=now)
        links = Links()
        asked = taker(links, moment)
        await asked.piece("m", "r1", 0)  # a moment later: nobody has to be told
        moment.told = now - IDLE_S / 2  # the first part takes its time
        await asked.piece("m", "r1", 100)
        await asked.piece("m", "r1", 200)
        return links.asked

    assert asyncio.run(story()) == [(1, 0), (2, ALIVE), (3, ALIVE), (1, 100), (1, 200)]


class Writer:
    """One thread for all jobs, as the writer of rows has it."""

    def __init__(self, store: DataStore) -> None:
        self.store = store
        self.thread = ThreadPoolExecutor(1)

    async def run(self, work: Callable[[], Any], *, alone: bool = False) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)


def test_a_master_that_is_held_writes_nothing_until_it_is_let_go(tmp_path: Path) -> None:
    site = Site(tmp_path, "A")
    site.master(1)
    site.create()
    site.store.newest = site.store.fence
    writer, order = Writer(site.store), list[str]()

    async def story() -> None:
        state = cast(Any, SimpleNamespace(setting=lambda _, unless: unless))
        backups = Backups("A", state, cast(Any, writer), lambda: 1 << 40)
        held = await backups.hold(HoldRequest("copy", "r1", None))
        assert held.stamp == {"A": (1, 1)}
        write = asyncio.ensure_future(writer.run(lambda: order.append("written")))
        await until(lambda: bool(order), 0.2)
        order.append("let go")
        assert (await backups.release(CopyRequest("copy"))).was_held
        await write
        await until(lambda: backups._copies["copy"].is_ready, 10.0)
        backups.close()

    asyncio.run(story())
    writer.thread.shutdown()
    assert order == ["let go", "written"]
    site.close()
