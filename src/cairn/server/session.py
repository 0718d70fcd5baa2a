"""One client connection: requests in their order, answers in theirs.

What can be answered at once is answered in the same turn of the loop, and a batch of requests
leaves as one write. The first request that has to wait stops the line behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
import threading
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from cairn.model.errors import (
    CairnError,
    InvalidParameter,
    NoMaster,
    NotOwner,
    ProtocolViolation,
    QueryCanceled,
    StatementInvalidated,
    TableUnderDdl,
    TooManyConnections,
)
from cairn.model.events import Version
from cairn.model.rpc import WriteResponse
from cairn.pgwire.extended import Portal, Statement, StatementBook
from cairn.pgwire.formats import decode_params
from cairn.pgwire.frontend import DESCRIBE_UNNAMED, EXECUTE_UNNAMED
from cairn.pgwire.messages import BIND_COMPLETE
from cairn.pgwire.requests import (
    SYNC,
    BadMessage,
    Bind,
    CancelReceived,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    Execute,
    Flush,
    NeedTls,
    Parse,
    Query,
    Request,
    SaslInitial,
    SaslResponse,
    StartupReceived,
    Sync,
    Terminate,
)
from cairn.pgwire.rows import row_encoder
from cairn.pgwire.server import PgServer
from cairn.server import calls, running, settings
from cairn.server.copying import CopyIn, copy_out
from cairn.server.feed import asked_version
from cairn.server.login import Login, read_flag
from cairn.server.metadata import metadata_notice
from cairn.server.running import Outcome
from cairn.server.service import MAX_CONNECTIONS, Service
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.sql.api import split

log = logging.getLogger("cairn.pg")

LOGIN_S = 30.0
#: A write that certainly was not executed, because its rows are elsewhere or changing.
_MOVING = (NotOwner, NoMaster, TableUnderDdl)
_JSON_ROW = row_encoder([114], [0])
HIGH_WATER = 8 * 1024 * 1024  # unsent bytes past which we stop reading from a client


class Session(asyncio.Protocol):
    """A client's conversation. Its state is the protocol's; its data is the service's."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.pg = PgServer(
            known_extensions=frozenset({"smart_connector"}),
            tls_available=service.tls is not None,
            require_tls=service.tls is not None,
        )
        self.book: StatementBook[Cached] = StatementBook(
            max_statements=100_000, max_portals=100_000
        )
        self.login: Login | None = None
        self.user, self.user_id = "", 0
        self.status = "I"
        self.written = 0  # statements committed inside the open block
        self.parameters: dict[str, str] = {}
        self.preference = "leader"
        self.row_max: int | None = None
        self.wants_metadata = False
        self.wants_hints = False  # "you are one hop away" notices (0.2)
        self.wants_invalidation = ""  # "", "seed" or "named": which text the error has
        self.cancelled = threading.Event()
        self.pid, self.cancel_key = 0, b""
        self._simple = False
        self._working: asyncio.Task[None] | None = None
        self._waiting = False  # for the writer to call back
        self._copy: CopyIn | None = None
        self._reading: asyncio.Task[Outcome] | None = None
        self._cancel_reason = ""
        self.timeout_s = 0.0  # statement_timeout; 0: none
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
        if self._working is None and not self._waiting:
            self._pump()
        elif self._copy is not None:
            self._copy.wake.set()
        elif len(data) > 65536 and len(self.pg.requests) > 64:
            self.transport.pause_reading()  # a client that pipelines more than we can take

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.service.sessions.pop(self.pid, None)
        self._closing = True
        self.cancelled.set()
        if self._working is not None:
            self._working.cancel()
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
        if self._working is not None:
            self.cancelled.set()
            if self._reading is not None:
                self._reading.cancel()  # the answer of another instance is not waited for

    def _time_out(self) -> None:
        self._cancel_reason = "canceling statement due to statement timeout"
        self.cancel()

    # --- the line of requests ---------------------------------------------------------------------

    def _pump(self) -> None:
        requests = self.pg.requests
        while requests and self._working is None and not self._waiting and not self._closing:
            request = requests.popleft()
            try:
                work = self._handle(request)
            except CairnError as problem:
                self._failed(problem)
                continue
            except Exception as problem:
                log.exception("a bug in the session")
                self._failed(CairnError(f"internal error: {problem}"))
                continue
            if work is not None:
                task = asyncio.get_running_loop().create_task(self._work(work))
                self._working = task
        self._flush()

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        self._flush()
        self.cancelled = threading.Event()  # a thread that still looks at the old one sees it set
        self._cancel_reason = "canceling statement due to user request"
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.timeout_s, self._time_out) if self.timeout_s else None
        try:
            await work
        except CairnError as problem:
            self._failed(problem)
        except asyncio.CancelledError:
            return
        except Exception as problem:
            log.exception("a bug in the session")
            self._failed(CairnError(f"internal error: {problem}"))
        finally:
            if timer is not None:
                timer.cancel()
        self._working = None
        if not self._closing:
            self.transport.resume_reading()
            self._pump()

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
        handler = _HANDLERS.get(type(request))
        if handler is None:
            return None
        work: Coroutine[Any, Any, None] | None = handler(self, request)
        return work

    # --- before the login is done -----------------------------------------------------------------

    def _on_startup(self, request: StartupReceived) -> None:
        tls = self.service.tls
        binding = tls.binding if tls is not None and self.pg.encrypted else None
        self.login = Login(self.service, request.params, binding)
        self.pg.auth_sasl(self.login.mechanisms())

    def _on_sasl_initial(self, request: SaslInitial) -> None:
        if self.login is None:
            raise ProtocolViolation("a SASL message before the startup packet")
        self.pg.sasl_continue(self.login.first(request.mechanism, request.data))

    def _on_sasl_response(self, request: SaslResponse) -> Coroutine[Any, Any, None] | None:
        if self.login is None:
            raise ProtocolViolation("a SASL message before the startup packet")
        self.pg.sasl_final(self.login.final(request.data))
        self.user, self.user_id = self.login.user, self.login.user_id
        options = self.login.params.options
        self._read_options(options)
        version = asked_version(options, self.login.params.params)
        self._greet()
        if version is not None:
            return self._subscribe(version, options)
        self.pg.ready(self.status)
        return None

    async def _subscribe(self, version: Version, options: dict[str, str]) -> None:
        """A service connection: the snapshot comes before the first ReadyForQuery."""
        try:
            await self.service.feed.subscribe(self, version, options)
        except CairnError as problem:
            self.pg.fatal(problem)
            return
        self.pg.ready(self.status)

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

    def _greet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.pg.auth_ok()
        for name, value in settings.REPORTED.items():
            self.pg.parameter_status(name, value)
        self.pid, self.cancel_key = self.service.enlist(self)
        self.pg.backend_key_data(self.pid, self.cancel_key)

    def _read_options(self, options: dict[str, str]) -> None:
        both = read_flag(options, "picodata_stmt_invalidation")
        self.wants_metadata = read_flag(options, "pico_query_metadata") or both
        if both:
            self.wants_invalidation = "seed"
        elif read_flag(options, "pico_stmt_invalidation"):
            self.wants_invalidation = "named"
        self.wants_hints = read_flag(options, "smart_connector_hints")
        if "read_preference" in options:
            self.set_parameter("read_preference", options["read_preference"])
        if "sql_motion_row_max" in options:
            self.set_parameter("sql_motion_row_max", options["sql_motion_row_max"])
        if "statement_timeout" in options:
            self.set_parameter("statement_timeout", options["statement_timeout"])
        if "application_name" in options:
            self.parameters["application_name"] = options["application_name"]

    def _on_cancel(self, request: CancelReceived) -> None:
        self.service.cancel(request.pid, request.key)

    def _on_tls(self, request: NeedTls) -> Coroutine[Any, Any, None]:
        self._flush()  # the S, in clear
        self.transport.pause_reading()
        self._upgrading = []
        self.pg.tls_started()
        return self._start_tls()

    async def _start_tls(self) -> None:
        assert self.service.tls is not None and self._upgrading is not None
        self._shaking = True
        try:
            self.transport = await self.service.tls.upgrade(self.transport, self)
        except (OSError, ssl.SSLError) as problem:
            log.info("TLS handshake failed: %s", problem)
            self._closing = True
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(HIGH_WATER)
        early, self._upgrading = self._upgrading, None
        self.pg.feed(b"".join(early))

    # --- extended query ---------------------------------------------------------------------------

    def _on_parse(self, request: Parse) -> None:
        self._simple = False
        self.book.check_name(request.name)
        service = self.service
        cached = service.statements.get(
            request.sql, request.param_oids, self.user_id, service.catalog
        )
        cached.check_rights(self.user_id, self.user, service.catalog)
        if self.wants_metadata:
            self.pg.notice(metadata_notice(cached, service.catalog))
        self.book.parse(request.name, cached, cached.signature)
        self.pg.parse_complete()

    def _on_bind(self, request: Bind) -> None:
        self._simple = False
        statement = self.book.statement(request.statement)
        catalog = self.service.catalog
        if not statement.plan.is_fresh(catalog):
            self._refresh(statement, catalog)
        if self._read_at_once(request, statement):
            return
        self.book.bind(request)
        self.pg.bind_complete()

    def _read_at_once(self, request: Bind, statement: Statement[Cached]) -> bool:
        """Bind, [Describe,] Execute and Sync of a point read that is ours: the hottest path.

        False leaves everything to the ordinary handlers; nothing has been said by then.
        """
        requests = self.pg.requests
        at = 1 if requests and requests[0] is DESCRIBE_UNNAMED else 0
        if len(requests) < at + 2 or requests[at] is not EXECUTE_UNNAMED:
            return False
        cached = statement.plan
        prepared = cached.prepared
        plan = prepared.plan
        signature = statement.signature
        if (
            type(plan) is not plans.PointRead
            or requests[at + 1] is not SYNC
            or request.portal
            or prepared.hidden
            or self.status != "I"
            or self.preference != "leader"
            or len(request.params) != len(signature.param_oids)
        ):
            return False
        shape = signature.shape(request.param_formats, request.result_formats)
        values = decode_params(shape.decoders, request.params) if request.params else []
        self._check(cached)
        found = self.service.dispatcher.point_read_here(plan, values, cached.sharded)
        if found is None:
            return False
        rows = found if cached.convert is None else cached.convert(found)
        pg = self.pg
        pg.raw(BIND_COMPLETE + shape.description if at else BIND_COMPLETE)
        if rows:
            encode = shape.encode_row
            pg.raw(encode(rows[0]) if len(rows) == 1 else b"".join(map(encode, rows)))
        pg.command_complete(prepared.complete(len(rows)))
        for _ in range(at + 2):
            requests.popleft()
        self.book.sync(in_transaction=False)
        pg.ready("I")
        return True

    def _refresh(self, statement: Any, catalog: Any) -> None:
        """The schema moved: an error for those who asked for it, a new plan for the others."""
        stale: Cached = statement.plan
        if self.wants_invalidation:
            planned, present = stale.stale_by(catalog)
            name = statement.name.decode() if self.wants_invalidation == "named" else None
            raise StatementInvalidated(prepared_version=planned, current_version=present, name=name)
        fresh = self.service.statements.replanned(stale, self.user_id, catalog)
        statement.plan, statement.signature = fresh, fresh.signature

    def _on_describe(self, request: Describe) -> None:
        self._simple = False
        if request.kind == "P":
            self.pg.raw(self.book.portal(request.name).shape.description)
        else:
            signature = self.book.statement(request.name).signature
            self.pg.raw(signature.parameter_description + signature.statement_rows)

    def _on_execute(self, request: Execute) -> Coroutine[Any, Any, None] | None:
        self._simple = False
        portal = self.book.portal(request.portal)
        if portal.rows is not None:
            self._send_portal(portal, request.max_rows)
            return None
        cached = portal.statement.plan
        self._check(cached)
        outcome = running.run_at_once(self, cached, portal.values)
        if outcome is not None:
            self._finish_execute(portal, outcome, request.max_rows)
            return None
        plan = cached.prepared.plan
        if type(plan) is plans.PointWrite and self._start_write(portal, cached, plan):
            return None
        if isinstance(plan, plans.CopyPlan):
            return self._start_copy(cached, plan)
        return self._execute(portal, request.max_rows)

    def _start_write(self, portal: Portal[Cached], cached: Cached, plan: plans.PointWrite) -> bool:
        """A write whose rows are here: no task, the writer calls back."""
        prepared = cached.prepared
        values = prepared.start(portal.values, self.now()) if prepared.hidden else portal.values

        def done(result: WriteResponse | CairnError) -> None:
            self._waiting = False
            if self._closing:
                return
            if isinstance(result, _MOVING):
                task = asyncio.get_running_loop().create_task(self._work(self._execute(portal, 0)))
                self._working = task  # the topology moved under it: follow it the long way
                return
            if isinstance(result, CairnError):
                self._failed(result)
            else:
                self.wrote()
                self.pg.command_complete(prepared.complete(result.row_count))
            self._pump()

        self._waiting = self.service.dispatcher.point_write_here(plan, values, done)
        return self._waiting

    def _check(self, cached: Cached) -> None:
        catalog = self.service.catalog
        if not cached.is_fresh(catalog):
            planned, present = cached.stale_by(catalog)
            raise StatementInvalidated(prepared_version=planned, current_version=present)
        cached.check_rights(self.user_id, self.user, catalog)
        self.service.current_user = self.user
        if self.status != "I":
            running.check_transaction(self, cached)

    async def _execute(self, portal: Portal[Cached], max_rows: int) -> None:
        outcome = await self._run(portal.statement.plan, portal.values)
        self._finish_execute(portal, outcome, max_rows)

    async def _run(self, cached: Cached, params: Sequence[Any]) -> Outcome:
        plan = cached.prepared.plan
        if isinstance(plan, plans.PointRead | plans.ScatterRead):
            return await self._read(cached, params)
        if not isinstance(plan, plans.CatalogRead):
            return await running.run(self, cached, params)
        rows = await self.service.pg_catalog.read(
            plan, cached.prepared.columns, params, self.service.catalog, self.user
        )
        return Outcome(rows, len(rows), cached.prepared.complete(len(rows)))

    async def _read(self, cached: Cached, params: Sequence[Any]) -> Outcome:
        """A read ends when it is cancelled, wherever its rows are; a write never does (rule 7)."""
        work = running.run(self, cached, params)
        self._reading = asyncio.get_running_loop().create_task(work)
        try:
            return await self._reading
        except asyncio.CancelledError:
            if self._closing or not self.cancelled.is_set():
                raise
            raise QueryCanceled(self._cancel_reason) from None
        except QueryCanceled:
            raise QueryCanceled(self._cancel_reason) from None
        finally:
            self._reading = None

    def _finish_execute(self, portal: Portal[Cached], outcome: Outcome, max_rows: int) -> None:
        for notice in outcome.notices:
            self.pg.notice(notice)
        cached = portal.statement.plan
        rows = outcome.rows
        if rows is None:
            if outcome.tag:
                self.pg.command_complete(outcome.tag)
            else:
                self.pg.empty_query()
            return
        if cached.convert is not None:
            rows = cached.convert(rows)
        encode = portal.shape.encode_row
        if not max_rows or len(rows) <= max_rows:
            if len(rows) == 1:
                self.pg.raw(encode(rows[0]))
            elif rows:
                self.pg.raw(b"".join(map(encode, rows)))
            self.pg.command_complete(outcome.tag)
            portal.rows, portal.sent = (), len(rows)
            return
        portal.rows, portal.sent = rows, 0
        self._send_portal(portal, max_rows)

    def _send_portal(self, portal: Portal[Cached], max_rows: int) -> None:
        """The next rows of a suspended portal."""
        rows, start = portal.rows, portal.sent
        end = len(rows) if not max_rows else min(start + max_rows, len(rows))
        if start < end:
            self.pg.raw(b"".join(map(portal.shape.encode_row, rows[start:end])))
        portal.sent = max(end, start)
        if end < len(rows):
            self.pg.portal_suspended()
        else:
            sent = max(end - start, 0)
            self.pg.command_complete(portal.statement.plan.prepared.complete(sent))

    def _on_close(self, request: Close) -> None:
        self._simple = False
        self.book.close(request.kind, request.name)
        self.pg.close_complete()

    def _on_sync(self, request: Sync) -> None:
        self._simple = False
        self.book.sync(in_transaction=self.status != "I")
        self.pg.ready(self.status)

    def _on_flush(self, request: Flush) -> None:
        self._flush()

    # --- simple query -----------------------------------------------------------------------------

    def _on_query(self, request: Query) -> Coroutine[Any, Any, None] | None:
        self._simple = True
        self.book.begin_simple_query()
        service = self.service
        text = request.sql
        if calls.matches(text):
            return self._run_call(text)
        if b";" not in text[:-1]:
            cached = service.statements.get(text, (), self.user_id, service.catalog)
            self._check(cached)
            outcome = self._try_at_once(cached)
            if outcome is not None:
                self._send_simple(cached, outcome)
                self._end_simple()
                return None
            return self._run_simple([cached])
        return self._run_texts(text)

    def _try_at_once(self, cached: Cached) -> Outcome | None:
        if cached.prepared.param_types:
            raise CairnError("there is no parameter $1", sqlstate="42P02")
        return running.run_at_once(self, cached, ())

    async def _run_call(self, text: bytes) -> None:
        answer = await calls.call(self, text)
        self.pg.row_description([("result", 114, 0)])
        self.pg.raw(_JSON_ROW((answer,)))
        self.pg.command_complete("CALL")
        self._end_simple()

    async def _run_texts(self, text: bytes) -> None:
        from cairn.pgwire.decoders import decode_string

        pieces = [piece for piece in split(decode_string(text)) if piece.strip()]
        if not pieces:
            self.pg.empty_query()
        for piece in pieces:
            service = self.service
            cached = service.statements.get(piece.encode(), (), self.user_id, service.catalog)
            self._check(cached)
            await self._run_one(cached)
        self._end_simple()

    async def _run_simple(self, statements: list[Cached]) -> None:
        for cached in statements:
            await self._run_one(cached)
        self._end_simple()

    async def _run_one(self, cached: Cached) -> None:
        outcome = self._try_at_once(cached)
        if outcome is None:
            plan = cached.prepared.plan
            if isinstance(plan, plans.CopyPlan):
                await self._start_copy(cached, plan)
                return
            outcome = await self._run(cached, ())
        self._send_simple(cached, outcome)

    def _send_simple(self, cached: Cached, outcome: Outcome) -> None:
        for notice in outcome.notices:
            self.pg.notice(notice)
        rows = outcome.rows
        if rows is None:
            if outcome.tag:
                self.pg.command_complete(outcome.tag)
            else:
                self.pg.empty_query()
            return
        shape = cached.signature.shape((), ())
        self.pg.raw(shape.description)
        if cached.convert is not None:
            rows = cached.convert(rows)
        if rows:
            self.pg.raw(b"".join(map(shape.encode_row, rows)))
        self.pg.command_complete(outcome.tag)

    def _end_simple(self) -> None:
        if self._simple:
            self._simple = False
            self.pg.ready(self.status)

    # --- COPY -------------------------------------------------------------------------------------

    async def _start_copy(self, cached: Cached, plan: plans.CopyPlan) -> None:
        if plan.direction == "out":
            count = await copy_out(self, cached, plan)
            self.pg.command_complete(f"COPY {count}")
            return
        self._copy = CopyIn(self, plan)
        self.pg.copy_in_response(0, len(plan.columns))
        self._flush()
        was_simple, self._simple = self._simple, self._simple
        try:
            count = await self._copy.run()
        finally:
            self._copy = None
        self.wrote()
        self._simple = was_simple
        self.pg.command_complete(f"COPY {count}")

    def take_copy_messages(self) -> list[CopyData | CopyDone | CopyFail]:
        """What has arrived for the COPY that is running; everything else stays in the line."""
        found: list[CopyData | CopyDone | CopyFail] = []
        requests = self.pg.requests
        while requests and isinstance(requests[0], CopyData | CopyDone | CopyFail):
            found.append(requests.popleft())  # type: ignore[arg-type]
        return found

    # --- small things -----------------------------------------------------------------------------

    def _on_bad(self, request: BadMessage) -> None:
        self._fail_block()
        self.pg.refuse(request, self.status)

    def _on_terminate(self, request: Terminate) -> None:
        self._closing = True

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wrote(self) -> None:
        if self.status == "T":
            self.written += 1

    def begin(self) -> None:
        self.status, self.written = "T", 0

    def end_transaction(self) -> None:
        self.status, self.written = "I", 0
        self.book.end_transaction()

    def set_parameter(self, name: str, value: str) -> None:
        key = name.lower()
        value = settings.check(name, value)
        if key == "statement_timeout":
            self.timeout_s = read_duration_s(name, value)
        self.parameters[key] = value
        if key == "read_preference":
            self.preference = value
        if key == "sql_motion_row_max":
            with contextlib.suppress(ValueError):
                self.row_max = int(value)

    def reset_parameter(self, name: str) -> None:
        if name.lower() == "all":
            self.parameters.clear()
            self.preference, self.row_max, self.timeout_s = "leader", None, 0.0
        else:
            self.parameters.pop(name.lower(), None)
            if name.lower() == "statement_timeout":
                self.timeout_s = 0.0


_DURATION = re.compile(r"\s*(\d{1,12})\s*(us|ms|s|min|h|d|)\s*")
_UNITS_S = {"us": 1e-6, "": 1e-3, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_duration_s(name: str, value: str) -> float:
    """`1500`, `1500ms` or `2min`, as PostgreSQL reads them."""
    found = _DURATION.fullmatch(value.strip("'"))
    if found is None:
        raise InvalidParameter(
            f'invalid value for parameter "{name}": "{value}"',
            hint="a number of milliseconds, or with a unit: us, ms, s, min, h, d",
        )
    return int(found[1]) * _UNITS_S[found[2]]


_HANDLERS: dict[type, Any] = {
    Bind: Session._on_bind,
    Execute: Session._on_execute,
    Describe: Session._on_describe,
    Sync: Session._on_sync,
    Parse: Session._on_parse,
    Query: Session._on_query,
    Close: Session._on_close,
    Flush: Session._on_flush,
    Terminate: Session._on_terminate,
    BadMessage: Session._on_bad,
    StartupReceived: Session._on_startup,
    SaslInitial: Session._on_sasl_initial,
    SaslResponse: Session._on_sasl_response,
    CancelReceived: Session._on_cancel,
    NeedTls: Session._on_tls,
}
