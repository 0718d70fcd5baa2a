"""What the governor can decide to do. One action at a time; each has a step and a subject.

A `Propose` is a CaS at the view's position. The others are questions or movements that need the
runner; what they find out ends in a proposal too, so a crash in between leaves nothing behind.
"""

from __future__ import annotations

import msgspec

from cairn.model.log.ops import Dml
from cairn.model.log.ranges import KeyRange


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """`step` names the rule in status and logs; `subject` is what it is about."""

    step: str
    subject: str


class Propose(Action, frozen=True, kw_only=True):
    """Write an entry, unless something in `ranges` has changed since the view was taken."""

    ops: tuple[Dml, ...]
    ranges: tuple[KeyRange, ...]
    say: str = ""  # one line for the log
    holders: tuple[str, ...] = ()  # so many of these must have all rows of their master first
    needed: int = 0


class ChangeVoters(Action, frozen=True, kw_only=True):
    """A change of the Raft configuration: who votes, who only listens, who is out."""

    add_voters: tuple[int, ...] = ()
    add_learners: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()


class HandOverLeadership(Action, frozen=True, kw_only=True):
    to: int


class SyncRaft(Action, frozen=True, kw_only=True):
    """Ask all of them to reach the leader's commit index; raise those that did in one entry."""

    instances: tuple[str, ...]


class ConfigureReplication(Action, frozen=True, kw_only=True):
    """Ask members whether they have the replicaset's rows; raise those that do in one entry."""

    replicaset: str
    instances: tuple[str, ...]


class SwitchMaster(Action, frozen=True, kw_only=True):
    """Planned: the old master is demoted by an entry already; its last row decides the cut."""

    replicaset: str
    old: str
    heir: str


class SealAndName(Action, frozen=True, kw_only=True):
    """Failover: members promise the next epoch, the most caught-up one is named."""

    replicaset: str
    members: tuple[str, ...]
    needed: int  # how many promises it takes
    of_all: bool = False  # one that has no rows counts for these: only its answer is waited for
    whole: tuple[str, ...] = ()  # one of these, if that many of them promise
    given_up: tuple[str, ...] = ()  # none of these, if anybody else promises


class ApplySchemaChange(Action, frozen=True, kw_only=True):
    """Ask every replicaset's master to carry out the pending schema change."""

    schema_version: int
    replicasets: tuple[str, ...]


class RunOperation(Action, frozen=True, kw_only=True):
    """Run the first pending operation of the queue; its status changes with its effect."""

    op_id: int
    op: str
    op_format: str
    is_upgrade: bool = False
    owner: int | None = None  # with whose rights; None: the cluster's own


class Idle(Action, frozen=True, kw_only=True):
    """Nothing to do; `blocked_by` says for whom the governor waits, if it does."""

    step: str = "idle"
    subject: str = ""
    blocked_by: tuple[str, ...] = ()
