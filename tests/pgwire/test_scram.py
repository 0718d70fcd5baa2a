"""SCRAM-SHA-256: the RFC's example, both halves together, and what a liar may send."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.model.errors import CairnError, InvalidAuthorization, LimitExceeded, ProtocolViolation
from cairn.pgwire.saslprep import saslprep
from cairn.pgwire.scram import (
    ScramClient,
    ScramServer,
    check_password,
    fake_verifier,
    make_verifier,
    parse_verifier,
)

from .fuzzing import CALM

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
VERIFIER = make_verifier("pencil", salt=SALT, iterations=4096)
QUICK = make_verifier("pencil", salt=SALT, iterations=2)


def test_the_example_of_rfc_7677_comes_out() -> None:
    server = ScramServer(VERIFIER, b"")
    server._nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = server.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_a_verifier_made_by_postgresql_is_understood() -> None:
    """Made by PostgreSQL 15.18: CREATE ROLE … PASSWORD 'pencil'."""
    text = (
        "SCRAM-SHA-256$4096:ajVXMQPZnEFHQlkm4c0gNQ==$"
        "3npK5i2+Jlc/jTzVRF1pULcgbIeXvgqrUlS6W5Y/KLw=:uWMNdD8trAGI5UoR0Ew3h0FVA9kS7REU0hcHUJyX9F4="
    )
    verifier = parse_verifier(text)
    assert str(verifier) == text
    assert check_password(verifier, "pencil") and not check_password(verifier, "pencils")


def test_a_verifier_is_written_and_read_back() -> None:
    text = str(VERIFIER)
    assert text == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
        "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )
    assert parse_verifier(text) == VERIFIER
    assert check_password(VERIFIER, "pencil") and not check_password(VERIFIER, "pencils")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "md5abc",
        "SCRAM-SHA-256$0:AAAA$AAAA:AAAA",
        "SCRAM-SHA-256$4096:!$!:!",
        "SCRAM-SHA-256$4096:AA==$AA==:AA==",
    ],
)
def test_other_texts_are_no_verifiers(text: str) -> None:
    with pytest.raises(ValueError, match="not a SCRAM-SHA-256 verifier"):
        parse_verifier(text)


@pytest.mark.parametrize("binding", [None, b"hash of the certificate"])
def test_both_halves_agree_on_the_right_password_only(binding: bytes | None) -> None:
    for password, agreed in (("pencil", True), ("pencils", False)):
        client = ScramClient(password, b"client nonce", channel_binding=binding)
        server = ScramServer(QUICK, b"server nonce", channel_binding=binding)
        final = server.final(client.final(server.first(client.first())))
        assert (final is not None) == agreed
        if final is not None:
            client.verify(final)


def test_a_channel_bound_to_another_certificate_is_refused() -> None:
    client = ScramClient("pencil", b"nonce", channel_binding=b"the man in the middle")
    server = ScramServer(QUICK, b"nonce", channel_binding=b"the server")
    answer = client.final(server.first(client.first()))
    with pytest.raises(ProtocolViolation):
        server.final(answer)


def test_unknown_users_always_get_the_same_salt_and_never_in() -> None:
    first, second = (fake_verifier("eve", secret=b"s") for _ in range(2))
    assert first == second != fake_verifier("bob", secret=b"s")
    assert first.salt != fake_verifier("eve", secret=b"other").salt
    client, server = ScramClient("x", b"n"), ScramServer(first, b"n")
    assert server.final(client.final(server.first(client.first()))) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=" + b"x" * 513,
        b"n,,n=user,r=with\x01control",
        b"n,,n=user,r=a,r=b",
        b"n,,m=ext,n=user,r=abc",
        b"n,b=x,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"q,,n=user,r=abc",
        b"\xff\xfe",
        b"n,,n=user,r=abc" + b"," * 9000,
    ],
)
def test_a_malformed_first_message_is_a_clean_error(message: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="malformed SCRAM message"):
        ScramServer(QUICK, b"nonce").first(message)


def final_messages() -> list[bytes]:
    nonce = b"abc" + b64encode(b"nonce")
    proof = b64encode(b"\0" * 32)
    return [
        b"",
        b"c=biws,r=" + nonce,
        b"c=biws,p=" + proof,
        b"r=" + nonce + b",p=" + proof,
        b"c=biws,r=" + nonce + b",p=",
        b"c=biws,r=" + nonce + b",p=!!!",
        b"c=biws,r=" + nonce + b",p=AAAA",
        b"c=b!ws,r=" + nonce + b",p=" + proof,
        b"c=eSws,r=" + nonce + b",p=" + proof,
        b"c=biws,r=other,p=" + proof,
        b"c=biws,r=" + nonce * 1000 + b",p=" + proof,
        b"c=biws,r=" + nonce + b",p=" + proof + b",p=" + proof,
        "c=biws,r=é,p=é".encode(),
    ]


@pytest.mark.parametrize("message", final_messages())
def test_a_malformed_last_message_is_a_clean_error(message: bytes) -> None:
    server = ScramServer(QUICK, b"nonce")
    server.first(b"n,,n=,r=abc")
    with pytest.raises(ProtocolViolation, match="malformed SCRAM message"):
        server.final(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"r=else,s=AAAA,i=2",
        b"r=bm9uY2U=,s=AAAA,i=2",  # ours and nothing of theirs
        b"r=bm9uY2U=x,s=,i=2",
        b"r=bm9uY2U=x,s=!,i=2",
        b"r=bm9uY2U=x,s=AAAA,i=0",
        b"r=bm9uY2U=x,s=AAAA,i=-5",
        b"r=bm9uY2U=x,s=AAAA,i=x",
        b"r=bm9uY2U=x,s=AAAA",
        b"e=unknown-user",
    ],
)
def test_a_client_checks_what_the_server_says(message: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        ScramClient("pencil", b"nonce").final(message)


def test_a_server_cannot_make_the_client_hash_for_hours() -> None:
    client = ScramClient("pencil", b"nonce", max_iterations=100_000)
    with pytest.raises(LimitExceeded, match="asks for 999999999 hash iterations"):
        client.final(b"r=bm9uY2U=x,s=AAAA,i=999999999")


def test_a_server_must_prove_itself() -> None:
    client = ScramClient("pencil", b"nonce")
    with pytest.raises(InvalidAuthorization):
        client.verify(b"v=" + b64encode(b""))
    client.final(b"r=bm9uY2U=x,s=AAAA,i=2")
    with pytest.raises(InvalidAuthorization):
        client.verify(b"v=" + b64encode(b"\0" * 32))


@pytest.mark.parametrize(
    ("password", "prepared"),
    [
        ("secret", b"secret"),
        ("I\u00adX", b"IX"),
        ("\u00aa", b"a"),
        ("\u2168", b"IX"),
        ("a\u00a0b", b"a b"),
        ("пароль", "пароль".encode()),
        ("\u0627\u0031", "\u0627\u0031".encode()),  # cannot be prepared: taken as it is
    ],
)
def test_passwords_are_prepared_as_rfc_4013_says(password: str, prepared: bytes) -> None:
    assert saslprep(password) == prepared


PIECES = st.sampled_from([b"n,,", b"n=", b"r=", b"c=", b"p=", b"biws", b",", b"abc", b"=", b"\xff"])


@CALM
@given(st.lists(PIECES | st.binary(max_size=4), max_size=10).map(b"".join), st.binary(max_size=40))
def test_no_client_message_does_more_than_fail(first: bytes, final: bytes) -> None:
    server = ScramServer(QUICK, b"nonce")
    try:
        server.first(first)
        assert server.final(final) is None
    except CairnError:
        pass
