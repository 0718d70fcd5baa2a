"""SQL functions on giant values: in a process of their own.

Such a call may take seconds, most of them inside of one step of the interpreter. In the instance
nothing could end it, and nobody else would be answered meanwhile. A process can always be ended.
The thread that waits for it asks all the while whether the statement is still wanted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from cairn.model import stops
from cairn.model.carried_errors import from_wire
from cairn.model.errors import CairnError, LimitExceeded
from cairn.node.statements.owner.apart_worker import HEAD

COMMAND = (sys.executable, "-m", "cairn.node.statements.owner.apart_worker")
MOST = max(2, os.cpu_count() or 1)  # at work; who comes later waits
KEPT = 1  # idle ones; they end by themselves after a while
LOOK_S = 0.02  # between two looks at whether it is still wanted
PIECE = 1 << 20
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bool, Any]).decode


class CallsApart:
    """For every thread but the event loop's, which must not wait and is given no giants."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(MOST)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._is_over = False

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """What the function gives, or raises. Raises `QueryCanceled` when it is not wanted."""
        if threading.current_thread() is threading.main_thread():
            return function(*args)
        while not self._places.acquire(timeout=LOOK_S):
            stops.check()
        try:
            return self._answer(_encode((name, args)))
        finally:
            self._places.release()

    def _answer(self, call: bytes) -> Any:
        worker = self._taken()
        try:
            told = worker.ask(call)
        except BaseException:
            worker.end()
            raise
        self._keep(worker)
        is_value, found = _decode(told)
        if is_value:
            return found
        raise from_wire(found)

    def _taken(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive:
                    return worker
                worker.end()
        try:
            return _Worker()
        except OSError as problem:
            raise LimitExceeded(
                f"no process for a giant value: {problem}", sqlstate="53200"
            ) from None

    def _keep(self, worker: _Worker) -> None:
        with self._lock:
            if not self._is_over and len(self._idle) < KEPT:
                self._idle.append(worker)
                return
        worker.end()


class _Worker:
    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, bufsize=0)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe_end in (self._to, self._from):
            os.set_blocking(pipe_end, False)
            with contextlib.suppress(OSError):  # fewer turns between the two processes
                fcntl.fcntl(pipe_end, fcntl.F_SETPIPE_SZ, PIECE)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, call: bytes) -> bytes:
        for part in (len(call).to_bytes(HEAD, "little"), call):
            left = memoryview(part)
            while left:
                left = left[self._write(left[:PIECE]) :]
        return self._read(int.from_bytes(self._read(HEAD), "little"))

    def _write(self, part: memoryview) -> int:
        self._wait(self._to, select.POLLOUT)
        try:
            return os.write(self._to, part)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise self._gone() from None

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            self._wait(self._from, select.POLLIN)
            with contextlib.suppress(BlockingIOError):
                part = os.read(self._from, min(size, PIECE))
                if not part:
                    raise self._gone()
                parts.append(part)
                size -= len(part)
        return b"".join(parts)

    def _wait(self, pipe: int, for_what: int) -> None:
        """Until a pipe is ready. Raises when the answer is not wanted any more."""
        ready = select.poll()
        ready.register(pipe, for_what)
        stops.check()
        while not ready.poll(LOOK_S * 1000):
            stops.check()

    def _gone(self) -> CairnError:
        return LimitExceeded(
            "the process for giant values has ended",
            hint="the value may need more memory than there is",
            sqlstate="53200",
        )

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
