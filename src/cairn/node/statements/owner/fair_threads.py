"""Threads for long work, shared between users: whoever has none of them gets the next one.

One user alone may use all of the first `few`. A user who has no thread yet does not wait for
those of others: up to `most` more are started for such. Among those who wait, the one with the
fewest threads is next; each user's own work stays in its order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from cairn.model.errors import CairnError

T = TypeVar("T")
SYSTEM = 0  # whose work it is when no user asked for it
_Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class _Share(Executor):
    """The threads as one user sees them: what event loops know how to give work to."""

    def __init__(self, threads: FairThreads, whose: int) -> None:
        self._threads, self._whose = threads, whose

    def submit(self, work: Callable[..., T], /, *args: Any, **_: Any) -> Future[T]:
        return self._threads.submit(self._whose, work, *args)


class FairThreads:
    def __init__(self, few: int, most: int, name: str) -> None:
        self._few, self._most = few, most
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()
        self._waiting: OrderedDict[int, deque[_Work]] = OrderedDict()

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, whose: int, work: Callable[..., T], *args: Any) -> Future[T]:
        """RuntimeError after `close`, as from the pool itself."""
        future: Future[T] = Future()
        with self._lock:
            if self._may_start(whose):
                self._start(whose, (future, work, args))
            else:
                self._waiting.setdefault(whose, deque()).append((future, work, args))
        return future

    def run(self, whose: int, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Whoever stops waiting before it has begun takes it back."""
        return asyncio.get_running_loop().run_in_executor(_Share(self, whose), work, *args)

    def _may_start(self, whose: int) -> bool:
        total = self._running.total()
        return total < self._few or (not self._running[whose] and total < self._most)

    def _start(self, whose: int, work: _Work) -> None:
        self._pool.submit(self._carry_out, whose, work)
        self._running[whose] += 1

    def _carry_out(self, whose: int, work: _Work) -> None:
        future, function, args = work
        try:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args))
                except CairnError as problem:
                    future.set_exception(problem.without_frames())
                except BaseException as problem:
                    future.set_exception(problem)
        finally:
            del future, function, args, work  # the next may be long: its rows are not ours to keep
            with self._lock:
                self._ended(whose)

    def _ended(self, whose: int) -> None:
        self._running[whose] -= 1
        if not self._running[whose]:
            del self._running[whose]
        while self._waiting:
            following = min(self._waiting, key=self._running.__getitem__)  # the first of equals
            if not self._may_start(following):
                return
            theirs = self._waiting[following]
            work = theirs.popleft()
            if theirs:
                self._waiting.move_to_end(following)
            else:
                del self._waiting[following]
            try:
                self._start(following, work)
            except RuntimeError:  # the instance is ending
                return
