"""A port that strangers can reach: connections are counted before TLS, and not after it.

A listener of asyncio tells of a connection when its TLS handshake is over. Whoever never ends one
would hold a file of the process without being counted, until nobody else gets in.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
import sys
from collections.abc import Callable

from cairn.net.places import Places, Shares, shares

log = logging.getLogger("cairn.net")

AT_ONCE = 64  # accepted in one turn of the loop
AGAIN_S = 0.2  # after the system had no file for a connection
HANDSHAKE_S = 5.0
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def shares_of_files() -> Shares:
    """Of the files that this process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return shares(files if files > 0 else sys.maxsize)


class Visit:
    """One connection, as its protocol tells the door of it."""

    __slots__ = ("_places", "address", "sock")

    def __init__(self, places: Places, sock: socket.socket, address: str) -> None:
        self._places, self.sock, self.address = places, sock, address

    def is_let_in(self) -> bool:
        return self._places.opened(self.address, self, self._hang_up)

    def busy(self) -> None:
        self._places.busy(self)

    def idle(self) -> None:
        self._places.idle(self)

    def over(self) -> None:
        """It is closed; or it has proven itself, and needs no place of a stranger any more."""
        self._places.closed(self)

    def _hang_up(self) -> None:
        """By the system: whatever TLS still wants to say, nobody waits for it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


Make = Callable[[Visit], asyncio.Protocol]


class Door:
    """`tls` is asked for each connection: certificates may be exchanged meanwhile."""

    def __init__(
        self, places: Places, make: Make, tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        self._places, self._make, self._tls = places, make, tls
        self._listeners: list[socket.socket] = []
        self._entering: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def open(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        while self._listeners:
            listener = self._listeners.pop()
            if listener.fileno() >= 0:  # or somebody has closed it
                self._loop.remove_reader(listener)
                listener.close()
        for task in self._entering:
            task.cancel()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno in _SHORT and listener in self._listeners:
                    self._loop.remove_reader(listener)
                    self._loop.call_later(AGAIN_S, self._again, listener)
                return
            visit = Visit(self._places, sock, str(peer[0]) if isinstance(peer, tuple) else "")
            if not visit.is_let_in():
                sock.close()
                continue
            task = self._loop.create_task(self._enter(visit))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    def _again(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    async def _enter(self, visit: Visit) -> None:
        context = self._tls()
        visit.sock.setblocking(False)
        try:
            with contextlib.suppress(OSError):
                visit.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: self._make(visit),
                visit.sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S if context is not None else None,
            )
        except (OSError, ssl.SSLError) as problem:  # what strangers send is no news
            log.debug("a connection from %s did not come about: %s", visit.address, problem)
            visit.sock.close()
            visit.over()
        except BaseException:
            visit.sock.close()
            visit.over()
            raise


async def listeners(host: str, port: int, backlog: int = 128) -> list[socket.socket]:
    """One for each address of the host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            made.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(backlog)
    except BaseException:
        for sock in made:
            sock.close()
        raise
    return made
