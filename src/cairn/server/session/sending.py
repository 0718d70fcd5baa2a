"""What flows between a client and us.

Answers of any size are on their way as quickly as the client reads. Requests come as quickly as we
can take them: what is more stays in the socket. A loop that does not read a socket does not see its
end either, so the statement before those bytes would go on for nobody. So the socket is looked at
now and then. The end of a client whose bytes fill our window stands behind them, where no look
finds it. But it refuses what is sent to it: so a word is sent that changes nothing for a client
that is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable, Sequence
from typing import Any

from cairn.model.errors import QueryCanceled
from cairn.node.statements.at_once import Outcome
from cairn.pgwire.messages import cstring, message
from cairn.pgwire.server.server import PgServer
from cairn.server.session.running import Running
from cairn.server.statements import Cached
from cairn.storage.files.pieces import Encoded, Packed, Rows

SENT_ROWS, SENT_BYTES = 200, 256 * 1024  # of an answer, in one turn of the loop
SHORT_ROWS = 1_000  # a piece with so many has none that is long: they are encoded together
LOOK_S = 0.1
WORD_EVERY = 10  # looks
_WORD = message(b"S", cstring("server_encoding"), cstring("UTF8"))  # as it was told at the start
#: The other side has closed it, or is not there any more.
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR
Encode = Callable[[Any], bytes]


class Sending:
    """`flush` hands what was said to the transport; `is_gone` tells that nobody listens."""

    def __init__(
        self,
        pg: PgServer,
        running: Running,
        flush: Callable[[], None],
        is_gone: Callable[[], bool],
    ) -> None:
        self._pg, self._running = pg, running
        self._flush, self._is_gone = flush, is_gone
        self.is_full = False  # the client does not read what it has asked for
        self._has_room = asyncio.Event()
        self._has_room.set()

    def pause(self) -> None:
        self.is_full = True
        self._has_room.clear()

    def resume(self) -> None:
        self.is_full = False
        self._has_room.set()

    async def send_rows(
        self,
        rows: Sequence[Any] | Encoded,
        encode: Encode,
        convert: Callable[[Sequence[Any]], Sequence[Any]] | None,
    ) -> None:
        """Many rows, some at a time: as quickly as the client reads, and others get their turn."""
        if isinstance(rows, Encoded):
            self._pg.raw(rows.data)
            self._running.told_bytes += len(rows.data)
            await self.sent()
            return
        size = 0
        are_short = len(rows) >= SHORT_ROWS
        for at in range(0, len(rows), SENT_ROWS):
            part = rows[at : at + SENT_ROWS]
            if are_short:
                made = b"".join(map(encode, part if convert is None else convert(part)))
                self._pg.raw(made)
                self._running.told_bytes += len(made)
                await self.sent()
                continue
            for row in part if convert is None else convert(part):
                data = encode(row)
                self._pg.raw(data)
                size += len(data)
                self._running.told_bytes += len(data)
                if size > SENT_BYTES:
                    size = 0
                    await self.sent()
            await self.sent()

    async def send_answer(self, outcome: Outcome, cached: Cached, encode: Encode) -> int:
        """All rows of an answer of any size, as the client takes them; how many they were."""
        rows: Sequence[Any] | Rows | None = outcome.rows
        more, count = outcome.more, 0
        try:
            while rows is not None:
                assert not isinstance(rows, Packed)  # these are for a merge
                await self.send_rows(rows, encode, cached.convert)
                count += len(rows)
                rows = None if more is None else await self._running.following(more)
        finally:
            if more is not None:
                more.close()
        return count

    async def sent(self) -> None:
        self._flush()
        await asyncio.sleep(0)
        while not self._has_room.is_set():
            if self._is_gone():
                raise QueryCanceled("the client is gone")
            self._running.check_wanted()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._has_room.wait()
        if not self._is_gone():
            self._running.check_wanted()


class Intake:
    """Whether the bytes of a client are read, and whether it is there while they are not."""

    def __init__(self, transport: asyncio.Transport, push: Callable[[bytes], None]) -> None:
        self._transport, self._push = transport, push
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
            self._push(_WORD)
        self._look_later()


def is_gone(transport: asyncio.Transport) -> bool:
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return transport.is_closing()
    looks = select.poll()
    looks.register(socket.fileno(), _GONE)
    return bool(looks.poll(0))
