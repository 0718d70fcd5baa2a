"""`cairn demo --stop`: the end of a detached demo."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

STOP_S = 15.0


def stop_demo(directory: str | None) -> int:
    """End a detached demo by the pids it wrote down, and nothing else."""
    if directory is None:
        sys.stderr.write("cairn demo --stop needs --dir\n")
        return 2
    path = Path(directory) / "demo.json"
    if not path.exists() and not running(Path(directory)):  # one that was killed wrote nothing yet
        sys.stderr.write(f"cairn demo: no demo in {directory}\n")
        return 1
    found = end_all(Path(directory))
    path.unlink(missing_ok=True)
    told = f"stopped {', '.join(found)}" if found else "no instance was running"
    print(f"{told}; files stay in {path.parent.absolute()}")
    return 0


def end_all(directory: Path) -> list[str]:
    """End every instance below the directory, also one that was started again by hand."""
    found = running(directory)
    for pid in found.values():
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while any(_is_ours(pid, str(directory)) for pid in found.values()):
        if time.monotonic() > deadline:
            for pid in found.values():
                _signal(pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    return list(found)


def running(directory: Path) -> dict[str, int]:
    """The supervisors of instances that run below the directory, by name."""
    found: dict[str, int] = {}
    for file in sorted(directory.glob("*/cairn.pid")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(file.read_text().split()[0])  # the supervisor's
            if _is_ours(pid, str(directory)):
                found[file.parent.name] = pid
    return found


def _is_ours(pid: int, directory: str) -> bool:
    """A pid may have been given to a stranger since: a supervisor has the lock of its directory
    open as long as it lives. Its command line may not be its own: see `instance/nursery.py`."""
    locks = {each.resolve() for each in Path(directory).glob("*/lock")}
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        held = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return state != "Z" and any(Path(each) in locks for each in held)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
