"""For every test: a run that is told to end still ends the processes it has started.

`make test` has two workers. Tests of one file stay together, in order, because they share fixtures;
folders in FOLDERS share one cluster, so each of them stays together as a whole.
"""

from __future__ import annotations

import signal
import threading

import pytest
from xdist.scheduler import LoadScopeScheduling

FOLDERS = ("tests/spark/", "tests/clients/")


class Together(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        for folder in FOLDERS:
            if nodeid.startswith(folder):
                return folder
        return nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return Together(config, log)


def pytest_configure(config: pytest.Config) -> None:
    def end(number: int, frame: object) -> None:
        pytest.exit(f"signal {number}")  # fixtures are torn down on the way out

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
        # A run in the background of a script ignores Ctrl-C, and so would all that it starts.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
