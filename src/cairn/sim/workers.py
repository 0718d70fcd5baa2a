"""Processes that run seeds side by side."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool


@contextmanager
def processes(count: int) -> Iterator[Pool]:
    """Ctrl-C waits until all have started: one whose parent goes meanwhile tells a traceback. They
    themselves do not hear it, and are ended by their parent."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        ignore = (signal.SIGINT, signal.SIG_IGN)
        pool = multiprocessing.get_context("spawn").Pool(count, signal.signal, ignore)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        if heard:
            raise KeyboardInterrupt
        yield pool
