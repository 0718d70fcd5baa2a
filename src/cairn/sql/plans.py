"""What a prepared statement asks of the one who runs it. All frozen; no I/O here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from cairn.model.errors import AccessDenied, CardinalityViolation
from cairn.model.log.ops import Dml
from cairn.model.log.ranges import KeyRange
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.model.tables.sequences import Numbering
from cairn.model.types.enums import EnumType
from cairn.model.types.values import SQLITE_TYPES, ColumnType, Physical, from_physical
from cairn.sql.change_plans import AclPlan as AclPlan
from cairn.sql.change_plans import AlterSystemPlan as AlterSystemPlan
from cairn.sql.change_plans import DdlPlan as DdlPlan
from cairn.sql.change_plans import OutColumn as OutColumn
from cairn.sql.change_plans import RoutinePlan as RoutinePlan
from cairn.sql.render.by_key import ByKey
from cairn.sql.render.sent import Sent, Split
from cairn.sql.render.slots import Bind, Keys, Params, Ranges, with_ranges
from cairn.sql.render.slots import Places as Places
from cairn.sql.session_plans import INSIDE as INSIDE
from cairn.sql.session_plans import AskedSetting as AskedSetting
from cairn.sql.session_plans import AttemptPlan as AttemptPlan
from cairn.sql.session_plans import CatalogRead as CatalogRead
from cairn.sql.session_plans import EmptyPlan as EmptyPlan
from cairn.sql.session_plans import ExplainOptions as ExplainOptions
from cairn.sql.session_plans import LockPlan as LockPlan
from cairn.sql.session_plans import SessionPlan as SessionPlan

if TYPE_CHECKING:
    from cairn.sql.ir import Query


Row = tuple[Physical, ...]
Right = tuple[str, str, int, str]  # privilege, object type, object id, name
Rows = Sequence[Row]
ReadLocal = Callable[[str, tuple[Physical, ...]], list[Row]]


@dataclass(frozen=True)
class PointRead:
    """One SQLite statement: at the owner of `bucket`, or anywhere when `bucket` is None."""

    sql: str
    bind: Bind
    bucket: Callable[[Params], int] | None = None
    tier: str | None = None
    query: Query | None = field(default=None, compare=False, repr=False)  # for EXPLAIN
    places: Places | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Fragment:
    """One SQLite statement for every replicaset that owns some of the buckets."""

    sql: str
    bind: Bind
    types: tuple[ColumnType, ...]
    tier: str
    tables: tuple[int, ...]
    buckets: Callable[[Params], frozenset[int] | None] | None = None
    block: Any = field(default=None, compare=False, repr=False)  # likewise; or a change
    sent: tuple[Sent, ...] = ()  # its last values: rows of fragments that were gathered before
    splits: tuple[Split, ...] = ()  # or it is done by parts, wherever their rows are dealt out to
    grouped: str = ""  # the same as `sql` for owners that can group by a hash
    keys: Keys | None = None  # that it lists, if it reads one table by them
    by_key: ByKey | None = None  # or how it is read in the order of the primary key
    is_narrow: bool = False  # a column is compared with a value: it may well give few rows

    @property
    def storage(self) -> list[str]:  # a sum of nothing but whole numbers is no REAL
        return [SQLITE_TYPES.get(each, "").replace("REAL", "") for each in self.types]

    def bucket_set(self, params: Params) -> frozenset[int] | None:
        """Buckets to ask; None: all of the tier."""
        return None if self.buckets is None else self.buckets(params)

    def with_ranges(self, ranges: Ranges | None) -> str:
        """The text for one replicaset. None: no condition on buckets at all."""
        return with_ranges(self.sql, ranges)

    def asked(
        self, params: Params, ranges: Sequence[tuple[int, int]]
    ) -> tuple[str, tuple[Physical, ...]]:
        """The text for one replicaset, and its values."""
        args = self.bind(params)
        ways = (each for each in (self.keys, self.by_key) if each)
        found = (way.asked(self.sql, args, params, ranges) for way in ways)
        return next(filter(None, found), None) or (self.with_ranges(list(ranges)), args)


@dataclass(frozen=True)
class Step:
    """A sub-query that is run before the rest; its value becomes parameter `number`."""

    kind: Literal["scalar", "exists"]
    plan: PointRead | ScatterRead
    type: ColumnType
    number: int

    def value(self, rows: Rows) -> Any:
        if self.kind == "exists":
            return bool(rows)
        if len(rows) > 1:
            raise CardinalityViolation(
                "more than one row returned by a subquery used as an expression"
            )
        return from_physical(self.type, rows[0][0]) if rows else None


@dataclass(frozen=True)
class ScatterRead:
    """Run `steps`, gather each fragment into table `m<k>` (columns x0, x1, …), then run `sql`."""

    steps: tuple[Step, ...]
    fragments: tuple[Fragment, ...]
    sql: str
    bind: Bind
    merged: Query | None = field(default=None, compare=False, repr=False)  # likewise
    meetings: tuple[Meeting, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    alone: ScatterRead | None = None  # the same as one fragment, if one replicaset has all rows
    indexes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # of table m<n>, these columns: no keys

    def meeting_at(self, fragment: int) -> Meeting | None:
        return next((each for each in self.meetings if each.stays == fragment), None)


@dataclass(frozen=True)
class Meeting:
    """Another way to the same answer: one fragment's rows stay where they are, and those of the
    others go there. `plan` has the same fragments, and one more in the place of that one."""

    stays: int
    plan: ScatterRead


@dataclass(frozen=True)
class Exchange:
    """A third way: the rows of fragments `apart` are dealt out by what the join makes equal. `plan`
    has the same fragments, and then the one that joins their parts."""

    apart: frozenset[int]
    plan: ScatterRead
    reduces: bool  # the join gives fewer rows than it is given


ReadPlan = PointRead | ScatterRead
OnConflict = Literal["fail", "nothing", "replace", "update"]


@dataclass(frozen=True)
class PlainRow:
    """The one row of an INSERT that leaves other rows alone, when each of its values is a parameter
    or a constant."""

    places: Places
    cells: tuple[tuple[int, Physical], ...]  # number of a parameter; or 0, and the constant


@dataclass(frozen=True)
class PointWrite:
    """One SQLite statement at the owner of `bucket`."""

    sql: str
    bind: Bind
    bucket: Callable[[Params], int]
    tier: str
    table: Table
    row: PlainRow | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ShardedInsert:
    """Rows for several buckets. `sql` inserts one physical row, its bucket first."""

    table: Table
    tier: str
    on_conflict: OnConflict
    sql: str
    rows: Callable[[Params], list[tuple[int, Row]]]
    tuples: tuple[Callable[[Params], Any], ...] = ()


@dataclass(frozen=True)
class ScatterWrite:
    """The same statement on every replicaset that owns some of the buckets."""

    steps: tuple[Step, ...]
    fragment: Fragment
    table: Table


@dataclass(frozen=True)
class InsertSelect:
    """Run `read`, then insert its rows: `rows` gives each its bucket."""

    read: ReadPlan
    table: Table
    tier: str
    on_conflict: OnConflict
    sql: str
    rows: Callable[[Rows], list[tuple[int, Row]]]


@dataclass(frozen=True)
class NumbersPlan:
    """`setval`: `read` says where the numbers of a sequence or identity column go on."""

    read: ReadPlan
    numbers: Numbering


@dataclass(frozen=True)
class Change:
    """What happens to one row that was read.

    With `update`: run `update_sql` with it in `old_bucket`. Else delete the row there, and, if
    that found it, insert `new` in `new_bucket` when there is one.
    """

    old_bucket: int
    key: Row
    update: Row | None = None
    new_bucket: int | None = None
    new: Row | None = None


@dataclass(frozen=True)
class KeyedWrite:
    """A two-step change: `read` finds rows, `changes` says what happens to each by its key.

    `delete_sql` takes (bucket, key…, seen…), `insert_sql` a physical row with its bucket first. A
    row that vanished or was changed in between is left alone, and the statement is begun anew.
    """

    read: ReadPlan
    table: Table
    tier: str
    delete_sql: str
    insert_sql: str | None
    update_sql: str | None
    changes: Callable[[Rows], list[Change]]


RowWrite = PointWrite | ShardedInsert | ScatterWrite | InsertSelect | KeyedWrite
ROW_WRITES = (PointWrite, ShardedInsert, ScatterWrite, InsertSelect, KeyedWrite)


@dataclass(frozen=True)
class Returning:
    """A write whose changed rows are the answer: the owners add `clause` to their statements.

    Of each row that comes back the first `width` values are the answer. With `key_width` so many
    more follow, bucket and primary key: by them the rows are brought into the order of INSERT.
    """

    write: RowWrite
    clause: Callable[[Params], str]
    width: int
    key_width: int = 0

    def is_told(self, sql: str) -> bool:
        """Whether the rows of this one of the plan's statements are part of the answer."""
        write = self.write
        moves = isinstance(write, KeyedWrite) and write.insert_sql is not None
        return not (moves and isinstance(write, KeyedWrite) and sql == write.delete_sql)

    def arranged(self, rows: Rows, inserted: Sequence[tuple[int, Row]]) -> list[Row]:
        """The answer, in the order of `inserted` when there is one."""
        if not self.key_width:
            return [tuple(row) for row in rows]
        places = [0, *(at + 1 for at in self.write.table.key_positions)]
        order = {tuple(row[at] for at in places): n for n, (_, row) in enumerate(inserted)}
        found = sorted(rows, key=lambda row: order.get(tuple(row[self.width :]), 0))
        return [tuple(row[: self.width]) for row in found]


