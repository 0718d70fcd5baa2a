"""Who votes in Raft and who only listens.

The acting leader is never demoted or removed here: `leaving.py` hands leadership over, and its
successor demotes it. A voter that says goodbye is demoted even without a replacement, so that
those who stay keep their quorum; one that fell silent keeps its vote until somebody can take
it, because it may come back exactly when its vote is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cairn.governor.actions import Action, ChangeVoters
from cairn.governor.view import ClusterView
from cairn.model.members.topology import Grade, Instance


def wanted_voters(candidates: int) -> int:
    """1, 2, 3 for three and four, 5 for five and more."""
    if candidates >= 5:
        return 5
    return min(candidates, 3)


def distance(one: Instance, other: Instance) -> int:
    """In how many failure domains the two differ."""
    keys = set(one.failure_domain) | set(other.failure_domain)
    return sum(one.failure_domain.get(key) != other.failure_domain.get(key) for key in keys)


def spread(one: Instance, others: Iterable[Instance]) -> int:
    return sum(distance(one, other) for other in others)


def change_voters(view: ClusterView) -> Iterator[Action]:
    if view.is_joint:
        return  # the leader leaves the joint state by itself
    by_id = {instance.raft_id: instance for instance in view.instances()}
    voters = {raft_id: by_id[raft_id] for raft_id in view.voters if raft_id in by_id}
    gone = {
        raft_id
        for raft_id in view.voters | view.learners
        if raft_id not in by_id or by_id[raft_id].current_state.grade is Grade.EXPELLED
    } - {view.leader}
    for raft_id in gone:
        voters.pop(raft_id, None)
    before = dict(voters)
    needed = wanted_voters(
        sum(
            view.can_vote(instance) and instance.target_state.grade is not Grade.EXPELLED
            for instance in by_id.values()
        )
    )
    leader = by_id.get(view.leader)
    if leader is not None and leader.target_state.grade is Grade.EXPELLED:
        needed += 1  # it keeps its vote until somebody has taken over: that one needs a vote too
    _demote_leaving(view, voters, by_id)
    _trim(view, voters, needed)
    _promote(view, voters, by_id, needed)
    _spread_out(view, voters, by_id)
    if voters.keys() != before.keys():
        _keep_quorum(view, voters)
    promoted = tuple(sorted(set(voters) - set(before) - gone))
    demoted = set(before) - set(voters)
    strangers = {
        raft_id
        for raft_id, instance in by_id.items()
        if instance.current_state.grade is not Grade.EXPELLED
        and raft_id not in view.voters | view.learners
        and raft_id not in voters
    }
    listeners = tuple(sorted(demoted | strangers))
    if promoted or listeners or gone:
        yield ChangeVoters(
            step="conf change",
            subject="raft",
            add_voters=promoted,
            add_learners=listeners,
            remove=tuple(sorted(gone)),
        )


def _promotable(
    view: ClusterView, voters: dict[int, Instance], by_id: dict[int, Instance]
) -> Instance | None:
    """The steady instance farthest from the present voters; the oldest of equals."""
    candidates = [
        instance
        for raft_id, instance in by_id.items()
        if raft_id not in voters
        and raft_id in view.learners
        and raft_id not in view.silent
        and view.is_steady(instance)
        and view.can_vote(instance)
    ]
    if not candidates:
        return None
    return max(candidates, key=lambda c: (spread(c, voters.values()), -c.raft_id))


def _is_leaving(instance: Instance) -> bool:
    return instance.target_state.grade in (Grade.OFFLINE, Grade.EXPELLED)


def _demote_leaving(
    view: ClusterView, voters: dict[int, Instance], by_id: dict[int, Instance]
) -> None:
    for raft_id, instance in sorted(voters.items()):
        if raft_id == view.leader:
            continue
        if not view.can_vote(instance):
            del voters[raft_id]
            continue
        if not _is_leaving(instance):
            continue
        others = {key: voter for key, voter in voters.items() if key != raft_id}
        heir = _promotable(view, others, by_id)
        said_goodbye = (
            instance.target_state.grade is Grade.EXPELLED
            or instance.target_state_reason == "shutdown"
        )
        somebody_stays = any(view.is_steady(voter) for voter in others.values())
        if heir is not None:
            del voters[raft_id]
            voters[heir.raft_id] = heir
        elif said_goodbye and somebody_stays:
            del voters[raft_id]


def _trim(view: ClusterView, voters: dict[int, Instance], needed: int) -> None:
    """Those who leave first, then the youngest."""
    order = sorted(voters, key=lambda raft_id: (_is_leaving(voters[raft_id]), raft_id))
    for raft_id in reversed(order):
        if len(voters) <= needed:
            return
        if raft_id != view.leader:
            del voters[raft_id]


def _promote(
    view: ClusterView, voters: dict[int, Instance], by_id: dict[int, Instance], needed: int
) -> None:
    while len(voters) < needed:
        chosen = _promotable(view, voters, by_id)
        if chosen is None:
            return
        voters[chosen.raft_id] = chosen


def _spread_out(view: ClusterView, voters: dict[int, Instance], by_id: dict[int, Instance]) -> None:
    """Swap one voter for a candidate that is strictly farther from the rest; one at a time."""
    for raft_id, voter in sorted(voters.items()):
        if raft_id == view.leader:
            continue
        others = {key: other for key, other in voters.items() if key != raft_id}
        candidate = _promotable(view, voters, by_id)
        if candidate is None:
            return
        if spread(candidate, others.values()) > spread(voter, others.values()):
            del voters[raft_id]
            voters[candidate.raft_id] = candidate
            return


def _keep_quorum(view: ClusterView, voters: dict[int, Instance]) -> None:
    """Whoever leaves takes a vote along, and those that stay and answer must be a majority of what
    is left: else nothing could be decided any more, and nobody be called back or expelled. So
    silent ones give up their votes too, the youngest first; they get them again when they are back.
    """
    silent = sorted(view.silent & voters.keys() - {view.leader})
    while silent and 2 * (len(voters) - len(silent)) <= len(voters):
        del voters[silent.pop()]
