"""Hostile streams against both halves: every one ends in an answer, a clean error or a close."""

from __future__ import annotations

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from cairn.model.errors import CairnError
from cairn.pgwire.client.client import PgClient

from .echo import EchoSession, no_randomness
from .fuzzing import CALM, message, startup, streams

REAL = st.sampled_from(
    [
        message(b"P", b"\0rows 2\0\0\0"),
        message(b"P", b"s\0echo $1::int8, $2\0\0\0"),
        message(b"B", b"\0\0\0\0\0\0\0\0"),
        message(b"B", b"p\0s\0\0\1\0\0\0\2\0\0\0\0015\xff\xff\xff\xff\0\0"),
        message(b"B", b"\0s\0\0\0\0\1\0\0\0\1x\0\0"),
        message(b"D", b"P\0"),
        message(b"D", b"Ss\0"),
        message(b"E", b"\0\0\0\0\0"),
        message(b"E", b"p\0\0\0\0\1"),
        message(b"C", b"Ss\0"),
        message(b"H"),
        message(b"S"),
        message(b"Q", b"rows 1; fail\0"),
        message(b"Q", b"copy in\0"),
        message(b"d", b"1\tx\n"),
        message(b"c"),
        message(b"f", b"no\0"),
    ]
)


def frames(output: bytes) -> list[bytes]:
    """The kinds of the messages in `output`, which must be whole."""
    kinds, at = [], 0
    while at < len(output):
        kinds.append(output[at : at + 1])
        at += 1 + int.from_bytes(output[at + 1 : at + 5])
    assert at == len(output)
    return kinds


@CALM
@given(streams, st.integers(1, 50))
def test_an_open_session_survives_any_stream(stream: bytes, cut: int) -> None:
    session = EchoSession(trust=True)
    session.receive(startup(user="u"))
    output = b"".join(session.receive(stream[at : at + cut]) for at in range(0, len(stream), cut))
    frames(output)


@CALM
@given(st.lists(REAL, max_size=30))
def test_after_any_requests_a_sync_brings_the_session_back(requests: list[bytes]) -> None:
    session = EchoSession(trust=True)
    session.receive(startup(user="u"))
    for request in requests:
        frames(session.receive(request))
    last = session.receive(message(b"f", b"end\0") + message(b"S"))  # ends a COPY if there is one
    assert frames(last)[-1] == b"Z" and not session.closed


@CALM
@given(st.lists(REAL, max_size=30), st.integers(1, 40))
def test_the_cutting_of_a_stream_changes_nothing(requests: list[bytes], cut: int) -> None:
    stream = b"".join(requests)
    outputs = []
    for size in (1 << 20, cut):
        session = EchoSession(trust=True)
        session.receive(startup(user="u"))
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        outputs.append(b"".join(map(session.receive, pieces)))
    assert outputs[0] == outputs[1]


@CALM
@given(streams)
def test_a_session_in_authentication_survives_any_stream(stream: bytes) -> None:
    session = EchoSession()
    session.receive(startup(user="alice"))
    kinds = frames(session.receive(stream))
    assert b"Z" not in kinds and (not kinds or kinds[-1] in b"ER")


SASL = st.sampled_from([b"SCRAM-SHA-256\0", b"\0\0\0\x0b", b"n,,n=,r=abc", b"c=biws,", b"p=", b","])


@CALM
@given(st.lists(st.lists(SASL | st.binary(max_size=5), max_size=5).map(b"".join), max_size=4))
def test_no_sasl_exchange_gets_in_without_the_password(bodies: list[bytes]) -> None:
    session = EchoSession()
    session.receive(startup(user="alice"))
    output = b"".join(session.receive(message(b"p", body)) for body in bodies)
    assert message(b"R", pack("!I", 0)) not in output


BACKEND = st.builds(
    message,
    st.sampled_from([bytes([c]) for c in b"RSKZTDCEINnst123GHdcvA"]),
    st.sampled_from([b"", b"I", b"\0\0\0\0", b"\0\1", b"a\0b\0", b"SELECT 1\0", b"\0\0\0\x0a"])
    | st.binary(max_size=20),
)


@CALM
@given(st.lists(BACKEND | st.binary(max_size=9), max_size=8), st.booleans())
def test_a_client_survives_any_server(answers: list[bytes], logged_in: bool) -> None:
    pg = PgClient("u", password="p", random_bytes=no_randomness)
    pg.connect()
    if logged_in:
        pg.receive(message(b"R", pack("!I", 0)) + message(b"Z", b"I"))
        pg.query("x")
    try:
        for answer in answers:
            pg.receive(answer)
        pg.take_results()
    except CairnError:
        return
    pg.take_copy()
