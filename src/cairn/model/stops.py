"""Whether the statement that this thread works for is still wanted.

SQLite asks between its own steps. One step may be a function that works long on a long text: such
functions ask here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cairn.model.errors import QueryCanceled

Asked = Callable[[], bool]


class _Thread(threading.local):
    is_stopped: Asked | None = None


_thread = _Thread()


@contextmanager
def working_until(is_stopped: Asked) -> Iterator[None]:
    _thread.is_stopped = is_stopped
    try:
        yield
    finally:
        _thread.is_stopped = None


def check() -> None:
    is_stopped = _thread.is_stopped
    if is_stopped is not None and is_stopped():
        raise QueryCanceled("canceling statement due to user request")
