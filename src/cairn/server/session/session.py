"""One client's session: the line of its requests, its state, and the parts that it owns.

What can be answered at once is answered in the same turn of the loop, and a batch of requests
leaves as one write. The first request that has to wait stops the line behind it. `takes.py` says
which part takes what in each state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from time import monotonic, time
from typing import Any, cast

from cairn.model.errors import (
    AccessDenied,
    CairnError,
    Expelled,
    LimitExceeded,
    QueryCanceled,
    Unreachable,
)
from cairn.model.rpc import ReadResponse, WriteResponse
from cairn.model.tables.catalog import ADMIN_ID
from cairn.model.unexpected import owned
from cairn.node.statements.asker.hops import HERE, Hop
from cairn.node.statements.asker.owners import MOVING
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.blocks.parts import Trial
from cairn.node.statements.context import ASKED
from cairn.node.watching.client import Doing
from cairn.pgwire.server.extended import StatementBook
from cairn.pgwire.server.requests import Request
from cairn.pgwire.server.server import PgServer
from cairn.server.audit import Who, statement
from cairn.server.face import PgFace
from cairn.server.session.blocks import Block
from cairn.server.session.copy.copying import CopyIn
from cairn.server.session.entering.start_up import StartUp
from cairn.server.session.extended import Extended
from cairn.server.session.leaving import Leaving
from cairn.server.session.running import Running
from cairn.server.session.sending import Intake, Sending
from cairn.server.session.settings import Parameters
from cairn.server.session.simple import Simple
from cairn.server.session.states import (
    CLOSING,
    ENTERING,
    IDLE,
    UPGRADING,
    WAITING,
    WORKING,
    State,
)
from cairn.server.session.takes import TAKES
from cairn.server.statements import Cached
from cairn.sql import plans

LOGIN_S = 30.0
PIPELINE_BYTES = 1024 * 1024  # of requests behind one that is worked on
COPY_AHEAD = 8 * 1024 * 1024  # bytes of a COPY kept in memory before the client has to wait
TURN_S = 0.05  # of the loop, for the requests of one client
HIGH_WATER = 2 * 1024 * 1024  # unsent bytes past which we do no more for a client
ALL_WATER, LOW_WATER = 512 * 1024 * 1024, 64 * 1024  # of all clients: many have less each

#: Of an answer that does not fit one message: it is asked for in pieces.
_TOO_LONG = LimitExceeded.sqlstate
#: A read may be asked again in any case.
_ANYWHERE = (*MOVING, Unreachable)
_READS = (plans.PointRead, plans.ScatterRead)  # they may be ended at any time
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
        self.block = Block(face.executor, self._block_ended, self._hold)
        self.parameters = Parameters(face.instance.state, self._hold)
        self.running = Running(
            *(face, self.pg, self.book, self.block, self.parameters),
            *(self._who, self.cancel, self.hang_up),
        )
        self.sending = Sending(self.pg, self.running, self.flush, self._is_gone)
        self.start_up, self.extended, self.simple = StartUp(self), Extended(self), Simple(self)
        self.user, self.user_id = "", 0
        self.pid, self.cancel_key = 0, b""
        self._from = ""  # the address
        self._counted: str | None = None  # the user as whose connection it counts
        self._held = 0  # bytes of portals, prepared statements, and a message on its way
        self._is_over = False  # what it held is given back, and it holds nothing any more
        self._coming = 0  # bytes of that
        self.wants_metadata = False
        self.wants_invalidation = ""  # "", "seed" or "named": which text the error has
        self.is_simple = False  # an error ends the text, not the requests up to Sync
        self._began, self._changed_at = time(), 0.0  # for pg_stat_activity, by the wall's clock
        self._working: asyncio.Task[None] | None = None
        self._hop: Hop | None = None  # a question to the owner of a row
        self.copy_in: CopyIn | None = None
        self._ahead = 0  # bytes that came while an earlier request was worked on
        self._pumps_on = False  # in the next turn of the loop
        self.leaving = Leaving(self)

    def _block_ended(self, is_committed: bool) -> None:
        self.book.end_transaction(is_committed=is_committed)
        self.parameters.block_ended(is_committed=is_committed)

    def _hold(self, more: int, plan: Hashable = None) -> None:
        if self._is_over:  # a statement ends after its client, and gives back what it had
            return
        self.face.connections.hold(self.user, self._held, more, plan)
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
            self.face.connections.opened(self._from, self, self.hang_up, loop.time())
        except CairnError as problem:
            self.hang_up(problem)

    def talk_over(self, transport: asyncio.Transport) -> None:
        self.transport, self._intake = transport, Intake(transport, self.push)
        share = ALL_WATER // (len(self.face.sessions) + 1)
        transport.set_write_buffer_limits(min(max(share, LOW_WATER), HIGH_WATER))

    def data_received(self, data: bytes) -> None:
        state = self.state
        if state is UPGRADING:
            if self.start_up.is_shaking:
                self.start_up.early.append(data)
            else:
                self.transport.abort()  # in clear, to be taken for the client's (CVE-2021-23214)
            return
        if state is IDLE and self.extended.lanes.take(data):
            return
        self.pg.feed(data)
        if (self.pg.missing > PIPELINE_BYTES or self._coming) and not self._may_come():
            return
        if TAKES[state] and not self.sending.is_full:
            self.pump()
        elif self.copy_in is not None:
            self.copy_in.wake.set()
            self.copy_in.waiting_bytes += len(data)
            self.running.told_bytes += len(data)
            if self.copy_in.waiting_bytes > COPY_AHEAD:
                self.transport.pause_reading()  # the client is quicker than the disk
        else:
            self._ahead += len(data)
            if self._ahead > PIPELINE_BYTES:
                self._intake.hold()  # a client that pipelines more than we can take

    def _may_come(self) -> bool:
        """A long message is kept until it is whole: it counts from its first bytes on."""
        coming = self.pg.missing + self.pg.unread if self.pg.missing > 0 else 0
        try:
            self._hold(coming - self._coming)
        except CairnError as problem:
            self.hang_up(problem)
            return False
        self._coming = coming
        return True

    def pause_writing(self) -> None:
        """More than `HIGH_WATER` waits to be read by the client: we do no more for it meanwhile."""
        self.sending.pause()

    def resume_writing(self) -> None:
        self.sending.resume()
        if TAKES[self.state]:
            self._take_more()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._intake.stop()
        self.face.sessions.pop(self.pid, None)
        self.face.connections.closed(self._from, self, self._counted)
        self.close()
        self.running.cancel()
        self.running.end_trace(0, "client gone")
        self.book.deallocate_all()
        self.pg.forget()
        if self.running.temps is not None:
            self.running.temps.close()
        self.running.locks.close()
        self._hold(-self._held)
        self._is_over = True
        if self._working is not None:
            self._working.cancel()
        if self._hop is not None:
            self._hop.give_up()
        self.face.feed.unsubscribe(self)

    # --- the end ----------------------------------------------------------------------------------

    def _is_gone(self) -> bool:
        return self.state is CLOSING or self.transport.is_closing()

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
        self.leaving.begin()

    def shut_down(self) -> None:
        """The instance ends: say so and hang up."""
        self.leaving.now()

    def say(self, answer: bytes) -> None:
        """A whole answer, to whoever is at rest."""
        self._changed_at = time()
        self.transport.write(answer)

    def wait(self) -> None:
        """A callback brings the answer."""
        self.state = WAITING

    def go_on(self) -> None:
        """With whatever came while an answer was waited for."""
        if self.pg.requests or self._ahead or self.leaving.is_on:
            self.pump()

    def may_take_lane(self) -> bool:
        """Whether a request that comes now is alone: nothing before it, and no block around it."""
        return (
            self.block.status == "I"
            and not self.leaving.is_on
            and not self.sending.is_full
            and self.running.locks.is_sure()
            and self.pg.is_between()
            and not self.transport.is_closing()
        )

    def is_resting(self) -> bool:
        """Nothing runs and nothing was asked."""
        return self.state is IDLE and not self.pg.requests

    def cancel(self) -> None:
        """A CancelRequest with the right key: end what is running, if it can be ended."""
        if self._hop is not None:
            self._hop.give_up()
            self.is_back()
            self.fail(QueryCanceled(ASKED))
            self.pump()
        if self._working is not None:
            self.running.cancel()

    # --- the line of requests ---------------------------------------------------------------------

    def pump(self) -> None:
        requests = self.pg.requests
        until = 0.0
        while requests and not self.sending.is_full and (takes := TAKES[self.state]):
            if not until:
                until = monotonic() + TURN_S
            elif monotonic() > until:
                self._pump_on_soon()
                break
            if not self.running.locks.is_sure():
                self.begin(self.running.locks.make_sure())
                break
            request = requests.popleft()
            if self.leaving.is_on and self.leaving.refuses(request):
                return
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
            self._intake.let_in()
        if state is not WAITING:  # or what is said so far goes out with the answer
            self.flush()
            if self.leaving.is_on:
                self.leaving.rests()

    def _pump_on_soon(self) -> None:
        """A long line of requests: others get their turn first."""
        self._ahead = max(self._ahead, 1)
        self.transport.pause_reading()
        if not self._pumps_on:
            self._pumps_on = True
            asyncio.get_running_loop().call_soon(self._pump_on)

    def _pump_on(self) -> None:
        self._pumps_on = False
        if TAKES[self.state]:
            self.pump()

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
        self._intake.let_in()
        self.pump()

    def begin(self, work: Coroutine[Any, Any, None], state: State = WORKING) -> None:
        self.running.begin()
        self.state = state
        self._working = asyncio.get_running_loop().create_task(self._work(work))
        self._working.add_done_callback(lambda _: work.close())  # if it was ended before it began

    def upgrade(self, work: Coroutine[Any, Any, None]) -> None:
        self.begin(work, UPGRADING)

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        self.flush()
        self.running.started()
        try:
            await work
        except asyncio.CancelledError:
            return
        except Exception as problem:
            if self.running.locks.has_ended():  # the error ends the transaction of the text
                await self.running.locks.end(None, self.running.context())
            self.fail(owned(problem, "a statement of a client"))
        finally:
            self.running.stop_clock()
        self._working = None
        if self.state is not CLOSING:
            self.state = self._rest
            self._take_more()

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
            who, text = self._who(), statement(self.running.query)
            self.face.audit.refused("denied", who, self.user, statement=text)
        self.copy_in, problem = None, self.block.told(problem)
        self.running.failed(problem)
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
        is_limited = self.user_id != ADMIN_ID
        self.face.connections.logged_in(self._from, self, self.user, is_limited=is_limited)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.state = self._rest = IDLE
        self.face.sessions[self.pid] = self
        self.face.audit.write("login", self._who())
        self.pg.backend_key_data(self.pid, self.cancel_key)

    # --- what needs no task -----------------------------------------------------------------------

    def start(self, cached: Cached, values: Sequence[Any], done: Callable[[Any], None]) -> bool:
        """Begin what needs no task; `done` asks `is_back` first."""
        hop = self.running.start(cached, values, done)
        if hop is None:
            return False
        self.state = WAITING
        is_trial = type(hop) is Trial
        self.running.hops = int(hop is not HERE and not is_trial)
        if type(cached.prepared.plan) in _READS or is_trial:
            self._hop = hop  # a write is never ended half-way
        return True

    def run_by_callback(
        self,
        cached: Cached,
        values: Sequence[Any],
        tell: Callable[[Outcome], None],
        again: Callable[[], Coroutine[Any, Any, None]],
    ) -> bool:
        """A row written here, or rows one hop away, whose outcome is told by `tell`.

        What certainly did not happen, or is too long for it, goes the long way: `again`.
        """
        kind = type(cached.prepared.plan)
        is_read, is_wide = kind is plans.PointRead, kind is plans.ScatterRead

        def done(result: ReadResponse | WriteResponse | CairnError) -> None:
            if not self.is_back():
                return
            is_long = is_read and isinstance(result, CairnError) and result.sqlstate == _TOO_LONG
            anything = CairnError if is_wide else _ANYWHERE if is_read else MOVING
            if is_long or isinstance(result, anything):
                self.begin(again())
                return
            try:
                if isinstance(result, CairnError):
                    self.fail(result)
                elif (outcome := self.running.told(cached, values, result)) is not None:
                    tell(outcome)
                else:
                    self.begin(again())
                    return
            except CairnError as problem:  # of a block
                self.fail(problem)
            except Exception as problem:
                self.fail(owned(problem, "the answer of another instance"))
            self.pump()

        return self.start(cached, values, done)

    def is_back(self) -> bool:
        """An answer has come; False: nobody waits for it any more."""
        self._hop = None
        if self.state is CLOSING:
            return False
        self.state = self._rest
        return True

    # --- seen from outside ------------------------------------------------------------------------

    def _who(self) -> Who:
        return Who(self.user, self._address()[0], self.pid)

    def _address(self) -> tuple[str, int | None]:
        peer = self.transport.get_extra_info("peername")
        return (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("", None)

    def doing(self) -> Doing:
        is_active = self.state is not self._rest
        began = self.running.query_at if is_active else None
        return Doing(
            address=self._address(),
            application=self.parameters.show("application_name"),
            state="active" if is_active else _RESTING[self.block.status],
            query=self.running.query,
            began_us=int(self._began * 1e6),
            block_us=_micros(began if self.block.since is None else self.block.since),
            query_us=_micros(self.running.query_at),
            changed_us=_micros(self.running.query_at if is_active else self._changed_at),
        )

    def unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def push(self, data: bytes) -> None:
        """Whole messages from outside the line of requests: between messages they are legal."""
        if not self.transport.is_closing():
            self.transport.write(data)
