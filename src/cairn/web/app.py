"""Starlette on uvicorn inside the instance's loop; imported only when --http-listen is given."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from cairn.model.topology import Grade
from cairn.node.config import InstanceConfig
from cairn.node.runtime import spawn
from cairn.server.calls import cluster_status
from cairn.server.service import Service
from cairn.web.metrics import metrics
from cairn.web.page import PAGE

log = logging.getLogger("cairn.http")


def make_app(service: Service) -> Starlette:
    started = False

    def problem() -> str | None:
        """Why this instance should get no traffic; None when it is ready."""
        row = service.instance.row
        if row is None:
            return "not a member yet"
        if row.current_state.grade is not Grade.ONLINE:
            return f"state is {row.current_state.grade}"
        if not service.instance.runner.leader_id:
            return "no Raft leader is known"
        return None

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

    async def status(request: Request) -> Response:
        """The topology is not for strangers: without a login, only this machine may see it."""
        host = request.client.host if request.client is not None else ""
        if host not in ("127.0.0.1", "::1"):
            return JSONResponse({"error": "only from the machine itself; use cairn status"}, 403)
        return JSONResponse(await cluster_status(service))

    async def numbers(_: Request) -> Response:
        return PlainTextResponse(metrics(service))

    async def page(_: Request) -> Response:
        return HTMLResponse(PAGE)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/metrics", numbers),
            Route("/api/v1/status", status),
            Route("/api/v1/health/live", live),
            Route("/api/v1/health/ready", ready),
            Route("/api/v1/health/startup", startup),
        ]
    )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals belong to the instance."""
        yield


def serve(service: Service, config: InstanceConfig, listener: socket.socket) -> None:
    settings = uvicorn.Config(
        make_app(service), log_config=None, access_log=False, lifespan="off", log_level="warning"
    )
    server = _Server(settings)
    task = spawn(server.serve(sockets=[listener]), "http")

    def close() -> None:
        server.should_exit = True
        task.cancel()

    service.instance.on_close.append(close)
    log.info("metrics, probes and a page at http://%s", config.http_listen)
