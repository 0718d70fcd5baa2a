"""Majorities, single and joint, as pure functions (brief 5, 6 and 8; paper 5.2, 5.3 and 6).

A joint configuration decides only what both of its halves decide; an empty half agrees to all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

from cairn.raft.types import NO_LIMIT


class VoteResult(IntEnum):
    PENDING = 0
    LOST = 1
    WON = 2


def majority(count: int) -> int:
    return count // 2 + 1


def committed_index(voters: Collection[int], acked: Mapping[int, int]) -> int:
    """The highest index that a majority of `voters` acknowledged; a voter without a word has 0."""
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
