"""A minimal server on loopback for real clients: an asyncio.Protocol around EchoSession."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cairn.pgwire.server.server import PgServer, Phase

from .echo import EchoSession


class EchoProtocol(asyncio.Protocol):
    """One write per batch of bytes that came. TLS is started where the client asked for it."""

    def __init__(self, tls: ssl.SSLContext | None, cancelled: list[tuple[int, bytes]]) -> None:
        self.tls, self.cancelled = tls, cancelled
        pg = PgServer(tls_available=tls is not None)
        self.session = EchoSession(pg, random_bytes=os.urandom)
        self.transport: asyncio.Transport | None = None
        self._upgrade: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # decrypted before `start_tls` has given us its transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        if self._upgrade is not None and not self._upgrade.done():
            self._early.append(data)
            return
        before = self.session.pg.phase
        self.transport.write(self.session.receive(data))
        if self.session.cancelled:
            self.cancelled.append(self.session.cancelled)
        if self.session.closed:
            self.transport.close()
        elif before is Phase.STARTUP and self.session.pg.phase is Phase.TLS:
            self._upgrade = asyncio.ensure_future(self._start_tls())

    async def _start_tls(self) -> None:
        assert self.transport is not None and self.tls is not None
        loop = asyncio.get_running_loop()
        self.session.pg.tls_started()
        upgraded = await loop.start_tls(self.transport, self, self.tls, server_side=True)
        assert isinstance(upgraded, asyncio.Transport)
        self.transport = upgraded
        self.transport.write(self.session.receive(b"".join(self._early)))


@contextmanager
def echo_server(
    tls: ssl.SSLContext | None = None,
) -> Iterator[tuple[int, list[tuple[int, bytes]]]]:
    """The port, and the keys of CancelRequests that came."""
    loop = asyncio.new_event_loop()
    cancelled: list[tuple[int, bytes]] = []

    async def listen() -> asyncio.Server:
        return await loop.create_server(lambda: EchoProtocol(tls, cancelled), "127.0.0.1", 0)

    server = loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1], cancelled
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
