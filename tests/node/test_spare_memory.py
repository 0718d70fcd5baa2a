"""What was freed goes back to the system."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from cairn.node.boot import spare_memory


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_pieces_between_others_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_memory, "EVERY_S", 0.01)
    kept = [bytes(20_000) if at % 100 else bytes(600) for at in range(5_000)]  # 100 MB
    full = _resident_mb()
    kept = [each for each in kept if len(each) < 1_000]  # what stays lies between all of it

    async def until_small() -> None:
        giving = asyncio.ensure_future(spare_memory.give_back_for_ever())
        try:
            async with asyncio.timeout(20):
                while _resident_mb() > full - 60:
                    await asyncio.sleep(0.01)
        finally:
            giving.cancel()

    asyncio.run(until_small())
    assert len(kept) == 50
