"""Whether the statement that is being worked for is still wanted.

SQLite asks between its own steps. One step may be a function that works long on a long text: such
functions ask here. Each thread has a context of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cairn.model.errors import QueryCanceled

Asked = Callable[[], bool]
_is_stopped: ContextVar[Asked | None] = ContextVar("is_stopped", default=None)


@contextmanager
def working_until(is_stopped: Asked) -> Iterator[None]:
    before = _is_stopped.set(is_stopped)
    try:
        yield
    finally:
        _is_stopped.reset(before)


def check() -> None:
    is_stopped = _is_stopped.get()
    if is_stopped is not None and is_stopped():
        raise QueryCanceled("canceling statement due to user request")
