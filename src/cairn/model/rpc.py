"""What instances ask of each other: one struct a request, one an answer."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from cairn.model.log.ops import Op
from cairn.model.log.packed_rows import split_head
from cairn.model.log.ranges import Predicate
from cairn.model.members.moves import MoveSeen
from cairn.model.members.topology import Instance
from cairn.model.sharding.parts import ByBuckets
from cairn.model.tables.schema import Index
from cairn.model.types.row_shape import RowShape

#: A time to wait that a timer can take: NaN and infinity are refused with the request.
Seconds = Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class DiscoverRequest(msgspec.Struct, frozen=True):
    """ "Here I am, these addresses I know": the sender's state and the address it was sent to."""

    guid: str
    can_vote: bool
    peers: tuple[str, ...]
    sent_to: str


class DiscoverResponse(msgspec.Struct, frozen=True):
    """The receiver's state, or, once there is a verdict, the address of a member to join.

    `peers` of a member are the members it knows.
    """

    guid: str
    can_vote: bool
    peers: tuple[str, ...]
    leader: str | None = None


class JoinRequest(msgspec.Struct, frozen=True):
    cluster_id: str
    instance_uuid: str
    advertise_address: str
    version: str
    instance_id: str | None = None
    replicaset_id: str | None = None
    tier: str = "default"
    failure_domain: dict[str, str] = {}
    pg_address: str = ""
    http_address: str = ""


class JoinResponse(msgspec.Struct, frozen=True):
    """Everything a newcomer needs: its own row, whom to talk to, and as of which entry."""

    instance: Instance
    cluster_uuid: str
    raft_group: dict[int, str]  # raft_id → peer address of every member
    voters: tuple[int, ...]
    box_replication: tuple[str, ...]  # peer addresses of its replicaset
    commit_index: int


class UpdateInstanceRequest(msgspec.Struct, frozen=True):
    """Sets the target grade. The current one is the governor's alone."""

    cluster_uuid: str
    instance_name: str
    instance_uuid: str
    target_grade: str | None = None
    reason: str = ""
    failure_domain: dict[str, str] | None = None
    addresses: dict[str, str] | None = None
    version: str | None = None
    clock_s: float | None = None  # the asker's wall clock: told when it is far from the leader's


class ExpelRequest(msgspec.Struct, frozen=True):
    cluster_uuid: str
    instance: str  # name or uuid
    force: bool = False


class ExpelResponse(msgspec.Struct, frozen=True):
    """What is given up with the instance: nothing, unless it was expelled by force."""

    lost_buckets: tuple[str, ...] = ()  # "1–1500"
    lost_tables: tuple[str, ...] = ()  # whose rows in these buckets are gone
    kept_by: tuple[str, ...] = ()  # have these rows but for what only the expelled one had


class CasRequest(msgspec.Struct, frozen=True):
    cluster_uuid: str
    request_id: str
    predicate: Predicate
    op: Op
    user: int = 1
    force: bool = False  # rows may be lost by it: `cairn expel --force`
    is_unsafe: bool = False  # SET unsafe_system_writes = on


class CasAccepted(msgspec.Struct, frozen=True):
    """The entry is in the leader's log; whether it is applied the asker sees for itself."""

    index: int
    term: int
    is_new: bool = True


class WaitIndexRequest(msgspec.Struct, frozen=True):
    index: int
    timeout_s: Seconds


class IndexResponse(msgspec.Struct, frozen=True):
    index: int
    term: int


class SnapshotChunkRequest(msgspec.Struct, frozen=True):
    handle: bytes
    chunk: int


class SnapshotChunk(msgspec.Struct, frozen=True):
    data: bytes
    last: bool


class GovernorStatus(msgspec.Struct):
    """What `cairn status` and `governor_status` show."""

    step: str = "not a leader"
    subject: str = ""
    blocked_by: tuple[str, ...] = ()
    since: str = ""
    next_retry_s: float | None = None
    last_error: str | None = None
    steps_done: int = 0


