"""Starlette on uvicorn inside the instance's loop; imported only when --http-listen is given."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

import h11
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from cairn.model.members.topology import Grade
from cairn.net.door import Door, Visit, shares_of_files
from cairn.net.places import Places
from cairn.node.boot.config import InstanceConfig
from cairn.node.runtime import spawn
from cairn.server.face import PgFace
from cairn.web.console import Console
from cairn.web.metrics import registry, text_of

REQUEST_S = 10.0
UNREAD_S = 15.0
log = logging.getLogger("cairn.http")


class OneLength:
    """A request that tells its length in two ways is refused, and its connection ended: a proxy in
    front of us may go by the other one, and take our next request for a body (RFC 9112, 6.1)."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            refused = Response("two lengths", 400, {"connection": "close"})
            await refused(scope, receive, send)
        else:
            await self._inner(scope, receive, send)


MIDDLEWARE = [Middleware(OneLength)]


def make_app(face: PgFace, *, is_encrypted: bool = False) -> Starlette:
    started = False
    counted = registry(face)

    def problem() -> str | None:
        """Why this instance should get no traffic; None when it is ready."""
        row = face.instance.row
        if row is None:
            return "not a member yet"
        if row.current_state.grade is not Grade.ONLINE:
            return f"state is {row.current_state.grade}"
        lost = face.instance.voters.no_quorum()
        return lost.sentence if lost is not None else None

    def verdict(why: str | None) -> JSONResponse:
        if why is None:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "not_ready", "reason": why}, 503)

    async def live(_: Request) -> Response:
        return verdict(None)

    async def ready(_: Request) -> Response:
        return verdict(problem())

    async def startup(_: Request) -> Response:
        nonlocal started
        started = started or problem() is None
        return verdict(None if started else problem())

    async def numbers(_: Request) -> Response:
        return Response(text_of(counted), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            *Console(face, is_encrypted=is_encrypted).routes(),
            Route("/metrics", numbers),
            Route("/api/v1/health/live", live),
            Route("/api/v1/health/ready", ready),
            Route("/api/v1/health/startup", startup),
        ],
        middleware=MIDDLEWARE,
    )


class PatientHttp(H11Protocol):
    """A request has `REQUEST_S` to arrive whole: whoever sends half of one is hung up on.

    So is whoever reads nothing of its answer for `UNREAD_S`. Who has no request on its way gives
    way to others when the places of this port are taken: it needs no login.
    """

    visit: Visit
    _waiting: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _unread = 0  # bytes, at the last look
    _is_reading = False  # since then

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        self._looking = self.loop.call_later(UNREAD_S, self._look)

    def resume_writing(self) -> None:
        self._is_reading = True
        super().resume_writing()

    def _look(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread and unread >= self._unread > 0 and not self._is_reading:
            self.transport.abort()  # a close would wait for it to read
            return
        self._unread, self._is_reading = unread, False
        self._looking = self.loop.call_later(UNREAD_S, self._look)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        if self._looking is not None:
            self._looking.cancel()
        self.visit.over()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self.visit.idle()

    def send_400_response(self, msg: str) -> None:
        """An answer may be half-way out when the next request turns out to be none."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.close()

    def _watch(self) -> None:
        is_half = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if not is_half:
            self.visit.busy()
            self._stop_watching()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(REQUEST_S, self._hang_up)

    def _stop_watching(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _hang_up(self) -> None:
        self._waiting = None
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.close()


def is_news(record: logging.LogRecord) -> bool:
    """An answer to a request whose sender was hung up on is none: it must not fill the disk."""
    problem = record.exc_info[1] if record.exc_info else None
    return not isinstance(problem, h11.LocalProtocolError)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals belong to the instance."""
        yield


def open_door(settings: uvicorn.Config, state: uvicorn.server.ServerState, most: int) -> Door:
    """uvicorn's own listener would count connections when their TLS is done."""
    settings.load()

    def entering(visit: Visit) -> PatientHttp:
        made = PatientHttp(config=settings, server_state=state, app_state={})
        made.visit = visit
        return made

    return Door(Places(most), entering, lambda: settings.ssl)


def serve(face: PgFace, config: InstanceConfig, listener: socket.socket) -> None:
    is_encrypted = face.tls is not None
    settings = uvicorn.Config(
        make_app(face, is_encrypted=is_encrypted),
        ssl_certfile=config.tls_cert if is_encrypted else None,
        ssl_keyfile=config.tls_key if is_encrypted else None,
        server_header=False,
        proxy_headers=False,
        http=PatientHttp,
        log_config=None,
        access_log=False,
        lifespan="off",
        log_level="error",  # what strangers send is no news, and must not fill the disk
    )
    server = _Server(settings)
    logging.getLogger("uvicorn.error").addFilter(is_news)
    task = spawn(server.serve(sockets=[]), "http")
    door = open_door(settings, server.server_state, shares_of_files().pages)
    door.open(listener)

    def close() -> None:
        door.close()
        server.should_exit = True
        task.cancel()

    face.instance.on_close.append(close)
    scheme = "https" if is_encrypted else "http"
    log.info("the console is at %s://%s, with /metrics and probes", scheme, config.http_listen)
