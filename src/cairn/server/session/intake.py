"""Whether the bytes of a client are read, and whether it is still there while they are not.

A client that sends more than we can take has to wait: its bytes stay in the socket. A loop that
does not read a socket does not see its end either, so the statement before those bytes would go on
for nobody. So the socket is looked at now and then. The end of a client whose bytes fill our window
stands behind them, where no look finds it. But it refuses what is sent to it: so a word is sent
that changes nothing for a client that is there.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

LOOK_S = 0.1
WORD_EVERY = 10  # looks
#: The other side has closed it, or is not there any more.
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Intake:
    def __init__(self, transport: asyncio.Transport, say_a_word: Callable[[], None]) -> None:
        self._transport, self._say_a_word = transport, say_a_word
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None

    def hold(self) -> None:
        self._transport.pause_reading()
        if self._timer is None:
            self._look_later()

    def let_in(self) -> None:
        self.stop()
        self._transport.resume_reading()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if is_gone(self._transport):
            self._timer = None
            self._transport.abort()
            return
        self._looks += 1
        if self._looks % WORD_EVERY == 1 and not self._transport.get_write_buffer_size():
            self._say_a_word()
        self._look_later()


def is_gone(transport: asyncio.Transport) -> bool:
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return transport.is_closing()
    looks = select.poll()
    looks.register(socket.fileno(), _GONE)
    return bool(looks.poll(0))
