"""Calls between two instances over a real socket: what is too big, and what nobody waits for."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError, NoMaster, QueryCanceled, Unreachable
from cairn.net import frames
from cairn.net.handshake import DialSide, Identity, ListenSide
from cairn.net.link import CANCEL, Handler, Later, Link

ME, PEER = Identity("demo"), Identity("demo", "cluster-1", "uuid-1", "i1", 1)


@contextlib.asynccontextmanager
async def linked(handlers: dict[str, Handler]) -> AsyncIterator[Link]:
    """A link to a peer that has `handlers`."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Link] = loop.create_future()

    def listening() -> Link:
        shake = ListenSide(lambda: PEER, b"s", os.urandom, lambda _: None)
        return Link(shake, handlers, lambda link: None, lambda link, problem: None)

    def dialling() -> Link:
        shake = DialSide(ME, b"s", os.urandom)
        return Link(shake, {}, ready.set_result, lambda link, problem: None)

    server = await loop.create_server(listening, "127.0.0.1", 0)
    await loop.create_connection(dialling, *server.sockets[0].getsockname())
    async with asyncio.timeout(10):
        link = await ready
        try:
            yield link
        finally:
            link.close()
            server.close()


def echo(link: Link, body: msgspec.Raw) -> Any:
    return msgspec.msgpack.decode(body)


def many(link: Link, body: msgspec.Raw) -> Any:
    return "x" * int(msgspec.msgpack.decode(body))


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME", 1_000)


@pytest.mark.usefixtures("small_frames")
def test_what_is_too_big_is_refused_and_the_link_lives_on() -> None:
    async def scene() -> None:
        async with linked({"echo": echo, "many": many}) as link:
            with pytest.raises(CairnError, match=r"the request of .* is too big") as refused:
                await link.call("echo", "x" * 2_000, 5)
            assert refused.value.sqlstate == "54000"
            with pytest.raises(CairnError, match=r"the answer of .* is too big") as refused:
                await link.call("many", 2_000, 5)
            assert refused.value.sqlstate == "54000"
            assert msgspec.msgpack.decode(await link.call("many", 3, 5)) == "xxx"

    asyncio.run(scene())


def test_a_caller_that_stops_waiting_ends_the_work() -> None:
    async def scene() -> None:
        ended: asyncio.Queue[int] = asyncio.Queue()

        async def work(number: int) -> int:
            try:
                await asyncio.Event().wait()
            finally:
                ended.put_nowait(number)
            return number

        def slow(link: Link, body: msgspec.Raw) -> Any:
            return work(msgspec.msgpack.decode(body, type=int))

        async with linked({"slow": slow, "echo": echo}) as link:
            waiting = asyncio.ensure_future(link.call("slow", 1, 60, must_end=True))
            await link.call("echo", "it has begun", 5)
            waiting.cancel()
            assert await ended.get() == 1
            with pytest.raises(Unreachable, match=r"no answer to slow within 0.05 s"):
                await link.call("slow", 2, 0.05, must_end=True)
            assert await ended.get() == 2
            with pytest.raises(Unreachable):
                await link.call("slow", 3, 0.05)  # a write goes on, whoever waits for it
            await link.call("echo", "and time for a cancel to come", 5)
            assert ended.empty()

    asyncio.run(scene())


def test_a_cancel_that_comes_with_its_request_is_answered_before_anything_began() -> None:
    """A peer that stood still finds both at once: whoever waits for the last word has it."""

    async def scene() -> None:
        begun: list[int] = []

        async def work(link: Link, body: msgspec.Raw) -> int:
            begun.append(msgspec.msgpack.decode(body, type=int))
            await asyncio.Event().wait()
            return 1

        async with linked({"work": work}) as link:
            waiting = asyncio.ensure_future(link.call("work", 1, 60, must_end=True, last_word_s=60))
            await asyncio.sleep(0)  # the question is written, and leaves with the next turn
            waiting.cancel()
            with pytest.raises(QueryCanceled):
                await waiting
            assert begun == []

    asyncio.run(scene())


def test_a_cancel_leaves_alone_what_is_over_in_a_moment() -> None:
    """It happens all the same: who asked is told so."""

    async def scene() -> None:
        verdict: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with linked({"write": lambda link, body: verdict, "echo": echo}) as link:
            asking = link.call("write", 1, 60, must_end=True, last_word_s=60)
            waiting = asyncio.ensure_future(asking)
            await link.call("echo", "it has begun", 5)
            waiting.cancel()
            await link.call("echo", "the cancel has come", 5)
            verdict.set_result("done")
            assert msgspec.msgpack.decode(await waiting) == "done"

    asyncio.run(scene())


def test_a_cancel_of_nothing_changes_nothing() -> None:
    async def scene() -> None:
        async with linked({"echo": echo}) as link:
            for body in (77, "seven", None):
                link.tell(CANCEL, msgspec.msgpack.encode(body))
            assert msgspec.msgpack.decode(await link.call("echo", "still here", 5)) == "still here"

    asyncio.run(scene())


@pytest.mark.parametrize("problem", [ValueError("a bug"), RecursionError(), KeyError("x")])
def test_a_handler_that_fails_answers_with_an_error_and_the_link_lives_on(
    problem: Exception,
) -> None:
    def broken(link: Link, body: msgspec.Raw) -> Any:
        raise problem

    async def broken_later(link: Link, body: msgspec.Raw) -> Any:
        raise problem

    async def scene() -> None:
        handlers = {"now": broken, "later": broken_later, "echo": echo}
        async with linked(handlers) as link:
            for method in ("now", "later"):
                with pytest.raises(CairnError) as told:
                    await link.call(method, 1, 5)
                assert "a bug" not in told.value.message  # details are for the log
                assert link.tell(method, msgspec.msgpack.encode(1))
            assert msgspec.msgpack.decode(await link.call("echo", "alive", 5)) == "alive"

    asyncio.run(scene())


def test_an_answer_that_cannot_be_sent_is_an_error() -> None:
    def odd(link: Link, body: msgspec.Raw) -> Any:
        return {"no MessagePack": object()}

    async def scene() -> None:
        async with linked({"odd": odd, "echo": echo}) as link:
            with pytest.raises(CairnError, match="internal error"):
                await link.call("odd", 1, 5)
            assert msgspec.msgpack.decode(await link.call("echo", "alive", 5)) == "alive"

    asyncio.run(scene())


def test_an_answer_may_come_by_a_call_and_leaves_with_it() -> None:
    held: list[Later] = []

    def later(link: Link, body: msgspec.Raw) -> Later:
        held.append(Later())
        return held[-1]

    async def scene() -> None:
        async with linked({"later": later, "echo": echo}) as link:
            for answer in ("good", NoMaster("nobody is master")):
                call = asyncio.ensure_future(link.call("later", None, 5))
                assert msgspec.msgpack.decode(await link.call("echo", 1, 5)) == 1  # others go on
                assert not call.done()
                held.pop().say(answer)
                if isinstance(answer, str):
                    assert msgspec.msgpack.decode(await call) == answer
                else:
                    with pytest.raises(NoMaster, match="nobody is master"):
                        await call
            call = asyncio.ensure_future(link.call("later", None, 5))
            assert msgspec.msgpack.decode(await link.call("echo", 2, 5)) == 2
            link.close()
            with pytest.raises(CairnError, match="was lost"):
                await call
            held.pop().say("to nobody")

    asyncio.run(scene())
