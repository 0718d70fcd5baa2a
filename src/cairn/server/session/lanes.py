"""A shorter way for a row by its key: the compiled part reads the request and writes the answer.

A statement that went the ordinary way once may get a lane, if all its parameters and columns are
plain. From then on a request of exactly the same form takes it. Rights, leases and owners are
asked by the same functions as ever. Whatever is not plain, and every error, is left to the ordinary
way: nothing was said and nothing was changed by then.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from cairn.model.errors import CairnError
from cairn.model.types.values import ColumnType
from cairn.native.point_reads import (
    BINARY_WHOLE,
    OUT_TEXTS,
    REAL,
    TEXT_WHOLE,
    TEXTS,
    TRUTH,
    WHOLE,
    Layout,
    PointRead,
)
from cairn.pgwire.messages import BIND_COMPLETE
from cairn.pgwire.server.extended import Shape, Signature, Statement
from cairn.pgwire.server.requests import Bind
from cairn.pgwire.values import oids
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.session.session import Session

_WHOLE_BYTES: Final = {oids.INT2: 2, oids.INT4: 4, oids.INT8: 8}
_COLUMNS: Final = {
    ColumnType.INTEGER: WHOLE,
    ColumnType.DOUBLE: REAL,
    ColumnType.STRING: OUT_TEXTS,
    ColumnType.BOOLEAN: TRUTH,
}
_NOT_PLAIN: Final = "not plain"
_BIND: Final = ord("B")
_PARAMETERS_AT: Final = 5  # behind the kind and the length of a Bind


class Lane(NamedTuple):
    cached: Cached
    shape: Shape
    head: bytes  # of a Bind, before its parameters
    read: PointRead | None  # None: there is no shorter way


class Lanes:
    __slots__ = ("_book", "_face", "_running", "_session")

    def __init__(self, session: Session) -> None:
        self._session, self._book = session, session.book
        self._face, self._running = session.face, session.running

    def take(self, data: bytes) -> bool:
        """Whether it was answered. `data` is what just came from the client."""
        if data[0] != _BIND:
            return False
        statement = self._book.known(data[6 : data.find(0, 6)])
        if statement is None:
            return False
        lane: Lane | None = statement.lane
        if lane is None or lane.read is None or lane.cached is not statement.plan:
            return False
        head, cached = lane.head, lane.cached
        if not data.startswith(head, _PARAMETERS_AT):
            return False
        if type(data) is not bytes or not self._session.may_take_lane():
            return False
        executor, running = self._face.executor, self._running
        reader = executor.execution.reads.reader
        bucket = reader.bucket(lane.read, data, _PARAMETERS_AT + len(head))
        if not bucket or running.is_traced():
            return False
        try:
            running.check(cached)
            found = executor.answer(cached, running.asking(), bucket, lane.read)
        except CairnError:
            return False
        if found is None:
            return False
        answer, rows = found
        self._session.say(answer)
        self._book.sync(in_transaction=False)
        running.told_bytes = len(answer)
        running.finished(rows)
        return True

    def made(self, request: Bind, statement: Statement[Cached], shape: Shape) -> Lane:
        """For a statement that was just answered."""
        cached = statement.plan
        if shape.lane is None:
            shape.lane = self._compiled(cached, request, shape) or _NOT_PLAIN
        read = None if shape.lane is _NOT_PLAIN else shape.lane
        count = _codes((len(request.params),))
        head = b"\0" + request.statement + b"\0" + _listed(request.param_formats) + count
        return Lane(cached, shape, head, read)

    def _compiled(self, cached: Cached, request: Bind, shape: Shape) -> PointRead | None:
        made = layout(cached, shape, request.param_formats, request.result_formats)
        plan = cached.prepared.plan
        if made is None or not isinstance(plan, plans.PointRead):
            return None
        return self._face.executor.execution.reads.reader.point_read(plan.sql, made)


def layout(
    cached: Cached, shape: Shape, param_formats: tuple[int, ...], result_formats: tuple[int, ...]
) -> Layout | None:
    """What its requests and answers look like; None: they are not plain."""
    prepared = cached.prepared
    plan = prepared.plan
    if not isinstance(plan, plans.PointRead) or prepared.options or prepared.hidden:
        return None
    if plan.places is None or prepared.complete(0) != "SELECT 0":
        return None
    parameters = _parameters(plan.places, cached.signature, param_formats)
    kinds = [_COLUMNS.get(each.type, -1) for each in prepared.columns]
    if parameters is None or -1 in kinds:
        return None
    return Layout(
        parameters,
        plan.places.bindings,
        plan.places.key,
        plan.places.bucket_count,
        list(zip(kinds, shape.result_formats, strict=True)),
        _listed(result_formats),
        BIND_COMPLETE,
        shape.bound,
    )


def _parameters(
    places: plans.Places, signature: Signature, formats: tuple[int, ...]
) -> list[tuple[int, int]] | None:
    """How each is read; None: one of them is not plain."""
    count = len(signature.param_oids)
    codes = formats if len(formats) == count else (formats or (0,)) * count
    found: list[tuple[int, int]] = []
    for number, (oid, code) in enumerate(zip(signature.param_oids, codes, strict=True), 1):
        type_ = places.types.get(number)
        if type_ is ColumnType.INTEGER and oid in _WHOLE_BYTES:
            found.append((BINARY_WHOLE if code else TEXT_WHOLE, _WHOLE_BYTES[oid]))
        elif type_ is ColumnType.STRING and oid in (oids.TEXT, oids.VARCHAR):
            found.append((TEXTS, 0))
        else:
            return None
    return found


def _listed(codes: tuple[int, ...]) -> bytes:
    return _codes((len(codes), *codes))


def _codes(numbers: tuple[int, ...]) -> bytes:
    return Struct(f"!{len(numbers)}H").pack(*numbers)
