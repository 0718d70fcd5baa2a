"""The first packets of a connection, good and bad."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.model.errors import CairnError
from cairn.pgwire.server.requests import BadMessage, CancelReceived, NeedTls, StartupReceived
from cairn.pgwire.server.server import PgServer, Phase
from cairn.pgwire.server.startup import parse_options

from .fuzzing import CALM, startup

SSL = pack("!II", 8, 80877103)
GSS = pack("!II", 8, 80877104)


def only(pg: PgServer) -> object:
    (request,) = pg.requests
    return request


def refusal(pg: PgServer) -> CairnError:
    request = only(pg)
    assert isinstance(request, BadMessage) and request.recovery == "close" and pg.is_closed
    return request.error


def test_a_startup_packet_says_who_comes_and_what_they_want() -> None:
    pg = PgServer()
    pg.feed(startup(user="alice", database="db", options="a=1,b=2", a="direct"))
    request = only(pg)
    assert isinstance(request, StartupReceived)
    assert (request.params.user, request.params.database) == ("alice", "db")
    assert request.params.options == {"a": "direct", "b": "2"}
    assert pg.phase is Phase.AUTHENTICATION and pg.take() == b""


def test_the_database_is_the_user_unless_it_is_named() -> None:
    pg = PgServer()
    pg.feed(startup(user="alice"))
    request = only(pg)
    assert isinstance(request, StartupReceived) and request.params.database == "alice"


def test_a_missing_user_is_said_to_be_missing() -> None:
    pg = PgServer()
    pg.feed(startup(database="db"))
    assert refusal(pg).message == "parameter 'user' is missing"


def test_encryption_requests_are_answered_by_what_there_is() -> None:
    pg = PgServer(tls_available=False)
    pg.feed(GSS)
    pg.feed(SSL)
    assert pg.take() == b"NN"
    pg.feed(startup(user="alice"))
    assert isinstance(only(pg), StartupReceived)


def test_tls_begins_after_the_answer() -> None:
    pg = PgServer(tls_available=True)
    pg.feed(SSL)
    assert pg.take() == b"S" and isinstance(pg.requests.popleft(), NeedTls)
    pg.tls_started()
    pg.feed(startup(user="alice"))
    assert isinstance(only(pg), StartupReceived)


@pytest.mark.parametrize("first", [SSL, GSS])
def test_a_second_encryption_request_ends_the_connection(first: bytes) -> None:
    pg = PgServer()
    pg.feed(first + first)
    assert "a second" in refusal(pg).message


def test_newer_minor_versions_and_unknown_extensions_are_negotiated_down() -> None:
    """As libpq of PostgreSQL 19 asks by default: 3.9999 and an extension that nobody has."""
    pairs = b"user\0alice\0_pq_.test_protocol_negotiation\0\0_pq_.smart_connector\x000.2\0\0"
    body = pack("!HH", 3, 9999) + pairs
    pg = PgServer(known_extensions=frozenset(["smart_connector"]))
    pg.feed(pack("!I", len(body) + 4) + body)
    request = only(pg)
    assert isinstance(request, StartupReceived)
    assert request.params.options["smart_connector"] == "0.2"
    name = b"_pq_.test_protocol_negotiation\0"
    assert pg.take() == b"v" + pack("!III", 12 + len(name), 196608, 1) + name


def test_another_protocol_is_refused_by_its_number() -> None:
    pg = PgServer()
    pg.feed(pack("!IHH", 8, 2, 0))
    assert refusal(pg).message.startswith("unsupported frontend protocol 2.0")


def test_a_cancel_request_gives_the_key_and_ends_the_connection() -> None:
    pg = PgServer()
    pg.feed(pack("!IIII", 16, 80877102, 77, 0x01020304))
    assert only(pg) == CancelReceived(77, b"\1\2\3\4") and pg.is_closed


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 10_001, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_refused_before_any_body_comes(length: int) -> None:
    pg = PgServer()
    pg.feed(pack("!I", length))
    assert refusal(pg).message == "invalid length of startup packet"


@pytest.mark.parametrize(
    "body",
    [
        b"user\0alice\0",  # no terminator
        b"user\0alice",
        b"user\0\0\0",
        b"user\0",
        b"\0\0\0\0",
        b"user\0\xff\0\0",
        b"\0",
    ],
)
def test_a_packet_that_does_not_pair_up_is_refused(body: bytes) -> None:
    pg = PgServer()
    pg.feed(pack("!II", len(body) + 8, 196608) + body)
    refusal(pg)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1,b=2,a=3", {"a": "3", "b": "2"}),
        ("-c a=1 -c b=2", {"a": "1", "b": "2"}),
        ("-ca=1 --some-name=x", {"a": "1", "some_name": "x"}),
        (r"-c name=two\ words\\", {"name": "two words\\"}),
        ("-c search_path=a,b", {"search_path": "a,b"}),
        (
            "-c statement_timeout=5s,pico_query_metadata=true",
            {"statement_timeout": "5s", "pico_query_metadata": "true"},
        ),
        ("a=1, b=2", {"a": "1", "b": "2"}),
        ("-c=", {}),
        ("-c =x --=y -c", {}),
        ("-B 100 -c a=b=c", {"a": "b=c"}),
        ("word", {"word": ""}),  # whoever knows the name says what is missing
        ("-c word,a=1", {"word": "", "a": "1"}),
        ("\\", {}),
    ],
)
def test_options_are_read_in_both_spellings(text: str, options: dict[str, str]) -> None:
    assert parse_options(text) == options


@CALM
@given(st.text("-c=, \\ab_", max_size=60))
def test_no_options_make_the_parser_stumble(text: str) -> None:
    assert all(name for name in parse_options(text))


@CALM
@given(st.binary(max_size=64), st.integers(1, 64), st.booleans())
def test_whatever_comes_first_is_taken_or_refused(data: bytes, cut: int, tls: bool) -> None:
    pg = PgServer(tls_available=tls)
    framed = pack("!I", len(data) + 4) + data
    for at in range(0, len(framed), cut):
        pg.feed(framed[at : at + cut])
    pg.take()


@CALM
@given(st.binary(max_size=64))
def test_whatever_pairs_a_startup_has_it_is_taken_or_refused(pairs: bytes) -> None:
    pg = PgServer()
    pg.feed(pack("!II", len(pairs) + 9, 196608) + pairs + b"\0")
    assert isinstance(only(pg), StartupReceived | BadMessage)
