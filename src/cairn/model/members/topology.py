"""Instances, replicasets, tiers and buckets as rows of the system tables."""

from __future__ import annotations

import enum

import msgspec


class Grade(enum.StrEnum):
    """An instance's state, in the order in which the governor raises it."""

    OFFLINE = "Offline"
    RAFT_SYNCED = "RaftSynced"
    REPLICATED = "Replicated"
    SHARDING_INITIALIZED = "ShardingInitialized"
    ONLINE = "Online"
    EXPELLED = "Expelled"


class State(msgspec.Struct, frozen=True, array_like=True):
    """A grade with its incarnation: how often the governor began to bring this instance up."""

    grade: Grade
    incarnation: int = 0

    def __str__(self) -> str:
        return f"{self.grade}({self.incarnation})"


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in Raft's history; ordered by term, then index."""

    term: int
    index: int


class Instance(msgspec.Struct, frozen=True):
    name: str
    uuid: str
    raft_id: int
    replicaset_name: str
    replicaset_uuid: str
    current_state: State
    target_state: State
    failure_domain: dict[str, str]
    tier: str
    version: str
    target_state_reason: str = ""


#: How many earlier epochs a replicaset remembers the cuts of. Too few: an instance that was away
#: for that many namings takes a full copy. Too many: each naming is an entry of that size.
KEPT_CUTS = 64


class ReplicasetState(enum.StrEnum):
    NOT_READY = "not-ready"
    READY = "ready"
    TO_BE_EXPELLED = "to-be-expelled"


class Replicaset(msgspec.Struct, frozen=True):
    name: str
    uuid: str
    current_master_name: str
    target_master_name: str
    tier: str
    weight: float
    weight_origin: str  # auto | user
    state: ReplicasetState
    epoch: int = 0  # raised by every naming of a master
    cut: dict[str, int] = {}  # origin uuid → last lsn that belongs to history
    members: tuple[str, ...] = ()  # who counts for a majority of rows
    past_cuts: dict[int, dict[str, int]] = {}  # of earlier epochs, whose records logs still have

    def named(self, master: str, cut: dict[str, int]) -> Replicaset:
        """With a new master, whose rows at this moment are the cut of the epoch that begins."""
        past = {**self.past_cuts, self.epoch: self.cut}
        for epoch in sorted(past)[:-KEPT_CUTS]:
            del past[epoch]
        return msgspec.structs.replace(
            self,
            current_master_name=master,
            target_master_name=master,
            epoch=self.epoch + 1,
            cut=cut,
            past_cuts=past,
        )

    @property
    def awaits_naming(self) -> bool:
        """Nobody acts as master until one is named, in an epoch of its own; it may be the same."""
        return bool(self.current_master_name) and not self.target_master_name


def deposed(replicaset: Replicaset) -> Replicaset:
    """The current master stays known, as the one who had all rows; but it is none any more."""
    return msgspec.structs.replace(replicaset, target_master_name="")


class Tier(msgspec.Struct, frozen=True):
    name: str
    replication_factor: int
    can_vote: bool = True
    bucket_count: int = 3000
    is_default: bool = False
    hash_version: int = 2
    replication_mode: str = "async"


class BucketState(enum.StrEnum):
    ACTIVE = "active"
    COPYING = "copying"
    COPIED = "copied"
    ABORTING_COPY = "aborting-copy"


class BucketRange(msgspec.Struct, frozen=True):
    """Buckets `start`…`end` of a tier, both included."""

    tier: str
    start: int
    end: int
    state: BucketState
    current_replicaset: str
    target_replicaset: str | None = None
    frozen_at: int | None = None  # which freeze holds it: nobody writes it meanwhile
    move_id: int | None = None  # the row of `_cairn_move` that it is part of

    @property
    def owner(self) -> str:
        """Who serves the range now: from `copied` on it is the target (no way back)."""
        if self.state is BucketState.COPIED and self.target_replicaset is not None:
            return self.target_replicaset
        return self.current_replicaset

    @property
    def is_writable(self) -> bool:
        return self.frozen_at is None or self.state is BucketState.COPIED


class ConnectionType(enum.StrEnum):
    PEER = "iproto"
    PGPROTO = "pgproto"
    HTTP = "http"