class StatusResponse(msgspec.Struct, frozen=True):
    """What an instance says of itself, for `governor_status` and `cairn status`."""

    raft_id: int
    name: str
    term: int
    leader: int
    persisted: int
    committed: int
    applied: int
    role: str
    governor: dict[str, Any] = {}
    voters: tuple[int, ...] = ()
    waits_for: tuple[str, ...] = ()  # members without whom its sync writes do not end
    links: list[dict[str, Any]] = []  # upstreams of the row log, as `_cairn_link` shows them
    moves: tuple[MoveSeen, ...] = ()  # under way; from the leader with progress, and planned ones
    move_waits: tuple[str, ...] = ()  # what does not go on, and why
    freezes_s: tuple[float, ...] = ()  # how long the last freezes took, as the leader saw them
    clock_s: float | None = None  # its wall clock
    damage: tuple[str, ...] = ()  # what is wrong with its files or with somebody's rows
    unreached: dict[int, str] = {}  # peers that live, with addresses where nobody answers it
    disk: tuple[float, float] | None = None  # bytes: free where its files are, and those of its own


class RestartRequest(msgspec.Struct, frozen=True):
    """ "Leave as with SIGTERM, and let your supervisor start you anew": for one life of one
    instance, so that what comes late or twice changes nothing."""

    instance_uuid: str
    incarnation: int


class LinkReport(msgspec.Struct, frozen=True):
    """ "I follow these no longer, and why"; empty: all is well again."""

    instance: str
    stopped: tuple[str, ...] = ()


class DamageReport(msgspec.Struct, frozen=True):
    """ "My files are damaged, or somebody's rows are wrong"; empty: all is well again."""

    instance: str
    problems: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()  # instances that should not be masters, if there are others


class LeaseRequest(msgspec.Struct, frozen=True):
    """A master asks to go on being one; bound to its uuid, incarnation and epoch."""

    instance: str
    incarnation: int
    epoch: int
    uuid: str = ""


class KeepLocksRequest(msgspec.Struct, frozen=True):
    """An instance asks: do the advisory locks of its sessions stay theirs for a moment?"""

    raft_id: int
    incarnation: int


class LastWordRequest(msgspec.Struct, frozen=True):
    """A new leader asks a voter: how long has it not answered any leader before `term`?"""

    term: int


class LastWordResponse(msgspec.Struct, frozen=True):
    ago_s: float


class ReachRequest(msgspec.Struct, frozen=True):
    """Does this instance get an answer from that one, now?"""

    raft_id: int


class ReachResponse(msgspec.Struct, frozen=True):
    is_reached: bool


class LeaseResponse(msgspec.Struct, frozen=True):
    granted: bool
    lease_s: float = 0.0
    why: str = ""
    index: int = 0  # the lease counts for whoever has applied so much


class Empty(msgspec.Struct, frozen=True):
    pass


class ForgetNumbers(msgspec.Struct, frozen=True):
    """`setval`: what is left of a block of numbers for this table is not given out any more."""

    table: int


class PromiseRequest(msgspec.Struct, frozen=True):
    """ "Acknowledge nothing older than this epoch": how failover seals a replicaset."""

    replicaset: str
    epoch: int


class ClosingRequest(msgspec.Struct, frozen=True):
    """Asked of all masters: whether they take no more rows that name these of global tables."""

    index: int  # of the entry that closed them
    keys: tuple[tuple[int, str], ...]  # of `_cairn_closing`
    timeout_s: Seconds


class VclockRequest(msgspec.Struct, frozen=True):
    """Asked of a demoted master once its writer has applied `index`, and of an heir to catch up."""

    index: int
    timeout_s: Seconds
    reach: dict[str, int] = {}  # answer when the local vclock covers this


class VclockResponse(msgspec.Struct, frozen=True):
    epoch: int  # of the newest record held
    vclock: dict[str, int]
    is_complete: bool = True  # False: it has no rows to vouch for


