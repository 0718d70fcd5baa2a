"""A shorter way for a row by its key: the compiled part reads the request and does the rest.

A statement that went the ordinary way once may get a lane, if all its parameters and columns are
plain. From then on a request of exactly the same form takes it. Rights, leases and owners are
asked by the same functions as ever. Whatever is not plain, and every error, is left to the ordinary
way: nothing was said and nothing was changed by then.

A row that is read is told in the same turn (`point_read.c`). A new row waits for the writer like
any other, which then lets C store it with its record (`point_insert.c`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cairn.model.errors import CairnError
from cairn.model.rpc import WriteResponse
from cairn.model.unexpected import owned
from cairn.native.point_inserts import PointInsert
from cairn.native.point_reads import PointRead
from cairn.node.statements.owner.writes import NotPlain
from cairn.pgwire.messages import SYNC_MESSAGE
from cairn.pgwire.server.extended import Shape, Statement
from cairn.pgwire.server.requests import Bind
from cairn.server.lane_layouts import bind_head, insert_of, read_of
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.session.session import Session

_NOT_PLAIN: Final = "not plain"
_BIND: Final = ord("B")
_DESCRIBE: Final = ord("D")
_PARAMETERS_AT: Final = 5  # behind the kind and the length of a Bind
_LONGEST_ROW: Final = 65_536  # bytes of a request whose row is written on the event loop


class Lane(NamedTuple):
    cached: Cached
    shape: Shape
    head: bytes  # of a Bind, before its parameters
    work: PointRead | PointInsert | None  # None: there is no shorter way


class Lanes:
    __slots__ = ("_book", "_face", "_running", "_session")

    def __init__(self, session: Session) -> None:
        self._session, self._book = session, session.book
        self._face, self._running = session.face, session.running

    def take(self, data: bytes) -> bool:
        """Whether it is answered, now or later. `data` is what just came from the client."""
        if data[0] != _BIND:
            return False
        statement = self._book.known(data[6 : data.find(0, 6)])
        if statement is None:
            return False
        lane: Lane | None = statement.lane
        if lane is None or lane.work is None or lane.cached is not statement.plan:
            return False
        if not data.startswith(lane.head, _PARAMETERS_AT):
            return False
        if type(data) is not bytes or not self._session.may_take_lane():
            return False
        if self._running.is_traced():
            return False
        work = lane.work
        if type(work) is PointRead:
            return self._read(lane, work, data)
        return type(work) is PointInsert and self._insert(lane, work, data)

    # --- a row that is read -----------------------------------------------------------------------

    def _read(self, lane: Lane, work: PointRead, data: bytes) -> bool:
        executor, running, cached = self._face.executor, self._running, lane.cached
        reader = executor.execution.reads.reader
        bucket = reader.bucket(work, data, _PARAMETERS_AT + len(lane.head))
        if not bucket:
            return False
        try:
            running.check(cached)
            found = executor.answer(cached, running.asking(), bucket, work)
        except CairnError:
            return False
        if found is None:
            return False
        answer, rows = found
        self._say(answer, rows)
        return True

    def _say(self, answer: bytes, rows: int) -> None:
        self._session.say(answer)
        self._book.sync(in_transaction=False)
        self._running.told_bytes = len(answer)
        self._running.finished(rows)

    # --- a row that is new ------------------------------------------------------------------------

    def _insert(self, lane: Lane, work: PointInsert, data: bytes) -> bool:
        at = _PARAMETERS_AT + len(lane.head)
        if len(data) > _LONGEST_ROW or not work.is_known:
            return False
        bucket = work.bucket(data, at)
        if not bucket:
            return False
        session, running, cached = self._session, self._running, lane.cached

        def done(result: WriteResponse | CairnError) -> None:
            if session.is_back():
                self._inserted(lane, data, result)

        try:
            running.check(cached)
        except CairnError:
            return False
        asked, context = (data, at, bucket), running.asking()
        if not self._face.executor.start_insert(cached, context, work, asked, done):
            return False
        session.wait()
        return True

    def _inserted(self, lane: Lane, data: bytes, result: WriteResponse | CairnError) -> None:
        session, prepared = self._session, lane.cached.prepared
        try:
            if isinstance(result, NotPlain):
                session.pg.feed_first(data)
            elif isinstance(result, CairnError):
                session.pg.raw(lane.shape.told_first(_is_described(data)))
                session.fail(result)
                session.pg.feed_first(SYNC_MESSAGE)
            else:
                count = result.row_count
                made = session.pg.ending(prepared.complete(count))
                self._say(lane.shape.told_first(_is_described(data)) + made, count)
        except Exception as problem:
            session.fail(owned(problem, "the answer to a write"))
            session.pg.feed_first(SYNC_MESSAGE)
        session.go_on()

    # --- how it gets a lane -----------------------------------------------------------------------

    def made(self, request: Bind, statement: Statement[Cached], shape: Shape) -> Lane:
        """For a statement that was just answered."""
        cached = statement.plan
        if shape.lane is None:
            shape.lane = self._compiled(cached, request, shape) or _NOT_PLAIN
        work = None if shape.lane is _NOT_PLAIN else shape.lane
        return Lane(cached, shape, bind_head(request), work)

    def _compiled(
        self, cached: Cached, request: Bind, shape: Shape
    ) -> PointRead | PointInsert | None:
        plan, formats = cached.prepared.plan, (request.param_formats, request.result_formats)
        if isinstance(plan, plans.PointRead):
            read = read_of(cached, shape, *formats)
            reader = self._face.executor.execution.reads.reader
            return None if read is None else reader.point_read(plan.sql, read)
        row = insert_of(cached, *formats)
        try:
            return None if row is None else PointInsert(row)
        except ValueError:
            return None


def _is_described(data: bytes) -> bool:
    """Of a request that C has read: what follows its Bind is a Describe, or not."""
    return data[int.from_bytes(data[1:5], "big") + 1] == _DESCRIBE