@dataclass(frozen=True)
class GlobalWrite:
    """DML on a global table. `execute` reads through the callback and says what to propose."""

    table: Table
    execute: Callable[[ReadLocal, Params], GlobalChange]
    read: ReadPlan | None = None  # INSERT … SELECT from sharded tables: run first, rows passed on
    execute_rows: Callable[[ReadLocal, Params, Rows], GlobalChange] | None = None
    returns: bool = False  # the change carries rows


@dataclass(frozen=True)
class GlobalChange:
    ops: tuple[Dml, ...]
    ranges: tuple[KeyRange, ...]
    row_count: int
    rows: tuple[Row, ...] | None = None  # what RETURNING asked for


@dataclass(frozen=True)
class TempRead:
    """A query that reads temporary tables, of the session that asks, and maybe others too."""

    read: ReadPlan


@dataclass(frozen=True)
class TempWrite:
    """What changes rows of temporary tables; it may read others."""

    write: RowWrite | Returning | BlockPlan


#: What leaves something changed, and can be an operation of the governor's queue.
CHANGES = (*ROW_WRITES, GlobalWrite, DdlPlan, AclPlan, RoutinePlan, AlterSystemPlan)


_EXPLAIN = ExplainOptions()


@dataclass(frozen=True)
class ExplainPlan:
    inner: Prepared
    options: ExplainOptions = _EXPLAIN


