"""The words of consensus: what the core is given, what it hands out, what a storage must offer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Literal, Protocol

import msgspec

from cairn.model.errors import CairnError, NotLeader
from cairn.model.settings import limits

__all__ = [
    "BadMessage",
    "ConfChangeSingle",
    "ConfChangeV2",
    "ConfState",
    "Config",
    "Entry",
    "EntryType",
    "HardState",
    "LogCompacted",
    "LogUnavailable",
    "Message",
    "MsgKind",
    "NotLeader",
    "ProgressStatus",
    "ProposalDropped",
    "RaftCorruption",
    "ReadState",
    "Ready",
    "Role",
    "Snapshot",
    "SnapshotMeta",
    "SnapshotNotReady",
    "SoftState",
    "Status",
    "Storage",
]

NO_NODE = 0  # raft ids start at 1; 0 says "nobody"
NO_LIMIT = 1 << 62

# A position or a term: what fits SQLite's signed 64 bits. Checked when decoded, not when built.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
NodeId = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]


class EntryType(IntEnum):
    NORMAL = 0
    CONF_CHANGE = 1


class Role(IntEnum):
    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class MsgKind(IntEnum):
    """What travels between peers. Local inputs are methods, so no peer can forge them."""

    PRE_VOTE = 1
    PRE_VOTE_RESP = 2
    VOTE = 3
    VOTE_RESP = 4
    APP = 5
    APP_RESP = 6
    HEARTBEAT = 7
    HEARTBEAT_RESP = 8
    SNAP = 9
    TIMEOUT_NOW = 10
    TRANSFER_LEADER = 11
    READ_INDEX = 12
    READ_INDEX_RESP = 13


# --- what is durable ----------------------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    term: Count
    index: Count
    type: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    data: bytes = b""


class HardState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    term: Count = 0
    vote: Count = 0
    commit: Count = 0


class ConfState(msgspec.Struct, frozen=True, array_like=True):
    """A configuration; every tuple is sorted. Joint while `voters_outgoing` is not empty."""

    voters: tuple[NodeId, ...] = ()
    learners: tuple[NodeId, ...] = ()
    voters_outgoing: tuple[NodeId, ...] = ()
    learners_next: tuple[NodeId, ...] = ()  # outgoing voters that become learners on leaving
    auto_leave: bool = False


class ConfChangeSingle(msgspec.Struct, frozen=True, array_like=True):
    kind: Literal["add_voter", "add_learner", "remove"]
    id: Count


class ConfChangeV2(msgspec.Struct, frozen=True, array_like=True):
    """A change of membership. Without changes and context it means "leave the joint state"."""

    transition: Literal["auto", "implicit", "explicit"] = "auto"
    changes: tuple[ConfChangeSingle, ...] = ()
    context: bytes = b""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> ConfChangeV2:
        """Raises `BadMessage` for bytes that are no change; empty bytes mean "leave joint"."""
        if not data:
            return ConfChangeV2()
        try:
            return _CONF_CHANGE.decode(data)
        except msgspec.DecodeError as problem:
            raise BadMessage(f"conf change: {problem}") from None


_CONF_CHANGE = msgspec.msgpack.Decoder(ConfChangeV2)


class SnapshotMeta(msgspec.Struct, frozen=True, array_like=True):
    index: Count
    term: Count
    conf: ConfState


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """`handle` tells the receiver where to fetch the payload; the payload goes out of band."""

    meta: SnapshotMeta
    handle: bytes = b""


# --- what travels -------------------------------------------------------------------------------


class Message(msgspec.Struct, array_like=True):
    """One shape for all kinds; which fields mean something depends on the kind."""

    kind: MsgKind
    from_: NodeId
    to: NodeId
    term: Count = 0  # 0 only for READ_INDEX, READ_INDEX_RESP and TRANSFER_LEADER
    index: Count = 0  # APP: entry before `entries`; APP_RESP: match or refused; votes: last entry
    log_term: Count = 0  # term of `index` (APP, votes)
    entries: list[Entry] = []
    commit: Count = 0
    reject: bool = False
    reject_hint: Count = 0  # APP_RESP: where the follower could agree at best ...
    reject_term: Count = 0  # ... and its term there
    read_seq: Count = 0  # HEARTBEAT(_RESP): number of the leader's round of reads
    context: bytes = b""  # READ_INDEX(_RESP): the asker's token
    snapshot: Snapshot | None = None
    force: bool = False  # votes of a leadership transfer ignore leases
    commit_term: Count = 0  # votes and their refusals: term of `commit`


# --- what the core hands out --------------------------------------------------------------------


class SoftState(msgspec.Struct, frozen=True):
    leader: int
    role: Role


class ReadState(msgspec.Struct, frozen=True):
    """The read named `token` may be answered once `index` is applied here."""

    index: int
    token: bytes


class Ready(msgspec.Struct):
    """What to do now, in this order.

    Send `messages` at once. Write `snapshot`, `entries` (cutting what they replace) and
    `hard_state` in one atomic record; sync if `must_sync`. Then send `messages_after_persist`
    and call `persisted(number)`. Apply `committed` in order, then call `applied(index)`.
    A Ready with nothing to sync still waits, with its messages, for all Readies before it.
    """

    number: int
    soft_state: SoftState | None = None
    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    entries: list[Entry] = []
    must_sync: bool = False
    messages: list[Message] = []
    messages_after_persist: list[Message] = []
    committed: list[Entry] = []
    read_states: list[ReadState] = []
    failed_reads: list[bytes] = []  # tokens that will get no answer; ask again with a new token


@dataclass(slots=True)
class Config:
    """How one member behaves. Ticks are the driver's; chance comes from `rng` alone."""

    id: int

    election_tick: int = 10
    """A follower that hears nothing for this many ticks, up to twice as many by chance, campaigns.
    Too small: a slow disk or a short pause deposes a healthy leader. Too large: after a crash of
    the leader nobody may write for that long. It is also the lease, the time after which a leader
    without a quorum steps down, and the time after which a hand-over is given up."""

    heartbeat_tick: int = 1
    """A leader speaks at least this often. Must be smaller than `election_tick`, better by five
    times or more, or one lost heartbeat starts an election. Smaller: more messages while idle."""

    pre_vote: bool = True
    """Ask whether an election could be won before the term is raised. Without it a member that was
    cut off comes back with a higher term and forces an election on a healthy group."""

    check_quorum: bool = True
    """A leader that a quorum has not answered for `election_tick` steps down, and members that hear
    a leader do not listen to candidates. Without it a leader that was cut off goes on for ever: its
    clients wait instead of asking another member."""

    max_msg_bytes: int = limits.APPEND_BYTES
    """Data in one append; one entry always fits. Too small: a follower that is behind needs many
    round trips. Too large: a lost message is costly and a heartbeat waits behind it."""

    max_inflight: int = 256
    """Appends to one follower that are not answered yet. Too small: throughput is one window per
    round trip. Too large: memory, and a slow follower gets a long queue. With `max_msg_bytes` this
    bounds what is on its way to one follower."""

    max_uncommitted_bytes: int = limits.UNCOMMITTED_BYTES
    """Data of proposals that no quorum has yet. Beyond it proposals are refused ("backpressure").
    Too small: short stalls reach the clients. Too large: a lost quorum fills memory."""

    max_apply_bytes: int = 4 * 1024 * 1024
    """Data handed out to be applied and not reported as applied. Too small: the state machine waits
    for the core. Too large: a member that starts with a long log holds much of it in memory."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    """Draws election timeouts. Members with the same numbers would campaign at the same time."""

    def __post_init__(self) -> None:
        assert self.id > NO_NODE, "raft ids start at 1"
        assert 0 < self.heartbeat_tick < self.election_tick
        assert self.max_inflight > 0


class ProgressStatus(msgspec.Struct, frozen=True):
    match: int
    next: int
    state: Literal["probe", "replicate", "snapshot"]
    recent_active: bool
    paused: bool
    is_learner: bool


class Status(msgspec.Struct, frozen=True):
    id: int
    role: Role
    term: int
    vote: int
    leader: int
    first_index: int
    last_index: int
    commit: int
    applied: int
    conf: ConfState
    # The rest is known to a leader only.
    pending_conf_index: int = 0
    transferee: int = NO_NODE
    uncommitted_bytes: int = 0
    progress: dict[int, ProgressStatus] = {}


# --- what can go wrong --------------------------------------------------------------------------


class ProposalDropped(CairnError):
    """Nothing was appended; `reason` is one of a few fixed words, so that callers can match."""

    sqlstate = "55000"

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(f"proposal dropped: {reason}", detail=detail)
        self.reason = reason


class RaftCorruption(CairnError):
    """Something durable contradicts itself: the instance stops. Nothing is bent to fit."""

    sqlstate = "XX001"
    hint = "stop this instance, wipe its directory and let it join under a new raft id"


class BadMessage(CairnError):
    """Bytes of a peer that are no valid message. Counted and dropped."""

    sqlstate = "08P01"

    def __init__(self, reason: str) -> None:
        super().__init__(f"bad raft message: {reason}")
        self.reason = reason


class LogCompacted(CairnError):
    """The entry was there and has been compacted into a snapshot."""

    sqlstate = "55000"

    def __init__(self, index: int) -> None:
        super().__init__(f"log entry {index} is compacted")
        self.index = index


class LogUnavailable(CairnError):
    """The entry is not there (yet)."""

    sqlstate = "55000"

    def __init__(self, index: int) -> None:
        super().__init__(f"log entry {index} is not in the log")
        self.index = index


class SnapshotNotReady(CairnError):
    """The storage has no snapshot to send now; asked again at the next heartbeat answer."""

    sqlstate = "55000"

    def __init__(self) -> None:
        super().__init__("snapshot is temporarily unavailable")


# --- what the core reads ------------------------------------------------------------------------


class Storage(Protocol):
    """A read-only view of what is durable here; the driver does all writing.

    After `persisted(n)` it must show everything Ready `n` asked to write. It may show more.
    """

    def initial_state(self) -> tuple[HardState, ConfState]:
        """Hard state, and the configuration as of the applied index, both as last persisted."""

    def first_index(self) -> int:
        """The first entry that can still be read: snapshot index + 1."""

    def last_index(self) -> int:
        """The last entry, or the snapshot's index when the log is empty."""

    def term(self, index: int) -> int:
        """Term of `index`, known from first_index - 1 on. Raises LogCompacted/LogUnavailable."""

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        """Entries of [low, high), cut after `max_bytes` of data but never empty."""

    def snapshot(self) -> Snapshot:
        """The newest snapshot, with the configuration as of its index. Or SnapshotNotReady."""
