"""One flow serves both drivers: generators that yield bytes to send and are sent what came.

A flow uses one connection that nobody else uses meanwhile. What the server reports is raised
inside the flow and so at whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from cairn.client.logic.metadata import Metadata, read_notice
from cairn.client.logic.quick import Quick
from cairn.model.errors import InvalidParameter
from cairn.pgwire.client.backend import Notice, Result, ServerError
from cairn.pgwire.client.client import PgClient
from cairn.pgwire.client.replies import ServerAnswer

T = TypeVar("T")
Flow: TypeAlias = Generator[bytes, bytes, T]


def _until_idle(pg: PgClient, outgoing: bytes) -> Flow[None]:
    while True:
        outgoing = pg.receive((yield outgoing))
        if not outgoing and pg.is_idle:
            return


def login(pg: PgClient, certificate_hash: bytes | None = None) -> Flow[None]:
    """Up to the first ReadyForQuery, or up to where TLS has to begin (`pg.needs_tls`)."""
    outgoing = pg.tls_started(certificate_hash) if pg.needs_tls else pg.connect()
    while True:
        outgoing = pg.receive((yield outgoing))
        if not outgoing and (pg.is_idle or pg.needs_tls):
            return


def cancelled(error: Exception, limit_s: float) -> Exception:
    """What the server said to our CancelRequest, in the words of the one who set the limit."""
    if not isinstance(error, ServerError) or error.sqlstate != "57014":
        return error
    message = f"no answer in {limit_s:g} s: the statement was cancelled"
    return ServerError({**error.fields, "M": message})


def prepare(pg: PgClient, name: str, sql: str) -> Flow[Metadata]:
    """Prepare under a name. Only a notice that comes now and is about `sql` is believed."""
    notices: list[str] = []

    def keep(notice: Notice) -> None:
        notices.append(notice.message)

    pg.on_notice.append(keep)
    try:
        yield from _until_idle(pg, pg.prepare(name, sql))
        pg.take_results()
    finally:
        pg.on_notice.remove(keep)
    oids = pg.statements[name].param_oids
    for message in notices:
        found = read_notice(message, sql, oids)
        if found is not None:
            return found
    return Metadata()


def execute(
    pg: PgClient, name: str, params: Sequence[Any], quick: Quick | None = None
) -> Flow[Result]:
    """A prepared statement; `quick` is its short cut."""
    request = None if quick is None or not pg.is_idle else quick.request(params)
    if quick is None or request is None:
        yield from _until_idle(pg, pg.execute_prepared(name, params))
        return pg.take_results()[-1]
    data = yield request
    result = quick.answer(data)
    if result is not None:
        return result
    return (yield from execute_rest(pg, name, params, b"", data))


def execute_rest(
    pg: PgClient, name: str, params: Sequence[Any], unsent: bytes, data: bytes
) -> Flow[Result]:
    """A statement that has left by the short cut goes on the general way."""
    pg.execute_prepared(name, params)
    outgoing = unsent
    if data:
        outgoing += pg.receive(data)
    if outgoing or not pg.is_idle:
        yield from _until_idle(pg, outgoing)
    return pg.take_results()[-1]


def execute_many(pg: PgClient, name: str, rows: Sequence[Sequence[Any]]) -> Flow[ServerAnswer]:
    """A pipeline: one result per row that was executed, and the error that stopped it if any."""
    yield from _until_idle(pg, pg.execute_many(name, rows))
    return pg.take_outcomes()[-1]


def run_once(pg: PgClient, sql: str, params: Sequence[Any] = ()) -> Flow[Result]:
    """One statement without a name, in one round trip."""
    yield from _until_idle(pg, pg.execute(sql, params))
    return pg.take_results()[-1]


def script(pg: PgClient, sql: str) -> Flow[list[Result]]:
    """Several statements at once, by simple query."""
    yield from _until_idle(pg, pg.query(sql))
    return pg.take_results()


def close_statement(pg: PgClient, name: str) -> Flow[None]:
    yield from _until_idle(pg, pg.close_statement(name))
    pg.take_outcomes()


def copy_begin(pg: PgClient, sql: str) -> Flow[None]:
    """COPY … FROM STDIN up to where the server waits for data. Raises if it does not."""
    outgoing = pg.query(sql, copy=True)
    while not pg.wants_copy_data:
        outgoing = pg.receive((yield outgoing))
        if not outgoing and pg.is_idle:
            pg.take_results()
            raise InvalidParameter("the statement is not COPY … FROM STDIN")


def copy_end(pg: PgClient, why_not: str | None = None) -> Flow[Result]:
    """The end of the data, or its failure; the server's answer to all of it."""
    outgoing = b""
    if pg.wants_copy_data:
        outgoing = pg.copy_done() if why_not is None else pg.copy_fail(why_not)
    if outgoing or not pg.is_idle:
        yield from _until_idle(pg, outgoing)
    return pg.take_results()[-1]


def copy_out(pg: PgClient, sql: str) -> Flow[list[bytes]]:
    """COPY … TO STDOUT: the first chunks. `copy_more` gives the rest."""
    outgoing = pg.query(sql, copy=True)
    while True:
        outgoing = pg.receive((yield outgoing))
        chunks = pg.take_copy()
        if chunks or (not outgoing and pg.is_idle):
            if pg.is_idle:
                pg.take_results()
            return chunks


def copy_more(pg: PgClient) -> Flow[list[bytes] | None]:
    """Some more chunks; None at the end."""
    while True:
        chunks = pg.take_copy()
        if chunks:
            return chunks
        if pg.is_idle:
            pg.take_results()
            return None
        pg.receive((yield b""))


def listen(pg: PgClient, heard: Callable[[], None]) -> Flow[None]:
    """A service connection after its snapshot: never ends by itself; notices go to listeners."""
    while True:
        pg.receive((yield b""))
        heard()
