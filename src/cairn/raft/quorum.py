"""Majorities, single and joint, as pure functions; and the members who make them up.

A joint configuration decides only what both of its halves decide; an empty half agrees to all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

from cairn.raft.confchange import members
from cairn.raft.types import NO_LIMIT, ConfState


class VoteResult(IntEnum):
    PENDING = 0
    LOST = 1
    WON = 2


def majority(count: int) -> int:
    return count // 2 + 1


def committed_index(voters: Collection[int], acked: Mapping[int, int]) -> int:
    """The highest index that a majority of `voters` acknowledged; a silent voter has 0."""
    if not voters:
        return NO_LIMIT
    indexes = sorted([acked.get(voter, 0) for voter in voters])
    return indexes[(len(indexes) - 1) // 2]


def joint_committed_index(
    incoming: Collection[int], outgoing: Collection[int], acked: Mapping[int, int]
) -> int:
    if not outgoing:
        return committed_index(incoming, acked)
    return min(committed_index(incoming, acked), committed_index(outgoing, acked))


def vote_result(voters: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """What `votes` of `voters` amount to. Votes of others do not count."""
    if not voters:
        return VoteResult.WON
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    missing = sum(1 for voter in voters if voter not in votes)
    needed = majority(len(voters))
    if granted >= needed:
        return VoteResult.WON
    if granted + missing >= needed:
        return VoteResult.PENDING
    return VoteResult.LOST


def joint_vote_result(
    incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]
) -> VoteResult:
    first = vote_result(incoming, votes)
    second = vote_result(outgoing, votes)
    if first == second:
        return first
    if VoteResult.LOST in (first, second):
        return VoteResult.LOST
    return VoteResult.PENDING


class Members:
    """The configuration in force here. One object, so that all parts of a core see a change."""

    def __init__(self, conf: ConfState) -> None:
        self.change(conf)

    def change(self, conf: ConfState) -> None:
        self.conf = conf
        self.voters = frozenset(conf.voters)
        self.outgoing = frozenset(conf.voters_outgoing)
        self.all = frozenset(members(conf))

    def is_voter(self, node: int) -> bool:
        return node in self.voters or node in self.outgoing

    def tally(self, votes: Mapping[int, bool]) -> VoteResult:
        return joint_vote_result(self.voters, self.outgoing, votes)

    def agreed(self, acked: Mapping[int, int]) -> int:
        """The highest value that a quorum, of both halves if joint, has acknowledged."""
        return joint_committed_index(self.voters, self.outgoing, acked)
