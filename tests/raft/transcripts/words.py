"""Messages, entries and configurations in plain words, as transcripts tell them."""

from __future__ import annotations

from cairn.raft.confchange import members
from cairn.raft.types import ConfChangeV2, ConfState, Entry, EntryType, Message, MsgKind

KINDS = {
    MsgKind.PRE_VOTE: "pre-vote",
    MsgKind.PRE_VOTE_RESP: "pre-vote-answer",
    MsgKind.VOTE: "vote",
    MsgKind.VOTE_RESP: "vote-answer",
    MsgKind.APP: "append",
    MsgKind.APP_RESP: "append-answer",
    MsgKind.HEARTBEAT: "heartbeat",
    MsgKind.HEARTBEAT_RESP: "heartbeat-answer",
    MsgKind.SNAP: "snapshot",
    MsgKind.TIMEOUT_NOW: "take-over",
    MsgKind.TRANSFER_LEADER: "transfer",
    MsgKind.READ_INDEX: "read",
    MsgKind.READ_INDEX_RESP: "read-answer",
}


def said(message: Message) -> str:
    """One message in words; only the fields that its kind uses."""
    words = [f"{message.from_}->{message.to}", KINDS[message.kind]]
    if message.term:
        words.append(f"term {message.term}")
    if message.kind in (MsgKind.PRE_VOTE, MsgKind.VOTE):
        words.append(f"log ends {message.index}@{message.log_term}")
    elif message.kind is MsgKind.APP:
        words.append(f"after {message.index}@{message.log_term}: {entries_said(message.entries)}")
    elif message.kind is MsgKind.APP_RESP:
        words.append(_append_answer(message))
    elif message.kind is MsgKind.TRANSFER_LEADER:
        words.append(f"to {message.index}")
    elif message.kind is MsgKind.READ_INDEX_RESP and not message.reject:
        words.append(f"at {message.index}")
    elif message.snapshot is not None:
        meta = message.snapshot.meta
        words.append(f"{meta.index}@{meta.term} with {conf_said(meta.conf)}")
    if message.kind in (MsgKind.VOTE_RESP, MsgKind.PRE_VOTE_RESP):
        words.append("no" if message.reject else "yes")
    elif message.reject and message.kind is not MsgKind.APP_RESP:
        words.append("refused")
    if message.commit:
        words.append(f"committed {message.commit}")
    if message.read_seq and message.kind in (MsgKind.HEARTBEAT, MsgKind.HEARTBEAT_RESP):
        words.append(f"round {message.read_seq}")
    if message.context:
        words.append(message.context.decode())
    if message.force:
        words.append("by order of the leader")
    return " ".join(words)


def _append_answer(message: Message) -> str:
    if not message.reject:
        return f"has {message.index}"
    best = f"{message.reject_hint}@{message.reject_term}"
    return f"lacks {message.index}, could agree at {best}"


def kinds(messages: list[Message]) -> str:
    return ", ".join(f"{KINDS[message.kind]} to {message.to}" for message in messages)


def entries_said(entries: list[Entry]) -> str:
    return " ".join(map(_entry_said, entries)) or "nothing"


def _entry_said(entry: Entry) -> str:
    if entry.type == EntryType.CONF_CHANGE:
        change = ConfChangeV2.decode(entry.data)
        what = ",".join(f"{single.kind}={single.id}" for single in change.changes)
        return f"{entry.index}@{entry.term}[{what or 'leave joint'}]"
    return f"{entry.index}@{entry.term}({entry.data.decode()})"


def conf_said(conf: ConfState) -> str:
    assert members(conf), "members start with a configuration"
    parts = [
        f"{name} {' '.join(map(str, ids))}"
        for name, ids in (
            ("voters", conf.voters),
            ("outgoing", conf.voters_outgoing),
            ("learners", conf.learners),
            ("learners after that", conf.learners_next),
        )
        if ids
    ]
    return ", ".join(parts) + (", leaves by itself" if conf.auto_leave else "")
