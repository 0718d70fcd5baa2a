"""The server half: framing, recovery after errors, and what it writes."""

from __future__ import annotations

from struct import pack

import pytest

from cairn.model.errors import CairnError, ProtocolViolation
from cairn.pgwire import messages
from cairn.pgwire.server import requests as ask
from cairn.pgwire.server.server import PgServer, Phase

from .echo import EchoSession
from .fuzzing import message, startup

BIND = b"\0s\0" + pack("!hhhh", 1, 1, 2, 0) + b""


def opened(**options: int) -> PgServer:
    pg = PgServer(**options)  # type: ignore[arg-type]
    pg.phase = Phase.OPEN
    return pg


def bind_message(
    *params: bytes | None, formats: bytes = b"\0\0", results: bytes = b"\0\0"
) -> bytes:
    values = b"".join(pack("!i", -1) if p is None else pack("!i", len(p)) + p for p in params)
    return message(b"B", b"\0s\0" + formats + pack("!H", len(params)) + values + results)


EXTENDED = (
    (message(b"P", b"s\0rows 1\0" + pack("!HI", 1, 23)), ask.Parse(b"s", b"rows 1", (23,))),
    (bind_message(b"x", None), ask.Bind(b"", b"s", (), [b"x", None], ())),
    (message(b"D", b"Ss\0"), ask.Describe("S", b"s")),
    (message(b"D", b"P\0"), ask.Describe("P", b"")),
    (message(b"E", b"p\0\0\0\0\5"), ask.Execute(b"p", 5)),
    (message(b"C", b"Pp\0"), ask.Close("P", b"p")),
    (message(b"H"), ask.Flush()),
    (message(b"S"), ask.Sync()),
    (message(b"Q", b"select\0"), ask.Query(b"select")),
    (message(b"d", b"data"), ask.CopyData(b"data")),
    (message(b"c"), ask.CopyDone()),
    (message(b"f", b"why\0"), ask.CopyFail("why")),
    (message(b"X"), ask.Terminate()),
)


@pytest.mark.parametrize("cut", [1, 2, 5, 1000])
def test_every_message_is_decoded_however_the_bytes_are_cut(cut: int) -> None:
    pg = opened()
    stream = b"".join(data for data, _ in EXTENDED)
    for at in range(0, len(stream), cut):
        pg.feed(memoryview(stream)[at : at + cut])
    assert list(pg.requests) == [request for _, request in EXTENDED]


@pytest.mark.parametrize(
    ("results", "formats"),
    [(b"\0\0", ()), (b"\0\1\0\0", (0,)), (b"\0\1\0\1", (1,)), (b"\0\2\0\0\0\1", (0, 1))],
)
def test_the_usual_tail_of_a_bind_is_taken_at_once(results: bytes, formats: tuple[int]) -> None:
    tail = message(b"D", b"P\0") + message(b"E", b"\0\0\0\0\0") + message(b"S")
    bind = bind_message(b"1", formats=b"\0\1\0\1", results=results)
    pg = opened()
    for _ in range(2):  # the second time the head is known
        assert list(pg.feed(bind + tail)) == [
            ask.Bind(b"", b"s", (1,), [b"1"], formats),
            ask.Describe("P", b""),
            ask.Execute(b"", 0),
            ask.Sync(),
        ]
        pg.requests.clear()
    assert len(pg.feed(bind + tail[7:])) == 3


def test_a_remembered_bind_is_not_taken_for_another() -> None:
    pg = opened()
    pg.feed(bind_message(b"1"))
    pg.feed(message(b"B", b"\0other\0" + pack("!HHiH", 0, 1, -1, 0)))
    first, second = pg.requests
    assert isinstance(first, ask.Bind) and isinstance(second, ask.Bind)
    assert (first.statement, second.statement) == (b"s", b"other")


def test_neighbouring_copy_data_come_as_one() -> None:
    pg = opened()
    pg.feed(message(b"d", b"1\n") + message(b"d", b"2\n") + message(b"c") + message(b"d", b"3"))
    assert list(pg.requests) == [ask.CopyData(b"1\n2\n"), ask.CopyDone(), ask.CopyData(b"3")]


@pytest.mark.parametrize(
    "data",
    [
        message(b"P", b"s\0rows\0"),
        message(b"P", b"s\0rows\0\0\2\0\0\0\1"),
        message(b"P", b"no end"),
        message(b"B", b"\0s\0"),
        message(b"B", b"\0s\0\0\0\0\1"),
        message(b"B", b"\0s\0\0\0\0\1\0\0\0\5abc\0\0"),
        message(b"B", b"\0s\0\0\0\0\1\xff\xff\xff\xfe\0\0"),
        message(b"B", b"\0s\0\0\0\0\1\x7f\xff\xff\xff\0\0"),
        message(b"B", b"\0s\0\xff\xff\0\0\0\0"),
        message(b"B", b"\0s\0\0\0\0\0\0\0extra"),
        message(b"D", b""),
        message(b"D", b"X\0"),
        message(b"D", b"Sname"),
        message(b"E", b"\0\0\0"),
        message(b"C", b"S"),
        message(b"H", b"extra"),
    ],
)
def test_a_malformed_message_is_an_error_until_sync(data: bytes) -> None:
    session = EchoSession(trust=True)
    session.receive(startup(user="u"))
    answer = session.receive(data + message(b"Q", b"rows 1\0") + message(b"S"))
    assert answer[:1] == b"E" and b"C08P01\0" in answer
    assert answer.endswith(b"Z\0\0\0\5I") and b"T\0" not in answer
    assert not session.closed


