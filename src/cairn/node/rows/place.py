"""Where this instance stands in its replicaset: whose member it is, in which history, how complete.

All parts of replication look here, and each fact is kept once. A new epoch first of all puts aside
what belongs to no history: until the writer has done that, `entered` is not set, and nothing is
given to peers, acknowledged or asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from cairn.model.errors import NoMaster
from cairn.model.members.moves import Stamp
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.members.topology import Replicaset
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.replication.applier import History, OtherReplicaset
from cairn.storage.data_db.row_log import Applier

log = logging.getLogger("cairn.replication")


class Place:
    """`on_diverged` is called when records were put aside."""

    def __init__(
        self,
        name: str,
        uuid: str,
        state: GlobalState,
        data: DataPlane,
        on_diverged: Callable[[], None],
    ) -> None:
        self.name, self.uuid, self.state = name, uuid, state
        self._data, self._on_diverged = data, on_diverged
        self.applier = Applier(data.store)
        self.history = History()
        self.entered = asyncio.Event()  # the writer has entered `history`
        self.entered.set()
        self.must_copy = not data.store.is_complete  # what is here counts for nothing

    def replicaset(self) -> tuple[InstanceRow, Replicaset] | None:
        me = self.state.cluster.instances.get(self.name)
        found = self.state.cluster.replicasets.get(me.replicaset_name) if me else None
        return None if me is None or found is None else (me, found)

    def is_master(self, name: str) -> bool:
        found = self.replicaset()
        return found is not None and found[1].current_master_name == name

    def members(self) -> tuple[str, ...]:
        """As recorded in Raft: not those that happen to be alive."""
        found = self.replicaset()
        return () if found is None else found[1].members

    def follow(self) -> bool:
        """Entries were applied. Whether a new epoch has begun."""
        found = self.replicaset()
        if found is None:
            return False
        _, replicaset = found
        history = History(replicaset.epoch, replicaset.cut, replicaset.past_cuts)
        if history == self.history:
            return False
        self.history = history
        self.entered.clear()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: self._epoch_entered(history, done))
        store = self._data.store
        self._data.submit(
            lambda: (self.applier.enter_epoch(history), store.is_complete), future, urgent=True
        )
        return True

    def _epoch_entered(self, history: History, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return
        if done.exception() is not None:
            log.error("the tail past the cut could not be undone: %s", done.exception())
            self.must_copy = True
            self.entered.set()
            return
        tail, is_complete = done.result()
        # Who only lacked what the old master's log had forgotten may be the new master now.
        self.must_copy = not is_complete
        if tail is None:
            log.warning("this instance diverged in what cannot be undone: it takes a full copy")
            self._on_diverged()
        elif tail:
            self._on_diverged()
            log.warning(
                "%d records past the cut of epoch %d were put aside in _cairn_diverged: %s",
                len(tail),
                history.epoch,
                ", ".join(f"{record.origin}:{record.lsn}" for record in tail[:5]),
            )
        self.entered.set()

    async def start_anew(self, master: str, origin: str, epoch: int) -> None:
        """The master has another log than we: ours is put aside, its rows are taken whole."""
        aside = await self._data.run(lambda: self.applier.put_aside(origin, epoch), alone=True)
        log.warning(
            "%d records of epoch %d of %s were noted in _cairn_diverged; a copy of %s follows",
            aside,
            epoch,
            origin,
            master,
        )
        self.must_copy = True
        self._on_diverged()

    @property
    def is_complete(self) -> bool:
        return self.entered.is_set() and not self.must_copy

    async def complete(self) -> None:
        """Rows are given only by an instance that has them all, of the present history."""
        await self.entered.wait()
        if self.must_copy:
            raise NoMaster("this instance has no complete rows itself")

    def has(self, stamp: Stamp) -> bool:
        """Whether what came up to there, as far as it is history, is on this instance."""
        now, vclock = self.history, self._data.vclock
        return all(
            vclock.get(origin, 0)
            >= (lsn if epoch >= now.epoch else min(lsn, now.limit(origin, epoch)))
            for origin, (lsn, epoch) in stamp.items()
        )

    def check_peer(self, replicaset_uuid: str, subscriber: str) -> None:
        """Rows never cross replicasets."""
        found = self.replicaset()
        row = self.state.cluster.by_uuid(subscriber)
        if found is None or row is None:
            raise NoMaster("this instance does not know its replicaset or the subscriber yet")
        mine, theirs = found[1], row.replicaset_name
        if mine.uuid != replicaset_uuid or theirs != mine.name:
            raise OtherReplicaset(
                f"{row.name} of {theirs} asked {self.name} of {mine.name} for rows: "
                "rows never cross replicasets"
            )
