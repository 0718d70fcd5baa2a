"""A request that never becomes whole does not keep its connection."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from cairn.web import app

HEAD = b"GET /x HTTP/1.1\r\nHost: x\r\n"


async def answer(request: Request) -> PlainTextResponse:
    await request.body()
    return PlainTextResponse("here")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HEAD + b"X-a: ",
        b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
        HEAD + b"\r\n" + HEAD,
    ],
    ids=["nothing", "half a header", "half a body", "half of the second"],
)
def test_half_a_request_is_hung_up_on(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "REQUEST_S", 0.2)

    async def scene() -> bytes:
        routes = [Route("/x", answer, methods=["GET", "POST"])]
        config = uvicorn.Config(
            Starlette(routes=routes),
            http=app.PatientHttp,
            lifespan="off",
            log_config=None,
            timeout_keep_alive=1,
        )
        config.load()
        state = uvicorn.server.ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: app.PatientHttp(config=config, server_state=state, app_state={}),
            "127.0.0.1",
            0,
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(sent)
        async with asyncio.timeout(10):
            found = await reader.read()
        writer.close()
        server.close()
        return found

    assert asyncio.run(scene()).count(b"here") <= 1