@pytest.mark.parametrize("data", [message(b"Q", b"no end"), message(b"F", b"\0\0")])
def test_a_malformed_query_is_an_error_and_ready(data: bytes) -> None:
    session = EchoSession(trust=True)
    session.receive(startup(user="u"))
    answer = session.receive(data)
    assert answer[:1] == b"E" and answer.endswith(b"Z\0\0\0\5I") and not session.closed


@pytest.mark.parametrize("data", [b"\0\0\0\0\x08", b"y\0\0\0\4", b"p\0\0\0\4", b"\xff" * 5])
def test_an_unknown_message_ends_the_connection(data: bytes) -> None:
    session = EchoSession(trust=True)
    session.receive(startup(user="u"))
    answer = session.receive(data + message(b"S"))
    assert b"SFATAL\0" in answer and b"Z" not in answer[-6:] and session.closed
    assert session.receive(message(b"S")) == b""


def test_requests_before_the_broken_one_are_still_answered() -> None:
    session = EchoSession(trust=True)
    session.receive(startup(user="u"))
    answer = session.receive(message(b"Q", b"rows 1\0") + b"?????")
    assert answer.index(b"SELECT 1") < answer.index(b"SFATAL\0")


@pytest.mark.parametrize("length", [0, 3, 1025, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_length_over_the_limit_is_refused_by_its_header(length: int) -> None:
    pg = opened(max_message_bytes=1024)
    pg.feed(b"Q" + pack("!I", length))
    (bad,) = pg.requests
    assert isinstance(bad, ask.BadMessage) and bad.recovery == "close"
    assert bad.error.message == f"invalid message length {length}"


def test_a_large_message_may_come_in_many_pieces() -> None:
    pg = opened()
    sql = b"x" * 3_000_000
    data = message(b"Q", sql + b"\0") + message(b"S")
    for at in range(0, len(data), 65536):
        pg.feed(data[at : at + 65536])
    assert list(pg.requests) == [ask.Query(sql), ask.Sync()]


def test_after_an_error_everything_is_skipped_until_sync_across_packets() -> None:
    pg = opened()
    pg.feed(message(b"D", b"Ss\0") + message(b"E", b"\0\0\0\0\0"))
    pg.requests.popleft()
    pg.fail(CairnError("no"))
    assert not pg.requests
    pg.feed(message(b"Q", b"rows 1\0") + message(b"H") + b"garbage"[:0])
    assert not pg.requests
    pg.feed(message(b"S") + message(b"Q", b"x\0"))
    assert list(pg.requests) == [ask.Sync(), ask.Query(b"x")]


def test_sync_and_flush_mean_nothing_while_rows_are_copied_in() -> None:
    """libpq sends Sync right behind Execute, before it knows that COPY follows."""
    pg = opened()
    pg.feed(message(b"E", b"\0\0\0\0\0") + message(b"S"))
    pg.requests.popleft()
    pg.copy_in_response(0, 1)
    assert not pg.requests
    pg.feed(message(b"d", b"1\n") + message(b"H") + message(b"S") + message(b"c") + message(b"S"))
    assert list(pg.requests) == [ask.CopyData(b"1\n"), ask.CopyDone(), ask.Sync()]


def test_an_eager_client_may_send_its_copy_at_once() -> None:
    pg = opened()
    requests = pg.feed(message(b"S") + message(b"d", b"1\n") + message(b"c") + message(b"S"))
    pg.copy_in_response(0, 1)
    assert list(requests) == [ask.CopyData(b"1\n"), ask.CopyDone(), ask.Sync()]
    assert pg.requests is requests


def test_errors_have_the_fields_that_clients_read() -> None:
    pg = opened()
    error = CairnError("m\0m", detail="d", hint="h", position=7, sqlstate="42601")
    pg.error(error)
    fields = b"SERROR\0VERROR\0C42601\0Mm?m\0Dd\0Hh\0P7\0\0"
    assert pg.take() == b"E" + pack("!I", len(fields) + 4) + fields


def test_a_fatal_error_is_the_last_word() -> None:
    pg = opened()
    pg.fatal(ProtocolViolation("enough"))
    pg.feed(message(b"Q", b"x\0"))
    assert b"SFATAL\0VFATAL\0C08P01\0" in pg.take()
    assert not pg.requests and pg.is_closed


def test_a_notice_has_severity_code_and_message_and_no_more() -> None:
    pg = opened()
    pg.notice('{"map":"instance"}')
    body = b'SNOTICE\0C00000\0M{"map":"instance"}\0\0'
    assert pg.take() == b"N" + pack("!I", len(body) + 4) + body


def test_the_other_answers_are_as_the_protocol_has_them() -> None:
    pg = opened()
    pg.parse_complete(), pg.bind_complete(), pg.close_complete()
    pg.empty_query(), pg.portal_suspended(), pg.copy_done(), pg.ready("T")
    assert pg.take() == b"".join(
        message(kind) for kind in (b"1", b"2", b"3", b"I", b"s", b"c")
    ) + message(b"Z", b"T")
    pg.raw(messages.parameter_description([20, 25]))
    pg.raw(messages.row_description([("n", 20, 1)]))
    assert pg.take() == message(b"t", pack("!HII", 2, 20, 25)) + message(
        b"T", b"\0\1n\0" + pack("!IhIhih", 0, 0, 20, 8, -1, 1)
    )
    pg.command_complete("INSERT 0 1")
    pg.copy_out_response(0, 2)
    pg.copy_data(b"x")
    pg.backend_key_data(1, b"key!")
    assert pg.take() == (
        message(b"C", b"INSERT 0 1\0")
        + message(b"H", b"\0\0\2\0\0\0\0")
        + message(b"d", b"x")
        + message(b"K", b"\0\0\0\1key!")
    )
    assert pg.take() == b""
