"""Waiting until those members have a record without whom a step of a move would not be safe."""

from __future__ import annotations

from cairn.model.errors import NoMaster, TimedOut
from cairn.model.members.topology import Grade
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.node.rows.data_plane import DataPlane
from cairn.node.waiting import until

HELD_S = 0.25  # shorter than a freeze: the leader hears in it whom it waits for


class Held:
    """Sync: a majority of the recorded members. Async: all that are Online, at least two."""

    def __init__(
        self, name: str, state: GlobalState, data: DataPlane, acks: Acknowledgements
    ) -> None:
        self._name, self._state, self._data, self._acks = name, state, data, acks

    async def by_those_who_count(self, lsn: int, epoch: int) -> None:
        """`lsn` 0: all that was written here so far."""
        data = self._data
        lsn = lsn or data.vclock.get(data.store.origin, 0)
        if data.fence.is_sync:
            await self._acks.wait_safe(lsn, epoch)
            return
        if not await until(lambda: not self._lacking(lsn), HELD_S, 0.002):
            raise TimedOut(f"waiting for {', '.join(self._lacking(lsn))} to have the rows")
        if data.fence.epoch != epoch:
            raise NoMaster("another master was named meanwhile")

    def _lacking(self, lsn: int) -> list[str]:
        cluster = self._state.cluster
        missing = self._acks.missing_members(lsn)
        online = [
            name
            for name in missing
            if (row := cluster.instances.get(name)) is not None
            and row.current_state.grade is Grade.ONLINE
        ]
        me = cluster.instances.get(self._name)
        replicaset = cluster.replicasets.get(me.replicaset_name) if me is not None else None
        members = () if replicaset is None else replicaset.members
        if not online and len(members) - len(missing) < min(2, len(members)):
            return missing  # the only copy must not be this one
        return online
