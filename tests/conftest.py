"""For every test: a run that is told to end still ends the processes it has started."""

from __future__ import annotations

import signal
import threading

import pytest


def pytest_configure(config: pytest.Config) -> None:
    def end(number: int, frame: object) -> None:
        pytest.exit(f"signal {number}")  # fixtures are torn down on the way out

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
