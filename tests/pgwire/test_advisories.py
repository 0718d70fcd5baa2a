"""Mistakes in this protocol for which others had to publish an advisory: not here.

Rows about expired passwords, cached plans and pushed addresses are tested where those live.
"""

from __future__ import annotations

import tracemalloc
from struct import pack

import pytest

from cairn.model.errors import CairnError, InvalidAuthorization, LimitExceeded, ProtocolViolation
from cairn.pgwire.client.backend import ServerError
from cairn.pgwire.client.client import PgClient
from cairn.pgwire.scram import fake_verifier, make_verifier
from cairn.pgwire.server.requests import BadMessage
from cairn.pgwire.server.server import PgServer
from cairn.pgwire.server.startup import parse_options
from cairn.pgwire.values.oids import INT8

from .coupling import Pair
from .echo import EchoSession, no_randomness
from .fuzzing import message, startup

SSL_REQUEST = pack("!II", 8, 80877103)
OK = message(b"R", pack("!I", 0))
READY = message(b"Z", b"I")


def client(**options: object) -> PgClient:
    made = PgClient("alice", password="secret", random_bytes=no_randomness, **options)  # type: ignore[arg-type]
    made.connect()
    return made


def open_client(**options: object) -> PgClient:
    """Logged in to a server that asks nothing."""
    made = client(**options)
    made.receive(OK + READY)
    return made


# CVE-2021-23214, CVE-2021-43766, CVE-2021-3935


@pytest.mark.parametrize("together", [True, False])
def test_plain_bytes_behind_an_ssl_request_close_the_connection(together: bool) -> None:
    session = EchoSession(PgServer(tls_available=True))
    injected = startup(user="mallory")
    if together:
        answer = session.receive(SSL_REQUEST + injected)
    else:
        assert session.receive(SSL_REQUEST) == b"S"
        answer = session.receive(injected)
    assert b"received unencrypted data after SSL request" in answer
    assert session.closed and session.startup is None and not answer.startswith(b"S\0")


# CVE-2021-23222, CVE-2021-43767, GHSA-9cfh


def test_an_http_server_is_told_from_an_attack() -> None:
    pg = client(tls="require")
    with pytest.raises(ProtocolViolation, match="an HTTP server answers there"):
        pg.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_plain_bytes_behind_the_servers_s_make_the_client_hang_up() -> None:
    pg = client(tls="require")
    with pytest.raises(ProtocolViolation, match="unencrypted data after SSL response"):
        pg.receive(b"S" + OK + READY)
    assert pg.is_closed and not pg.needs_tls


def test_an_error_before_tls_is_not_believed() -> None:
    pg = client(tls="prefer")
    with pytest.raises(ProtocolViolation):
        pg.receive(b"E")


# CVE-2026-107350


def test_a_second_startup_during_scram_kills_the_connection() -> None:
    session = EchoSession()
    session.receive(startup(user="alice"))
    answer = session.receive(startup(user="admin"))
    assert b"SFATAL" in answer and session.closed
    assert session.startup is not None and session.startup.params.user == "alice"


@pytest.mark.parametrize("kind", [b"Q", b"P", b"X", b"S"])
def test_nothing_but_a_password_is_taken_before_login(kind: bytes) -> None:
    session = EchoSession()
    session.receive(startup(user="alice"))
    assert b"SFATAL" in session.receive(message(kind, b"rows 1\0")) and session.closed


# CVE-2026-107349


@pytest.mark.parametrize(
    "text", ["-c=", "-c =", "-c", "=", ",", "-c=,-c=", "--=", "-c\\", "-c= " * 2000]
)
def test_options_without_a_name_end(text: str) -> None:
    assert parse_options(text) == {}


# CVE-2026-107348, CVE-2026-6668


