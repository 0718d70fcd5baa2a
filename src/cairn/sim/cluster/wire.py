"""The virtual network: ordered streams with delay, stalls, resets and cuts in one direction."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from cairn.net.link import Link
from cairn.sim.cluster.loop import PROCESS, Process, VirtualLoop


def host_of(address: str) -> str:
    return address.partition(":")[0]


class Wire:
    """All hosts, listeners and connections. A cut is a pair (from, to) of host names."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.loop, self.chance = loop, chance
        self.listeners: dict[str, Listener] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.dark: set[str] = set()  # hosts without power: they do not even refuse
        self.delay_s = 0.001
        self.ends: list[End] = []
        self.stalled: list[End] = []  # closed ones too: what they sent last still has to arrive
        self.messages = 0

    def delay(self) -> float:
        return self.delay_s * self.chance.uniform(0.3, 2.0)

    def is_cut(self, here: str, there: str) -> bool:
        return (here, there) in self.cuts or here in self.dark or there in self.dark

    # --- faults -----------------------------------------------------------------------------------

    def cut(self, here: str, there: str) -> None:
        self.cuts.add((here, there))

    def heal(self) -> None:
        """All links work; what was stalled arrives."""
        self.cuts.clear()
        self._flush()

    def mend(self, here: str, there: str) -> None:
        self.cuts.discard((here, there))
        self._flush()

    def power_on(self, host: str) -> None:
        self.dark.discard(host)
        self._flush()

    def _flush(self) -> None:
        stalled, self.stalled = self.stalled, []
        for end in stalled:
            end.flush()

    def reset_some(self, share: float) -> None:
        for end in list(self.ends):
            if not end.is_closed and self.chance.random() < share:
                end.reset()
                end.other.reset()

    def host_died(self, process: Process, *, silently: bool) -> None:
        """Its kernel resets every connection, unless the power is gone."""
        for address in [a for a, each in self.listeners.items() if each.process is process]:
            del self.listeners[address]
        for end in [each for each in self.ends if each.process is process]:
            end.is_closed = True
            self.ends.remove(end)
            if not silently:
                end.send_reset()

    # --- connections ------------------------------------------------------------------------------

    def connect(self, process: Process, listener: Listener, make: Callable[[], Link]) -> None:
        near = End(self, process)
        far = End(self, listener.process)
        near.other, far.other = far, near
        self.ends += [near, far]
        near.protocol = make()
        near.protocol.connection_made(near)
        self.loop.call_soon(far.accept, listener.make, context=listener.process.context)


class Listener:
    def __init__(self, process: Process, make: Callable[[], Link]) -> None:
        self.process, self.make = process, make


class End(asyncio.Transport):
    """One side of a connection, as `net.link.Link` sees it."""

    other: End
    protocol: Link

    def __init__(self, wire: Wire, process: Process) -> None:
        super().__init__()
        self.wire, self.process = wire, process
        self.is_closed = False
        self._last_due = 0.0
        #: In their order: timers of the same moment ring in any.
        self._on_its_way: deque[bytes | BaseException | None] = deque()
        self._held: deque[bytes | BaseException | None] = deque()
        self._unsent = 0

    def accept(self, make: Callable[[], Link]) -> None:
        if not self.is_closed:
            self.protocol = make()
            self.protocol.connection_made(self)

    # --- what Link uses ---------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if not self.is_closed and self.process.is_alive:
            self.wire.messages += 1
            self._unsent += len(data)
            self._send(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if self.is_closed:
            return
        self._end()
        self._send(None)
        self.wire.loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    # --- the stream -------------------------------------------------------------------------------

    def _end(self) -> None:
        self.is_closed = True
        if self in self.wire.ends:
            self.wire.ends.remove(self)

    def send_reset(self) -> None:
        self._send(ConnectionResetError("connection reset by peer"))

    def _send(self, item: bytes | BaseException | None) -> None:
        now = self.wire.loop.time()
        self._last_due = max(self._last_due, now + self.wire.delay())
        self._on_its_way.append(item)
        token = PROCESS.set(None)  # the network works on while the sender stands still or dies
        try:
            self.wire.loop.call_at(self._last_due, self._arrive)
        finally:
            PROCESS.reset(token)

    def _arrive(self) -> None:
        item = self._on_its_way.popleft()
        if self._held or self.wire.is_cut(self.process.name, self.other.process.name):
            if not self._held:
                self.wire.stalled.append(self)
            self._held.append(item)
            return
        self._deliver(item)

    def flush(self) -> None:
        if self.wire.is_cut(self.process.name, self.other.process.name):
            self.wire.stalled.append(self)
            return
        held, self._held = self._held, deque()
        for item in held:
            self._deliver(item)

    def _deliver(self, item: bytes | BaseException | None) -> None:
        if isinstance(item, bytes):
            self._unsent -= len(item)
        there = self.other
        if isinstance(item, bytes) and (there.is_closed or not there.process.is_alive):
            self.reset()  # the host is there and knows nothing of this connection
            return
        self.wire.loop.call_soon(there.receive, item, context=there.process.context)

    def receive(self, item: bytes | BaseException | None) -> None:
        if self.is_closed:
            return
        if isinstance(item, bytes):
            self.protocol.data_received(item)
            return
        self._end()
        if hasattr(self, "protocol"):
            self.protocol.connection_lost(item)

    def reset(self) -> None:
        if not self.is_closed:
            problem = ConnectionResetError("connection reset by peer")
            self.wire.loop.call_soon(self.receive, problem, context=self.process.context)


class SimNetwork:
    """`net.peers.Network` for one process."""

    def __init__(self, wire: Wire, process: Process) -> None:
        self._wire, self._process = wire, process

    async def dial(self, address: str, make: Callable[[], Link]) -> None:
        wire, here, there = self._wire, self._process.name, host_of(address)
        await asyncio.sleep(2 * wire.delay())
        if wire.is_cut(here, there) or wire.is_cut(there, here):
            await wire.loop.create_future()  # until the caller's patience ends
        listener = wire.listeners.get(address)
        if listener is None or not listener.process.is_alive:
            raise ConnectionRefusedError(111, f"connection to {address} refused")
        wire.connect(self._process, listener, make)

    async def look(self) -> None:
        """No certificates here."""

    async def listen(self, address: str, make: Callable[[], Link]) -> Callable[[], None]:
        listener = Listener(self._process, make)
        known = self._wire.listeners.get(address)
        if known is not None and known.process.is_alive and known.process is not self._process:
            raise OSError(98, "Address already in use")
        self._wire.listeners[address] = listener

        def stop() -> None:
            if self._wire.listeners.get(address) is listener:
                del self._wire.listeners[address]

        return stop
