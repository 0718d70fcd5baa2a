"""Parts of a backup that wait for their turn, while another one is fetched for a long time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from cairn.model.backups import ALIVE, Piece, PieceRequest
from cairn.model.members.cluster import Cluster
from cairn.node.rows.backups import IDLE_S
from cairn.node.steering.backup_taker import BackupTaker, Moment


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
    found = BackupTaker(9, Path(), others, others, others, cast(Any, links), others, others)
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
