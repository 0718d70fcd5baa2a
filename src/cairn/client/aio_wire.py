"""Connections under asyncio: a flow is stepped in `data_received`, a round trip is one wake-up."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from cairn.client.logic import flows
from cairn.client.logic.effects import MayLeave, Wire
from cairn.client.logic.flows import Flow
from cairn.client.settings import (
    Settings,
    certificate_hash,
    make_pg,
    split_address,
)
from cairn.client.standstill import ASK_AFTER_S, left_alone, lives_still
from cairn.model.errors import CairnError, TimedOut, TooManyConnections, Unreachable
from cairn.pgwire.client.backend import Notice
from cairn.pgwire.client.client import PgClient
from cairn.pgwire.client.requests import ssl_request


class AioWire(Wire, asyncio.Protocol):
    __slots__ = (
        "_cancelling",
        "_flow",
        "_looking",
        "_loop",
        "_may_leave",
        "_paused",
        "_silence",
        "_timer",
        "_until",
        "_waiter",
        "cancel",
        "transport",
    )

    def __init__(self, address: str, pg: PgClient, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(address, pg)
        self._loop = loop
        self._flow: Flow[Any] | None = None
        self._waiter: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._silence: float | None = None
        self._until = 0.0  # the flow has to end then
        self._may_leave: MayLeave | None = None
        self._looking: asyncio.Task[None] | None = None  # whether the instance lives
        self._paused: asyncio.Future[None] | None = None  # the transport's buffer is full
        self.transport: asyncio.Transport | None = None
        self.cancel: Callable[[], float] | None = None  # ask the server to stop; how long to wait
        self._cancelling: float | None = None  # the limit that has passed

    # --- what asyncio calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        flow = self._flow
        if flow is None:
            self._receive_idle(data)
            return
        if self._silence is not None:
            self._start_timer(self._silence)
        if self._looking is not None:
            self._looking.cancel()  # it lives
        try:
            outgoing = flow.send(data)
        except StopIteration as done:
            self._finish(done.value, None)
        except Exception as error:
            self._finish(None, error)
        else:
            if outgoing and self.transport is not None:
                self.transport.write(outgoing)

    def _receive_idle(self, data: bytes) -> None:
        """A notice, the rest of a COPY, or the server's last words."""
        try:
            outgoing = self.pg.receive(data)
        except CairnError:
            self.close()
            return
        if self.transport is not None:
            if outgoing:
                self.transport.write(outgoing)
            if not self.pg.is_idle and not self.pg.wants_copy_data:
                self.transport.pause_reading()  # until somebody asks for more

    def connection_lost(self, exc: Exception | None) -> None:
        error = self.pg.connection_lost()
        self.transport = None
        if self._waiter is not None:
            self._finish(None, error)
        self.resume_writing()

    def pause_writing(self) -> None:
        self._paused = self._paused or self._loop.create_future()

    def resume_writing(self) -> None:
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)
        self._paused = None

    # --- what the pool calls ------------------------------------------------------------------

    async def talk(
        self,
        flow: Flow[Any],
        timeout_s: float | None,
        silence_s: float | None = None,
        may_leave: MayLeave | None = None,
    ) -> Any:
        """`may_leave`: see `standstill`; None waits as long as it may take."""
        if self.transport is None:
            raise Unreachable("the connection is closed")
        assert self._flow is None
        try:
            outgoing = next(flow)
        except StopIteration as done:
            return done.value
        if outgoing:
            self.transport.write(outgoing)
        self.transport.resume_reading()
        waiter = self._waiter = self._loop.create_future()
        self._flow, self._silence = flow, silence_s
        limit = timeout_s if timeout_s is not None else silence_s
        self._may_leave = may_leave
        if may_leave is not None and limit is not None and limit > ASK_AFTER_S:
            now = self._loop.time()
            self._until = now + limit
            self._timer = self._loop.call_at(now + ASK_AFTER_S, self._waited, limit)
        elif limit is not None:
            self._timer = self._loop.call_later(limit, self._timed_out, limit)
        try:
            return await waiter
        except asyncio.CancelledError:
            if self.cancel is not None and self._flow is not None:
                self.cancel()
            self.close()
            raise

    def _waited(self, limit: float) -> None:
        """For a while, and not for the first time perhaps: does the instance live?"""
        now = self._loop.time()
        if now >= self._until:
            self._timed_out(limit)
            return
        self._timer = self._loop.call_at(min(now + ASK_AFTER_S, self._until), self._waited, limit)
        if self._looking is None:
            self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        try:
            is_alive = await lives_still(self.address)
        finally:
            self._looking = None
        if is_alive or self._may_leave is None or not self._may_leave():
            return
        self._finish(None, left_alone(self.address))
        self.close()

    def _start_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._timed_out, seconds)

    def _timed_out(self, limit: float) -> None:
        if self.cancel is not None and self._cancelling is None and self._silence is None:
            self._cancelling = limit
            self._timer = self._loop.call_later(self.cancel(), self._timed_out, limit)
            return
        self._finish(None, TimedOut(f"no answer from {self.address} in {limit:g} s"))
        self.close()

    def _finish(self, value: Any, error: Exception | None) -> None:
        waiter, self._waiter, self._flow, self._silence = self._waiter, None, None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._may_leave = None
        if self._looking is not None:
            self._looking.cancel()
        if self._cancelling is not None:
            error = None if error is None else flows.cancelled(error, self._cancelling)
            self._cancelling = None
        if error is not None and self.pg.is_closed:
            self.close()
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(value)
        else:
            waiter.set_exception(error)

    async def send(self, data: bytes, timeout_s: float, may_leave: MayLeave) -> None:
        """Bytes outside of a flow (COPY data), waiting while the buffer is full."""
        if self.transport is None:
            raise self.pg.connection_lost()
        self.transport.write(data)
        until = self._loop.time() + timeout_s
        while (full := self._paused) is not None:
            await asyncio.wait((full,), timeout=ASK_AFTER_S)
            if full.done():
                return
            error: CairnError | None = None
            if self._loop.time() > until:
                error = TimedOut(f"{self.address} took nothing for {timeout_s:g} s")
            elif not await lives_still(self.address) and may_leave():
                error = left_alone(self.address)
            if error is not None:
                self.close()
                raise error

    @property
    def encrypted(self) -> bool:
        transport = self.transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    @property
    def is_usable(self) -> bool:
        return self.transport is not None and self.pg.is_idle and self.pg.status == "I"

    def close(self) -> None:
        transport, self.transport = self.transport, None
        if transport is None:
            return
        if self.pg.is_idle:
            transport.write(self.pg.terminate())
            transport.close()
        else:
            self.pg.connection_lost()
            transport.abort()


