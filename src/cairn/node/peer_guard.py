"""Who may speak to this instance, and what a peer may ask for."""

from __future__ import annotations

from cairn.model.errors import NotSent, PeerRefused
from cairn.net.handshake import Identity, Refused
from cairn.net.link import Link
from cairn.node.consensus.global_state import GlobalState
from cairn.node.peer_calls import Right


class PeerGuard:
    """Asked at every handshake, and before every call of a peer."""

    def __init__(self, identity: Identity, state: GlobalState) -> None:
        self._identity, self._state = identity, state

    def admit(self, who: Identity) -> Refused | None:
        """A raft_id of this cluster without a row was expelled: it is told so, and stops."""
        cluster = self._state.cluster
        if not who.raft_id or who.cluster_uuid != cluster.cluster_uuid:
            return None
        if cluster.problems:
            return None  # a row that cannot be read is no proof that there is none
        row = cluster.by_raft_id(who.raft_id)
        if row is None and who.raft_id <= cluster.last_raft_id:
            return Refused(f"instance {who.raft_id} was expelled from the cluster", expelled=True)
        if row is not None and row.uuid != who.instance_uuid:
            return Refused(f"raft_id {who.raft_id} belongs to another instance")
        return None

    def check(self, link: Link, right: Right) -> None:
        """May the peer of this link ask for what takes this right?

        Who it is rests on the service password: whoever knows it can claim to be any member. One
        that was admitted a moment ago speaks Raft before its row is here; for rows it comes again.
        """
        peer, cluster = link.peer, self._state.cluster
        if link.known_in is cluster:
            return  # looked up in this very picture
        if peer is None or not peer.raft_id or peer.cluster_uuid != self._identity.cluster_uuid:
            raise PeerRefused("only members of the cluster may ask for this")
        if right is Right.RAFT or cluster.problems:
            return
        row = cluster.by_raft_id(peer.raft_id)
        if row is None:
            raise NotSent(f"instance {peer.raft_id} is not known here as a member")
        if row.uuid != peer.instance_uuid:
            raise PeerRefused(f"raft_id {peer.raft_id} belongs to another instance")
        link.known_in = cluster
