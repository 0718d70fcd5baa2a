"""Rows of a move are those of one epoch of their master."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cairn.model.errors import NoMaster
from cairn.model.members.moves import Move
from cairn.moves.delta import Delta
from cairn.node.rows.moves.giving import DeltaRequest, Giving

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


def asked(source: Source) -> Delta:
    return asyncio.run(source.giving().handle_delta(DeltaRequest(7)))


def test_a_master_that_stays_gives_what_it_read() -> None:
    assert asked(Source((3, 3))) == Delta(3, {}, ())


def test_a_master_that_was_named_again_meanwhile_does_not() -> None:
    with pytest.raises(NoMaster):
        asked(Source((3, 5)))