async def open_wire(
    settings: Settings,
    address: str,
    params: dict[str, str],
    on_notice: Callable[[Notice], None] | None = None,
    within_s: float | None = None,
) -> AioWire:
    """Connect, encrypt if that is asked for, log in. All of it within so long."""
    limit = settings.connect_timeout_s if within_s is None else within_s
    try:
        async with asyncio.timeout(limit):
            return await _open(settings, address, params, on_notice)
    except TimeoutError:
        raise TimedOut(f"{address} did not let us in within {limit:g} s") from None
    except OSError as problem:
        raise Unreachable(f"cannot connect to {address}: {problem}") from problem


async def _open(
    settings: Settings,
    address: str,
    params: dict[str, str],
    on_notice: Callable[[Notice], None] | None,
) -> AioWire:
    loop = asyncio.get_running_loop()
    pg = make_pg(settings, params)
    if on_notice is not None:
        pg.on_notice.append(on_notice)
    host, port = split_address(address)
    wire = AioWire(address, pg, loop)
    transport, _ = await loop.create_connection(lambda: wire, host, port)
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    try:
        await wire.talk(flows.login(pg), None)
        if pg.needs_tls:
            context = settings.ssl_context()
            upgraded = await loop.start_tls(transport, wire, context, server_hostname=host)
            assert upgraded is not None
            wire.transport = upgraded
            certificate = upgraded.get_extra_info("ssl_object").getpeercert(True)
            await wire.talk(flows.login(pg, certificate_hash(certificate)), None)
    except BaseException:
        wire.close()
        raise
    return wire


