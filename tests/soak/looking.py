"""Looking into an instance of another process; see `inside/sitecustomize.py`."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

INSIDE = Path(__file__).parent / "inside"
ANSWER_S = 60.0

#: Caches that would take hours to fill, by the name of their limit.
SMALL = {
    "cairn.server.statements.MAX_STATEMENTS": 300,
    "cairn.node.watching.statistics.MOST": 200,
    "cairn.storage.readers.POINT_READS_MOST": 100,
    "cairn.storage.readers.NOTED": 300,
    "cairn.storage.readers.CACHE_KIB": 1_000,
    "cairn.node.statements.owner.write_kinds.NOTED": 300,
    "cairn.node.consensus.proposals.REMEMBERED": 200,
    "cairn.node.statements.blocks.kept.MOST": 200,
}
PAGES_KIB = 1_000  # that one connection to SQLite keeps


def environment(place: Path) -> dict[str, str]:
    """What an instance is started with, to be looked into."""
    place.mkdir(exist_ok=True)
    return {"PYTHONPATH": str(INSIDE), "CAIRN_SOAK": str(place)}


class Inside:
    """One instance, by the number of its process."""

    def __init__(self, place: Path, pid: int) -> None:
        self._place, self._pid = place, pid

    def ask(self, what: str, **more: Any) -> Any:
        told = self._place / f"{self._pid}.told"
        told.unlink(missing_ok=True)
        (self._place / f"{self._pid}.ask").write_text(json.dumps({"what": what, **more}))
        os.kill(self._pid, signal.SIGUSR1)
        deadline = time.monotonic() + ANSWER_S
        while not told.exists():
            assert time.monotonic() < deadline, f"{what} was not answered"
            time.sleep(0.01)
        answer = json.loads(told.read_text())
        assert "problem" not in answer, answer
        return answer["answer"]

    def shrink(self) -> None:
        self.ask("bound", values=SMALL, pages_kib=PAGES_KIB)