def carried_out(plan: Plan) -> Plan:
    """What is really run: EXPLAIN ANALYZE runs its statement, EXPLAIN only reads about it."""
    if isinstance(plan, ExplainPlan) and plan.options.is_run:
        return plan.inner.plan
    return plan


@dataclass(frozen=True)
class CopyPlan:
    table: Table | None
    columns: tuple[str, ...]
    direction: Literal["in", "out"]
    options: dict[str, str]
    query: Prepared | None = None
    insert: Prepared | None = None  # COPY FROM: INSERT of one row with a parameter per column


def is_writing(plan: Plan) -> bool:
    """Whether it is refused where only reading is allowed. Calls of `cairn_…` are not: what they
    do is the cluster's own business, as with PostgreSQL's functions for administrators."""
    run = carried_out(plan)
    if isinstance(run, CopyPlan):  # as in PostgreSQL, temporary tables may be changed
        return run.direction == "in" and not (run.table is not None and run.table.is_temp)
    return isinstance(run, (*CHANGES, Returning, BlockPlan, NumbersPlan))


@dataclass(frozen=True)
class CursorPlan:
    """DECLARE, FETCH, MOVE and CLOSE: an answer that the session keeps, and gives in parts."""

    action: Literal["declare", "fetch", "move", "close"]
    name: str | None  # None: CLOSE ALL
    count: int | None = None  # of rows; None: all
    query: Prepared | None = None
    is_held: bool = False  # it outlives its block
    is_binary: bool = False


@dataclass(frozen=True)
class NamedPlan:
    """PREPARE and EXECUTE: a statement that the session keeps under a name, as by Parse."""

    action: Literal["prepare", "execute"]
    name: str
    query: Prepared | None = None
    oids: tuple[int, ...] = ()  # of the parameters that PREPARE declares
    arguments: tuple[str, ...] = ()  # expressions


@dataclass(frozen=True)
class Placed:
    """A parameter among the arguments of CALL, counted from 1."""

    number: int


