"""Rows of this instance: the writer's fence, promises, positions and schema changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import apsw
import msgspec

from cairn.model.errors import (
    CairnError,
    CasRetry,
    NoMaster,
    NotInPrerequisiteState,
    TimedOut,
    UniqueViolation,
)
from cairn.model.log import ops
from cairn.model.log.records import Shape, Vclock, covers
from cairn.model.members.cluster import BucketKey, Cluster
from cairn.model.members.moves import TAKES, Phase
from cairn.model.rpc import (
    ClosingRequest,
    Empty,
    PromiseRequest,
    SchemaChangeRequest,
    SchemaChangeResponse,
    VclockRequest,
    VclockResponse,
)
from cairn.model.sharding.spans import Ranges, merged, spliced
from cairn.model.tables.altering import as_added
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, Table
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.runtime import spawn
from cairn.node.waiting import signalled, teller
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.global_parents import sees_marks
from cairn.storage.data_db.kin import check_ties
from cairn.storage.data_db.row_log import ENTERED_EPOCH
from cairn.storage.files.checksums import is_damage, page_damaged
from cairn.storage.files.groups import Job
from cairn.storage.files.reshaping import check_rows
from cairn.storage.files.writer import Disk, Others

log = logging.getLogger("cairn.data")
T = TypeVar("T")
LONG_WRITE_S = 0.1  # longer than all freezes should take
RECONCILE_S = 0.2  # between two looks at a table that could not be made as it shall be


class DataPlane:
    """The one door to `data.db` for writing. Work is queued to its writer and answered here."""

    def __init__(
        self, name: str, store: DataStore, disk: Disk, state: GlobalState, runner: RaftRunner
    ) -> None:
        self._name, self.store, self._disk = name, store, disk
        self._state, self._runner = state, runner
        self.fence = Fence()
        self._made_of: tuple[Cluster, Fence] | None = None  # what the last fence was made of
        self.epoch, self.vclock = store.position()  # as of the last finished group
        self.versions = store.versions  # of tables, likewise: rows of a later one are not seen yet
        #: A clock, and when the statement that has the writer for itself began.
        self._alone: tuple[Callable[[], float], float] | None = None
        self._watchers: dict[Callable[[], None], None] = {}  # in the order in which they came
        self._may_differ = False  # local tables from the catalogue
        self._reconciling: asyncio.Task[None] | None = None
        self.follow(state.cluster)

    def close(self) -> None:
        self._disk.close()

    # --- queueing -------------------------------------------------------------------------------

    async def run(
        self,
        work: Callable[[], T],
        *,
        urgent: bool = False,
        alone: bool = False,
        quick: bool = False,
    ) -> T:
        """Run `work` in the writer's turn; its errors come back here and harm nobody else."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(work, future, urgent=urgent, alone=alone, quick=quick)
        return await future

    def submit(
        self,
        work: Callable[[], T],
        future: asyncio.Future[T],
        *,
        urgent: bool = False,
        alone: bool = False,
        quick: bool = False,
    ) -> None:
        self.submit_call(work, teller(future), urgent=urgent, alone=alone, quick=quick)

    def submit_call(
        self,
        work: Callable[[], T],
        callback: Callable[[T | CairnError], None],
        *,
        urgent: bool = False,
        alone: bool = False,
        quick: bool = False,
        look: bool = False,
    ) -> None:
        """Like `run`, without a future. A `look` takes back all that it does."""
        store = self.store

        now = asyncio.get_running_loop().time if alone else None

        def guarded() -> Any:
            if now is not None:
                self._alone = (now, now())
            try:
                return work(), store.last_epoch, store.vclock.copy(), store.versions
            except CairnError as problem:
                return problem.without_frames()
            except apsw.Error as problem:
                if not is_damage(problem):
                    raise
                return page_damaged("a page that is needed to change these rows is damaged")
            finally:
                if now is not None:
                    self._alone = None

        def done(result: Any) -> None:
            if isinstance(result, CairnError):
                callback(result)
                return
            self.arrived(*result[1:])
            callback(result[0])

        self._disk.submit(
            Job(
                guarded,
                done,
                is_urgent=urgent,
                is_alone=alone,
                is_quick=quick,
                is_look=look,
            )
        )

    @property
    def is_held_up(self) -> bool:
        """Whether one statement has the writer for itself, for who knows how long."""
        return self._alone is not None

    def is_writing_long(self) -> bool:
        """Whether one statement has had the writer for a while. It is looked at, not waited for."""
        alone = self._alone
        return alone is not None and alone[0]() - alone[1] > LONG_WRITE_S

    def confirmed_by(self, others: Others) -> None:
        """The writer learns for whom its groups wait after they are committed."""
        self._disk.others = others

    def share_with(self, reads: Callable[[], int]) -> Disk:
        """The writer learns how many reads the event loop answers: not to be in their way."""
        self._disk.reads = reads
        return self._disk

    def submit_job(self, job: Job) -> None:
        """For the hottest path, which has made its own; `arrived` is to be told afterwards."""
        self._disk.submit(job)

    def arrived(self, epoch: int, vclock: Vclock, versions: dict[int, int]) -> None:
        """A group is on disk: what was queued with it is true from here on."""
        self.epoch, self.vclock, self.versions = epoch, vclock, versions
        if self._watchers:
            self.announce()

    def announce(self) -> None:
        """The vclock may have moved: those who wait for news look again, when all of the group
        has arrived and before the next one is run."""
        watchers, self._watchers = self._watchers, {}
        call_soon = asyncio.get_running_loop().call_soon
        for watcher in watchers:
            call_soon(watcher)

    def when_moved(self, watcher: Callable[[], None]) -> None:
        """It is called once: after the next group, or when there are other news."""
        self._watchers[watcher] = None

    def forget(self, watcher: Callable[[], None]) -> None:
        self._watchers.pop(watcher, None)

    async def wait_moved(self, timeout_s: float) -> None:
        """Until the next group is committed, or the time is up."""
        moved = asyncio.Event()
        self.when_moved(moved.set)
        try:
            await signalled(moved, timeout_s)
        finally:
            self.forget(moved.set)

    # --- what Raft says -------------------------------------------------------------------------

    def follow(self, cluster: Cluster) -> None:
        """Entries were applied: the writer learns in its own queue what it may do."""
        fence = self._fence_of(cluster)
        if fence == self.fence:
            return
        self.fence = self.store.newest = fence

        index = cluster.position.index

        def put() -> None:
            self.store.fence, self.store.fenced_at = fence, index

        self._disk.submit(Job(put, lambda _: None, must_sync=False, is_urgent=True, is_quick=True))
        self.reconcile()

    def _fence_of(self, cluster: Cluster) -> Fence:
        made, touched = self._made_of, None
        if made is not None:
            touched = self._state.touched_since(made[0])
        if made is None or touched is None:
            fence = fence_of(self._name, cluster)
        else:
            fence = fence_after(self._name, made[0], made[1], cluster, touched)
        self._made_of = (cluster, fence)
        return fence

    # --- what the governor asks -----------------------------------------------------------------

    async def promise(self, request: PromiseRequest) -> VclockResponse:
        return await self.run(lambda: self._promise(request.epoch), urgent=True)

    def _promise(self, epoch: int) -> VclockResponse:
        """On the writer: a vclock counts only if it is of the present history and complete."""
        if not self.store.is_complete:
            self.store.promise(epoch)
            return VclockResponse(0, {}, is_complete=False)
        entered = min(self.store.fence.epoch, int(self.store.get(ENTERED_EPOCH, 0)))
        if entered < epoch - 1:
            raise NoMaster(f"epoch {epoch - 1} has not been entered here yet")
        return VclockResponse(*self.store.promise(epoch))

    def _heirs_position(self) -> tuple[int, Vclock]:
        if not self.store.is_complete:
            raise NoMaster("this instance has no complete rows")
        return self.store.position()

    async def position(self, request: VclockRequest) -> VclockResponse:
        """The vclock once entry `index` is applied by the writer and `reach` is covered."""
        await self._runner.wait_applied(request.index, request.timeout_s)
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        while True:
            look = self._heirs_position if request.reach else self.store.position
            epoch, vclock = await self.run(look, urgent=True)
            if covers(vclock, request.reach):
                return VclockResponse(epoch, vclock)
            if asyncio.get_running_loop().time() > deadline:
                raise TimedOut(f"behind: {_lacking(vclock, request.reach)}")
            await asyncio.sleep(0.02)

    async def see_closing(self, request: ClosingRequest) -> Empty:
        """From here on no row that is written here begins to name one of these.

        Alone: a transaction that began before may have an older copy of the global tables.
        """
        await self._runner.wait_applied(request.index, request.timeout_s)
        await self.run(lambda: self._sees(request), alone=True)
        return Empty()

    def _sees(self, request: ClosingRequest) -> None:
        self.store.check_master()
        if not sees_marks(self.store.connection, request.keys):
            raise CasRetry("a mark is not there any more: somebody waited for too long")

    async def change_schema(self, request: SchemaChangeRequest) -> SchemaChangeResponse:
        """Carry out the pending schema change here; idempotent by its version."""
        await self._runner.wait_applied(request.index, request.timeout_s)
        try:
            await self.run(lambda: self._make_pending(request.schema_version), alone=True)
        except NotInPrerequisiteState:
            raise
        except CairnError as problem:
            if problem.sqlstate.startswith("PC"):
                raise  # not the master just now: the governor asks again
            return SchemaChangeResponse(str(problem), problem.sqlstate, problem.hint)
        return SchemaChangeResponse()

    def _make_pending(self, version: int) -> None:
        """On the writer: a change that was aborted while it was queued is not made any more."""
        pending = self._state.pending_ddl()
        if pending is None or pending.schema_version != version:
            raise NotInPrerequisiteState("there is no such pending schema change here")
        self.store.check_master()
        shape = shape_after(pending, self._state.catalog, self.store.tables)
        if shape is not None:
            self._reshape(shape, self._check_rows)

    def _check_rows(self, have: Table, want: Table) -> None:
        """From here on the table itself judges what clients write. Rows of buckets that are on
        their way are their owner's to judge; after a failover that lost rows nobody does."""
        where = f"{BUCKET_COLUMN} BETWEEN ? AND ?"
        for span in self.store.fence.owned:
            check_rows(self.store.connection, have, want, where, span)
            check_ties(self.store.connection, have, want, self.store.kin, span)

    def _reshape(
        self, shape: Shape, check: Callable[[Table, Table], None] = lambda have, want: None
    ) -> None:
        have = self.store.tables.get(shape.table_id)

        def change() -> int:
            if self.store.reshape(shape) and have is not None and shape.table is not None:
                check(have, shape.table)
            return 0

        try:
            self.store.statement(change, alone=True)
        except CairnError:
            self.store.reload_tables()
            raise
        except apsw.Error as problem:
            raise _refusal(problem) from None

    def reconcile(self) -> None:
        """Bring local tables to what the catalogue says, after a commit, an abort or a crash.

        Only the master does it, and it leaves records: replicas follow the log. It goes
        on until nothing differs: a new master, for example, has no lease yet when it is named.
        """
        self._may_differ = self.fence.is_master
        if self._may_differ and (self._reconciling is None or self._reconciling.done()):
            self._reconciling = spawn(self._reconcile(), "reconcile schema")

    async def _reconcile(self) -> None:
        problems: dict[int, str] = {}  # by table, as last told
        while self._may_differ and self.fence.is_master:
            self._may_differ = False
            # Asked behind all that is queued: a change that is being made is seen as well.
            for table_id in await self.run(self._differing):
                try:
                    await self.run(lambda at=table_id: self._reconcile_one(at), alone=True)  # type: ignore[misc]
                except CairnError as problem:
                    if problems.get(table_id) != str(problem):
                        log.warning("table %d: %s; it is tried again", table_id, problem)
                    problems[table_id] = str(problem)
                    self._may_differ = True
            if self._may_differ:
                await asyncio.sleep(RECONCILE_S)

    def _unlike(self) -> dict[int, Shape]:
        """On the writer: how tables have to look that do not; the one that is changing waits."""
        pending = self._state.pending_ddl()
        busy = ops.table_of(pending.ddl) if pending is not None else None
        return {
            shape.table_id: shape
            for shape in wanted_shapes(self._state.catalog, self.store.tables)
            if shape.table_id != busy and self.store.differs(shape)
        }

    def _differing(self) -> list[int]:
        return list(self._unlike())

    def _reconcile_one(self, table_id: int) -> None:
        shape = self._unlike().get(table_id)
        if shape is not None:
            self.store.check_master()
            self._reshape(shape)


