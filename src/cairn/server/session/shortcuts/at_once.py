"""Bind, [Describe,] Execute and Sync of one row by its key, taken together: the hottest path.

Drivers send the four messages as one; answering them as one saves three turns of the ordinary
handlers. Whatever is not plainly such a statement is left to those, with nothing said by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.model.errors import CairnError
from cairn.model.rpc import WriteResponse
from cairn.model.unexpected import owned
from cairn.node.statements.asker.owners import MOVING
from cairn.pgwire.server.extended import Shape, Statement
from cairn.pgwire.server.frontend import DESCRIBE_UNNAMED, EXECUTE_UNNAMED
from cairn.pgwire.server.requests import SYNC, Bind
from cairn.pgwire.values.formats import decode_params
from cairn.server.session.shortcuts.lanes import Lanes
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.session.session import Session


class AtOnce:
    """Reads and writes of one row."""

    __slots__ = ("_pg", "_session", "lanes")

    def __init__(self, session: Session) -> None:
        self._session, self._pg = session, session.pg
        self.lanes = Lanes(session)

    def run(self, request: Bind, statement: Statement[Cached]) -> bool:
        """False leaves everything to the ordinary handlers."""
        requests = self._pg.requests
        described = 1 if requests and requests[0] is DESCRIBE_UNNAMED else 0
        if len(requests) < described + 2 or requests[described] is not EXECUTE_UNNAMED:
            return False
        cached = statement.plan
        prepared = cached.prepared
        kind = type(prepared.plan)
        signature = statement.signature
        if (
            (kind is not plans.PointRead and kind is not plans.PointWrite)
            or requests[described + 1] is not SYNC
            or request.portal
            or prepared.hidden
            or self._session.block.status != "I"
            or len(request.params) != len(signature.param_oids)
        ):
            return False
        shape = signature.shape(request.param_formats, request.result_formats)
        values = decode_params(shape.decoders, request.params) if request.params else []
        if kind is plans.PointRead:
            is_taken = self._read_at_once(cached, shape, values, described)
        else:
            is_taken = signature.columns is None and self._write_at_once(
                request, cached, shape, values, described
            )
        if not is_taken:
            return False
        if statement.lane is None or statement.lane.shape is not shape:
            statement.lane = self.lanes.made(request, statement, shape)
        return True

    def _read_at_once(
        self, cached: Cached, shape: Shape, values: list[object], described: int
    ) -> bool:
        self._session.running.check(cached)
        outcome = self._session.running.now(cached, values)
        if outcome is None or outcome.rows is None:
            return False
        found = outcome.rows
        rows = found if cached.convert is None else cached.convert(found)
        head = shape.told_first(described)
        encode = shape.encode_row
        data = encode(rows[0]) if len(rows) == 1 else b"".join(map(encode, rows))
        self._session.running.told_bytes = len(data)
        self._say_at_once(head + data, outcome.tag, described)
        self._session.running.finished(outcome.count)
        return True

    def _write_at_once(
        self, request: Bind, cached: Cached, shape: Shape, values: list[object], described: int
    ) -> bool:
        """Nothing is said and nothing taken from the line before the writer calls back."""
        self._session.running.check(cached)
        session, prepared = self._session, cached.prepared

        def done(result: WriteResponse | CairnError) -> None:
            if not session.is_back():
                return
            try:
                if isinstance(result, MOVING):  # it was not executed: the long way follows its rows
                    self._session.book.bind(request)
                    self._pg.bind_complete()
                else:
                    head = shape.told_first(described)
                    if isinstance(result, CairnError):
                        self._pg.raw(head)
                        session.fail(result)
                    else:
                        self._say_at_once(head, prepared.complete(result.row_count), described)
                        session.running.finished(result.row_count)
            except Exception as problem:
                session.fail(owned(problem, "the answer to a write"))
            session.pump()

        return session.start(cached, values, done)

    def _say_at_once(self, head: bytes, tag: str, described: int) -> None:
        """The whole answer, with CommandComplete and ReadyForQuery; the requests leave the line."""
        pg = self._pg
        pg.complete_and_ready(head, tag)
        requests = pg.requests
        if len(requests) == described + 2:
            requests.clear()
        else:
            for _ in range(described + 2):
                requests.popleft()
        self._session.book.sync(in_transaction=False)
