"""Two instances prove to each other that they share a secret; a stranger learns nothing."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.model.errors import CairnError, Expelled, PeerRefused, ProtocolViolation
from cairn.net.frames import MAX_FRAME_BEFORE_AUTH, FrameReader, pack
from cairn.net.handshake import DialSide, Identity, ListenSide, Proof, Refused, Welcome

chance = random.Random(1)
MEMBER = Identity("demo", "cluster-1", "uuid-1", "i1", 1)
NEWCOMER = Identity("demo")


def shake(
    dialler: Identity,
    listener: Identity,
    secrets: tuple[bytes, bytes] = (b"s", b"s"),
    refusal: Refused | None = None,
) -> tuple[DialSide, ListenSide]:
    dial = DialSide(dialler, secrets[0], chance.randbytes)
    listen = ListenSide(lambda: listener, secrets[1], chance.randbytes, lambda _: refusal)
    message: bytes | None = dial.start()
    while message is not None:
        answer, _ = listen.receive(message)
        message = dial.receive(answer)
    return dial, listen


def test_both_know_each_other_afterwards() -> None:
    dial, listen = shake(NEWCOMER, MEMBER)
    assert (dial.peer, listen.peer) == (MEMBER, NEWCOMER)


def test_a_wrong_secret_is_refused_without_a_word_about_the_cluster() -> None:
    with pytest.raises(PeerRefused, match="wrong service password") as refusal:
        shake(Identity("guess"), MEMBER, (b"guess", b"s"))
    assert "demo" not in str(refusal.value)


def test_a_listener_that_does_not_know_the_secret_is_not_believed() -> None:
    dial = DialSide(NEWCOMER, b"s", chance.randbytes)
    impostor = ListenSide(lambda: MEMBER, b"other", chance.randbytes, lambda _: None)
    impostor._judge = lambda mac, claimed: (  # type: ignore[method-assign]
        ListenSide._judge(impostor, b"", claimed)
    )
    challenge, _ = impostor.receive(dial.start())
    proof = dial.receive(challenge)
    assert proof is not None
    answer, _ = impostor.receive(proof)
    with pytest.raises(PeerRefused):
        dial.receive(answer)


def test_a_handshake_that_was_recorded_is_worth_nothing() -> None:
    """Neither to be let in as the one who said it, nor to be believed as a listener."""
    dial = DialSide(MEMBER, b"s", chance.randbytes)
    listen = ListenSide(lambda: MEMBER, b"s", chance.randbytes, lambda _: None)
    hello = dial.start()
    challenge, _ = listen.receive(hello)
    proof = dial.receive(challenge)
    assert proof is not None
    welcome, _ = listen.receive(proof)
    assert listen.peer == MEMBER

    again = ListenSide(lambda: MEMBER, b"s", chance.randbytes, lambda _: None)
    again.receive(hello)
    told, problem = again.receive(proof)
    assert again.peer is None and problem is not None and told != welcome

    fresh = DialSide(MEMBER, b"s", chance.randbytes)
    fresh.start()
    fresh.receive(challenge)
    with pytest.raises(PeerRefused):
        fresh.receive(welcome)
    assert fresh.peer is None


def test_a_proof_is_of_one_side() -> None:
    """What a member says as the one who dials is no proof of a listener, and the other way."""
    dial = DialSide(MEMBER, b"s", chance.randbytes)
    listen = ListenSide(lambda: MEMBER, b"s", chance.randbytes, lambda _: None)
    challenge, _ = listen.receive(dial.start())
    proof = msgspec.msgpack.decode(dial.receive(challenge) or b"", type=Proof)
    reflected = msgspec.msgpack.encode(Welcome(MEMBER, proof.mac))
    with pytest.raises(PeerRefused):
        dial.receive(reflected)
    assert dial.peer is None


def test_two_clusters_of_one_name_never_merge() -> None:
    other = Identity("demo", "cluster-2", "uuid-9", "i9", 1)
    with pytest.raises(PeerRefused, match="two clusters started apart never merge"):
        shake(other, MEMBER)


def test_another_cluster_name_is_told_to_those_who_know_the_secret() -> None:
    with pytest.raises(PeerRefused, match="cluster_name mismatch"):
        shake(Identity("other"), MEMBER)


def test_an_expelled_instance_hears_it_in_the_handshake() -> None:
    with pytest.raises(Expelled, match="was expelled"):
        shake(MEMBER, MEMBER, refusal=Refused("instance 3 was expelled", expelled=True))


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_refused_and_never_believed(data: bytes, to_listener: bool) -> None:
    dial = DialSide(NEWCOMER, b"s", chance.randbytes)
    listen = ListenSide(lambda: MEMBER, b"s", chance.randbytes, lambda _: None)
    with pytest.raises(CairnError):
        if to_listener:
            listen.receive(data)
            listen.receive(data)
        else:
            dial.receive(data)
    assert dial.peer is None
    assert listen.peer is None


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 7))
def test_frames_survive_any_cutting_of_the_stream(frames: list[bytes], step: int) -> None:
    reader = FrameReader()
    stream = b"".join(map(pack, frames))
    found: list[bytes] = []
    for at in range(0, len(stream), step):
        found += reader.feed(stream[at : at + step])
    assert found == frames


def test_a_stranger_cannot_announce_a_large_frame() -> None:
    with pytest.raises(ProtocolViolation, match="over the limit"):
        FrameReader().feed((MAX_FRAME_BEFORE_AUTH + 1).to_bytes(4, "big"))


def test_nobody_stops_for_a_stranger_who_says_it_was_expelled() -> None:
    dial = DialSide(MEMBER, b"s", chance.randbytes)
    stranger = ListenSide(lambda: MEMBER, b"guess", chance.randbytes, lambda _: None)
    challenge, _ = stranger.receive(dial.start())
    dial.receive(challenge)
    with pytest.raises(PeerRefused) as refusal:
        dial.receive(msgspec.msgpack.encode(Refused("go away", expelled=True)))
    assert not isinstance(refusal.value, Expelled)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x84\xa4type\xa5hello\xa8protocol\x01\xa8identity\x81\xaccluster_name\xa1\xff"
        b"\xa5nonce\xc4\x00",
        b"\x82\xa4type\xa5hello\xa1x" + b"\x91" * 4000 + b"\x01",
    ],
    ids=["a name that is no text", "arrays in arrays"],
)
def test_a_hello_that_cannot_be_read_is_refused(payload: bytes) -> None:
    for side in (
        ListenSide(lambda: MEMBER, b"s", chance.randbytes, lambda _: None),
        DialSide(MEMBER, b"s", chance.randbytes),
    ):
        with pytest.raises(PeerRefused):
            side.receive(payload)