@pytest.mark.parametrize("length", [0, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_hostile_lengths_are_refused_before_memory_is_given_for_them(length: int) -> None:
    def refused(prefix: bytes, header: bytes) -> None:
        session = EchoSession(trust=prefix == b"trust")
        if prefix:
            session.receive(startup(user="alice"))
        tracemalloc.start()
        session.receive(header)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert session.closed and peak < 100_000

    refused(b"", pack("!I", length))
    refused(b"scram", b"p" + pack("!I", length))
    refused(b"trust", b"Q" + pack("!I", length))


def test_little_is_taken_before_login() -> None:
    session = EchoSession()
    session.receive(startup(user="alice"))
    session.receive(b"p" + pack("!I", 10_001))
    assert session.closed


# CVE-2026-19888, CVE-2026-6665


@pytest.mark.parametrize(
    "initial",
    [
        b"",
        b"SCRAM-SHA-256",
        b"SCRAM-SHA-256\0",
        b"SCRAM-SHA-256\0\xff\xff\xff\xff",
        b"SCRAM-SHA-256\0\x7f\xff\xff\xff" + b"n,,n=,r=abc",
        b"SCRAM-SHA-256\0\0\0\0\4n,,x",
        b"SCRAM-SHA-256\0\0\0\0\x0an,,n=,r=\xff\xff",
    ],
)
def test_a_broken_first_sasl_message_is_a_clean_end(initial: bytes) -> None:
    session = EchoSession()
    session.receive(startup(user="alice"))
    answer = session.receive(message(b"p", initial))
    assert b"SFATAL" in answer and b"C08P01" in answer and session.closed


@pytest.mark.parametrize("final", [b"", b"c=biws", b"c=biws,r=x" * 500, b"c=!!,r=!!,p=!!", b"\xff"])
def test_a_broken_last_sasl_message_is_a_clean_end(final: bytes) -> None:
    session = EchoSession()
    session.receive(startup(user="alice"))
    session.receive(message(b"p", b"SCRAM-SHA-256\0" + pack("!I", 11) + b"n,,n=,r=abc"))
    answer = session.receive(message(b"p", final))
    assert b"SFATAL" in answer and b"C08P01" in answer and session.closed


# CVE-2026-6666


@pytest.mark.parametrize(
    "body", [b"", b"\0", b"Monly a message\0\0", b"SERROR\0\0", b"C\0M\0\0", b"P99x\0"]
)
def test_an_error_without_a_code_does_not_crash_the_client(body: bytes) -> None:
    pg = open_client()
    pg.query("x")
    pg.receive(message(b"E", body) + READY)
    with pytest.raises(ServerError) as caught:
        pg.take_results()
    assert isinstance(caught.value.sqlstate, str) and caught.value.position is None


# CVE-2024-27304


def test_a_message_too_long_for_its_length_field_is_never_sent() -> None:
    pg = open_client(max_message_bytes=1000)
    with pytest.raises(LimitExceeded):
        pg.query("x" * 1000)
    with pytest.raises(LimitExceeded):
        pg.execute("echo $1", ["x" * 1000])
    with pytest.raises(LimitExceeded, match="65535"):
        open_client().execute("echo", [1] * 65536)
    assert pg.is_idle


@pytest.mark.parametrize("length", [0, 3, 0x10000001, 0x80000000, 0xFFFFFFFF])
def test_a_hostile_length_from_the_server_is_refused(length: int) -> None:
    pg = open_client()
    pg.query("x")
    with pytest.raises(ProtocolViolation, match="invalid message length"):
        pg.receive(b"D" + pack("!I", length))
    assert pg.is_closed


def test_a_server_may_not_be_long_winded_before_login() -> None:
    with pytest.raises(ProtocolViolation, match="invalid message length"):
        client().receive(b"R" + pack("!I", 30_001))


# CVE-2026-42198


def test_a_hostile_server_cannot_burn_the_clients_time() -> None:
    pg = client()
    first = pg.receive(message(b"R", pack("!I", 10) + b"SCRAM-SHA-256\0\0"))
    nonce = first.rpartition(b"r=")[2]
    with pytest.raises(LimitExceeded, match="hash iterations"):
        pg.receive(message(b"R", pack("!I", 11) + b"r=" + nonce + b"x,s=AAAA,i=2000000000"))


# CVE-2025-49146, CVE-2026-54291


@pytest.mark.parametrize(
    "request_",
    [pack("!I", 0), pack("!I", 3), pack("!I", 5) + b"salt", pack("!I", 10) + b"SCRAM-SHA-256\0\0"],
)
def test_required_channel_binding_is_never_given_up(request_: bytes) -> None:
    pg = client(tls="require", channel_binding="require", allow_weak_auth=True)
    pg.receive(b"S")
    pg.tls_started(b"hash of the certificate")
    with pytest.raises(InvalidAuthorization, match="channel binding is required"):
        pg.receive(message(b"R", request_))


def test_a_client_that_could_bind_says_so_when_it_is_not_offered() -> None:
    """`y`: a server that did offer it, through a liar who took it out, will notice."""
    pg = client(tls="require")
    pg.receive(b"S")
    pg.tls_started(b"hash of the certificate")
    offered = message(b"R", pack("!I", 10) + b"SCRAM-SHA-256\0\0")
    assert b"y,,n=" in pg.receive(offered)


@pytest.mark.parametrize("method", [pack("!I", 3), pack("!I", 5) + b"salt"])
def test_weak_passwords_are_refused_unless_allowed(method: bytes) -> None:
    with pytest.raises(InvalidAuthorization, match="which is refused"):
        client().receive(message(b"R", method))
    assert client(allow_weak_auth=True).receive(message(b"R", method))[:1] == b"p"


def test_a_server_cannot_skip_the_end_of_scram() -> None:
    pg = client()
    pg.receive(message(b"R", pack("!I", 10) + b"SCRAM-SHA-256\0\0"))
    with pytest.raises(InvalidAuthorization, match="skipped the end"):
        pg.receive(OK)


# CVE-2024-1597


def test_parameters_never_become_part_of_the_statement() -> None:
    pair = Pair().connected()
    outgoing = pair.pg.execute("echo -$1, $2", [-1, "--\nfail; '"])
    assert b"echo -$1, $2\0" in outgoing
    pair.carry(outgoing)
    assert pair.pg.take_rows() == [(-1, "--\nfail; '")]


# GHSA-3gjw, GHSA-rgqc

ONE_INT8 = message(b"T", b"\0\1n\0" + pack("!IhIhih", 0, 0, INT8, 8, -1, 1))


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\2" + pack("!iqi", 8, 1, -1),
        b"\0\1",
        b"\0\1" + pack("!i", 8),
        b"\0\1" + pack("!i", 0x7FFFFFFF),
        b"\0\1" + pack("!i", 4) + b"\0\0\0\1",
        b"\0\1" + pack("!iq", 8, 1) + b"extra",
    ],
)
def test_a_row_that_is_not_as_described_is_refused(row: bytes) -> None:
    pg = open_client()
    pg.query("x")
    with pytest.raises(CairnError):
        pg.receive(ONE_INT8 + message(b"D", row))
    assert pg.is_closed


