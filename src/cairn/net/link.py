"""One authenticated connection between two instances: requests, answers, one-way messages.

Each instance dials one link to each peer and sends its requests there; the answers come back on
it. Writes of one turn of the loop leave in one piece.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from cairn.model.carried_errors import from_wire, to_wire
from cairn.model.errors import (
    CairnError,
    NotSent,
    PeerRefused,
    ProtocolViolation,
    QueryCanceled,
    UnknownCall,
    Unreachable,
)
from cairn.model.settings import limits
from cairn.model.unexpected import owned
from cairn.net import frames
from cairn.net.door import Visit
from cairn.net.handshake import DialSide, Identity, ListenSide
from cairn.net.spans import ACTIVE, CLIENT, Span, sqlstate_of
from cairn.net.strangers import ENOUGH, who_answers, who_dials
from cairn.net.tls import binding

log = logging.getLogger("cairn.net")

HANDSHAKE_TIMEOUT_S = 5.0
MAX_UNSENT = limits.UNSENT_BYTES

ANYTHING = "*"  # the handler of calls that have none
PING = "ping"  # asked of a peer that owes an answer and says nothing
SILENT_SWEEPS = 5  # looks, a second apart, after which such a peer is given up

CANCEL = "cancel_request"  # one-way: the id of a request whose answer nobody wants any more

_encode = msgspec.msgpack.Encoder().encode

#: Answers a request: a value at once, or an awaitable of one, or `Later`.
Handler = Callable[["Link", msgspec.Raw], Any]
Callback = Callable[[msgspec.Raw | CairnError], None]
#: The span of a request, by the trace that came with it and its method; None when it has none.
Traced = Callable[[str, str], Span | None]


class Later:
    """An answer that comes by a call: without a task, and on its way when the call returns."""

    __slots__ = ("_say",)

    def __init__(self) -> None:
        self._say: Callable[[Any], None] = lambda answer: None

    def goes_by(self, say: Callable[[Any], None]) -> None:
        self._say = say

    def say(self, answer: Any) -> None:
        """The answer, or the error; once."""
        self._say(answer)


class Link(asyncio.Protocol):
    """Either end. `on_ready` and `on_lost` are called once each, in this order."""

    def __init__(
        self,
        handshake: DialSide | ListenSide,
        handlers: dict[str, Handler],
        on_ready: Callable[[Link], None],
        on_lost: Callable[[Link, BaseException | None], None],
        traced: Traced = lambda trace, method: None,
    ) -> None:
        self._traced = traced
        self._handshake: DialSide | ListenSide | None = handshake
        self._handlers = handlers
        self._on_ready, self._on_lost = on_ready, on_lost
        self._reader = frames.FrameReader()
        self._start: bytes | None = b""  # the first bytes, until it is clear that they are ours
        self._waiting: dict[int, Callback] = {}
        self._next_id = 1
        self._out: list[bytes] = []
        self._flushing = False
        self._problem: BaseException | None = None
        self._tasks: dict[asyncio.Future[Any], int] = {}  # in the order in which they began
        self.visit: Visit | None = None  # of one that came to us
        self.peer: Identity | None = None
        self.known_in: object = None  # the picture of the cluster in which it was found a member
        self.is_open = False
        self.dropped = 0
        self._is_heard = False  # since the last look
        self.quiet = 0  # looks in a row at which it owed an answer and had said nothing

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._too_slow)
        shaken = transport.get_extra_info("ssl_object")
        if shaken is not None and self._handshake is not None:
            self._handshake.binding = binding(shaken)
        if isinstance(self._handshake, DialSide):
            self._transport.write(frames.pack(self._handshake.start()))

    def data_received(self, data: bytes) -> None:
        self._is_heard = True
        try:
            if self._start is not None:
                data = self._recognised(self._start + data)
            for payload in self._reader.feed(data):
                if self._handshake is not None:
                    self._shake(payload)
                else:
                    self._receive(frames.decode_frame(payload))
            if self._out:
                self._flush()
        except Exception as problem:  # whatever a peer sends costs this connection, no more
            self.close(owned(problem, "a frame of a peer"))

    @property
    def host(self) -> str:
        """Where the other side is, for the log."""
        found = self._transport.get_extra_info("peername")
        return str(found[0]) if isinstance(found, tuple) and found else "?"

    def connection_lost(self, exc: BaseException | None) -> None:
        self._timer.cancel()
        self._leave_the_door()
        self.is_open = False
        problem = self._problem or exc
        waiting, self._waiting = self._waiting, {}
        lost = Unreachable("the connection to the peer was lost before it answered")
        if isinstance(problem, Unreachable):
            lost = problem
        for callback in waiting.values():
            _tell(callback, lost)
        for task in list(self._tasks):
            task.cancel()
        self._on_lost(self, problem)

    # --- handshake ----------------------------------------------------------------------------

    def _recognised(self, start: bytes) -> bytes:
        """The bytes that came if they may be a peer's; none while that is not clear."""
        is_ours = isinstance(self._handshake, DialSide)
        stranger = (who_answers if is_ours else who_dials)(start)
        if stranger is not None:
            self._transport.write(stranger.answer)
            if stranger.problem is not None:
                raise stranger.problem
            start = start[ENOUGH:]
        self._start = start if len(start) < ENOUGH else None
        return b"" if self._start is not None else start

    def _too_slow(self) -> None:
        if self._handshake is not None:
            self.close(PeerRefused("the handshake took too long"))

    def _shake(self, payload: bytes) -> None:
        if isinstance(self._handshake, DialSide):
            answer = self._handshake.receive(payload)
            if answer is not None:
                self._transport.write(frames.pack(answer))
        elif isinstance(self._handshake, ListenSide):
            reply, refused = self._handshake.receive(payload)
            self._transport.write(frames.pack(reply))
            if refused is not None:
                raise refused
        assert self._handshake is not None
        if self._handshake.peer is not None:
            self.peer = self._handshake.peer
            self._handshake = None
            self._reader.limit = frames.MAX_FRAME
            self.is_open = True
            self._timer.cancel()
            self._leave_the_door()
            self._on_ready(self)

    def _leave_the_door(self) -> None:
        if self.visit is not None:
            self.visit.over()
            self.visit = None

    # --- requests out -------------------------------------------------------------------------

    def request(self, method: str, body: Any, callback: Callback) -> int:
        """Send a request; `callback` gets the raw answer or the error, exactly once, later."""
        request_id = self._next_id
        self._next_id += 1
        if not self.is_open:
            problem = NotSent("the connection to the peer is closed")
            asyncio.get_running_loop().call_soon(callback, problem)
            return request_id
        span, trace = ACTIVE.get(), ""
        if span is not None and (question := span.child(f"ask {method}", CLIENT, self._whom())):
            trace, callback = question.header, _Asked(question, callback)
        data = frames.pack_frame(frames.REQUEST, request_id, method, _encode(body), trace)
        if len(data) > frames.MAX_FRAME:  # the peer would hang up, on everybody's calls
            self._loop.call_soon(callback, _too_big("the request", len(data)))
            return request_id
        self._waiting[request_id] = callback
        self._write(data)
        return request_id

    def look(self) -> None:
        """Called once a second: a peer that stands still must not keep its askers waiting.

        A stop of our own costs one look, not many: whoever was deaf judges nobody.
        """
        if self._is_heard or not self._waiting:
            self._is_heard, self.quiet = False, 0
            return
        self.quiet += 1
        if self.quiet == 1:
            self.request(PING, None, lambda answer: None)
        elif self.quiet >= SILENT_SWEEPS:
            self.give_up(Unreachable(f"the peer has been silent for {self.quiet} s"))

    def give_up(self, problem: CairnError) -> None:
        """Hang up now, whatever is still unsent: everybody who waits is told."""
        if self._problem is None:
            self._problem = problem
        self._transport.abort()

    def forget(self, request_id: int) -> None:
        """Nobody waits for this answer any more."""
        callback = self._waiting.pop(request_id, None)
        if type(callback) is _Asked:
            callback.span.end("given up")

    def _whom(self) -> dict[str, str | int]:
        return {"cairn.peer": self.peer.instance_name if self.peer else "", "rpc.system": "cairn"}

    async def call(
        self,
        method: str,
        body: Any,
        timeout_s: float,
        *,
        must_end: bool = False,
        last_word_s: float = 0.0,
    ) -> msgspec.Raw:
        """The answer, or the peer's error, or `Unreachable` when none comes in time.

        With `must_end`, a caller that stops waiting tells the peer to stop working. With
        `last_word_s` it is told so much later at most what became of it, also when cancelled.
        """
        future: asyncio.Future[msgspec.Raw] = self._loop.create_future()

        def answered(answer: msgspec.Raw | CairnError) -> None:
            if future.done():
                return
            if isinstance(answer, CairnError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        request_id = self.request(method, body, answered)
        try:
            async with asyncio.timeout(timeout_s):
                return await (asyncio.shield(future) if last_word_s else future)
        except TimeoutError:
            if last_word_s:
                return await self._last_word(request_id, future, last_word_s)
            raise Unreachable(f"no answer to {method} within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            if last_word_s:
                return await self._last_word(request_id, future, last_word_s)
            raise
        finally:
            if must_end and request_id in self._waiting:
                self.no_more(request_id)
            self.forget(request_id)

    async def _last_word(
        self, request_id: int, future: asyncio.Future[msgspec.Raw], most_s: float
    ) -> msgspec.Raw:
        if not future.done():
            self.no_more(request_id)
        until = self._loop.time() + most_s
        while not future.done() and (left_s := until - self._loop.time()) > 0:
            try:
                await asyncio.wait({future}, timeout=left_s)
            except asyncio.CancelledError:  # it is being ended already
                continue
        if not future.done():
            raise Unreachable(f"no last word came within {most_s:g} s")
        return future.result()

    def no_more(self, request_id: int) -> None:
        """The peer may stop working for it. Never dropped: else it might work for ever."""
        if self.is_open:
            self._write(frames.pack_frame(frames.ONEWAY, 0, CANCEL, _encode(request_id)))

    def tell(self, method: str, body: bytes) -> bool:
        """Send without an answer; False when it was dropped because the peer reads too slowly."""
        if not self.is_open:
            return False
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            self.dropped += 1
            return False
        self._write(frames.pack_frame(frames.ONEWAY, 0, method, body))
        return True

    def _write(self, data: bytes) -> None:
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._out and self.is_open:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    # --- frames in ----------------------------------------------------------------------------

    def _receive(self, frame: frames.Frame) -> None:
        ACTIVE.set(None)  # all frames share one context: what belonged to the last is over
        if frame.kind == frames.RESPONSE or frame.kind == frames.ERROR:
            callback = self._waiting.pop(frame.id, None)
            if callback is None:
                return
            if frame.kind == frames.RESPONSE:
                _tell(callback, frame.body)
            else:
                _tell(callback, _read_error(frame.body))
            return
        if frame.method == CANCEL:
            self._end_task(frame.body)
            return
        if frame.method == PING:
            self._answer(frame, None)
            return
        handler = self._handlers.get(frame.method) or self._handlers.get(ANYTHING)
        if handler is None:
            self._answer_error(frame, UnknownCall(frame.method))
            return
        try:
            if frame.trace:
                answer = self._answered_within(frame, handler)
            else:
                answer = handler(self, frame.body)
        except Exception as problem:
            self._answer_error(frame, problem)
            return
        if type(answer) is Later:
            answer.goes_by(lambda said: self._say(frame, said))
        elif isinstance(answer, Awaitable):
            task = asyncio.ensure_future(answer)
            self._tasks[task] = frame.id
            task.add_done_callback(lambda done: self._finished(frame, done))
        elif frame.kind == frames.REQUEST:
            self._answer(frame, answer)

    def _answered_within(self, frame: frames.Frame, handler: Handler) -> Any:
        """Inside a span of its own: whatever it asks of others belongs to the same trace."""
        span = self._traced(frame.trace, frame.method)
        if span is None:
            return handler(self, frame.body)
        before = ACTIVE.set(span)
        try:
            answer = handler(self, frame.body)
            if not isinstance(answer, Awaitable):
                span.end()
                return answer
            task = asyncio.ensure_future(answer)
            task.add_done_callback(lambda done: span.end(_word_of(done)))
            return task
        except Exception as problem:
            span.end(sqlstate_of(problem))
            raise
        finally:
            ACTIVE.reset(before)

    def _say(self, frame: frames.Frame, said: Any) -> None:
        if isinstance(said, BaseException):
            self._answer_error(frame, said)
        elif frame.kind == frames.REQUEST and self.is_open:
            self._answer(frame, said)
        self._flush()

    def _finished(self, frame: frames.Frame, task: asyncio.Future[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():  # nothing stays of it: what has to end otherwise ends in an answer
            self._answer_error(frame, QueryCanceled("the work was ended before it was done"))
            return
        problem = task.exception()
        if problem is not None:
            self._answer_error(frame, problem)
        elif frame.kind == frames.REQUEST and self.is_open:
            self._answer(frame, task.result())

    def _end_task(self, body: msgspec.Raw) -> None:
        """The peer waits no longer for this answer. A plain future is not ours to end: its work
        goes on without us, and is over in a moment.
        """
        try:
            request_id = msgspec.msgpack.decode(body, type=int)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for task, number in list(self._tasks.items()):
            if number == request_id and isinstance(task, asyncio.Task):
                task.cancel()

    def _answer(self, frame: frames.Frame, answer: Any) -> None:
        try:
            body = _encode(answer)
        except Exception as problem:  # a value that MessagePack cannot carry
            self._answer_error(frame, problem)
            return
        data = frames.pack_frame(frames.RESPONSE, frame.id, "", body)
        if len(data) > frames.MAX_FRAME:
            self._answer_error(frame, _too_big("the answer", len(data)))
        else:
            self._write(data)

    def _answer_error(self, frame: frames.Frame, problem: BaseException) -> None:
        if isinstance(problem, msgspec.DecodeError | UnicodeDecodeError):
            text = f"a peer's {frame.method} cannot be read: {problem}"
            error: CairnError = ProtocolViolation(text)
        else:
            error = owned(problem, f"the handler of {frame.method}")
        if frame.kind != frames.REQUEST or not self.is_open:
            return
        body = _encode(to_wire(error))
        self._write(frames.pack_frame(frames.ERROR, frame.id, "", body))

    def close(self, problem: BaseException | None = None) -> None:
        if self._problem is None:
            self._problem = problem
        if self._out and self.is_open:
            self._transport.write(b"".join(self._out))
            self._out.clear()
        self._transport.close()


class _Asked:
    """Whoever waits for an answer, with the span of the question."""

    __slots__ = ("_callback", "span")

    def __init__(self, span: Span, callback: Callback) -> None:
        self.span, self._callback = span, callback

    def __call__(self, answer: msgspec.Raw | CairnError) -> None:
        self.span.end(answer.sqlstate if isinstance(answer, CairnError) else "")
        self._callback(answer)


def _word_of(done: asyncio.Future[Any]) -> str:
    if done.cancelled():
        return "given up"
    problem = done.exception()
    return "" if problem is None else sqlstate_of(problem)


def _read_error(body: msgspec.Raw) -> CairnError:
    try:
        return from_wire(msgspec.msgpack.decode(body, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return ProtocolViolation(f"a peer sent an unreadable error: {problem}")


def _tell(callback: Callback, answer: msgspec.Raw | CairnError) -> None:
    """Who waits for one answer must not keep the others from theirs."""
    try:
        callback(answer)
    except Exception as problem:
        owned(problem, "whoever waited for a peer's answer")


def _too_big(what: str, size: int) -> CairnError:
    return CairnError(
        f"{what} of {size >> 20} MiB is too big to pass between instances",
        hint=f"at most {frames.MAX_FRAME >> 20} MiB; use smaller values or fewer rows at a time",
        sqlstate="54000",
    )
