"""A client's connection: the line of its requests, its state, and what the service needs of it.

What can be answered at once is answered in the same turn of the loop, and a batch of requests
leaves as one write. The first request that has to wait stops the line behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from cairn.model.errors import CairnError, QueryCanceled, TooManyConnections
from cairn.model.unexpected import owned
from cairn.node.context import ASKED, LATE, OF_CLUSTER, Context
from cairn.pgwire.extended import StatementBook
from cairn.pgwire.requests import (
    BadMessage,
    CopyData,
    CopyDone,
    CopyFail,
    Request,
    Terminate,
)
from cairn.pgwire.server import PgServer
from cairn.server import settings
from cairn.server.caller import Caller
from cairn.server.service import MAX_CONNECTIONS, Service
from cairn.server.statements import Cached

if TYPE_CHECKING:
    from cairn.node.hops import Hop
    from cairn.server.copying import CopyIn
    from cairn.server.login import Login

log = logging.getLogger("cairn.pg")

LOGIN_S = 30.0
PIPELINE_BYTES = 1024 * 1024  # of requests behind one that is worked on
SENT_ROWS, SENT_BYTES = 200, 256 * 1024  # of an answer, in one turn of the loop
COPY_AHEAD = 8 * 1024 * 1024  # bytes of a COPY kept in memory before the client has to wait
HIGH_WATER = 8 * 1024 * 1024  # unsent bytes past which we stop reading from a client


class Connection(asyncio.Protocol):
    """What every connection has. `handlers` say what each kind of request does."""

    handlers: ClassVar[dict[type, Any]] = {}

    def __init__(self, service: Service) -> None:
        self.service = service
        self.pg = PgServer(
            known_extensions=frozenset({"smart_connector"}),
            tls_available=service.tls is not None,
            require_tls=service.tls is not None,
        )
        setting = service.instance.state.setting
        self.book: StatementBook[Cached] = StatementBook(
            max_statements=int(setting("pg_statement_max", 100_000)),
            max_portals=int(setting("pg_portal_max", 100_000)),
        )
        self.login: Login | None = None
        self.user, self.user_id = "", 0
        self.status = "I"
        self.written = 0  # statements committed inside the open block
        self.savepoints: list[tuple[str, int]] = []  # with how many were committed before
        self.parameters: dict[str, str] = {}
        self.preference = str(setting("read_preference", "leader"))
        self.is_local = False  # read_concern: reads of a sync tier need not be safe from a failover
        self.wants_metadata = False
        self.wants_hints = False  # "you are one hop away" notices (0.2)
        self.wants_invalidation = ""  # "", "seed" or "named": which text the error has
        self.cancelled = threading.Event()
        self.pid, self.cancel_key = 0, b""
        self._simple = False
        self._working: asyncio.Task[None] | None = None
        self._waiting = False  # for the writer to call back
        self._copy: CopyIn | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._hop: Hop | None = None  # a question to the owner of a row
        self._cancel_reason = ""
        self.timeout_s = 0.0  # statement_timeout; 0: none
        self._ahead = 0  # bytes that came while an earlier request was worked on
        self._is_full = False  # the client does not read what it has asked for
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._deadline: float | None = None  # of what is running, by the loop's clock
        self.context = Context()  # of the next statement
        self._upgrading: list[bytes] | None = None
        self._shaking = False
        self._closing = False

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)
        loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = loop.call_later(LOGIN_S, self._too_slow)
        if len(self.service.sessions) >= MAX_CONNECTIONS:
            self.pg.fatal(TooManyConnections("sorry, too many clients already"))
            self._flush()

    def data_received(self, data: bytes) -> None:
        if self._upgrading is not None:
            if self._shaking:
                self._upgrading.append(data)  # decrypted before `start_tls` gave its transport
            else:
                self.transport.abort()  # in clear, to be taken for the client's (CVE-2021-23214)
            return
        self.pg.feed(data)
        if self._working is None and not self._waiting and not self._is_full:
            self._pump()
        elif self._copy is not None:
            self._copy.wake.set()
            self._copy.waiting_bytes += len(data)
            if self._copy.waiting_bytes > COPY_AHEAD:
                self.transport.pause_reading()  # the client is quicker than the disk
        else:
            self._ahead += len(data)
            if self._ahead > PIPELINE_BYTES:
                self.transport.pause_reading()  # a client that pipelines more than we can take

    def pause_writing(self) -> None:
        """More than `HIGH_WATER` waits to be read by the client: we do no more for it meanwhile."""
        self._is_full = True
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._is_full = False
        self._has_room.set()
        if self._working is None and not self._waiting and not self._closing:
            self._take_more()

    def _take_more(self) -> None:
        self._ahead = 0
        self.transport.resume_reading()
        self._pump()

    async def send_rows(
        self,
        rows: Sequence[Any],
        encode: Callable[[Any], bytes],
        convert: Callable[[Sequence[Any]], Sequence[Any]] | None,
    ) -> None:
        """Many rows, some at a time: as quickly as the client reads, and others get their turn."""
        size = 0
        for at in range(0, len(rows), SENT_ROWS):
            part = rows[at : at + SENT_ROWS]
            for row in part if convert is None else convert(part):
                data = encode(row)
                self.pg.raw(data)
                size += len(data)
                if size > SENT_BYTES:
                    size = 0
                    await self._sent()
            await self._sent()

    async def _sent(self) -> None:
        self._flush()
        await asyncio.sleep(0)
        while not self._has_room.is_set():
            if self._closing or self.transport.is_closing():
                raise QueryCanceled("the client is gone")
            if self.cancelled.is_set():
                raise QueryCanceled(self._cancel_reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._has_room.wait()
        if self.cancelled.is_set() and not self._closing:
            raise QueryCanceled(self._cancel_reason)

    def _know_context(self) -> None:
        """Anew whenever the user or a parameter changes: statements only look at it."""
        told = self.parameters.get
        self.context = Context(
            user_id=self.user_id,
            user=self.user,
            preference=self.preference,
            is_local=self.is_local,
            row_max=int(told("sql_motion_row_max", OF_CLUSTER)),
            opcode_max=int(told("sql_vdbe_opcode_max", OF_CLUSTER)),
            forward=told("forward", "on"),
            wants_hints=self.wants_hints,
            wants_invalidation=bool(self.wants_invalidation),
            is_unsafe=told("unsafe_system_writes", "off").lower() in ("on", "true", "1"),
            timeout_s=self.timeout_s,
            watch=self.watch,
        )

    def caller(self) -> Caller:
        return Caller(self.service, self.running_context())

    def running_context(self) -> Context:
        """Of a statement that has begun: it has a deadline, and can be cancelled."""
        return msgspec.structs.replace(
            self.context, deadline=self._deadline, cancelled=self.cancelled
        )

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.service.sessions.pop(self.pid, None)
        self._closing = True
        self.cancelled.set()
        if self._working is not None:
            self._working.cancel()
        if self._hop is not None:
            self._hop.give_up()
        self.service.feed.unsubscribe(self)

    def _too_slow(self) -> None:
        self.pg.fatal(CairnError("login took too long", sqlstate="57014"))
        self._flush()

    def shut_down(self) -> None:
        """The instance ends: say so and hang up."""
        if not self._closing:
            self.pg.fatal(
                CairnError("terminating connection due to administrator command", sqlstate="57P01")
            )
            self._flush()

    def cancel(self) -> None:
        """A CancelRequest with the right key: end what is running, if it can be ended."""
        if self._hop is not None:
            self._hop.give_up()
            self._hop, self._waiting = None, False
            self._failed(QueryCanceled(ASKED))
            self._pump()
        if self._working is not None:
            self.cancelled.set()
            if self._reading is not None:
                self._reading.cancel()  # the answer of another instance is not waited for

    def watch(self, reading: asyncio.Task[Any] | None) -> None:
        """What a cancel may end while a write looks for its rows."""
        self._reading = reading

    def _time_out(self) -> None:
        self._cancel_reason = LATE
        self.cancel()

    def unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def push(self, data: bytes) -> None:
        """Whole messages from outside the line of requests: between messages they are legal."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def hang_up(self, problem: CairnError) -> None:
        if not self._closing:
            self.pg.fatal(problem)
            self._flush()

    # --- the line of requests ---------------------------------------------------------------------

    def _pump(self) -> None:
        requests = self.pg.requests
        while (
            requests
            and self._working is None
            and not self._waiting
            and not self._closing
            and not self._is_full
        ):
            request = requests.popleft()
            try:
                work = self._handle(request)
            except Exception as problem:
                self._failed(owned(problem, "a request of a client"))
                continue
            if work is not None:
                self._begin(work)
        if self._ahead and not requests and not self._closing:
            self._ahead = 0
            self.transport.resume_reading()
        if not self._waiting or self._closing:  # or what is said so far goes out with the answer
            self._flush()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        # The event is made here and not when the task begins: a cancel may come in between. A
        # thread that still looks at the old one sees it set.
        self.cancelled = threading.Event()
        self._working = asyncio.get_running_loop().create_task(self._work(work))

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        self._flush()
        self._cancel_reason = ASKED
        loop = asyncio.get_running_loop()
        timer = self._deadline = None
        if self.timeout_s:
            self._deadline = loop.time() + self.timeout_s
            timer = loop.call_at(self._deadline, self._time_out)
        try:
            await work
        except asyncio.CancelledError:
            return
        except Exception as problem:
            self._failed(owned(problem, "a statement of a client"))
        finally:
            if timer is not None:
                timer.cancel()
        self._working = None
        if not self._closing:
            self._take_more()

    def _flush(self) -> None:
        data = self.pg.take()
        if data and not self.transport.is_closing():
            self.transport.write(data)
        if self.pg.is_closed or self._closing:
            self.transport.close()

    def _failed(self, problem: CairnError) -> None:
        if self._timer is not None:  # not logged in yet
            self.pg.fatal(problem)
        elif self._simple:
            self._simple = False
            self._fail_block()
            self.pg.error(problem)
            self.pg.ready(self.status)
        else:
            self._fail_block()
            self.pg.fail(problem)

    def _fail_block(self) -> None:
        self._copy = None
        if self.status == "T":
            self.status = "E"

    def _handle(self, request: Request) -> Coroutine[Any, Any, None] | None:
        handler = self.handlers.get(type(request))
        if handler is None:
            return None
        work: Coroutine[Any, Any, None] | None = handler(self, request)
        return work

    # --- small things -----------------------------------------------------------------------------

    def _on_bad(self, request: BadMessage) -> None:
        self._fail_block()
        self.pg.refuse(request, self.status)

    def _on_terminate(self, request: Terminate) -> None:
        self._closing = True

    def wrote(self) -> None:
        if self.status == "T":
            self.written += 1

    def begin(self) -> None:
        self.status, self.written = "T", 0

    def end_transaction(self) -> None:
        self.status, self.written = "I", 0
        self.savepoints.clear()
        self.book.end_transaction()

    def set_parameter(self, name: str, value: str) -> None:
        key = name.lower()
        value = settings.check(name, value)
        if key == "statement_timeout":
            self.timeout_s = settings.read_duration_s(name, value)
        self.parameters[key] = value
        if key == "read_preference":
            self.preference = value
        elif key == "read_concern":
            self.is_local = value == "local"
        self._know_context()

    def tell_staleness(self, stale_s: float | None) -> None:
        """Rows of a replica: how old they may be, as a parameter that every driver can read."""
        if stale_s is not None:
            told = str(round(stale_s * 1000))
            self.parameters["read_staleness_ms"] = told
            self.pg.parameter_status("read_staleness_ms", told)

    def reset_parameter(self, name: str) -> None:
        key = name.lower()
        if key == "all":
            self.parameters.clear()
        else:
            self.parameters.pop(key, None)
        if key in ("all", "read_preference"):
            self.preference = str(self.service.instance.state.setting("read_preference", "leader"))
        if key in ("all", "read_concern"):
            self.is_local = False
        if key in ("all", "statement_timeout"):
            self.timeout_s = 0.0
        self._know_context()

    def take_copy_messages(self) -> list[CopyData | CopyDone | CopyFail]:
        """What has arrived for the COPY that is running; everything else stays in the line."""
        found: list[CopyData | CopyDone | CopyFail] = []
        requests = self.pg.requests
        while requests and isinstance(requests[0], CopyData | CopyDone | CopyFail):
            found.append(requests.popleft())  # type: ignore[arg-type]
            if not isinstance(found[-1], CopyData):
                break  # the end: what comes after it belongs to no COPY
        return found
