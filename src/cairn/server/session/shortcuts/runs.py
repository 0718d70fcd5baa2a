"""Executions of one statement that come together: `executemany` of drivers, and batches of JDBC.

Each of them alone would wait for its own commit. So as many as have come are written as the rows
of one statement. If that is refused, nothing was done, and they are run one by one, so that the
one that is wrong is told, and those behind it are not executed.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from cairn.model.errors import CairnError, PartialWrite
from cairn.node.statements.asker.writing import ENDED
from cairn.pgwire.server.extended import Statement
from cairn.pgwire.server.frontend import DESCRIBE_UNNAMED
from cairn.pgwire.server.requests import Bind, Execute, Request
from cairn.pgwire.values.formats import decode_params
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.session.session import Session

FEWEST, MOST = 3, 500
MOST_BYTES = 256 * 1024  # of parameters, which are read on the event loop
_REQUESTS_OF_FEWEST = 2 * FEWEST - 1  # behind the first Bind
_KINDS = (plans.PointWrite, plans.ShardedInsert)


class Runs:
    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(
        self, request: Bind, statement: Statement[Cached]
    ) -> Coroutine[Any, Any, None] | None:
        """None leaves everything to the ordinary handlers."""
        session = self._session
        line = session.pg.requests
        prepared = statement.plan.prepared
        if len(line) < _REQUESTS_OF_FEWEST or type(prepared.plan) not in _KINDS:
            return None
        if prepared.columns or prepared.options or session.block.status != "I":
            return None
        if not session.running.is_free():
            return None
        binds, is_described = together(request, line)
        if len(binds) < FEWEST or len(request.params) != len(statement.signature.param_oids):
            return None
        for _ in range(len(binds) * (3 if is_described else 2) - 1):
            line.popleft()
        return self._run(statement, binds, is_described)

    async def _run(
        self, statement: Statement[Cached], binds: list[Bind], is_described: bool
    ) -> None:
        pg, running, cached = self._session.pg, self._session.running, statement.plan
        running.check(cached)
        shape = statement.signature.shape(binds[0].param_formats, binds[0].result_formats)
        head = shape.told_first(is_described)
        try:
            values = [decode_params(shape.decoders, each.params) for each in binds]
            are_done = await running.run_many(cached, values)
        except ENDED:
            raise
        except CairnError:  # of a value: what comes before it is executed
            are_done = [False] * len(binds)
        for at, bind in enumerate(binds):
            running.count(cached)  # they were checked before: the schema may have changed since
            if are_done[at]:
                count, tag = 1, cached.prepared.complete(1)
            else:
                found = decode_params(shape.decoders, bind.params)
                try:
                    outcome = await running.run(cached, found)
                except CairnError as problem:
                    if any(are_done[at:]):
                        raise _in_part(problem) from None
                    raise
                count, tag = outcome.count, outcome.tag
                for notice in outcome.notices:
                    pg.notice(notice)
            pg.raw(head)
            pg.command_complete(tag)
            running.finished(count)


def _in_part(problem: CairnError) -> PartialWrite:
    """Rows of another replicaset that stand behind it are done: others were quicker meanwhile."""
    return PartialWrite(
        "executions that came together were carried out on some replicasets only",
        detail=f"refused: {problem.message}",
        hint="what was done stays: look which rows are there",
    )


def together(first: Bind, line: Iterable[Request]) -> tuple[list[Bind], bool]:
    """Which executions of one statement the line begins with, and whether they are described.

    `first` has left the line already.
    """
    found: list[Bind] = []
    if first.portal:
        return found, False
    is_described, size = False, 0
    coming: Any = first
    requests = iter(line)
    while coming is not None and len(found) < MOST:
        bind, following = coming, next(requests, None)
        described = following == DESCRIBE_UNNAMED
        if described:
            following = next(requests, None)
        if type(following) is not Execute or following.portal:  # with any limit: there are no rows
            break
        if found and described is not is_described:
            break
        size += sum(len(param) for param in bind.params if param is not None)
        if size > MOST_BYTES:
            break
        is_described = described
        found.append(bind)
        coming = next(requests, None)
        if not (type(coming) is Bind and _is_alike(first, coming)):
            break
    return found, is_described


def _is_alike(first: Bind, other: Bind) -> bool:
    return (
        other.statement == first.statement
        and not other.portal
        and len(other.params) == len(first.params)
        and other.param_formats == first.param_formats
        and other.result_formats == first.result_formats
    )
