"""What must never happen, checked on the node that just acted.

Oracles know everything: every disk, every log, everything ever sent. Each check is a small method
that raises `Violation`; `tests/sim` shows that each of them fires.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Protocol

from cairn.raft.confchange import change_conf
from cairn.raft.core import RaftCore
from cairn.raft.types import (
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    LogCompacted,
    LogUnavailable,
    Message,
    MsgKind,
    Ready,
    Role,
)
from cairn.sim.disk import Image, State


class Violation(AssertionError):
    """A promise was broken; `oracle` names the check that saw it."""

    def __init__(self, oracle: str, text: str) -> None:
        super().__init__(f"{oracle}: {text}")
        self.oracle = oracle


class Watched(Protocol):
    """What oracles look at of a node."""

    id: int
    core: RaftCore

    @property
    def durable(self) -> Image: ...


class Mortal(Watched, Protocol):
    """One that may be down: `ended_at` is when its last life ended."""

    alive: bool
    ended_at: int


class Oracles:
    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # term -> node
        self.entries: dict[tuple[int, int], tuple[int, int, bytes]] = {}
        self.committed: dict[int, tuple[int, int]] = {}  # index -> (term, committed in term)
        self.last_committed = 0
        self.applied: dict[int, Entry] = {}
        self.states: dict[int, State] = {}
        self.confs: dict[int, ConfState] = {}
        self.votes: dict[tuple[int, int], int] = {}  # (node, term) -> candidate
        self.sent_terms: dict[int, int] = {}
        self.seen: dict[int, tuple[int, int, int]] = {}  # node -> term, vote, commit of this life
        self.tails: dict[int, tuple[int, int]] = {}  # leader -> (term, last entry handed out)

    # --- elections

    def became_leader(self, node: Watched) -> None:
        term = node.core.term
        other = self.leaders.setdefault(term, node.id)
        if other != node.id:
            raise Violation("election safety", f"{other} and {node.id} both lead term {term}")
        self._elected_by_a_quorum(node)
        self._leader_completeness(node)
        self.tails[node.id] = (term, 0)

    def _elected_by_a_quorum(self, node: Watched) -> None:
        """Those who were seen to vote for it are a quorum of the configuration it knows."""
        term, conf = node.core.term, node.core.conf
        granted = {
            voter
            for voter in (*conf.voters, *conf.voters_outgoing)
            if voter == node.id or self.votes.get((voter, term)) == node.id
        }
        if not _is_quorum(conf, granted):
            raise Violation("elected by a quorum", f"{node.id}@{term} by {sorted(granted)} only")

    def _leader_completeness(self, node: Watched) -> None:
        """Whatever was committed in earlier terms is in the log of a new leader."""
        log, term = node.core.log, node.core.term
        for index in range(self.last_committed, 0, -1):
            entry_term, in_term = self.committed.get(index, (0, 0))
            if not in_term or in_term >= term:
                continue
            if index >= log.first_index() and not log.has(index, entry_term):
                raise Violation("leader completeness", f"{node.id} leads {term} without {index}")
            return  # log matching covers all before it

    # --- logs

    def handed_out(self, node: Watched, ready: Ready) -> None:
        """A Ready is about to be carried out."""
        if ready.entries:
            self._leader_append_only(node, ready.entries)
            self._log_matching(node, ready.entries)

    def _leader_append_only(self, node: Watched, entries: list[Entry]) -> None:
        if node.core.role is not Role.LEADER:
            return
        term, last = self.tails.get(node.id, (0, 0))
        if term == node.core.term and last and entries[0].index != last + 1:
            raise Violation("leader append-only", f"{node.id} wrote {entries[0].index} at {last}")
        self.tails[node.id] = (node.core.term, entries[-1].index)

    def _log_matching(self, node: Watched, entries: list[Entry]) -> None:
        """Equal (index, term) means equal entry and equal predecessor, hence equal logs."""
        previous = node.core.log.term(entries[0].index - 1)
        for entry in entries:
            content = (previous, entry.type, entry.data)
            known = self.entries.setdefault((entry.index, entry.term), content)
            if known != content:
                raise Violation(
                    "log matching", f"{node.id} has another entry {entry.index}@{entry.term}"
                )
            previous = entry.term

    # --- commit

    def looked_at(self, node: Watched) -> int:
        """After every event of `node`. How far its commit moved."""
        core = node.core
        if core.log.is_short():  # no disk here forgets what was synced
            raise Violation("send-time durability", f"{node.id} has forgotten {core.log.owed}")
        term, vote, commit = self.seen.get(node.id, (0, 0, 0))
        committed = core.log.committed
        if core.term == term and core.vote == vote and committed == commit:
            return 0
        if core.term < term:
            raise Violation("monotone term", f"{node.id}: {term} -> {core.term}")
        if core.term == term and vote not in (0, core.vote):
            raise Violation("monotone vote", f"{node.id} votes for {vote}, then {core.vote}")
        if committed < commit:
            raise Violation("monotone commit", f"{node.id}: {commit} -> {committed}")
        self.seen[node.id] = (core.term, core.vote, committed)
        if committed > commit:
            self._commit_agrees(node, committed)
        return committed - commit

    def _commit_agrees(self, node: Watched, index: int) -> None:
        log = node.core.log
        term = log.term(index) if index >= log.first_index() - 1 else 0
        known = self.committed.get(index)
        if known is None:
            self.committed[index] = (term, node.core.term)
            self.last_committed = max(self.last_committed, index)
        elif term and known[0] != term:
            raise Violation(
                "state machine safety", f"{node.id} commits {index}@{term}, others @{known[0]}"
            )

    def leader_committed(self, node: Watched, nodes: Mapping[int, Watched]) -> None:
        """A leader moved its commit: a quorum must really have it, durably."""
        core = node.core
        index = core.log.committed
        term = core.log.term(index)
        if term != core.term:
            raise Violation("commit in own term", f"{node.id} leads {core.term}, commits @{term}")
        voters = {*core.conf.voters, *core.conf.voters_outgoing}
        acked = {
            other
            for other in voters
            if other in nodes and _holds(nodes[other].durable, index, term)
        }
        if not _is_quorum(core.conf, acked):
            raise Violation(
                "commit is durable", f"{node.id} commits {index}, on disks of {sorted(acked)} only"
            )

    def read_is_fresh(self, node: Watched, index: int, floor: int) -> None:
        """A read sees everything that anyone had committed when it was asked."""
        if index < floor:
            raise Violation("read is fresh", f"{node.id} reads at {index}, {floor} was committed")

    # --- apply

    def applies(self, node: Watched, entry: Entry, after: State) -> bool:
        """`node` applies `entry`, which leads to `after`. True if nobody had applied it before."""
        if not _holds(node.durable, entry.index, entry.term):
            raise Violation("applied is durable", f"{node.id} applies {entry.index} unsynced")
        first = entry.index not in self.applied
        known = self.applied.setdefault(entry.index, entry)
        if known != entry:
            raise Violation("state machine safety", f"{node.id} applies another {entry.index}")
        if self.states.setdefault(entry.index, after) != after:
            raise Violation("state machine safety", f"{node.id}: another state at {entry.index}")
        return first

    def installs(self, node: Watched, index: int, state: State, conf: ConfState) -> None:
        """A snapshot equals what replaying the log up to it gives."""
        if index in self.states and self.states[index] != state:
            raise Violation("snapshot equals replay", f"{node.id} installs another {index}")
        self.same_conf(node, index, conf)

    # --- configuration

    def same_conf(self, node: Watched, index: int, conf: ConfState) -> None:
        """`conf` is in force on `node` from `index` on, where a change or a snapshot is."""
        before = max((i for i in self.confs if i <= index), default=0)
        if before == index or (before and self.applied.get(index, _NORMAL).type == 0):
            if self.confs[before] != conf:
                raise Violation("equal configurations", f"{node.id} has another one at {index}")
            return
        if before:
            self.confs_overlap(self.confs[before], conf)
        self.confs[index] = conf

    def confs_overlap(self, old: ConfState, new: ConfState) -> None:
        if not quorums_overlap(old, new):
            raise Violation("configuration overlap", f"{old} and {new} have disjoint quorums")

    def one_pending_change(self, node: Watched) -> None:
        log = node.core.log
        low = max(log.applied + 1, log.first_index())
        tail = log.slice(low, log.last + 1)
        changes = [entry.index for entry in tail if entry.type == EntryType.CONF_CHANGE]
        own = [i for i in changes if log.term(i) == node.core.term]
        if own and len(changes) > 1:
            raise Violation("one pending change", f"{node.id} has {changes} unapplied")

    def voters_are_there(
        self, node: Watched, change: ConfChangeV2, asked_at: int, nodes: Mapping[int, Mortal]
    ) -> None:
        """Nobody who was dead when a change was asked for, and ever since, is counted on in it."""
        conf = change_conf(node.core.conf, change)
        if set(conf.voters) == set(node.core.conf.voters):
            return
        there = {
            voter
            for voter in conf.voters
            if (known := nodes.get(voter)) is not None
            and (known.alive or known.ended_at >= asked_at)
        }
        if len(there) < len(conf.voters) // 2 + 1:
            raise Violation(
                "voters are there", f"{node.id} appended {conf.voters}, alive are {sorted(there)}"
            )

    # --- what is sent (send-time durability)

    def sends(self, node: Watched, message: Message, nodes: Mapping[int, Watched]) -> None:
        """Nothing sent may contradict what a power cut would leave."""
        disk = node.durable
        hard, kind = disk.hard_state, message.kind
        if message.term == 0:
            return
        future = kind is MsgKind.PRE_VOTE or (kind is MsgKind.PRE_VOTE_RESP and not message.reject)
        if not future:
            if hard.term < message.term:
                raise Violation("send-time durability", f"{_name(message)}: term is not durable")
            self.sent_terms[node.id] = max(message.term, self.sent_terms.get(node.id, 0))
        if kind is MsgKind.APP_RESP and not message.reject and message.index:
            self._ack_is_durable(disk, message, nodes)
        elif kind is MsgKind.VOTE_RESP and not message.reject:
            self._vote_is_durable(disk, message, message.to)
        elif kind is MsgKind.VOTE:
            self._vote_is_durable(disk, message, node.id)
            self._tail_is_durable(disk, message)
            self._campaigns_with_what_it_knows(node, message)
        elif kind is MsgKind.PRE_VOTE:
            self._tail_is_durable(disk, message)

    def _ack_is_durable(self, disk: Image, message: Message, nodes: Mapping[int, Watched]) -> None:
        if disk.hard_state.term > message.term:
            return  # said in an older term, as if late: a later leader may have cut the entry
        if disk.last_index() < message.index:
            raise Violation("send-time durability", f"{_name(message)}: entry is not durable")
        asker = nodes.get(message.to)
        leads = asker is not None and self.leaders.get(message.term) == message.to
        if asker is None or not leads:
            return
        theirs = asker.core
        if theirs.term != message.term or theirs.role is not Role.LEADER:
            return
        ours = _term(disk, message.index)
        known = ours and message.index >= theirs.log.first_index()
        if known and not theirs.log.has(message.index, ours):
            raise Violation("send-time durability", f"{_name(message)}: another entry is")

    def _vote_is_durable(self, disk: Image, message: Message, candidate: int) -> None:
        hard = disk.hard_state
        if hard.term == message.term and hard.vote != candidate:
            raise Violation("send-time durability", f"{_name(message)}: vote is not durable")
        known = self.votes.setdefault((message.from_, message.term), candidate)
        if known != candidate:
            raise Violation(
                "one vote per term", f"{message.from_} voted for {known} and {candidate}"
            )

    def _tail_is_durable(self, disk: Image, message: Message) -> None:
        """What a candidate says about its log is what others judge it by."""
        last = disk.last_index()
        newest = (disk.term(last), last)
        if newest < (message.log_term, message.index):
            raise Violation("send-time durability", f"{_name(message)}: log is not durable")

    def _campaigns_with_what_it_knows(self, node: Watched, message: Message) -> None:
        """Whoever knows of a committed change applies it before it counts votes."""
        core = node.core
        current = core.role is Role.CANDIDATE and core.term == message.term
        if current and core.log.has_unapplied_conf_change():
            raise Violation("campaign by the right members", f"{_name(message)}: change unapplied")

    # --- crashes

    def restarted(self, node: Watched) -> None:
        """Memory is gone; what was said is not."""
        term = node.core.term
        if term < self.sent_terms.get(node.id, 0):
            raise Violation("monotone term", f"{node.id} restarts in {term}, sent a later one")
        candidate = self.votes.get((node.id, term))
        if candidate is not None and node.core.vote != candidate:
            raise Violation("monotone vote", f"{node.id} forgot its vote of term {term}")
        self.seen[node.id] = (term, node.core.vote, node.core.log.committed)


_NORMAL = Entry(0, 0)


def _name(message: Message) -> str:
    return f"{message.kind.name} {message.from_}->{message.to} @{message.term} i{message.index}"


def _term(disk: Image, index: int) -> int:
    try:
        return disk.term(index)
    except (LogCompacted, LogUnavailable):
        return 0


def _holds(disk: Image, index: int, term: int) -> bool:
    """Is the entry durable, or part of a durable snapshot?"""
    return index <= disk.compacted_index or _term(disk, index) == term


@lru_cache(maxsize=4096)
def quorums_overlap(old: ConfState, new: ConfState) -> bool:
    """Does every quorum of `old` share a member with every quorum of `new`?"""
    everyone = sorted({*old.voters, *old.voters_outgoing, *new.voters, *new.voters_outgoing})
    for bits in range(1 << len(everyone)):
        side = {node for place, node in enumerate(everyone) if bits >> place & 1}
        other = set(everyone) - side
        if _is_quorum(old, side) and _is_quorum(new, other):
            return False
    return True


def _is_quorum(conf: ConfState, side: Collection[int]) -> bool:
    """Counted here once more, in other words than the core's, so that a bug there shows."""
    return all(
        2 * sum(1 for voter in half if voter in side) > len(half)
        for half in (conf.voters, conf.voters_outgoing)
        if half
    )
