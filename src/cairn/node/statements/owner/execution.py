"""This instance's own rows: who may see them, reads and writes; asked here or by a peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from unicodedata import unidata_version

import apsw

from cairn.model.settings import limits
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseHolder
from cairn.node.rows.moves.moving import Moving
from cairn.node.rows.replication import Replication
from cairn.node.statements.owner.guard import RowGuard
from cairn.node.statements.owner.reads import OwnerReads
from cairn.node.statements.owner.write_kinds import WriteKinds
from cairn.node.statements.owner.writes import OwnerWrites
from cairn.sql.functions.functions import HEAVY_ON_ROWS
from cairn.storage.files.spill import remove_left
from cairn.storage.files.writer import Disk
from cairn.storage.readers import RowReader


class Execution:
    def __init__(
        self,
        state: GlobalState,
        data: DataPlane,
        lease: LeaseHolder,
        replication: Replication,
        moving: Moving,
        raft: Path,
        raft_disk: Disk,
        register: Callable[[apsw.Connection], None],
        catch_up: Callable[[float], Awaitable[None]],
    ) -> None:
        path = data.store.path
        self.data = data
        self.reader = RowReader(
            path, raft, register, heavy=HEAVY_ON_ROWS, value_bytes=limits.QUICK_VALUE_BYTES
        )
        register(data.store.connection)
        data.store.computed_by(unidata_version)  # what lower() gives may be another thing by now
        self.reader.stand_between(data.share_with(lambda: self.reader.count), raft_disk)
        remove_left(raft.parent)
        self._kinds = WriteKinds(path, raft, register)
        self.guard = RowGuard(data, lease, replication, moving, self.reader)
        spill_max = partial(state.setting, "sql_spill_max_bytes", limits.SPILL_BYTES)
        self.reads = OwnerReads(
            data, lease, replication, self.guard, self.reader, raft, register, spill_max
        )
        self.writes = OwnerWrites(state, data, lease, replication, self._kinds, catch_up)

    def close(self) -> None:
        self.reads.close()
        self._kinds.close()
