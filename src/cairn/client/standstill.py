"""An instance that stands still: its kernel takes what we send, and nobody there reads it.

Whoever has waited for a while asks on another connection, by the first message of TLS: an instance
that lives answers it at once, however long its statements take. Any answer counts, a refusal too;
only silence does not.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from contextlib import suppress
from typing import Final

from cairn.client.settings import split_address
from cairn.model.errors import Unreachable
from cairn.pgwire.client.requests import ssl_request

ASK_AFTER_S: Final = 2.0  # without a byte from it
ANSWER_S: Final = 2.0


def left_alone(address: str) -> Unreachable:
    return Unreachable(
        f"{address} stands still: it has not even answered whether it lives",
        hint="the instance was stopped (SIGSTOP), hangs, or is cut off from here",
    )


def lives(address: str, waiting: socket.socket, events: int = select.POLLIN) -> bool:
    """Also true as soon as `waiting`, the connection in question, has what is waited for."""
    until = time.monotonic() + ANSWER_S
    family, kind, protocol, _, place = _resolved(address)
    with socket.socket(family, kind, protocol) as probe:
        probe.setblocking(False)
        try:
            probe.connect(place)
        except BlockingIOError:
            pass
        except OSError:
            return True  # refused: somebody's kernel has spoken, and ours will hear of it too
        poll = select.poll()
        try:
            poll.register(waiting, events)
        except ValueError:
            return True  # it was closed meanwhile: whoever reads from it is told
        poll.register(probe, select.POLLOUT)
        has_asked = False
        while (left := until - time.monotonic()) > 0:
            for found, _ in poll.poll(left * 1000):
                if found != probe.fileno() or has_asked:
                    return True
                try:
                    probe.send(ssl_request())
                except OSError:
                    return True
                has_asked = True
                poll.modify(probe, select.POLLIN)
    return False


def _resolved(address: str) -> tuple[int, int, int, str, tuple[object, ...]]:
    host, port = split_address(address)
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        raise Unreachable(f"cannot find {host}: {problem}") from None


async def lives_still(address: str) -> bool:
    """The same for asyncio, where the connection in question is read meanwhile."""
    host, port = split_address(address)
    with suppress(OSError):  # a refusal is an answer
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    writer.write(ssl_request())
                    await reader.read(1)
                finally:
                    writer.close()
        except TimeoutError:
            return False
    return True
