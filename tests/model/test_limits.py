"""What is accepted at one stage fits the next, in size: nothing is accepted that cannot be sent."""

from __future__ import annotations

import msgspec
import pytest

from cairn.model.errors import LimitExceeded
from cairn.model.log import ops
from cairn.model.settings import limits
from cairn.net import frames, link
from cairn.node.consensus.proposals import check_entry_size
from cairn.pgwire import messages
from cairn.raft.types import Config, Entry, EntryType, Message, MsgKind
from cairn.raft.wire import MAX_MESSAGE_BYTES, decode_message, encode_message
from cairn.storage import readers
from cairn.storage.data_db import data_store

FULL = b"x" * limits.ENTRY_BYTES


def append(*data: bytes) -> bytes:
    entries = [Entry(1, at, EntryType.NORMAL, each) for at, each in enumerate(data, 1)]
    message = Message(MsgKind.APP, to=2, from_=1, term=1, entries=tuple(entries))
    return encode_message(message)


def test_the_longest_entry_can_be_sent_behind_a_full_message() -> None:
    body = append(b"x" * limits.APPEND_BYTES, FULL)
    assert decode_message(body).entries[1].data == FULL
    framed = frames.pack_frame(frames.ONEWAY, 0, "raft", msgspec.msgpack.encode(body))
    assert len(framed) <= limits.FRAME_BYTES
    assert len(framed) <= limits.UNSENT_BYTES  # else it would be dropped each time


def test_the_longest_entry_fits_what_may_be_uncommitted_and_the_request_that_brings_it() -> None:
    assert limits.ENTRY_BYTES <= limits.UNCOMMITTED_BYTES
    assert limits.ENTRY_BYTES + limits.FRAME_EXTRA_BYTES <= limits.FRAME_BYTES


def test_a_copy_into_a_global_table_stays_far_below_an_entry() -> None:
    """The row that makes a part full may be long itself."""
    assert 2 * limits.COPY_ENTRY_BYTES <= limits.ENTRY_BYTES


def test_the_longest_record_fits_a_frame() -> None:
    assert limits.RECORD_BYTES + limits.FRAME_EXTRA_BYTES <= limits.FRAME_BYTES


def test_the_limits_are_those_that_are_used() -> None:
    assert (
        frames.MAX_FRAME,
        link.MAX_UNSENT,
        MAX_MESSAGE_BYTES,
        data_store.RECORD_MAX_BYTES,
        readers.ANSWER_BYTES,
        messages.MAX_MESSAGE_BYTES,
    ) == (
        limits.FRAME_BYTES,
        limits.UNSENT_BYTES,
        limits.MESSAGE_BYTES,
        limits.RECORD_BYTES,
        limits.ANSWER_BYTES,
        limits.CLIENT_MESSAGE_BYTES,
    )
    config = Config(id=1)
    assert config.max_msg_bytes == limits.APPEND_BYTES
    assert config.max_uncommitted_bytes == limits.UNCOMMITTED_BYTES


def test_an_entry_past_the_limit_is_refused_with_a_hint() -> None:
    check_entry_size(limits.ENTRY_BYTES)
    with pytest.raises(LimitExceeded) as caught:
        check_entry_size(limits.ENTRY_BYTES + 1)
    assert (caught.value.sqlstate, "16 MiB" in str(caught.value.hint)) == ("54000", True)


def test_an_operation_is_about_as_long_as_its_values() -> None:
    change = ops.Batch((ops.Insert(2000, (1, "x" * 1_000_000)),))
    assert 1_000_000 < len(ops.encode_op(change)) < 1_001_000
