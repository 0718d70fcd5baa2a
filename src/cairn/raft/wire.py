"""Raft messages as bytes. Everything a peer can get wrong is found here, once.

`decode_message` raises only `BadMessage`; what it returns is of the right types, within bounds and
consistent in itself. Whether it fits our term, log and configuration is for the core to say.
"""

from __future__ import annotations

import msgspec

from cairn.model.settings import limits
from cairn.raft.kinds import TERMLESS
from cairn.raft.types import BadMessage, ConfState, Message, MsgKind, Snapshot

MAX_MESSAGE_BYTES = limits.MESSAGE_BYTES

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return _ENCODER.encode(message)


def decode_message(data: bytes, *, max_bytes: int = MAX_MESSAGE_BYTES) -> Message:
    """The message in `data`, or `BadMessage` with the reason."""
    if len(data) > max_bytes:
        raise BadMessage("oversized")
    try:
        message = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise BadMessage(f"malformed: {problem}") from None
    if (reason := inconsistency(message)) is not None:
        raise BadMessage(reason)
    return message


def inconsistency(message: Message) -> str | None:
    """Why `message` contradicts itself, or None."""
    kind = message.kind
    if message.from_ == message.to:
        return "from and to are the same"
    if (message.term == 0) != (kind in TERMLESS):
        return "term missing or not expected"
    if message.entries and kind is not MsgKind.APP:
        return "entries in a message that carries none"
    if (message.snapshot is None) == (kind is MsgKind.SNAP):
        return "snapshot missing or not expected"
    if kind is MsgKind.APP:
        return _bad_entries(message)
    if message.snapshot is not None:
        return _bad_snapshot(message, message.snapshot)
    if kind in (MsgKind.VOTE, MsgKind.PRE_VOTE) and message.log_term > message.term:
        return "last entry of a later term than the vote"
    return None


def _bad_entries(message: Message) -> str | None:
    if (message.index == 0) != (message.log_term == 0):
        return "index without a term or a term without an index"
    index, term = message.index, message.log_term
    for entry in message.entries:
        if entry.index != index + 1:
            return "entries are not contiguous"
        if not max(term, 1) <= entry.term <= message.term:
            return "entry terms are not in order"
        index, term = entry.index, entry.term
    if term > message.term:
        return "log position of a later term than the message"
    return None


def _bad_snapshot(message: Message, snapshot: Snapshot) -> str | None:
    meta = snapshot.meta
    if meta.index == 0 or not 1 <= meta.term <= message.term:
        return "snapshot position is impossible"
    return bad_conf(meta.conf)


def bad_conf(conf: ConfState) -> str | None:
    """Why `conf` cannot be a configuration, or None."""
    groups = (conf.voters, conf.learners, conf.voters_outgoing, conf.learners_next)
    if any(list(ids) != sorted(set(ids)) for ids in groups):
        return "configuration is not sorted"
    if not conf.voters:
        return "configuration without voters"
    voters, outgoing = set(conf.voters), set(conf.voters_outgoing)
    if set(conf.learners) & (voters | outgoing):
        return "voter and learner at once"
    if not set(conf.learners_next) <= outgoing - voters:
        return "next learner that is no outgoing voter"
    if conf.auto_leave and not outgoing:
        return "auto leave outside a joint configuration"
    return None
