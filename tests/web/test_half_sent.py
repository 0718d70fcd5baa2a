"""Who sends half a request, or reads none of its answer, does not keep its connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import h11
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from cairn.net.door import listeners
from cairn.web import app

HEAD = b"GET /x HTTP/1.1\r\nHost: x\r\n"


async def answer(request: Request) -> PlainTextResponse:
    await request.body()
    return PlainTextResponse("here")


async def long(_: Request) -> PlainTextResponse:
    return PlainTextResponse("x" * 8_000_000)


@contextlib.asynccontextmanager
async def served(most: int = 100) -> AsyncIterator[tuple[Any, uvicorn.server.ServerState]]:
    """Where it is, and what the server knows of its connections."""
    routes = [Route("/x", answer, methods=["GET", "POST"]), Route("/long", long)]
    config = uvicorn.Config(
        Starlette(routes=routes, middleware=app.MIDDLEWARE),
        http=app.PatientHttp,
        lifespan="off",
        log_config=None,
        timeout_keep_alive=1,
    )
    state = uvicorn.server.ServerState()
    door = app.open_door(config, state, most)
    [listener] = await listeners("127.0.0.1", 0)
    door.open(listener)
    try:
        yield listener.getsockname(), state
    finally:
        door.close()


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
        async with served() as (address, _), asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            found = await reader.read()
            writer.close()
            return found

    assert asyncio.run(scene()).count(b"here") <= 1


def test_a_request_with_two_lengths_ends_its_connection() -> None:
    """A proxy may count by the other one: what it takes for a body would be a request to us."""
    sent = (
        b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n" + HEAD + b"\r\n"
    )

    async def scene() -> bytes:
        async with served() as (address, _), asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            found = await reader.read()
            writer.close()
            return found

    found = asyncio.run(scene())
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1") == 1
    assert b"here" not in found


@pytest.mark.parametrize("count", [1, 200], ids=["an answer", "many answers"])
def test_who_does_not_read_its_answers_is_hung_up_on(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "UNREAD_S", 0.1)

    async def scene() -> None:
        async with served() as (address, state), asyncio.timeout(20):
            loop = asyncio.get_running_loop()
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await loop.sock_connect(deaf, address)
            await loop.sock_sendall(deaf, (b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n") * count)
            while not state.connections:
                await asyncio.sleep(0.01)
            while state.connections:
                await asyncio.sleep(0.01)
            deaf.close()

    asyncio.run(scene())


def test_when_there_is_no_place_left_the_oldest_without_a_request_gives_way() -> None:
    async def scene() -> None:
        async with served(6) as (address, state), asyncio.timeout(20):
            opened = [await asyncio.open_connection(*address) for _ in range(4)]
            assert await opened[0][0].read() == b""  # one address has half of the places
            for reader, writer in opened[1:]:
                writer.write(HEAD + b"\r\n")
                assert b"here" in await reader.readuntil(b"here")
            for _, writer in opened:
                writer.close()
            while state.connections:
                await asyncio.sleep(0.01)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("problem", "is_told"), [(h11.LocalProtocolError("MUST_CLOSE"), False), (KeyError("x"), True)]
)
def test_an_answer_to_whom_we_hung_up_on_is_no_news(problem: Exception, is_told: bool) -> None:
    """Fuzzing found forty lines of Python in the log for one; mistakes of ours are still told."""
    told = (type(problem), problem, None)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "", (), told)
    assert app.is_news(record) is is_told
