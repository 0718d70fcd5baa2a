"""A virtual event loop: time jumps to the next timer, and whole processes can die or stand still.

Every callback belongs to the process (one life of one instance) in whose context it was made.
A dead process runs nothing any more, a paused one finds everything late when it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import logging
import selectors
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import apsw

from cairn.native.point_inserts import end_inserts


class Process:
    """One life of an instance. `crash` is a kill -9: nothing of it runs afterwards."""

    def __init__(self, name: str, life: int) -> None:
        self.name, self.life = name, life
        self.is_alive = True
        self.is_paused = False
        self.frozen: list[asyncio.Handle] = []
        self.connections: list[apsw.Connection] = []
        self.on_files_closed: list[Callable[[], None]] = []  # for files that others hold open too
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"{self.name}#{self.life}"

    def crash(self) -> None:
        self.is_alive = False
        self.frozen.clear()

    def close_files(self) -> None:
        """What the kernel does for a dead process; every transaction was ended or is undone."""
        for close in self.on_files_closed:
            close()
        self.on_files_closed.clear()
        for connection in self.connections:
            end_inserts(connection)
            connection.close(True)
        self.connections.clear()


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def _note_connection(connection: apsw.Connection) -> None:
    owner = PROCESS.get()
    if owner is not None:
        owner.connections.append(connection)


apsw.connection_hooks.append(_note_connection)


def _owner(context: contextvars.Context | None) -> Process | None:
    return PROCESS.get() if context is None else context.get(PROCESS)


def _may_run(handle: asyncio.Handle, owner: Process | None) -> bool:
    if owner is None:
        return True
    if not owner.is_alive:
        return False
    if owner.is_paused:
        owner.frozen.append(handle)
        return False
    return True


class _Handle(asyncio.Handle):
    __slots__ = ("owner",)
    owner: Process | None

    def _run(self) -> None:
        if _may_run(self, self.owner):
            self._loop.before_each()  # type: ignore[attr-defined]
            super()._run()


class _Timer(asyncio.TimerHandle):
    __slots__ = ("owner",)
    owner: Process | None

    def _run(self) -> None:
        if _may_run(self, self.owner):
            self._loop.before_each()  # type: ignore[attr-defined]
            super()._run()


class _Jump(selectors.BaseSelector):
    """Waiting costs nothing: the clock is put forward."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, int(fileobj), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Any:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        try:
            return self._keys[fileobj]
        except KeyError:
            raise KeyError(fileobj) from None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen again"
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs as fast as the machine allows; `steps` counts what it has run."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self.tasks: list[asyncio.Future[Any]] = []  # kept: a dead process's tasks are never resumed
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_problem)
        self.problems: list[str] = []
        self.thread_delay_s = 0.0  # until a thread begins with what it was given
        #: Called before each callback: something may happen between any two of them.
        self.before_each: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self._jump.now

    @staticmethod
    def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        assert isinstance(loop, VirtualLoop)
        loop.tasks.append(task)
        if len(loop.tasks) > 2_000:
            loop.tasks = [each for each in loop.tasks if not each.done()]
        return task

    def _note_problem(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A bug in a callback: the seed fails with it."""
        problem = context.get("exception")
        if "never retrieved" in str(context.get("message")) and _is_refusal(problem):
            return
        lines = traceback.format_exception(problem)[-3:] if problem is not None else []
        self.problems.append(f"{context.get('message')}: {''.join(lines)}")

    # --- where handles are made -----------------------------------------------------------------

    def _call_soon(
        self, callback: Callable[..., Any], args: Any, context: contextvars.Context | None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        handle.owner = _owner(context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.owner = _owner(context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Threads have no place in virtual time: the work is done here, now or a little later."""
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as problem:
                future.set_exception(problem)

        if self.thread_delay_s:
            self.call_later(self.thread_delay_s, work)
        else:
            work()
        return future

    # --- processes --------------------------------------------------------------------------------

    def pause(self, process: Process) -> None:
        process.is_paused = True

    def resume(self, process: Process) -> None:
        process.is_paused = False
        frozen, process.frozen = process.frozen, []
        self._ready.extend(frozen)  # type: ignore[attr-defined]

    def bury(self) -> None:
        """End of the run: pending tasks of the dead are dropped without a word."""
        before = logging.root.manager.disable
        logging.disable()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # work that was never begun
                self._drop_tasks()
            self.close()
        finally:
            logging.disable(before)

    def _drop_tasks(self) -> None:
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if isinstance(task, asyncio.Task) and not task.done():
                with contextlib.suppress(RuntimeError):
                    task.get_coro().close()
        self.tasks.clear()


def _is_refusal(problem: object) -> bool:
    from cairn.model.errors import CairnError

    return problem is None or isinstance(problem, CairnError | OSError | TimeoutError)
