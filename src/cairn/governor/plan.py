"""The governor's decision: the first rule that speaks, unless its subject is backing off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cairn.governor.actions import Action, Idle
from cairn.governor.rules import leaving, locks, queue, rising, schema, voters
from cairn.governor.view import ClusterView
from cairn.governor.waiting import unreadable, waits

#: A rule offers what it would do, subject by subject.
Rule = Callable[[ClusterView], Iterator[Action]]

# Voters come first but never touch the acting leader: `leaving.py` hands leadership over.
RULES: tuple[Rule, ...] = (
    voters.change_voters,
    leaving.hand_over_leadership,
    leaving.replace_master,
    leaving.spare_damaged_master,
    leaving.switch_master,
    leaving.settle_offline,
    leaving.forget_expelled,
    locks.release_lost_locks,
    locks.open_closed_rows,
    rising.sync_raft,
    rising.configure_replication,
    rising.extend_members,
    rising.fill_replicasets,
    rising.distribute_buckets,
    rising.initialise_sharding,
    rising.raise_online,
    schema.apply_schema_change,
    queue.create_queue,
    queue.raise_version,
    queue.fill_queue,
    queue.run_queue,
    queue.finish_upgrade,
)


def plan(view: ClusterView) -> Action:
    """Choose the next step from what is towards what should be."""
    if view.cluster.problems:  # deciding from a guess could lose rows
        return Idle(blocked_by=tuple(map(unreadable, view.cluster.problems)))
    blocked: list[str] = []
    for rule in RULES:
        for action in rule(view):
            if (action.step, action.subject) not in view.waiting:
                return action
            blocked.append(f"{action.step}: {action.subject}")
    return Idle(blocked_by=(*blocked, *waits(view, blocked)))
