"""Rows of a move are those of one epoch of their master."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from cairn.model.errors import NoMaster
from cairn.model.members.moves import Move
from cairn.moves.delta import Delta
from cairn.node.rows.moves.giving import DeltaRequest, Giving, _Reader

MOVE = Move(7, "default", 1, 10, "r1", "r2")


class Source:
    """A master whose epoch changes while it reads, if it is told so."""

    def __init__(self, epochs: tuple[int, int]) -> None:
        self._before, self._after = epochs
        self.data: Any = SimpleNamespace(
            store=SimpleNamespace(path=Path("data.db"), origin="o"),
            fence=self._fence(self._before),
            is_writing_long=lambda: False,
        )

    @staticmethod
    def _fence(epoch: int) -> Any:
        return SimpleNamespace(is_master=True, is_sync=False, epoch=epoch)

    async def run(self, work: object) -> Delta:
        self.data.fence = self._fence(self._after)
        return Delta(self._before, {}, ())

    def giving(self) -> Giving:
        cluster = SimpleNamespace(
            moves={7: MOVE}, instances={"i1": SimpleNamespace(replicaset_name="r1")}
        )
        state: Any = SimpleNamespace(cluster=cluster)
        lease: Any = SimpleNamespace(is_held=lambda epoch: True)
        made = Giving("i1", state, self.data, SimpleNamespace(), lease)  # type: ignore[arg-type]
        made._rows = self  # type: ignore[assignment]
        return made


def test_a_reader_is_in_use_until_its_thread_is_done_whoever_waits(tmp_path: Path) -> None:
    """The target may ask again by another link while the first question is worked on."""
    apsw.Connection(str(tmp_path / "data.db"))
    begun, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def long(reader: object) -> None:
        begun.set()
        may_end.wait()
        order.append("first")

    async def story() -> None:
        reader = _Reader(tmp_path / "data.db")
        first = asyncio.ensure_future(reader.run(long))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        first.cancel()
        second = asyncio.ensure_future(reader.run(lambda reader: order.append("second")))
        for _ in range(20):  # turns in which it could begin
            await asyncio.sleep(0.001)
        may_end.set()
        await second
        assert order == ["first", "second"] and first.cancelled()
        reader.close()

    asyncio.run(story())


def asked(source: Source) -> Delta:
    return asyncio.run(source.giving().handle_delta(DeltaRequest(7)))


def test_a_master_that_stays_gives_what_it_read() -> None:
    assert asked(Source((3, 3))) == Delta(3, {}, ())


def test_a_master_that_was_named_again_meanwhile_does_not() -> None:
    with pytest.raises(NoMaster):
        asked(Source((3, 5)))
