"""One connection on a blocking socket: runs a flow to its end."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from cairn.client import flows
from cairn.client.effects import Wire
from cairn.client.flows import Flow
from cairn.client.settings import Settings, certificate_hash, make_pg, split_address
from cairn.model.errors import CairnError, TimedOut, Unreachable
from cairn.pgwire.backend import Notice
from cairn.pgwire.client import PgClient

_CHUNK = 256 * 1024


class SyncWire(Wire):
    """`lock` guards the steps of flows that touch what others see (the service connection's)."""

    __slots__ = ("_lock", "_poll", "_sock")

    def __init__(
        self, address: str, pg: PgClient, sock: socket.socket, lock: threading.RLock | None
    ) -> None:
        super().__init__(address, pg)
        self._sock: socket.socket | None = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._lock = lock or nullcontext()

    def talk(self, flow: Flow[Any], timeout_s: float | None, silence_s: float | None = None) -> Any:
        sock = self._sock
        if sock is None:
            raise Unreachable("the connection is closed")
        limit = timeout_s if timeout_s is not None else silence_s
        until = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            sock.settimeout(limit)
            outgoing = next(flow)
            while True:
                if outgoing:
                    sock.sendall(outgoing)
                data = sock.recv(_CHUNK)
                if not data:
                    raise self.pg.connection_lost()
                with self._lock:
                    outgoing = flow.send(data)
                if until is not None:
                    sock.settimeout(max(0.001, until - time.monotonic()))
        except StopIteration as done:
            return done.value
        except TimeoutError:
            self.close()
            raise TimedOut(f"no answer from {self.address} in {limit or 0:g} s") from None
        except OSError as problem:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {problem}") from problem
        finally:
            if self.pg.is_closed:
                self.close()

    def send(self, data: bytes, timeout_s: float) -> None:
        """Bytes outside of a flow (COPY data). Reads what has come meanwhile."""
        if self._sock is None:
            raise self.pg.connection_lost()
        try:
            self._sock.settimeout(timeout_s)
            self._sock.sendall(data)
            self._take_waiting()
        except OSError as problem:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {problem}") from problem

    def _take_waiting(self) -> None:
        """Never waits: under TLS a socket may be readable with nothing in it for us."""
        while self._sock is not None and self._poll.poll(0):
            self._sock.settimeout(0)
            try:
                data = self._sock.recv(_CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                raise self.pg.connection_lost()
            self.pg.receive(data)

    @property
    def is_idle(self) -> bool:
        return self._sock is not None and self.pg.is_idle and self.pg.status == "I"

    @property
    def is_usable(self) -> bool:
        """Idle, and the server has not hung up meanwhile."""
        if not self.is_idle:
            return False
        try:
            self._take_waiting()
        except (CairnError, OSError):
            self.close()
        return self._sock is not None

    def close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is None:
            return
        with suppress(OSError, CairnError):
            if self.pg.is_idle:
                sock.settimeout(0.1)
                sock.sendall(self.pg.terminate())
        self.pg.connection_lost()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


def open_wire(
    settings: Settings,
    address: str,
    params: dict[str, str],
    on_notice: Callable[[Notice], None] | None = None,
    lock: threading.RLock | None = None,
) -> SyncWire:
    """Connect, encrypt if that is asked for, log in."""
    limit = settings.connect_timeout_s
    pg = make_pg(settings, params)
    if on_notice is not None:
        pg.on_notice.append(on_notice)
    host, port = split_address(address)
    try:
        sock = socket.create_connection((host, port), timeout=limit)
    except TimeoutError:
        raise TimedOut(f"{address} did not answer within {limit:g} s") from None
    except OSError as problem:
        raise Unreachable(f"cannot connect to {address}: {problem}") from problem
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wire = SyncWire(address, pg, sock, lock)
    try:
        wire.talk(flows.login(pg), limit)
        if pg.needs_tls:
            encrypted = settings.ssl_context().wrap_socket(sock, server_hostname=host)
            wire._sock = encrypted
            hashed = certificate_hash(encrypted.getpeercert(True))
            wire.talk(flows.login(pg, hashed), limit)
    except OSError as problem:
        wire.close()
        raise Unreachable(f"cannot connect to {address}: {problem}") from problem
    except BaseException:
        wire.close()
        raise
    return wire