class ReplicatedRequest(msgspec.Struct, frozen=True):
    """ "Do you have your replicaset's rows?", once entries up to `index` are applied."""

    index: int
    timeout_s: Seconds


class SchemaChangeRequest(msgspec.Struct, frozen=True):
    index: int
    term: int
    schema_version: int
    timeout_s: Seconds


class SchemaChangeResponse(msgspec.Struct, frozen=True):
    """Done, or why it cannot be done here: then it is aborted everywhere."""

    refusal: str | None = None
    sqlstate: str = ""
    hint: str | None = None


class FillIndexRequest(msgspec.Struct, frozen=True):
    """Fill an index of a large table before it is made: asked again and again until it is filled.

    Its number is not known yet, nor is its name taken.
    """

    index: Index
    only_look: bool = False  # whether there is anything to be filled: nothing is begun


class FillIndexResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    is_filled: bool
    done: Count = 0
    count: Count = 0
    is_busy: bool = False  # with another index of the table: one at a time


class ReadRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fragment of a query, run where its rows are."""

    sql: str
    args: tuple[Any, ...]
    tables: dict[int, int]  # table id → schema version it was planned for
    bucket: int | None = None
    ranges: tuple[tuple[int, int], ...] | None = None
    preference: str = "leader"  # leader | replica | any
    row_max: Count = 0  # 0: no limit
    opcode_max: Count = 0  # steps of SQLite's machine, likewise
    is_local: bool = False  # sync mode: told although a majority may not have what was seen
    piece_bytes: int = 0  # about so much of the answer at a time; 0: all of it
    cursor: int = 0  # by this number the asker will ask for the next piece
    user: int = 0  # who asks: threads are shared fairly between users
    shape: RowShape | None = None  # rows may be told as messages for the client, see `encoded`
    later_bytes: int = 0  # of each piece after the first; 0: as that one
    grouped: str = ""  # the same as `sql` by `packed_groups`, which may leave it to `sql`
    is_packed: bool = False  # rows may be told packed, see `ReadResponse.is_packed`


class ReadResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    rows: list[tuple[Any, ...]]
    stale_s: float | None = None  # of a replica: how long ago it last had all of its master's rows
    cursor: int = 0  # there is more, under this number
    encoded: bytes = b""  # instead of `rows`: DataRow messages, for whoever gave a shape
    count: int = 0  # of them
    is_packed: bool = False  # they are rows of MessagePack behind each other


class ReadPiece(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `ReadResponse` whose rows were encoded where they were read, not on the event loop."""

    rows: msgspec.Raw
    stale_s: float | None = None
    cursor: int = 0
    encoded: bytes = b""
    count: int = 0
    is_packed: bool = False


class ReadMore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The next piece of an answer; `is_end`: nobody wants the rest."""

    cursor: int
    is_end: bool = False


class SplitRequest(msgspec.Struct, frozen=True):
    """A read whose rows are dealt out by their values at `places` (`model/sharding/parts.py`), and
    fetched part by part under the cursor of `read`."""

    read: ReadRequest
    parts: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    places: tuple[Count, ...]
    width: Count  # of the rows as they are told
    keeps_null: bool  # else rows with NULL at one of the places are left out
    spill_max: Count = 0  # bytes of what waits to be fetched; 0: no limit
    buckets: ByBuckets | None = None  # else by the hash of the values

    def __post_init__(self) -> None:
        by = self.buckets
        if by and (len(by.types) != len(self.places) or max(by.parts) >= self.parts):
            raise ValueError("a type for each place, and no more parts than there are")


class SplitResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    stale_s: float | None = None  # as of a ReadResponse


class ReadPart(msgspec.Struct, frozen=True):
    """The next piece of one part."""

    cursor: int
    part: Count


class PartTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table for a join: its rows, or where they are to be fetched from."""

    width: Annotated[int, msgspec.Meta(ge=1, le=2_000)]
    rows: list[tuple[Any, ...]] = []
    owners: tuple[tuple[int, int], ...] = ()  # raft_id and cursor of each


