"""Finding each other before there is a cluster: at most one instance may found it (sans-IO).

Each instance asks every address it knows, and tells in the asking what it knows. When all of
them have answered and none knew a founder, the smallest guid among those that may vote founds
the cluster. Two founders would both have asked a common neighbour, and the neighbour, which
handles one request at a time and remembers, would have told one of them of the other.

That memory has to survive a crash of the neighbour: `state` must be on disk before an answer
leaves or a verdict is acted on.
"""

from __future__ import annotations

import msgspec

from cairn.model.rpc import DiscoverRequest, DiscoverResponse


class DiscoveryState(msgspec.Struct, frozen=True):
    """What must be durable. `founder` is the verdict "I am the bootstrap leader", until that is
    done: `founded`. Without its files such an instance is one of many, and asks like them.
    """

    guid: str
    peers: tuple[str, ...]
    founder: bool = False
    founded: bool = False

    def others(self, own_address: str, peers: tuple[str, ...]) -> set[str]:
        return {*self.peers, *peers} - {own_address}


class Discovery:
    """One instance's part. Its runner asks `to_ask()` and feeds what comes back."""

    def __init__(
        self, state: DiscoveryState, *, own_address: str, can_vote: bool, peers: tuple[str, ...]
    ) -> None:
        self.guid = state.guid
        self.own_address = own_address
        self.can_vote = can_vote
        self._has_founded = state.founded
        self.is_founder = state.founder and not state.founded
        self.leader: str | None = own_address if self.is_founder else None
        self._known: set[str] = {*state.peers, *peers}
        if can_vote:
            self._known.add(own_address)
        self._answers: dict[str, tuple[str, bool]] = {}  # address → (guid, can_vote)
        self.members: tuple[str, ...] = ()  # of the cluster that was found: all may be asked
        self._conclude()

    @property
    def state(self) -> DiscoveryState:
        founded = self._has_founded and not self.is_founder
        return DiscoveryState(self.guid, tuple(sorted(self._known)), self.is_founder, founded)

    @property
    def is_done(self) -> bool:
        return self.leader is not None

    def to_ask(self) -> list[str]:
        """Addresses still to be heard; all of them again while another one is to found."""
        if self.is_done:
            return []
        others = sorted(address for address in self._known if not self._is_me(address))
        return self.silent() or others

    def silent(self) -> list[str]:
        """Who has never answered: what an administrator has to be told."""
        return sorted(
            address
            for address in self._known
            if address not in self._answers and not self._is_me(address)
        )

    def only_non_voters(self) -> bool:
        """Everybody answered, and none may found a cluster."""
        return not self.silent() and not self.can_vote and not self._voters()

    def request(self, to: str) -> DiscoverRequest:
        return DiscoverRequest(self.guid, self.can_vote, tuple(sorted(self._known)), to)

    def handle_request(self, request: DiscoverRequest) -> DiscoverResponse:
        """Answer another instance. The caller makes `state` durable before it sends."""
        if not self.is_done:
            self._merge(request.peers)
            if request.guid == self.guid:
                self._answers[request.sent_to] = (self.guid, self.can_vote)
            self._conclude()
        known = tuple(sorted(self._known))
        return DiscoverResponse(self.guid, self.can_vote, known, self.leader)

    def handle_response(self, address: str, response: DiscoverResponse) -> None:
        if self.is_done:
            return
        if response.leader is not None:
            self.leader = response.leader
            self.members = response.peers
            return
        self._merge(response.peers)
        self._answers[address] = (response.guid, response.can_vote)
        self._conclude()

    def _merge(self, peers: tuple[str, ...]) -> None:
        self._known |= set(peers)

    def _is_me(self, address: str) -> bool:
        return self.can_vote and address == self.own_address

    def _voters(self) -> set[str]:
        return {guid for guid, can_vote in self._answers.values() if can_vote}

    def _conclude(self) -> None:
        """The verdict, once every known address has answered."""
        if self.is_done or not self.can_vote or self.silent():
            return
        if self.guid <= min(self._voters(), default=self.guid):
            self.is_founder = True
            self.leader = self.own_address