def fence_after(
    name: str, before: Cluster, made: Fence, cluster: Cluster, touched: Iterable[BucketKey]
) -> Fence:
    """The same as `fence_of`, from the fence of an earlier picture and the ranges that changed.

    The cost does not grow with the number of ranges: each bucket event comes here.
    """
    me, was = cluster.instances.get(name), before.instances.get(name)
    mine = me.replicaset_name if me is not None else ""
    if was is None or was.replicaset_name != mine or mine not in before.replicasets:
        return fence_of(name, cluster)
    keys = list(touched)
    rows = [row for key in keys if (row := before.bucket_row(key)) and row.owner == mine]
    out = [(row.start, row.end) for row in rows]
    rows = [row for key in keys if (row := cluster.bucket_row(key)) and row.owner == mine]
    return _fence(
        name,
        cluster,
        spliced(made.ranges, out, [(row.start, row.end) for row in rows if row.is_writable]),
        spliced(made.owned, out, [(row.start, row.end) for row in rows]),
    )


def fence_of(name: str, cluster: Cluster) -> Fence:
    """What the writer of an instance may do, as this picture says."""
    me = cluster.instances.get(name)
    rows = cluster.owned(me.replicaset_name) if me is not None else []
    return _fence(
        name,
        cluster,
        merged((row.start, row.end) for row in rows if row.is_writable),
        merged((row.start, row.end) for row in rows),
    )


