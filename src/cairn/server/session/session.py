"""One client's session: the line of its requests, its state, and the parts that it owns.

What can be answered at once is answered in the same turn of the loop, and a batch of requests
leaves as one write. The first request that has to wait stops the line behind it. `states.py` has
the states, and which part takes what in each.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter, time
from typing import Any, TypeVar, cast

import msgspec

from cairn.model.errors import (
    AccessDenied,
    CairnError,
    Expelled,
    QueryCanceled,
    StatementInvalidated,
    Unsupported,
)
from cairn.model.rpc import RowShape
from cairn.model.tables.catalog import ADMIN_ID
from cairn.model.unexpected import owned
from cairn.node.statements.asker.hops import HERE, Hop
from cairn.node.statements.asker.streams import Stream
from cairn.node.statements.context import ASKED, LATE, Context, Travelled
from cairn.node.statements.executor import Outcome
from cairn.node.watching.client import Doing
from cairn.node.watching.statistics import Seen
from cairn.pgwire.server.extended import StatementBook
from cairn.pgwire.server.requests import CopyData, CopyDone, CopyFail, Request
from cairn.pgwire.server.server import PgServer
from cairn.server.audit import Who, statement
from cairn.server.caller import Caller
from cairn.server.calls import calls
from cairn.server.face import PgFace
from cairn.server.session.blocks import ACTIONS, Block, Modes
from cairn.server.session.copying import CopyIn, copy_out
from cairn.server.session.cursors import Cursors
from cairn.server.session.extended import Extended
from cairn.server.session.settings import Parameters, check_known
from cairn.server.session.simple import Simple
from cairn.server.session.start_up import StartUp
from cairn.server.session.states import (
    CLOSING,
    COPYING,
    ENTERING,
    IDLE,
    TAKES,
    UPGRADING,
    WAITING,
    WORKING,
    State,
)
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.storage.files.pieces import Encoded, Rows

LOGIN_S = 30.0
PIPELINE_BYTES = 1024 * 1024  # of requests behind one that is worked on
SENT_ROWS, SENT_BYTES = 200, 256 * 1024  # of an answer, in one turn of the loop
SHORT_ROWS = 1_000  # a piece with so many has none that is long: they are encoded together
COPY_AHEAD = 8 * 1024 * 1024  # bytes of a COPY kept in memory before the client has to wait
LINGER_S = 0.2
HIGH_WATER = 8 * 1024 * 1024  # unsent bytes past which we stop reading from a client
T = TypeVar("T")
Encode = Callable[[Any], bytes]
_WRITES = (*plans.CHANGES, plans.Returning, plans.BlockPlan)

#: Between two statements, by what ReadyForQuery tells.
_RESTING = {"I": "idle", "T": "idle in transaction", "E": "idle in transaction (aborted)"}


def _micros(at: float | None) -> int | None:
    return int(at * 1e6) if at else None


class Session(asyncio.Protocol):
    def __init__(self, face: PgFace) -> None:
        self.face = face
        self.pg = PgServer(
            known_extensions=frozenset({"smart_connector"}),
            tls_available=face.tls is not None,
            require_tls=face.tls is not None,
        )
        self.book: StatementBook[Cached] = StatementBook(self._book_limits, self._hold)
        self.state: State = ENTERING
        self._rest: State = ENTERING  # the state between requests
        self.start_up, self.extended, self.simple = StartUp(self), Extended(self), Simple(self)
        self.block = Block(face.executor, self._block_ended)
        self.cursors = Cursors(self.book, self.block)
        self.parameters = Parameters(face.instance.state)
        self.user, self.user_id = "", 0
        self.pid, self.cancel_key = 0, b""
        self._from = ""  # the address
        self._counted: str | None = None  # the user as whose connection it counts
        self._held = 0  # bytes of portals and prepared statements
        self.wants_metadata = False
        self.wants_invalidation = ""  # "", "seed" or "named": which text the error has
        self.is_simple = False  # an error ends the text, not the requests up to Sync
        self.cancelled = threading.Event()
        self._cancel_reason = ""
        self._deadline: float | None = None  # of what is running, by the loop's clock
        self._clock: asyncio.TimerHandle | None = None  # which rings then
        self._query = b""  # that runs or ran last; times of pg_stat_activity by the wall's clock
        self._began, self._query_at, self._changed_at = time(), 0.0, 0.0
        self._seen: Seen | None = None  # where what runs is counted
        self._begun_s = 0.0  # when it began, to measure by
        self.hops = self.told_bytes = 0  # of what runs
        self._working: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[Any] | None = None  # the part of it that a cancel may end
        self._hop: Hop | None = None  # a question to the owner of a row
        self._copy: CopyIn | None = None
        self._ahead = 0  # bytes that came while an earlier request was worked on
        self._is_leaving = False  # the instance ends: so does the session, when it rests
        self._is_full = False  # the client does not read what it has asked for
        self._has_room = asyncio.Event()
        self._has_room.set()

    def _block_ended(self, is_committed: bool) -> None:
        self.book.end_transaction(is_committed=is_committed)

    def _hold(self, more: int) -> None:
        self.face.connections.hold(self.user, self._held, more)
        self._held += more

    def _book_limits(self) -> tuple[int, int]:
        """Asked whenever it counts: a raised limit helps those who are connected too."""
        setting = self.face.instance.state.setting
        most = setting("pg_statement_max", 100_000), setting("pg_portal_max", 100_000)
        return int(most[0]), int(most[1])

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.talk_over(cast(asyncio.Transport, transport))
        loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = loop.call_later(LOGIN_S, self._too_slow)
        self._from = self._address()[0]
        try:
            self.face.connections.opened(self._from)
        except CairnError as problem:
            self.hang_up(problem)

    def talk_over(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        state = self.state
        if state is UPGRADING:
            if self.start_up.is_shaking:
                self.start_up.early.append(data)
            else:
                self.transport.abort()  # in clear, to be taken for the client's (CVE-2021-23214)
            return
        self.pg.feed(data)
        if TAKES[state] and not self._is_full:
            self.pump()
        elif self._copy is not None:
            self._copy.wake.set()
            self._copy.waiting_bytes += len(data)
            self.told_bytes += len(data)
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
        if TAKES[self.state]:
            self._take_more()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.face.sessions.pop(self.pid, None)
        self.face.connections.closed(self._from, self._counted)
        self.close()
        self.cancelled.set()
        self.book.close_portals()
        self._hold(-self._held)
        if self._working is not None:
            self._working.cancel()
        if self._hop is not None:
            self._hop.give_up()
        self.face.feed.unsubscribe(self)

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing more is taken; what has been said still leaves."""
        self.state = CLOSING

    def hang_up(self, problem: CairnError) -> None:
        if self.state is not CLOSING:
            self.pg.fatal(problem)
            self.flush()

    def _too_slow(self) -> None:
        self.hang_up(CairnError("login took too long", sqlstate="57014"))

    def end_at_rest(self) -> None:
        self._is_leaving = True
        if self._is_resting():
            self.shut_down()

    def _is_resting(self) -> bool:
        """Nothing runs and nothing was asked."""
        return self.state is IDLE and not self.pg.requests

    def shut_down(self) -> None:
        """The instance ends: say so and hang up.

        A request that comes just now would destroy the last words on their way: a socket that is
        closed with something unread in it is reset. So it is read on for a moment.
        """
        text = "terminating connection due to administrator command"
        problem = CairnError(text, sqlstate="57P01")
        if not self._is_resting() or not self.transport.can_write_eof():
            self.hang_up(problem)
            return
        self.face.feed.unsubscribe(self)
        self.pg.fatal(problem)
        self.transport.write(self.pg.take())
        self.transport.write_eof()
        self.close()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def cancel(self) -> None:
        """A CancelRequest with the right key: end what is running, if it can be ended."""
        if self._hop is not None:
            self._hop.give_up()
            self.is_back()
            self.fail(QueryCanceled(ASKED))
            self.pump()
        if self._working is not None:
            self.cancelled.set()
            if self._reading is not None:
                self._reading.cancel()  # the answer of another instance is not waited for

    def watch(self, reading: asyncio.Task[Any] | None) -> None:
        """What a cancel may end: reading, which changes nothing."""
        self._reading = reading
        if reading is not None and self.cancelled.is_set():
            reading.cancel()

    def _time_out(self) -> None:
        self._cancel_reason = LATE
        self.cancel()

    # --- the line of requests ---------------------------------------------------------------------

    def pump(self) -> None:
        requests = self.pg.requests
        while requests and not self._is_full and (takes := TAKES[self.state]):
            request = requests.popleft()
            try:
                work = self._handle(takes, request)
            except Exception as problem:
                self.fail(owned(problem, "a request of a client"))
                continue
            if work is not None:
                self.begin(work)
        state = self.state
        if self._ahead and not requests and state is not CLOSING:
            self._ahead = 0
            self.transport.resume_reading()
        if state is not WAITING:  # or what is said so far goes out with the answer
            self.flush()
            if self._is_leaving and self._is_resting():
                self.shut_down()

    def _handle(self, takes: Any, request: Request) -> Coroutine[Any, Any, None] | None:
        self.is_simple = False
        found = takes.get(type(request))
        if found is None:
            return None
        part, take = found
        work: Coroutine[Any, Any, None] | None = take(getattr(self, part), request)
        return work

    def _take_more(self) -> None:
        self._ahead = 0
        self.transport.resume_reading()
        self.pump()

    def begin(self, work: Coroutine[Any, Any, None], state: State = WORKING) -> None:
        # The event is made here and not when the task begins: a cancel may come in between. A
        # thread that still looks at the old one sees it set.
        self.cancelled = threading.Event()
        self.state = state
        self._working = asyncio.get_running_loop().create_task(self._work(work))

    def upgrade(self, work: Coroutine[Any, Any, None]) -> None:
        self.begin(work, UPGRADING)

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        self.flush()
        self._cancel_reason = ASKED
        self.start_clock()
        try:
            await work
        except asyncio.CancelledError:
            return
        except Exception as problem:
            self.fail(owned(problem, "a statement of a client"))
        finally:
            self._stop_clock()
        self._working = None
        if self.state is not CLOSING:
            self.state = self._rest
            self._take_more()

    def start_clock(self) -> None:
        """For the next statement: a text of several may set the limit of those after it."""
        self._stop_clock()
        if timeout_s := self.parameters.context.timeout_s:
            loop = asyncio.get_running_loop()
            self._deadline = loop.time() + timeout_s
            self._clock = loop.call_at(self._deadline, self._time_out)

    def _stop_clock(self) -> None:
        self._deadline = None
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def flush(self) -> None:
        self._changed_at = time()
        data = self.pg.take()
        if data and not self.transport.is_closing():
            self.transport.write(data)
        if self.pg.is_closed or self.state is CLOSING:
            self.transport.close()

    def fail(self, problem: CairnError) -> None:
        """End what was asked with an error, and the block that it stands in."""
        if isinstance(problem, AccessDenied):
            who, text = self._who(), statement(self._query)
            self.face.audit.refused("denied", who, self.user, statement=text)
        self._copy = None
        self.face.statistics.failed(self._seen, problem.sqlstate)
        self._seen = None
        self.block.fail()
        if self._rest is ENTERING or isinstance(problem, Expelled):  # this instance is no member
            self.pg.fatal(problem)
        elif self.is_simple:
            self.is_simple = False
            self.pg.error(problem)
            self.pg.ready(self.block.status)
        else:
            self.pg.fail(problem)

    def greeted(self) -> None:
        """Logged in: statements may come."""
        self._counted = self.user
        self.face.connections.logged_in(self.user, is_limited=self.user_id != ADMIN_ID)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.state = self._rest = IDLE
        self.face.sessions[self.pid] = self
        self.face.audit.write("login", self._who())
        self.pg.backend_key_data(self.pid, self.cancel_key)

    # --- running statements -----------------------------------------------------------------------

    def check(self, cached: Cached, text: bytes = b"") -> None:
        """May it run now, as it was planned, for this user, in this block?

        `text` is what the client sent, where its values were taken out.
        """
        self._query, self._query_at = text or cached.text, time()
        self._seen, self._begun_s = cached.seen, perf_counter()
        self.hops = self.told_bytes = 0
        catalog = self.face.catalog
        if not cached.is_fresh(catalog):
            planned, present = catalog.first_change(cached.prepared.tables)
            raise StatementInvalidated(prepared_version=planned, current_version=present)
        cached.check_rights(self.user_id, catalog)
        if self.block.status != "I":
            self.block.check(cached.prepared.plan)

    def finished(self, rows: int) -> None:
        """What was checked last has come to its end, and its answer is said."""
        seen = self._seen
        if seen is not None:
            self._seen = None
            took_s = perf_counter() - self._begun_s
            self.face.statistics.ended(seen, took_s, rows, self.hops, self.told_bytes)

    def sent_rows(self, cached: Cached, count: int) -> None:
        """Some rows of a longer answer: they are counted as they leave."""
        cached.seen.rows += count
        self.face.statistics.rows += count

    async def understood(self, text: bytes, oids: tuple[int, ...] = ()) -> Cached:
        """A long text is read on a thread. Who cancels does not wait for the end of it."""
        face = self.face
        cached = face.statements.at_once(text, oids, self.user_id, face.catalog)
        if cached is not None:
            return cached
        self._query, self._query_at = text, time()
        work = face.statements.later(text, oids, self.user_id, face.catalog)
        return await self.running_context().watched(work)

    def now(self, cached: Cached, values: Sequence[Any]) -> Outcome | None:
        """The outcome without waiting for anybody, for what can have one."""
        plan = cached.prepared.plan
        if type(plan) is plans.SessionPlan:
            if self.block.waits_to_commit(plan):
                return None
            return self._own(plan, cached.prepared.complete(0))
        if type(plan) is plans.CursorPlan:
            return None
        context = self.parameters.context
        if self.block.open is not None:
            return self.block.now(cached, values, context)
        return self.face.executor.now(cached, values, context)

    def start(self, cached: Cached, values: Sequence[Any], done: Callable[[Any], None]) -> bool:
        """Begin what needs no task; `done` asks `is_back` first."""
        if not self.block.may_hop(cached):
            return False  # it becomes part of the block
        hop = self.face.executor.start(cached, values, self.parameters.context, done)
        if hop is None:
            return False
        self.state = WAITING
        self.hops = hop is not HERE
        if type(cached.prepared.plan) is plans.PointRead:
            self._hop = hop  # a write is never ended half-way
        return True

    def is_back(self) -> bool:
        """An answer has come; False: nobody waits for it any more."""
        self._hop = None
        if self.state is CLOSING:
            return False
        self.state = self._rest
        return True

    async def run(
        self, cached: Cached, params: Sequence[Any], formats: tuple[int, ...] | None = None
    ) -> Outcome:
        """With format codes, rows of a long answer may come as messages in these formats."""
        work = self._run(cached, params, formats)
        return await self.face.audit.noted(self._who(), cached.prepared.plan, cached.text, work)

    async def _run(
        self, cached: Cached, params: Sequence[Any], formats: tuple[int, ...] | None = None
    ) -> Outcome:
        """What reads can be cancelled; from its first change on a statement runs on."""
        context, plan = self.running_context(), plans.carried_out(cached.prepared.plan)
        if isinstance(plan, plans.SessionPlan):
            await self._ended(self.block.commit(context), context)
            return self._own(plan, cached.prepared.complete(0))
        if isinstance(plan, plans.CallPlan):
            answer = await calls.call(Caller(self.face, context), plan, params)
            return Outcome([(answer,)], 1, cached.prepared.tag)
        if isinstance(plan, plans.CursorPlan):
            return await self.cursors.run(cached, plan, params, self._run, self.following)
        travelled = Travelled()
        shape = None
        if formats is not None and type(cached.prepared.plan) is plans.ScatterRead:
            columns = cached.prepared.columns
            types, scales = [each.type for each in columns], [each.scale for each in columns]
            shape = RowShape(tuple(types), tuple(scales), formats)
        context = msgspec.structs.replace(
            context, takes_pieces=True, travelled=travelled, shape=shape
        )
        if self.block.open is not None:
            outcome = await self._ended(self.block.open.run(cached, params, context), context)
        else:
            outcome = await self._ended(self.face.executor.run(cached, params, context), context)
            if isinstance(plan, _WRITES):
                self.block.wrote()
        self.hops = travelled.hops
        if outcome.stale_s is not None:  # as a parameter that every driver can read
            told = str(round(outcome.stale_s * 1000))
            self.parameters.note("read_staleness_ms", told)
            self.pg.parameter_status("read_staleness_ms", told)
        return outcome

    async def _ended(self, work: Coroutine[Any, Any, T], context: Context) -> T:
        """Who cancels it, or lets it run out of time, is told so."""
        try:
            return await work
        except QueryCanceled:
            if context.is_late():
                raise QueryCanceled(LATE) from None
            if context.cancelled.is_set():
                raise QueryCanceled(self._cancel_reason) from None
            raise  # a limit of its own ended it, and says which

    async def following(self, more: Stream) -> Rows | None:
        """More rows of a longer answer; None at its end."""
        context = self.running_context()
        return await self._ended(context.watched(more.next(context)), context)

    def running_context(self) -> Context:
        """Of a statement that has begun: it has a deadline, and can be cancelled."""
        return msgspec.structs.replace(
            self.parameters.context, deadline=self._deadline, cancelled=self.cancelled
        )

    def caller(self) -> Caller:
        return Caller(self.face, self.running_context())

    def _own(self, plan: plans.SessionPlan, tag: str) -> Outcome:
        """What only the session knows how to run: SET, SHOW, BEGIN, DEALLOCATE …"""
        name, parameters = plan.name or "", self.parameters
        match plan.action:
            case action if action in ACTIONS:
                tag, notices = self.block.change(
                    plan, tag, parameters.context, parameters.transaction_modes()
                )
                return Outcome(None, 0, tag, notices)
            case "set_characteristics":
                parameters.set_transaction_modes(Modes(plan.value))
            case "show" if name == "transaction_isolation" and self.block.level:
                return Outcome([(self.block.level,)], 1, tag)
            case "show" if name == "all":
                listed = parameters.show_all()
                return Outcome(listed, len(listed), tag)
            case "show":
                return Outcome([(parameters.show(name),)], 1, tag)
            case "set":
                check_known(name, self.face.catalog)
                parameters.set(name, plan.value or "")
            case "reset":
                parameters.reset(name)
            case "deallocate" if plan.name is not None:
                self.book.deallocate(name.encode())
            case "deallocate":
                self.book.deallocate_all()
            case "discard":
                self.book.deallocate_all()
                parameters.reset("all")
        return Outcome(None, 0, tag, plan.notices)

    # --- COPY -------------------------------------------------------------------------------------

    async def copy_rows(self, plan: plans.CopyPlan) -> None:
        if plan.direction == "out":
            if self.block.open is not None and self.block.open.has_written:
                raise Unsupported(
                    "COPY TO would not see what this block has written",
                    hint="COMMIT first, or use SELECT",
                )
            count = await copy_out(self, plan)
            self.pg.command_complete(f"COPY {count}")
            self.finished(count)
            return
        self.block.check_alone("COPY")
        self._copy = CopyIn(self, plan)
        self.state = COPYING
        self.pg.copy_in_response(0, len(plan.columns))
        self.flush()
        try:
            count = await self._copy.run()
        finally:
            self._copy = None
            if self.state is COPYING:
                self.state = WORKING
        self.block.wrote()
        self.pg.command_complete(f"COPY {count}")
        self.finished(count)

    def take_copy_messages(self) -> list[CopyData | CopyDone | CopyFail]:
        """What has arrived for the COPY that is running; everything else stays in the line."""
        found: list[CopyData | CopyDone | CopyFail] = []
        requests = self.pg.requests
        while requests and isinstance(requests[0], CopyData | CopyDone | CopyFail):
            found.append(requests.popleft())  # type: ignore[arg-type]
            if not isinstance(found[-1], CopyData):
                break  # the end: what comes after it belongs to no COPY
        return found

    # --- sending ----------------------------------------------------------------------------------

    async def send_rows(
        self,
        rows: Sequence[Any] | Encoded,
        encode: Encode,
        convert: Callable[[Sequence[Any]], Sequence[Any]] | None,
    ) -> None:
        """Many rows, some at a time: as quickly as the client reads, and others get their turn."""
        if isinstance(rows, Encoded):
            self.pg.raw(rows.data)
            self.told_bytes += len(rows.data)
            await self.sent()
            return
        size = 0
        are_short = len(rows) >= SHORT_ROWS
        for at in range(0, len(rows), SENT_ROWS):
            part = rows[at : at + SENT_ROWS]
            if are_short:
                made = b"".join(map(encode, part if convert is None else convert(part)))
                self.pg.raw(made)
                self.told_bytes += len(made)
                await self.sent()
                continue
            for row in part if convert is None else convert(part):
                data = encode(row)
                self.pg.raw(data)
                size += len(data)
                self.told_bytes += len(data)
                if size > SENT_BYTES:
                    size = 0
                    await self.sent()
            await self.sent()

    async def send_answer(self, outcome: Outcome, cached: Cached, encode: Encode) -> int:
        """All rows of an answer of any size, as the client takes them; how many they were."""
        rows: Sequence[Any] | Encoded | None = outcome.rows
        more, count = outcome.more, 0
        try:
            while rows is not None:
                await self.send_rows(rows, encode, cached.convert)
                count += len(rows)
                rows = None if more is None else await self.following(more)
        finally:
            if more is not None:
                more.close()
        return count

    async def sent(self) -> None:
        self.flush()
        await asyncio.sleep(0)
        while not self._has_room.is_set():
            if self.state is CLOSING or self.transport.is_closing():
                raise QueryCanceled("the client is gone")
            if self.cancelled.is_set():
                raise QueryCanceled(self._cancel_reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._has_room.wait()
        if self.cancelled.is_set() and self.state is not CLOSING:
            raise QueryCanceled(self._cancel_reason)

    def _who(self) -> Who:
        return Who(self.user, self._address()[0], self.pid)

    def _address(self) -> tuple[str, int | None]:
        peer = self.transport.get_extra_info("peername")
        return (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("", None)

    def doing(self) -> Doing:
        is_active = self.state is not self._rest
        began = self._query_at if is_active else None
        return Doing(
            address=self._address(),
            application=self.parameters.show("application_name"),
            state="active" if is_active else _RESTING[self.block.status],
            query=self._query,
            began_us=int(self._began * 1e6),
            block_us=_micros(began if self.block.since is None else self.block.since),
            query_us=_micros(self._query_at),
            changed_us=_micros(self._query_at if is_active else self._changed_at),
        )

    def unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def push(self, data: bytes) -> None:
        """Whole messages from outside the line of requests: between messages they are legal."""
        if not self.transport.is_closing():
            self.transport.write(data)
