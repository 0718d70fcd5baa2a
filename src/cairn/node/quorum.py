"""Why nobody leads: which voters this instance cannot reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.model.errors import NoQuorum, OutcomeUnknown

if TYPE_CHECKING:
    from cairn.node.instance import Instance


def no_quorum(instance: Instance, *, may_be_done: bool = False) -> NoQuorum | None:
    """What to tell whoever waited for the leader in vain; None: there is one.

    With `may_be_done` the request was sent to somebody who never answered.
    """
    if instance.runner.leader_id:
        return None
    names = {
        raft_id: row.name if (row := instance.state.cluster.by_raft_id(raft_id)) else str(raft_id)
        for raft_id in instance.runner.core.conf.voters
    }
    missing = [
        name
        for raft_id, name in names.items()
        if raft_id != instance.raft_id and not instance.peers.is_linked(raft_id)
    ]
    found = NoQuorum(voters=tuple(sorted(names.values())), missing=tuple(sorted(missing)))
    if may_be_done:
        found.sqlstate = OutcomeUnknown.sqlstate
        found.detail = "a leader that is gone may have carried out the request"
    return found
