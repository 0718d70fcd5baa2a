"""The blocking driver's connections, by the address they lead to."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import cast

from cairn.client.logic.effects import Wire
from cairn.client.settings import Settings
from cairn.client.sync_wire import SyncWire, send_cancel
from cairn.model.errors import TooManyConnections


class Wires:
    """Pooled connections by address. Every method is called with the pool's lock held."""

    def __init__(self, settings: Settings, news: threading.Condition) -> None:
        self._settings, self._news = settings, news
        self._idle: dict[str, deque[SyncWire]] = {}
        self._counts: dict[str, int] = {}
        self._all: set[SyncWire] = set()
        self.opened = 0
        self.cancelled = 0
        self._waiting = 0

    def try_acquire(self, address: str) -> SyncWire | None:
        idle = self._idle.get(address)
        while idle:
            wire = idle.pop()
            if wire.is_quiet:
                return wire
            self.discard(wire)
        return None

    def reserve(self, address: str) -> SyncWire | None:
        """A free connection, or None and the right to open one."""
        until = time.monotonic() + self._settings.acquire_timeout_s
        while self._counts.get(address, 0) >= self._settings.max_per_instance:
            wire = self.try_acquire(address)
            if wire is not None:
                return wire
            self._waiting += 1
            heard = self._news.wait(max(0.0, until - time.monotonic()))
            self._waiting -= 1
            if not heard:
                raise TooManyConnections(
                    f"all {self._settings.max_per_instance} connections to {address} are in use",
                    hint="raise max_per_instance or acquire_timeout_s",
                )
        self._counts[address] = self._counts.get(address, 0) + 1
        return None

    def opened_one(self, wire: SyncWire) -> None:
        self.opened += 1
        self._all.add(wire)
        wire.cancel = lambda: self._cancel(wire)

    def _cancel(self, wire: SyncWire) -> float:
        self.cancelled += 1
        send_cancel(self._settings, wire)
        return self._settings.cancel_wait_s

    def release(self, wire: Wire) -> None:
        assert isinstance(wire, SyncWire)
        if not wire.is_idle:
            self.discard(wire)
            return
        self.put_back(wire)

    def put_back(self, wire: Wire) -> None:
        """As `release`, after a whole answer: it is known to be idle."""
        idle = self._idle.get(wire.address)
        if idle is None:
            idle = self._idle[wire.address] = deque()
        idle.append(cast(SyncWire, wire))
        if self._waiting:
            self._news.notify_all()

    def discard(self, wire: Wire) -> None:
        assert isinstance(wire, SyncWire)
        wire.close()
        if wire in self._all:
            self._all.discard(wire)
            self.forget(wire.address)

    def forget(self, address: str) -> None:
        self._counts[address] -= 1
        self._news.notify_all()

    def keep_only(self, addresses: set[str]) -> None:
        """Close idle connections to where nobody lives any more."""
        for address in [each for each in self._idle if each not in addresses]:
            for wire in list(self._idle.pop(address)):
                self.discard(wire)

    def close(self) -> None:
        for wire in list(self._all):
            self.discard(wire)
        self._idle.clear()
