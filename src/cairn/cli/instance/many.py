"""Starts several instances on this machine by way of a nursery (`nursery.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

START_S = 30.0  # for its imports, on a machine that is busy
LOOK_S = 0.01
_ROOM = 4000  # of bytes for the command that `ps` shows; the kernel takes 128 KiB


class NurseryProblem(Exception):
    """The nursery has ended; its own words are on standard error."""


class Born:
    """One `cairn run` that a nursery has forked. It is spoken to as a `Popen` is."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self._nursery.look()
        return self.returncode

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"instance {self.pid}", timeout)
            time.sleep(LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Imports in the background from now on. Those it has started outlive it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cairn.cli.instance.nursery", " " * _ROOM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; what was started is ended in order
        )
        self._lock = threading.Lock()  # one order at a time: answers carry no number
        self._rest = b""
        self._last_born = 0
        self._born: dict[int, Born] = {}

    def start(self, command: list[str], log: Path, environment: dict[str, str]) -> Born:
        """`command` is what a shell would start: … run --flags."""
        order = {
            "command": command,
            "log": str(log.absolute()),
            "environment": environment,
            "directory": os.getcwd(),
        }
        with self._lock:
            return self._start(json.dumps(order).encode() + b"\n")

    def _start(self, order: bytes) -> Born:
        assert self._process.stdin is not None
        self._last_born = 0
        try:
            self._process.stdin.write(order)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise NurseryProblem("nothing can be started: the nursery has ended") from None
        until = time.monotonic() + START_S
        while not self._last_born:
            left_s = until - time.monotonic()
            if left_s <= 0 or not self._hear(left_s):
                raise NurseryProblem("nothing can be started: the nursery does not answer")
        return self._born[self._last_born]

    def look(self) -> None:
        """Whether somebody has ended."""
        with self._lock:
            self._hear(0.0)

    def _hear(self, timeout_s: float) -> bool:
        """Take what it tells; False: it tells nothing more, or not in time."""
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        if not select.select([handle], [], [], timeout_s)[0]:
            return False
        data = os.read(handle, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "born" in message:
                self._last_born = message["born"]
                self._born[self._last_born] = Born(self, self._last_born)
            else:
                self._born.pop(message["ended"]).returncode = message["code"]
        if not data:
            self._look_for_orphans()
        return bool(data)

    def _look_for_orphans(self) -> None:
        """Without a nursery nobody knows their codes; that they are gone can still be seen."""
        for pid, born in list(self._born.items()):
            if not Path(f"/proc/{pid}").exists():
                born.returncode = 1
                del self._born[pid]

    def close(self) -> None:
        """Instances run on."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(START_S)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