def _fence(name: str, cluster: Cluster, ranges: Ranges, owned: Ranges) -> Fence:
    me = cluster.instances.get(name)
    replicaset = cluster.replicasets.get(me.replicaset_name) if me else None
    if replicaset is None:
        return Fence()
    master = cluster.master_of(replicaset.name)
    is_master = master is me and replicaset.target_master_name == name
    tier = cluster.tiers.get(replicaset.tier)
    return Fence(
        epoch=replicaset.epoch,
        is_master=is_master,
        is_sync=tier is not None and tier.replication_mode == "sync",
        master=replicaset.current_master_name,
        ranges=ranges,
        owned=owned,
        incoming=tuple(
            (move.id, move.start, move.end)
            for move in cluster.moves.values()
            if move.target == replicaset.name and move.phase in TAKES
        ),
        frozen=tuple(
            (move.id, move.frozen_at)
            for move in cluster.moves.values()
            if move.source == replicaset.name and move.phase is Phase.FROZEN
        ),
        giving=tuple(
            move.id
            for move in cluster.moves.values()
            if move.source == replicaset.name and move.phase in TAKES
        ),
        last_move=int(cluster.properties.get("last_move_id") or 0),
    )


def _refusal(problem: apsw.Error) -> CairnError:
    """Why a schema change cannot be made here, in words that a client may see."""
    if isinstance(problem, apsw.ConstraintError):
        return UniqueViolation("could not create unique index: some rows have the same key")
    return CairnError(f"{type(problem).__name__}: {problem}")


