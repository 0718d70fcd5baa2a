"""Logs of JSON lines in the instance's directory, rotated by size.

They are written by a thread of their own from a line of limited length: neither a slow disk nor a
full one holds up or ends anything else. What could not be written is counted, and the count is
written as soon as something can be.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

WAITING = 10_000  # lines that wait for the disk

log = logging.getLogger("cairn.lines")
_encode = msgspec.json.Encoder().encode


class LineLog:
    """`limits` gives the size of a file in bytes (0: nothing is written) and how many are kept."""

    def __init__(self, path: Path, limits: Callable[[], tuple[int, int]]) -> None:
        self._path, self._limits = path, limits
        self._lines: deque[bytes] = deque()
        self._wake = threading.Condition()
        self._lost = 0
        self._is_torn = False  # half a line may be in the file
        self._is_ending = False
        self._said = 0.0
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> int:
        """Lines that could not be written, and are not told of yet."""
        return self._lost

    def write(self, facts: dict[str, Any]) -> None:
        if not self._limits()[0]:
            return
        data = _encode({"time": datetime.now(UTC).isoformat()} | facts) + b"\n"
        with self._wake:
            if len(self._lines) >= WAITING:
                self._lost += 1
                return
            self._lines.append(data)
            self._wake.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._path.name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        with self._wake:
            self._is_ending = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._lines and not self._is_ending:
                    self._wake.wait()
                lines = deque(self._lines)
                self._lines.clear()
                if not lines:
                    return
            try:
                self._tell_lost()
                while lines:
                    self._append(lines[0])
                    lines.popleft()
            except OSError as problem:
                with self._wake:
                    self._lost += len(lines)
                self._say(problem)

    def _tell_lost(self) -> None:
        lost = self._lost
        if lost:
            line = {"time": datetime.now(UTC).isoformat(), "event": "lost", "lines": lost}
            self._append(_encode(line) + b"\n")
            with self._wake:
                self._lost -= lost

    def _append(self, data: bytes) -> None:
        size, count = self._limits()
        if self._is_torn:
            data = b"\n" + data
        try:
            has = self._path.stat().st_size
        except FileNotFoundError:
            has = 0
        if has and has + len(data) > size:
            self._rotate(count)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            self._is_torn = True
            while data:
                data = data[os.write(file, data) :]
            self._is_torn = False
        finally:
            os.close(file)

    def _rotate(self, count: int) -> None:
        """The file with `.1` is the youngest of the old ones."""
        kept = max(count - 1, 0)
        for number in range(kept, 0, -1):
            younger = self._numbered(number - 1)
            if younger.exists():
                younger.replace(self._numbered(number))
        if not kept:
            self._path.unlink(missing_ok=True)
        number = kept + 1
        while self._numbered(number).exists():  # the setting was lowered
            self._numbered(number).unlink()
            number += 1

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _say(self, problem: OSError) -> None:
        now = monotonic()
        if now - self._said > 60 or not self._said:
            self._said = now
            log.error("%s cannot be written, lines are lost: %s", self._path.name, problem)
