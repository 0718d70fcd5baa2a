"""One connection on a blocking socket: runs a flow to its end."""

from __future__ import annotations

import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from cairn.client.logic import flows
from cairn.client.logic.effects import MayLeave, Ready, Wire
from cairn.client.logic.flows import Flow
from cairn.client.settings import Settings, certificate_hash, make_pg, split_address
from cairn.client.standstill import ASK_AFTER_S, left_alone, lives
from cairn.model.errors import CairnError, TimedOut, Unreachable
from cairn.pgwire.client.backend import Notice, Result
from cairn.pgwire.client.client import PgClient
from cairn.pgwire.client.requests import ssl_request

_SMALL, _LARGE = 16 * 1024, 256 * 1024  # a large buffer costs page faults: only for large answers


class SyncWire(Wire):
    """`lock` guards the steps of flows that touch what others see (the service connection's).

    The socket never blocks: it is waited for by `poll`, which costs one call and not three.
    """

    __slots__ = ("_lock", "_poll", "_room", "_sock", "cancel")

    def __init__(
        self, address: str, pg: PgClient, sock: socket.socket, lock: threading.RLock | None
    ) -> None:
        super().__init__(address, pg)
        self._sock: socket.socket | None = sock
        self._room = _SMALL
        sock.setblocking(False)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._lock = lock
        self.cancel: Callable[[], float] | None = None  # ask the server to stop; how long to wait

    def talk(
        self,
        flow: Flow[Any],
        timeout_s: float | None,
        silence_s: float | None = None,
        may_leave: MayLeave | None = None,
    ) -> Any:
        """`may_leave`: see `standstill`; None waits as long as it may take."""
        sock = self._sock
        if sock is None:
            raise Unreachable("the connection is closed")
        limit = timeout_s if timeout_s is not None else silence_s
        until = None if timeout_s is None else time.monotonic() + timeout_s
        left = limit
        try:
            outgoing = next(flow)
            while True:
                if outgoing:
                    self._send(sock, outgoing, left, may_leave)
                data = self._receive(sock, left, may_leave)
                if self._lock is None:
                    outgoing = flow.send(data)
                else:
                    with self._lock:
                        outgoing = flow.send(data)
                if until is not None:
                    left = max(0.001, until - time.monotonic())
        except StopIteration as done:
            return done.value
        except TimeoutError:
            return self._stop(flow, limit or 0.0)
        except OSError as problem:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {problem}") from problem
        finally:
            if self.pg.is_closed:
                self.close()

    def execute(self, ready: Ready, params: Sequence[Any], timeout_s: float) -> Result:
        """A prepared statement: sent, waited for and read here when all is as usual."""
        sock, quick = self._sock, ready.quick
        request = quick.request(params)
        if request is None or sock is None or isinstance(sock, ssl.SSLSocket):
            flow = flows.execute(self.pg, ready.name, params, quick)
            return cast(Result, self.talk(flow, timeout_s, None, ready.may_leave))
        data, in_time = b"", True
        try:
            sent = sock.send(request)
            if sent == len(request):
                in_time = self._has_come(sock, timeout_s, ready.may_leave)
                data = sock.recv(_SMALL) if in_time else b""
        except BlockingIOError:
            sent = 0
        except OSError as problem:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {problem}") from problem
        result = quick.answer(data)
        if result is not None:
            return result
        rest = flows.execute_rest(self.pg, ready.name, params, request[sent:], data)
        if in_time:
            return cast(Result, self.talk(rest, timeout_s, None, ready.may_leave))
        next(rest)
        return cast(Result, self._stop(rest, timeout_s))

    def _send(
        self, sock: socket.socket, data: bytes, left_s: float | None, may_leave: MayLeave | None
    ) -> None:
        at = 0
        while at < len(data):
            try:
                at += sock.send(data[at:] if at else data)
            except (BlockingIOError, ssl.SSLWantWriteError):
                waiting = select.poll()
                waiting.register(sock, select.POLLOUT)
                if not self._is_ready(waiting, select.POLLOUT, sock, left_s, may_leave):
                    raise TimeoutError from None

    def _receive(
        self, sock: socket.socket, left_s: float | None, may_leave: MayLeave | None
    ) -> bytes:
        """What has come, waiting for it if need be."""
        while True:
            if isinstance(sock, ssl.SSLSocket):  # may hold data that `poll` does not see
                try:
                    data = sock.recv(self._room)
                    break
                except ssl.SSLWantReadError:
                    if not self._has_come(sock, left_s, may_leave):
                        raise TimeoutError from None
            else:
                if not self._has_come(sock, left_s, may_leave):
                    raise TimeoutError
                data = sock.recv(self._room)
                break
        if not data:
            raise self.pg.connection_lost()
        self._room = _LARGE if len(data) >= _SMALL else _SMALL
        return data

    def _has_come(
        self, sock: socket.socket, left_s: float | None, may_leave: MayLeave | None
    ) -> bool:
        return self._is_ready(self._poll, select.POLLIN, sock, left_s, may_leave)

    def _is_ready(
        self,
        poll: select.poll,
        events: int,
        sock: socket.socket,
        left_s: float | None,
        may_leave: MayLeave | None,
    ) -> bool:
        """Waits for it; False: not in time. Raises if the instance is left because it is still."""
        if may_leave is None:
            return bool(poll.poll(None if left_s is None else left_s * 1000))
        until = time.monotonic() + (left_s if left_s is not None else math.inf)
        while True:
            if poll.poll(min(ASK_AFTER_S, max(0.0, until - time.monotonic())) * 1000):
                return True
            if time.monotonic() >= until:
                return False
            if not lives(self.address, sock, events) and may_leave():
                self.close()
                raise left_alone(self.address)

    def _stop(self, flow: Flow[Any], limit_s: float) -> Any:
        """It took too long: ask the server to stop. What it answers then still counts."""
        sock = self._sock
        try:
            if self.cancel is not None and sock is not None:
                until = time.monotonic() + self.cancel()
                while (left := until - time.monotonic()) > 0:
                    flow.send(self._receive(sock, left, None))
        except StopIteration as done:
            return done.value
        except CairnError as error:
            if self.pg.is_idle:
                raise flows.cancelled(error, limit_s) from None
        except OSError:
            pass
        self.close()
        raise TimedOut(f"no answer from {self.address} in {limit_s:g} s")

    def send(self, data: bytes, timeout_s: float, may_leave: MayLeave | None = None) -> None:
        """Bytes outside of a flow (COPY data). Reads what has come meanwhile."""
        if self._sock is None:
            raise self.pg.connection_lost()
        try:
            self._send(self._sock, data, timeout_s, may_leave)
            self._take_waiting()
        except OSError as problem:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {problem}") from problem

    def _take_waiting(self) -> None:
        """Never waits: under TLS a socket may be readable with nothing in it for us."""
        while self._sock is not None and self._poll.poll(0):
            try:
                data = self._sock.recv(_LARGE)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                raise self.pg.connection_lost()
            self.pg.receive(data)

    @property
    def encrypted(self) -> bool:
        return isinstance(self._sock, ssl.SSLSocket)

    @property
    def is_idle(self) -> bool:
        return self._sock is not None and self.pg.is_idle and self.pg.status == "I"

    @property
    def is_usable(self) -> bool:
        """Idle, and the server has not hung up meanwhile."""
        return self.is_idle and self.is_quiet

    @property
    def is_quiet(self) -> bool:
        """Of one that was idle when it was put back: whether the server has not hung up since."""
        if self._sock is not None and self._poll.poll(0):
            try:
                self._take_waiting()
            except (CairnError, OSError):
                self.close()
            return self.is_idle
        return self._sock is not None

    def close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is None:
            return
        with suppress(OSError, CairnError):
            if self.pg.is_idle:
                sock.send(self.pg.terminate())
        self.pg.connection_lost()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


def send_cancel(settings: Settings, wire: SyncWire) -> None:
    """A CancelRequest on a connection of its own, encrypted if the other is. Nobody answers it."""
    host, port = split_address(wire.address)
    limit = settings.cancel_wait_s
    with suppress(OSError), socket.create_connection((host, port), timeout=limit) as sock:
        if not wire.encrypted:
            sock.sendall(wire.pg.cancel_request())
            return
        sock.sendall(ssl_request())
        if sock.recv(1) == b"S":
            with settings.ssl_context().wrap_socket(sock, server_hostname=host) as encrypted:
                encrypted.sendall(wire.pg.cancel_request())


def open_wire(
    settings: Settings,
    address: str,
    params: dict[str, str],
    on_notice: Callable[[Notice], None] | None = None,
    lock: threading.RLock | None = None,
    within_s: float | None = None,
) -> SyncWire:
    """Connect, encrypt if that is asked for, log in."""
    limit = settings.connect_timeout_s if within_s is None else within_s
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
            sock.settimeout(limit)
            encrypted = settings.ssl_context().wrap_socket(sock, server_hostname=host)
            encrypted.setblocking(False)
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