def shape_after(pending: ops.DdlPrepare, catalog: Catalog, local: dict[int, Table]) -> Shape | None:
    """How the table looks once the change is made; None when only its end changes anything."""
    table = catalog.table_by_id(ops.table_of(pending.ddl))
    if table is None or table.is_global:
        return None
    indexes = catalog.indexes.get(table.id, ())
    truncate = _is_to_be_emptied(table, local)
    want = msgspec.structs.replace(table, schema_version=pending.schema_version, operable=True)
    match pending.ddl:
        case ops.AddColumns(columns=columns):
            wider = msgspec.structs.replace(want, columns=table.columns + as_added(columns))
            return Shape(table.id, wider, indexes, truncate)
        case ops.AlterTable(table=altered, indexes=left):
            wanted = msgspec.structs.replace(
                altered, schema_version=pending.schema_version, operable=True
            )
            return Shape(table.id, wanted, left, truncate)
        case ops.CreateTable() | ops.CreateIndex():
            return Shape(table.id, want, indexes, truncate)  # prepared indexes are among them
        case _:
            return None


def wanted_shapes(catalog: Catalog, local: dict[int, Table]) -> list[Shape]:
    """What every sharded table of the catalogue, and every leftover, should look like here."""
    found: list[Shape] = []
    known: set[int] = set()
    for table in catalog.tables.values():
        if table.is_global:
            continue
        known.add(table.id)
        indexes = tuple(index for index in catalog.indexes.get(table.id, ()) if index.operable)
        found.append(Shape(table.id, table, indexes, _is_to_be_emptied(table, local)))
    found += [Shape(table_id, None) for table_id in local if table_id not in known]
    return found


def _is_to_be_emptied(table: Table, local: dict[int, Table]) -> bool:
    """A TRUNCATE was committed that was not made here: with the next version nobody would know."""
    have = local.get(table.id)
    return have is not None and table.truncated_at > have.schema_version


def _lacking(vclock: Vclock, reach: Vclock) -> str:
    return ", ".join(
        f"{origin} {vclock.get(origin, 0)} of {lsn}"
        for origin, lsn in sorted(reach.items())
        if vclock.get(origin, 0) < lsn
    )
