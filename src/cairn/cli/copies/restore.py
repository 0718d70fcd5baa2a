"""`cairn restore`: directories that were put back from a copy begin a new history."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from cairn.cli.instance.supervisor import lock_directory
from cairn.cli.talking import TalkProblem


def run_restore(directories: list[Path], without: list[str]) -> int:
    from cairn.model.errors import CairnError
    from cairn.node.boot.restoring import restore

    locks: list[int] = []
    try:
        for directory in directories:
            if not directory.is_dir():
                raise TalkProblem(f"{directory}: no such directory", 2)
            lock = lock_directory(directory)
            if lock is None:
                raise TalkProblem(f"{directory}: an instance runs in this directory", 2)
            locks.append(lock)
        try:
            copies = restore(directories, without, str(uuid.uuid4()))
        except CairnError as problem:
            hint = f"\nhint: {problem.hint}" if problem.hint else ""
            raise TalkProblem(f"{problem}{hint}", 1) from None
    finally:
        for lock in locks:
            os.close(lock)
    print(f"{', '.join(copy.name for copy in copies)}: ready to be started, as a new history")
    print("streams and drivers that know the old one end with an error: start them anew")
    for name in without:
        print(f"afterwards: cairn expel {name} --force")
    return 0
