"""Messages as bytes: what is well-formed survives, everything else is one kind of error."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.raft.types import (
    BadMessage,
    ConfState,
    Entry,
    Message,
    MsgKind,
    Snapshot,
    SnapshotMeta,
)
from cairn.raft.wire import decode_message, encode_message

SNAPSHOT = Snapshot(SnapshotMeta(5, 2, ConfState((1, 2), (3,))), b"handle")

GOOD = [
    Message(MsgKind.PRE_VOTE, 1, 2, 3, 4, 2),
    Message(MsgKind.PRE_VOTE_RESP, 1, 2, 3, reject=True, commit=2, commit_term=1),
    Message(MsgKind.VOTE, 1, 2, 3, 4, 3, force=True),
    Message(MsgKind.VOTE_RESP, 1, 2, 3),
    Message(MsgKind.APP, 1, 2, 3, 4, 2, [Entry(2, 5), Entry(3, 6, 1, b"x")], 4),
    Message(MsgKind.APP, 1, 2, 3),
    Message(MsgKind.APP_RESP, 1, 2, 3, 6, reject=True, reject_hint=2, reject_term=1),
    Message(MsgKind.HEARTBEAT, 1, 2, 3, commit=4, read_seq=9),
    Message(MsgKind.HEARTBEAT_RESP, 1, 2, 3, read_seq=9),
    Message(MsgKind.SNAP, 1, 2, 3, snapshot=SNAPSHOT),
    Message(MsgKind.TIMEOUT_NOW, 1, 2, 3),
    Message(MsgKind.TRANSFER_LEADER, 1, 2, index=3),
    Message(MsgKind.READ_INDEX, 1, 2, context=b"token", read_seq=1),
    Message(MsgKind.READ_INDEX_RESP, 1, 2, index=7, context=b"token", read_seq=1),
]

BAD = [
    (Message(MsgKind.VOTE, 1, 1, 3), "same"),
    (Message(MsgKind.VOTE, 0, 2, 3), "malformed"),
    (Message(MsgKind.VOTE, 1, 2), "term missing"),
    (Message(MsgKind.READ_INDEX, 1, 2, 3), "not expected"),
    (Message(MsgKind.VOTE, 1, 2, 3, 4, 9), "later term"),
    (Message(MsgKind.VOTE, 1, 2, 3, -1), "malformed"),
    (Message(MsgKind.VOTE, 1, 2, 1 << 63), "malformed"),
    (Message(MsgKind.HEARTBEAT, 1, 2, 3, entries=[Entry(1, 1)]), "carries none"),
    (Message(MsgKind.APP, 1, 2, 3, 4, 2, [Entry(2, 7)]), "contiguous"),
    (Message(MsgKind.APP, 1, 2, 3, 4, 2, [Entry(1, 5)]), "in order"),
    (Message(MsgKind.APP, 1, 2, 3, 4, 2, [Entry(4, 5)]), "in order"),
    (Message(MsgKind.APP, 1, 2, 3, 4, 2, [Entry(2, 5, 7)]), "malformed"),
    (Message(MsgKind.APP, 1, 2, 3, 4, 0), "index without"),
    (Message(MsgKind.APP, 1, 2, 3, 4, 4), "later term"),
    (Message(MsgKind.SNAP, 1, 2, 3), "snapshot missing"),
    (Message(MsgKind.APP, 1, 2, 3, snapshot=SNAPSHOT), "snapshot missing or not"),
    (Message(MsgKind.SNAP, 1, 2, 1, snapshot=SNAPSHOT), "impossible"),
    (
        Message(MsgKind.SNAP, 1, 2, 3, snapshot=Snapshot(SnapshotMeta(5, 2, ConfState()))),
        "without voters",
    ),
    (
        Message(MsgKind.SNAP, 1, 2, 3, snapshot=Snapshot(SnapshotMeta(5, 2, ConfState((2, 1))))),
        "not sorted",
    ),
    (
        Message(
            MsgKind.SNAP, 1, 2, 3, snapshot=Snapshot(SnapshotMeta(5, 2, ConfState((1,), (1,))))
        ),
        "at once",
    ),
]


@pytest.mark.parametrize("message", GOOD, ids=lambda m: m.kind.name)
def test_good_messages_survive(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(("message", "reason"), BAD)
def test_bad_messages_are_refused(message: Message, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        decode_message(encode_message(message))


def test_oversized_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(BadMessage, match="oversized"):
        decode_message(encode_message(GOOD[4]), max_bytes=10)
    with pytest.raises(BadMessage, match="malformed"):
        decode_message(msgspec.msgpack.encode([99, 1, 2, 3]))


@given(st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(BadMessage):
        decode_message(data)


numbers = st.integers(-2, 5) | st.just(1 << 64)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 9) | st.binary(max_size=3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)


@given(kind=st.integers(0, 15), fields=st.lists(values, max_size=16))
def test_messages_of_wrong_shapes_never_raise_anything_else(
    kind: int, fields: list[object]
) -> None:
    with contextlib.suppress(BadMessage):
        decode_message(msgspec.msgpack.encode([kind, *fields]))


@given(st.sampled_from(GOOD), st.integers(0, 100), st.integers(0, 255))
def test_one_flipped_byte_gives_a_valid_message_or_the_error(
    message: Message, place: int, value: int
) -> None:
    data = bytearray(encode_message(message))
    data[place % len(data)] = value
    try:
        again = decode_message(bytes(data))
    except BadMessage:
        return
    assert decode_message(encode_message(again)) == again