@dataclass(frozen=True)
class CallPlan:
    """CALL of a procedure that the server has."""

    procedure: str
    arguments: tuple[Any, ...]  # Python values, or `Placed`


@dataclass(frozen=True)
class BlockStep:
    """One step of a block. `let` keeps the value of its query as parameter `number`; `if` runs
    `body` when its query is true; `return` adds the rows of its query to the answer. `with` keeps
    the rows that it tells as table `g<number>`; `tell` is the last one after these, the answer.
    `merge` changes rows of MERGE; the client is told how many all of them have changed."""

    kind: Literal["run", "return", "let", "if", "with", "tell", "merge"]
    prepared: Prepared
    number: int = 0
    body: tuple[BlockStep, ...] = ()
    reads_ahead: bool = False  # its tables are read before the other steps change them
    key_width: int = 0  # of MERGE: so many columns of its rows are a key that comes once in all


@dataclass(frozen=True)
class BlockPlan:
    """Statements that happen together or not at all, at the one replicaset that has their rows."""

    steps: tuple[BlockStep, ...]
    params: int  # the client's; those of `let` come after them


Plan = (
    PointRead
    | ScatterRead
    | PointWrite
    | ShardedInsert
    | ScatterWrite
    | InsertSelect
    | KeyedWrite
    | Returning
    | TempRead
    | TempWrite
    | GlobalWrite
    | DdlPlan
    | AclPlan
    | RoutinePlan
    | AlterSystemPlan
    | SessionPlan
    | LockPlan
    | AttemptPlan
    | ExplainPlan
    | CopyPlan
    | CursorPlan
    | NamedPlan
    | CallPlan
    | BlockPlan
    | CatalogRead
    | NumbersPlan
    | EmptyPlan
)

_COUNTED = frozenset({"SELECT", "UPDATE", "DELETE", "MERGE", "COPY", "EXPLAIN", "FETCH", "MOVE"})


@dataclass(frozen=True)
class Prepared:
    """A statement ready to run any number of times, as long as its tables stay as they were."""

    text: str
    tag: str  # SELECT, INSERT, CREATE TABLE, …
    plan: Plan
    param_types: tuple[ColumnType, ...] = ()
    columns: tuple[OutColumn, ...] = ()
    tables: dict[int, int] = field(default_factory=dict)  # table id → schema version
    rights: tuple[Right, ...] = ()
    metadata: tuple[tuple[int, int], ...] = ()
    tier: str | None = None
    options: dict[str, str | int] = field(default_factory=dict)
    hidden: int = 0  # parameters after the client's: the time, then values of steps
    uses_now: bool = False
    bound: Any = field(default=None, repr=False)
    param_oids: tuple[int, ...] = ()  # what to tell of parameters, when not what their types say
    locks: bool = False  # FOR UPDATE
    labels: tuple[tuple[int, EnumType], ...] = ()  # parameters that have to be labels

    @property
    def only_reads(self) -> bool:
        """A query; one whose WITH writes is none."""
        writing = (BlockPlan, DdlPlan, NumbersPlan, LockPlan, TempWrite)
        return self.tag == "SELECT" and not isinstance(self.plan, writing)

    def start(self, params: Sequence[Any], now: datetime | None = None) -> list[Any]:
        """The client's values with room for those that running fills in.

        One that has to be a label and is none is refused whether a row meets it or not.
        """
        values = list(params)
        for number, enum in self.labels:
            if isinstance(values[number - 1], str):
                enum.check(values[number - 1])
        if self.hidden:
            values.extend([None] * self.hidden)
            if self.uses_now:
                values[len(self.param_types)] = now
        return values

    def check_rights(self, user: int, catalog: Catalog) -> None:
        """May this user run it? The owner of a table may do anything with it."""
        for privilege, kind, object_id, object_name in self.rights:
            is_owner = catalog.owner_of(kind, object_id) == user
            if is_owner or catalog.allows(user, privilege, kind, object_id):
                continue
            what = "space" if kind == "table" else kind
            who = catalog.user_by_id(user)
            raise AccessDenied(
                f"{privilege.capitalize()} access to {what} '{object_name}' is denied "
                f"for user '{who.name if who is not None else user}'"
            )

    def complete(self, count: int) -> str:
        """The CommandComplete tag."""
        if self.tag == "INSERT":
            return f"INSERT 0 {count}"
        return f"{self.tag} {count}" if self.tag in _COUNTED else self.tag
