"""Kinds of messages by what they mean to the receiver."""

from __future__ import annotations

from cairn.raft.types import MsgKind

TERMLESS = frozenset({MsgKind.READ_INDEX, MsgKind.READ_INDEX_RESP, MsgKind.TRANSFER_LEADER})
VOTE_REQUESTS = frozenset({MsgKind.VOTE, MsgKind.PRE_VOTE})
VOTE_ANSWERS = frozenset({MsgKind.VOTE_RESP, MsgKind.PRE_VOTE_RESP})
OF_LEADERS = frozenset({MsgKind.APP, MsgKind.HEARTBEAT, MsgKind.SNAP, MsgKind.TIMEOUT_NOW})
LOG_ANSWERS = frozenset({MsgKind.APP_RESP, MsgKind.HEARTBEAT_RESP})
ANSWERS = VOTE_ANSWERS | LOG_ANSWERS
PROMISE_NOTHING = frozenset({MsgKind.HEARTBEAT_RESP, MsgKind.PRE_VOTE_RESP})  # but our term
