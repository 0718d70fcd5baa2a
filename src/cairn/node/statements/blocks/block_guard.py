"""Which buckets a block may touch at its owner, and which it has touched."""

from __future__ import annotations

from cairn.model.errors import BlockLeaves, NotOwner
from cairn.model.rpc import BlockRequest, ReadRequest
from cairn.model.sharding.spans import of_buckets
from cairn.node.consensus.global_state import GlobalState
from cairn.node.statements.blocks.block_runs import BlockRun
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.files.pieces import Row


class Buckets:
    """Which buckets a block may touch: those of this replicaset, as of the writer's fence."""

    def __init__(
        self, store: DataStore, state: GlobalState, name: str, request: BlockRequest
    ) -> None:
        self._store, self._request = store, request
        self._cluster = state.cluster
        row = self._cluster.instances.get(name)
        self._tier = "" if row is None else row.tier
        self._replicaset = "" if row is None else row.replicaset_name
        self.begin()

    def begin(self) -> None:
        """From here on it notes what is touched: these, or all of them."""
        self.touched: set[int] = set()
        self.is_all = False

    def check_declared(self) -> None:
        """What the asker knew of. It asked here because they were ours: if not, they moved."""
        request = self._request
        if request.is_all:
            self._store.check_ranges(self._all(request.tier))
        self._store.check_buckets(request.buckets)

    def __call__(self, tier: str, buckets: frozenset[int] | None) -> tuple[tuple[int, int], ...]:
        try:
            if tier != self._tier:
                raise self._leaves(f"rows of tier {tier}")
            if buckets is None:
                self.is_all = True
                found = self._all(tier)
                self._store.check_ranges(found)
                return found
            self._store.check_buckets(buckets)
            self.touched |= buckets
        except NotOwner:
            self._check_ours(tier, buckets)
            raise
        return of_buckets(buckets)

    def read(self, run: BlockRun, request: ReadRequest) -> list[Row]:
        """A part of a wider query, whose buckets the asker has named."""
        for table, version in request.tables.items():
            self._store.check_version(table, version)
        if request.bucket is not None:
            self._store.check_buckets((request.bucket,))
        self._store.check_ranges(request.ranges or ())
        return run.rows(request.sql, request.args)

    def _all(self, tier: str) -> tuple[tuple[int, int], ...]:
        found = self._cluster.tiers.get(tier)
        if found is None:  # it was dropped, or the asker knows more than we do
            raise NotOwner(f"there is no tier {tier}")
        return ((1, found.bucket_count),)

    def _check_ours(self, tier: str, buckets: frozenset[int] | None) -> None:
        """They are on the way from or to us, or they are simply somebody else's."""
        for each in self._cluster.tier_buckets(tier):
            is_asked = buckets is None or any(each.start <= one <= each.end for one in buckets)
            if is_asked and each.owner != self._replicaset:
                where = "all buckets" if buckets is None else f"buckets {each.start}…{each.end}"
                raise self._leaves(f"{where}, of which replicaset {each.owner} has some")

    def _leaves(self, what: str) -> BlockLeaves:
        return BlockLeaves(
            f"a block stays inside one replicaset: this one needs {what}",
            detail=f"it runs at replicaset {self._replicaset}; nothing of it was done",
        )
