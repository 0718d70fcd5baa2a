"""Files of a killed instance that are not what it left when it starts again.

One instance at a time, when all others are whole: what it has forgotten they still have. Damage is
also done while all are killed, if it can be seen in the file. What is whole and older, or lacks its
last commits, cannot be seen there: the others have to run, and to know better.

A `raft.db` that has forgotten its votes waits for a person: `cairn expel`, and the blow is one.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.backups import cairn
from tests.cluster.harness import Node, eventually
from tests.cluster.proxy import ProxiedCluster

DATA, RAFT = "data.db", "raft.db"
WAY_OUT = "`cairn expel"
OLDER_S = 1.5  # what it writes meanwhile is gone
BACK_S = 120.0
#: Seen in the file itself, whatever it was before.
SEEN = ("changed", "cut", "emptied", "removed")
SILENT = ("older", "log cut", "log changed", "log emptied", "log removed")


class DamagedStarts:
    def __init__(self, cluster: ProxiedCluster, chance: random.Random) -> None:
        self._cluster, self._chance = cluster, chance
        self.told: list[str] = []

    def strike(self, name: str) -> Callable[[], object]:
        """How it is brought back."""
        chance, node = self._chance, self._cluster[name]
        file = chance.choice((DATA, DATA, RAFT))
        how = chance.choice((*SEEN, *SILENT))
        if (file, how) == (RAFT, "removed"):  # is refused and told: a person has to begin anew
            how = "emptied"
        nodes = [*self._cluster.nodes.values()]
        hit = nodes if how in SEEN and chance.random() < 0.4 else [node]
        node.kill()
        if how == "older":
            kept = _taken(node, file)
            node.start()
            time.sleep(OLDER_S)
            node.kill()
            _put_back(node, file, kept)
        for other in hit:
            if other is not node:
                other.kill()
        if how != "older":
            self._damage(node.dir / file, how)
        self.told.append(f"{file} of {name} {how}, {len(hit)} killed")
        print(f"  {self.told[-1]}", flush=True)
        return lambda: self._back(node, hit)

    def _damage(self, path: Path, how: str) -> None:
        target = path.with_name(f"{path.name}-wal") if how.startswith("log ") else path
        if how.endswith("removed"):
            target.unlink(missing_ok=True)
            return
        if not target.exists():
            return
        size = target.stat().st_size
        with target.open("r+b") as file:
            if how.endswith("emptied"):
                file.truncate(0)
            elif how.endswith("cut"):
                file.truncate(self._chance.randrange(size) if size else 0)
            elif size:
                at = self._chance.randrange(size)
                file.seek(at)
                [byte] = file.read(1)
                file.seek(at)
                file.write(bytes([byte ^ 1 << self._chance.randrange(8)]))

    def _back(self, node: Node, hit: list[Node]) -> None:
        before = node.log().count(WAY_OUT)
        for each in hit:
            each.start()
        others = [each for each in self._cluster.nodes.values() if each is not node]

        def goes_on() -> bool:
            """It runs, or says what it waits for."""
            return node.log().count(WAY_OUT) > before or bool(node.status())

        eventually(goes_on, f"a word of {node.name} after {self.told[-1]}", BACK_S)
        if node.log().count(WAY_OUT) > before:
            words = ("expel", node.name, "--yes", "--timeout", "20")

            def expelled() -> bool:
                code, told = cairn(others[0], *words)
                if code:
                    code, told = cairn(others[0], *words, "--force")
                assert code == 0, told
                return True

            eventually(expelled, f"{node.name} to be expelled", BACK_S)
            eventually(node.status, f"{node.name} to be back after {self.told[-1]}", BACK_S)


def _names(file: str) -> tuple[str, str]:
    return file, f"{file}-wal"


def _taken(node: Node, file: str) -> Path:
    kept = node.dir / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for name in _names(file):
        if (node.dir / name).exists():
            shutil.copy(node.dir / name, kept / name)
    return kept


def _put_back(node: Node, file: str, kept: Path) -> None:
    for name in (*_names(file), f"{file}-shm"):
        (node.dir / name).unlink(missing_ok=True)
    for name in _names(file):
        if (kept / name).exists():
            shutil.copy(kept / name, node.dir / name)
    shutil.rmtree(kept)