@pytest.mark.parametrize(
    "answer",
    [
        message(b"D", b"\0\0"),
        message(b"T", b"\0\2n\0"),
        message(b"T", b""),
        message(b"T", b"\0\1n\0" + pack("!IhIhih", 0, 0, INT8, 8, -1, 7)),
        message(b"2"),
        message(b"t", b"\0\5"),
        message(b"G", b"\0"),
        message(b"S", b"one"),
        message(b"K", b"x"),
        message(b"Z", b"?"),
        message(b"?", b""),
        message(b"W", b"\0\0\0"),
        message(b"C", b"no end"),
        message(b"v", b"\0\0\0\1"),
        OK,
    ],
)
def test_an_answer_out_of_place_or_shape_is_refused(answer: bytes) -> None:
    pg = open_client()
    pg.query("x")
    with pytest.raises(ProtocolViolation):
        pg.receive(answer)


@pytest.mark.parametrize("answer", [READY, message(b"T", b"\0\0"), message(b"K", b"\0" * 8)])
def test_a_server_cannot_skip_the_login(answer: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="during login"):
        client().receive(answer)


# CVE-2015-6817


def test_an_unknown_user_sees_what_a_known_one_sees() -> None:
    answers = []
    for user in ("alice", "nobody"):
        session = EchoSession()
        offered = session.receive(startup(user=user))
        first = session.receive(message(b"p", b"SCRAM-SHA-256\0" + pack("!I", 11) + b"n,,n=,r=abc"))
        nonce = first.partition(b"r=")[2].partition(b",")[0]
        proof = b"c=biws,r=" + nonce + b",p=" + b"A" * 43 + b"="
        last = session.receive(message(b"p", proof)).replace(user.encode(), b"USER")
        answers.append((offered, len(first), last[5:], session.closed))
    assert answers[0] == answers[1]
    real = make_verifier("x", salt=b"0123456789abcdef")
    fake = fake_verifier("nobody", secret=b"s")
    assert (real.iterations, len(real.salt)) == (fake.iterations, len(fake.salt))


def test_a_bad_message_is_no_way_around_the_login() -> None:
    pg = PgServer()
    pg.feed(message(b"Q", b"select 1\0"))
    (bad,) = pg.requests
    assert isinstance(bad, BadMessage) and pg.is_closed