class PartJoin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fetch one part of what was dealt out into tables m0, m1, …, and answer a SELECT over them."""

    sql: str
    args: tuple[Any, ...]
    tables: tuple[PartTable, ...]
    part: Count
    piece_bytes: Count
    timeout_s: Seconds
    cursor: int = 0
    row_max: Count = 0
    opcode_max: Count = 0
    spill_max: Count = 0
    user: int = 0
    is_measured: bool = False  # for EXPLAIN ANALYZE


Fetched = tuple[int, int, int, int]  # of which table, from whom, rows, bytes if they are measured


class PartJoined(ReadResponse, frozen=True, omit_defaults=True):
    fetched: tuple[Fetched, ...] = ()


class PartJoinedPiece(ReadPiece, frozen=True, omit_defaults=True):
    """A `PartJoined` whose rows were encoded on a thread."""

    fetched: tuple[Fetched, ...] = ()


class WriteRequest(msgspec.Struct, frozen=True):
    """A statement that changes rows of one table on one replicaset, atomically."""

    table: int
    version: int
    sql: str
    rows: tuple[tuple[Any, ...], ...]  # the statement is run once for each
    buckets: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] | None = None
    check_only: bool = False  # execute, then take it back: the first of two rounds
    more: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...] = ()  # further (sql, rows), in order
    must_change: int | None = None  # rows of `sql`; these and those of `more` must be there
    operation: str | None = None  # recorded with the rows; a repeated one is skipped
    open_sql: str = ""  # of an operation by ranges: `sql` before these were put into it
    is_bulk: bool = False  # plain inserts: the record is made from the input, not by the hook
    returning: str = ""  # clause added to those statements whose rows are wanted back
    told: tuple[int, ...] = ()  # which they are: 0 is `sql`, then `more`
    packed: bytes = b""  # of a bulk without a text: its rows (`model/log/packed_rows.py`)

    @property
    def count(self) -> int:
        """Rows that it is run for."""
        return split_head(self.packed)[1] if self.packed else len(self.rows)


class WriteResponse(msgspec.Struct, frozen=True):
    row_count: int
    lsn: int
    rows: tuple[tuple[Any, ...], ...] = ()  # what RETURNING told


class BlockItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A statement of a block, with all that makes it mean the same each time it is run."""

    text: str
    user: int
    now: int  # in microseconds
    args: tuple[Any, ...] = ()  # values of its parameters, as they are stored
    types: tuple[str, ...] = ()  # for which they were made
    oids: tuple[int, ...] = ()  # that the client declared
    tables: dict[int, int] = {}  # table id → schema version it was planned for
    rows: tuple[tuple[int, tuple[Any, ...]], ...] | None = None  # of an INSERT, with their buckets
    tape: tuple[Any, ...] = ()  # what functions of chance gave when it was run first
    told: bytes = b""  # digest of what the client was told; empty: nothing is compared
    made: int = 0  # under which the owner may know what it did then; 0: it does not


class BlockRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Statements of one replicaset, run in order. The last one is answered, or `read` behind them:
    the part of a wider query that has to see what they write."""

    items: tuple[BlockItem, ...]
    is_commit: bool  # else all is taken back
    tier: str
    buckets: tuple[int, ...] = ()  # that the asker knows of
    is_all: bool = False  # all of the tier's, as far as the asker knows
    timeout_s: Seconds = 30.0
    read: ReadRequest | None = None

    def __post_init__(self) -> None:
        if not self.items and self.read is None:
            raise ValueError("neither a statement nor a read")


class BlockResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    row_count: int
    lsn: int = 0
    rows: tuple[tuple[Any, ...], ...] = ()
    digest: bytes = b""
    tape: tuple[Any, ...] = ()
    made: int = 0


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Where Spark's writers kept some rows aside, as they name it to the instances."""

    slot: int
    part: int
    attempt: int
    seq: int
    rows: int
