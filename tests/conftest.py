"""For every test: a run that is told to end still ends the processes it has started.

`make test` has two workers. Tests of one file stay together, in order, because they share fixtures;
folders in FOLDERS share one cluster, so each of them stays together as a whole.
"""

from __future__ import annotations

import signal
import threading

import pytest

FOLDERS = ("spark", "clients")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        folder = item.path.parent.name
        together = folder if folder in FOLDERS else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(together))


def pytest_configure(config: pytest.Config) -> None:
    def end(number: int, frame: object) -> None:
        pytest.exit(f"signal {number}")  # fixtures are torn down on the way out

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
