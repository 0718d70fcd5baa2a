"""Before the first SUBSCRIBE: each upstream says who it is, what it has and whether it knows lists.

Origins are given to upstreams only when all of them have answered or had their time, so that the
first lists are not made from half the picture. A peer that knows no ballot is of an older kind: it
gets the empty list, sends everything, and what is taken from somebody else is dropped here.
"""

from __future__ import annotations

import msgspec

from cairn.model.errors import UnknownCall
from cairn.model.log.records import Vclock
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.members.topology import Replicaset
from cairn.net.peers import Peers
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.links import LinkStatus
from cairn.node.rows.mesh import Mesh
from cairn.node.rows.place import Place
from cairn.node.waiting import until
from cairn.replication.applier import LogRefused
from cairn.replication.relay import Rows

BALLOT_S = 1.0


class BallotRequest(msgspec.Struct, frozen=True):
    subscriber: str
    replicaset: str


class Ballot(msgspec.Struct, frozen=True):
    uuid: str
    vclock: Vclock = {}
    reaches: tuple[str, ...] = ()  # origins whose rows it takes, directly or through others
    knows_lists: bool = True


class Ballots:
    """Both ends of a ballot."""

    def __init__(self, place: Place, data: DataPlane, peers: Peers, mesh: Mesh) -> None:
        self._place, self._data, self._peers, self._mesh = place, data, peers, mesh
        self.known: dict[str, Ballot] = {}  # of the upstreams that we are connected to
        self._silent: set[str] = set()  # upstreams that could not be asked

    async def answer(self, request: BallotRequest) -> Ballot:
        self._place.check_peer(request.replicaset, request.subscriber)
        reaches = tuple(sorted(self._mesh.reaches()))
        return Ballot(self._place.uuid, dict(self._data.vclock), reaches)

    async def ask(self, row: InstanceRow, mine: Replicaset, link: LinkStatus) -> None:
        request = BallotRequest(self._place.uuid, mine.uuid)
        try:
            found = await self._peers.call(row.raft_id, "ballot", request, Ballot, BALLOT_S)
        except UnknownCall:
            found = Ballot(row.uuid, knows_lists=False)
        if found.uuid != row.uuid:
            raise LogRefused(f"{row.name} says that it is {found.uuid}, not {row.uuid}")
        self._mesh.told(row.uuid, found.vclock)
        self.known[row.uuid] = found
        self._silent.discard(row.uuid)
        link.knows_lists = found.knows_lists
        await self._all_asked()

    async def _all_asked(self) -> None:
        """Until every upstream has answered or is known to be silent; not for long."""

        def all_asked() -> bool:
            wanted = {row.uuid for row in self._mesh.upstreams()}
            return wanted <= self.known.keys() | self._silent

        await until(all_asked, BALLOT_S)

    def lost(self, uuid: str) -> None:
        """The connection is gone: the next one begins with a ballot again."""
        self.known.pop(uuid, None)
        self._silent.add(uuid)


def only(answer: Rows, origins: tuple[str, ...]) -> Rows:
    """Of an upstream that sends everything, the rows that we take from it."""
    kept = [record for record in answer.records if record.origin in origins]
    return msgspec.structs.replace(answer, records=kept)