async def send_cancel(settings: Settings, wire: AioWire) -> None:
    """A CancelRequest on a connection of its own, encrypted if the other is. Nobody answers it."""
    host, port = split_address(wire.address)
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(settings.connect_timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                if wire.encrypted:
                    writer.write(ssl_request())
                    if await reader.readexactly(1) != b"S":
                        return
                    await writer.start_tls(settings.ssl_context(), server_hostname=host)
                writer.write(wire.pg.cancel_request())
                await writer.drain()
                await reader.read()  # the server hangs up when it has read it
            finally:
                writer.close()


class Wires:
    """Pooled connections by address."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: dict[str, deque[AioWire]] = {}
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._all: set[AioWire] = set()
        self._cancels: set[asyncio.Task[None]] = set()
        self.opened = 0
        self.cancelled = 0

    def try_acquire(self, address: str) -> AioWire | None:
        idle = self._idle.get(address)
        while idle:
            wire = idle.pop()
            if wire.is_usable:
                return wire
            self.discard(wire)
        return None

    async def acquire(self, address: str, within_s: float) -> AioWire:
        limit = self._settings.acquire_timeout_s
        until = asyncio.get_running_loop().time() + limit
        while self._counts.get(address, 0) >= self._settings.max_per_instance:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(address, deque()).append(waiter)
            try:
                async with asyncio.timeout_at(until):
                    await waiter
            except BaseException as problem:
                if waiter.done() and not waiter.cancelled():
                    self._wake(address)  # its turn came, and goes to the next
                if not isinstance(problem, TimeoutError):
                    raise
                raise TooManyConnections(
                    f"all {self._settings.max_per_instance} connections to {address} are in use",
                    hint="raise max_per_instance or acquire_timeout_s",
                ) from None
            wire = self.try_acquire(address)
            if wire is not None:
                return wire
        self._counts[address] = self._counts.get(address, 0) + 1
        try:
            keys = self._settings.statement_keys()
            wire = await open_wire(self._settings, address, keys, within_s=within_s)
        except BaseException:
            self._gone(address)
            raise
        self.opened += 1
        self._all.add(wire)
        wire.cancel = lambda: self._cancel(wire)
        return wire

    def _cancel(self, wire: AioWire) -> float:
        self.cancelled += 1
        task = asyncio.get_running_loop().create_task(send_cancel(self._settings, wire))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)
        return self._settings.cancel_wait_s

    def release(self, wire: Wire) -> None:
        assert isinstance(wire, AioWire)
        if not wire.is_usable:
            self.discard(wire)
            return
        self.put_back(wire)

    def put_back(self, wire: Wire) -> None:
        """As `release`, after a whole answer: it is known to be idle."""
        address = wire.address
        idle = self._idle.get(address)
        if idle is None:
            idle = self._idle[address] = deque()
        idle.append(cast(AioWire, wire))
        if self._waiting:
            self._wake(address)

    def discard(self, wire: Wire) -> None:
        assert isinstance(wire, AioWire)
        wire.close()
        if wire in self._all:
            self._all.discard(wire)
            self._gone(wire.address)

    def _gone(self, address: str) -> None:
        self._counts[address] -= 1
        self._wake(address)

    def _wake(self, address: str) -> None:
        waiting = self._waiting.get(address)
        while waiting:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def keep_only(self, addresses: set[str]) -> None:
        """Close idle connections to where nobody lives any more."""
        for address in [each for each in self._idle if each not in addresses]:
            for wire in list(self._idle.pop(address)):
                self.discard(wire)

    def close(self) -> None:
        for task in list(self._cancels):
            task.cancel()
        for wire in list(self._all):
            self.discard(wire)
        self._idle.clear()
