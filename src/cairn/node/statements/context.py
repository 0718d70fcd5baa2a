"""What a statement needs besides its text and its values: who asks, how, and until when.

A context is frozen and travels with its statement through every part that runs it. Whoever waits
for something asks it how long: a statement ends at its deadline wherever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from cairn.model.errors import PlanOutdated, QueryCanceled, Unsupported
from cairn.model.log import ops
from cairn.model.measured import Stage
from cairn.model.rpc import ReadRequest
from cairn.model.tables.catalog import ADMIN_ID, Catalog
from cairn.model.types.row_shape import RowShape
from cairn.sql.plans import CatalogRead, Prepared
from cairn.storage.readers import Cancelled

T = TypeVar("T")
OF_CLUSTER = -1  # a limit that is the cluster's setting
ON, OFF = "on", "off"  # of `sql_repartition`; else it is "auto"
LATE = "canceling statement due to statement timeout"
ASKED = "canceling statement due to user request"


class Taken:
    """The numbers of sequences that a session took last: `currval` and `lastval`."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}  # by table
        self._latest = 0  # the table that gave the last one

    def note(self, table: int, number: int) -> None:
        self.last[table] = number
        self._latest = table

    def latest(self) -> int | None:
        return self.last.get(self._latest)

    def forget(self) -> None:
        self.last.clear()


#: Of the session whose statement runs; None: it takes none, or has no session.
TAKEN: ContextVar[Taken | None] = ContextVar("taken", default=None)


class Queued(msgspec.Struct, frozen=True):
    """An operation of the governor's queue. `end` claims its row and gives what ends it: that goes
    into the same entry of the Raft log as the effect."""

    op_id: int
    is_upgrade: bool
    end: Callable[[], tuple[ops.Dml, ...]]


class Told(msgspec.Struct):
    """What the instances said of the rows they gave."""

    stale_s: float | None = None  # of the oldest part that a replica gave

    def came(self, stale_s: float | None) -> None:
        if stale_s is not None:
            self.stale_s = max(stale_s, self.stale_s or 0.0)


class Travelled(msgspec.Struct):
    """How often other instances were asked for a statement."""

    hops: int = 0


class Overlay(Protocol):
    """What a block has written and not committed: a read of its replicaset goes through it."""

    def is_at(self, replicaset: str) -> bool: ...

    async def read(self, request: ReadRequest) -> list[Any]: ...


class OwnTables(Protocol):
    """The temporary tables of the session that asks (`temporary/tables.py`)."""

    def catalog(self, base: Catalog) -> Catalog: ...

    async def read(self, sql: str, args: Sequence[Any], context: Context) -> Any: ...


class Face:
    """What only the face of an instance can do for a statement; this is the face that is not there.

    The governor's queue has none: it plans anew by itself and reads no catalogue.
    """

    async def plan_again(self, statement: Any, context: Context) -> Any:
        """The same statement, planned for the present schema."""
        raise PlanOutdated("a table has changed since the statement was planned")

    async def read_catalog(
        self, plan: CatalogRead, prepared: Prepared, params: Sequence[Any], context: Context
    ) -> list[tuple[Any, ...]]:
        raise Unsupported("the catalogues of PostgreSQL are not served here")


NO_FACE = Face()


class Context(msgspec.Struct, frozen=True):
    """By itself: the administrator, at the masters, without limits."""

    user_id: int = ADMIN_ID
    user: str = ""
    pid: int = 0  # of the session, as its client was told
    preference: str = "leader"
    is_local: bool = False  # the master's own rows, whether a majority has them or not
    row_max: int = 0
    opcode_max: int = 0
    repartition: str = "auto"  # whether large sides of a join are dealt out
    forward: str = "on"
    wants_hints: bool = False  # who owns the row, for a client that asked the wrong instance
    wants_invalidation: bool = False  # an error instead of a new plan when the schema moved
    is_unsafe: bool = False  # SET unsafe_system_writes = on
    has_atomic_blocks: bool = True  # BEGIN … COMMIT is all or nothing
    timeout_s: float = 0.0  # statement_timeout; 0: none
    lock_timeout_s: float = 0.0  # likewise, for each advisory lock
    now: datetime | None = None  # what now() is, when it is not the present: a block has one time
    deadline: float | None = None  # by the loop's clock; set when the statement begins
    operation: str | None = None  # replicasets keep it with the rows; done once, asked often
    queued: Queued | None = None
    cancelled: Cancelled = msgspec.field(default_factory=Cancelled)
    watch: Callable[[asyncio.Task[Any] | None], None] | None = None  # told what a cancel may end
    is_under_way: bool = False  # one of several writes of it: see `changes/under_way.py`
    takes_pieces: bool = False  # the rest of a longer answer may be told later
    shape: RowShape | None = None  # pieces may be told as messages of this shape
    overlay: Overlay | None = None
    told: Told = msgspec.field(default_factory=Told)
    travelled: Travelled = msgspec.field(default_factory=Travelled)
    stage: Stage | None = None  # of EXPLAIN ANALYZE: what is asked of whom is noted there
    face: Face = NO_FACE
    temps: OwnTables | None = None

    def catalog(self, base: Catalog) -> Catalog:
        """What names mean to who asks."""
        return base if self.temps is None else self.temps.catalog(base)

    async def read_temps(self, sql: str, args: Sequence[Any]) -> Any:
        """Rows of the session's own tables, and the rest of a longer answer."""
        if self.temps is None:
            raise Unsupported("temporary tables can only be used by their session")
        return await self.temps.read(sql, args, self)

    def within(self, part: object) -> Context:
        """For one part of the plan. A statement that is not measured goes on as it is."""
        if self.stage is None:
            return self
        return msgspec.structs.replace(self, stage=self.stage.of(part))

    def left_s(self, most_s: float) -> float:
        """How long something may be waited for, at most `most_s`."""
        if self.deadline is None:
            return most_s
        return min(most_s, max(self.deadline - asyncio.get_running_loop().time(), 0.001))

    def is_late(self) -> bool:
        return self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline

    def check(self) -> None:
        """Go on only if somebody still waits. Asked before something is sent or written."""
        if self.is_late():
            raise QueryCanceled(LATE)

    def check_wanted(self) -> None:
        """Likewise, where it waits and nothing of it was done: a cancel ends that, too."""
        if self.cancelled.is_set():
            raise QueryCanceled(ASKED)

    def without_limits(self) -> Context:
        return msgspec.structs.replace(self, row_max=0, opcode_max=0)

    def at_masters(self) -> Context:
        """For what a change reads first: at the masters, all of it."""
        return msgspec.structs.replace(
            self, preference="leader", is_local=False, row_max=0, opcode_max=0
        )

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Await what may be ended half-way because it changes nothing: reading, planning."""
        if self.watch is None:
            return await work
        task = asyncio.get_running_loop().create_task(work)
        self.watch(task)
        try:
            found = await task
            own = asyncio.current_task()
            if own is not None and own.cancelling():  # it was told to the end for nobody
                raise asyncio.CancelledError
            return found
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            raise QueryCanceled(LATE if self.is_late() else ASKED) from None
        finally:
            self.watch(None)
