"""The system tables, described once: columns, types, what each may hold, and a line about each.

Everything the cluster knows about itself is here. The description checks what is proposed
(`table_checks`); `tests/model/table_pages.py` makes docs/reference/system-tables.md of it.
"""

from __future__ import annotations

from cairn.model.members.moves import Phase
from cairn.model.members.topology import BucketState, ConnectionType, ReplicasetState
from cairn.model.tables import column_checks as checks
from cairn.model.tables.catalog import OF_TABLES
from cairn.model.tables.column_checks import Check, number, one_of
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import ColumnType

_TYPES = {
    "U": ColumnType.UNSIGNED,
    "I": ColumnType.INTEGER,
    "S": ColumnType.STRING,
    "D": ColumnType.DOUBLE,
    "B": ColumnType.BOOLEAN,
    "T": ColumnType.DATETIME,
    "M": ColumnType.MAP,
    "A": ColumnType.ARRAY,
    "X": ColumnType.ANY,
    "G": ColumnType.UUID,
}

#: By table id: what each column may hold, and what it means.
CHECKS: dict[int, tuple[Check, ...]] = {}
MEANINGS: dict[int, tuple[str, ...]] = {}

#: (name, letter of the type with `?` when it may be null, meaning[, check])
_Spec = tuple[str, str, str] | tuple[str, str, str, Check]


def _table(
    table_id: int, name: str, key: str, about: str, *columns: _Spec, local: bool = False
) -> Table:
    types = [_TYPES[spec[1][0]] for spec in columns]
    CHECKS[table_id] = tuple(
        spec[3] if len(spec) == 4 else checks.BY_TYPE[type_][1]
        for spec, type_ in zip(columns, types, strict=True)
    )
    MEANINGS[table_id] = tuple(spec[2] for spec in columns)
    return Table(
        id=table_id,
        name=name,
        columns=tuple(
            Column(spec[0], type_, spec[1].endswith("?"))
            for spec, type_ in zip(columns, types, strict=True)
        ),
        primary_key=tuple(key.split()),
        local=local,
        description=about,
    )


PICO_TABLE = _table(
    512,
    "_pico_table",
    "id",
    "every table of the cluster",
    ("id", "U", "from 1024 on: tables of users"),
    ("name", "S", ""),
    ("distribution", "M", "global, or by which columns in which tier", checks.DISTRIBUTION),
    ("format", "A", "columns: name, type, whether it may be null", checks.FORMAT),
    ("schema_version", "U", "the change that made it as it is"),
    ("operable", "B", "false while it is under change"),
    ("engine", "S", "not used"),
    ("owner", "U", "id in `_pico_user`"),
    ("description", "S", ""),
    ("opts", "A?", "since which schema version it is empty, after a TRUNCATE", checks.OPTIONS),
)
PICO_INDEX = _table(
    513,
    "_pico_index",
    "table_id id",
    "every index; index 0 of a table is its primary key",
    ("table_id", "U", ""),
    ("id", "U", "0 is the primary key"),
    ("name", "S", ""),
    ("type", "S", "", one_of(("tree",))),
    ("opts", "A", "", checks.OPTIONS),
    ("parts", "A", "columns", checks.COLUMNS),
    ("operable", "B", "false while it is made"),
    ("schema_version", "U", "the change that made it"),
)
PICO_PEER_ADDRESS = _table(
    514,
    "_pico_peer_address",
    "raft_id connection_type",
    "where each instance listens",
    ("raft_id", "U", "", number(1)),
    ("address", "S", "as advertised", checks.ADDRESS),
    ("connection_type", "S", "iproto: other instances; pgproto: clients", one_of(ConnectionType)),
)
PICO_INSTANCE = _table(
    515,
    "_pico_instance",
    "name",
    "members of the cluster",
    ("name", "S", "", checks.NAME),
    ("uuid", "S", "made once, kept in its directory", checks.UUID_TEXT),
    ("raft_id", "U", "never used twice", number(1)),
    ("replicaset_name", "S", "", checks.NAME),
    ("replicaset_uuid", "S", "", checks.UUID_TEXT),
    ("current_state", "A", "as the governor has established it", checks.CURRENT_STATE),
    ("target_state", "A", "what is wanted", checks.TARGET_STATE),
    ("failure_domain", "M", "", checks.FAILURE_DOMAIN),
    ("tier", "S", "", checks.NAME),
    ("picodata_version", "S", "the version of Cairn it runs"),
    ("sync_incarnation", "U?", "not used"),
    (
        "target_state_reason",
        "S?",
        "`join`, `wakeup`, `shutdown`, `silent`, `auto-online`, `expel`, `expel by force`",
    ),
    ("target_state_change_time", "T?", ""),
)
PICO_PROPERTY = _table(
    516,
    "_pico_property",
    "key",
    "facts about the cluster as a whole",
    ("key", "S", ""),
    ("value", "X?", ""),
)
PICO_REPLICASET = _table(
    517,
    "_pico_replicaset",
    "name",
    "groups of instances with the same rows",
    ("name", "S", "", checks.NAME),
    ("uuid", "S", "", checks.UUID_TEXT),
    (
        "current_master_name",
        "S",
        "who takes the writes; empty after it was expelled and nobody could follow",
        checks.NAME_OR_NONE,
    ),
    (
        "target_master_name",
        "S",
        "who shall; differs while a switch is under way, empty while one is named",
        checks.NAME_OR_NONE,
    ),
    ("tier", "S", "", checks.NAME),
    ("weight", "D", "share of buckets", checks.WEIGHT),
    ("weight_origin", "S", "whether an administrator wrote the weight", one_of(("auto", "user"))),
    ("state", "S", "not-ready until it is filled", one_of(ReplicasetState)),
    ("current_config_version", "U", "not used"),
    ("target_config_version", "U", "not used"),
    (
        "promotion_vclock",
        "M",
        "the cut of the last naming: what the new master had of each origin",
        checks.VCLOCK,
    ),
    ("epoch", "U", "how often a master was named"),
    ("members", "A", "instances that have the rows and count for a majority", checks.NAMES),
    (
        "past_cuts",
        "M?",
        "epoch → its cut, of the 64 epochs before: logs may still hold their records",
        checks.CUTS,
    ),
)
PICO_USER = _table(
    520,
    "_pico_user",
    "id",
    "users and roles",
    ("id", "U", "0 guest, 1 admin, 2 public, 31 super, 32 pico_service; others from 33 on"),
    ("name", "S", ""),
    ("schema_version", "U", ""),
    ("auth", "A?", "null: cannot log in by password", checks.AUTH),
    ("owner", "U", ""),
    ("type", "S", "", one_of(("user", "role"))),
)
PICO_PRIVILEGE = _table(
    521,
    "_pico_privilege",
    "grantee_id object_type object_id privilege",
    "who may do what",
    ("grantor_id", "U", "who gave it"),
    ("grantee_id", "U", "who has it"),
    (
        "privilege",
        "S",
        "execute: to have a role",
        one_of(("read", "write", *OF_TABLES, "create", "alter", "drop", "execute", "login")),
    ),
    ("object_type", "S", "", one_of(("table", "role", "user", "universe", "procedure"))),
    ("object_id", "I", "-1: every object of the type; 0 of universe: all"),
    ("schema_version", "U", ""),
)
PICO_GOVERNOR_QUEUE = _table(
    522,
    "_pico_governor_queue",
    "id",
    "operations that the governor runs in order",
    ("id", "U", "order; from 1000 on: `cairn migrate` and yours"),
    ("batch_id", "S", "file or version"),
    ("op", "S", "the statement", Check("a statement", lambda value: bool(value.strip()), "")),
    ("op_format", "S", "", one_of(("sql",))),
    ("status", "S", "", one_of(("pending", "done", "failed"))),
    ("kind", "S", "custom, or upgrade (the cluster's own)", one_of(("custom", "upgrade"))),
    ("description", "S", "file and statement"),
    ("status_description", "S?", "why it failed or was skipped"),
    ("owner", "U?", "id of the user who queued it: it is run with their rights; none: the cluster"),
)
PICO_TIER = _table(
    523,
    "_pico_tier",
    "name",
    "named groups of replicasets",
    ("name", "S", "", checks.NAME),
    ("replication_factor", "U", "instances of a replicaset", number(1, 31)),
    ("can_vote", "B", "may its instances vote in Raft"),
    ("current_vshard_config_version", "U", "not used"),
    ("target_vshard_config_version", "U", "not used"),
    ("vshard_bootstrapped", "B", "not used"),
    ("bucket_count", "U", "0: no sharded tables"),
    ("is_default", "B?", "for tables without IN TIER"),
    ("hash_version", "U", "how DOUBLE is hashed", number(1, 2)),
    ("replication_mode", "S", "", one_of(("async", "sync"))),
)
PICO_DB_CONFIG = _table(
    531,
    "_pico_db_config",
    "key scope",
    "settings changed by ALTER SYSTEM",
    ("key", "S", ""),
    ("scope", "S", "empty: the whole cluster"),
    ("value", "X?", ""),
)
PICO_BUCKET = _table(
    533,
    "_pico_bucket",
    "tier_name bucket_id_start",
    "which replicaset owns which range of buckets",
    ("tier_name", "S", "", checks.NAME),
    ("bucket_id_start", "U", "", number(1)),
    ("bucket_id_end", "U", "inclusive", number(1)),
    ("state", "S", "`active`, or a phase of a move", one_of(BucketState)),
    ("current_replicaset_name", "S", "the owner", checks.NAME),
    ("target_replicaset_name", "S?", "to whom it moves", checks.NAME),
    ("frozen_at", "U?", "while nobody may write it: which freeze that is"),
    ("move_id", "U?", "its row in `_cairn_move` while it moves"),
)
CAIRN_MOVE = _table(
    534,
    "_cairn_move",
    "id",
    "ranges of buckets that move, or have moved lately, from one replicaset to another",
    ("id", "U", "never used twice"),
    ("tier_name", "S", "", checks.NAME),
    ("bucket_id_start", "U", "", number(1)),
    ("bucket_id_end", "U", "inclusive", number(1)),
    ("source", "S", "the replicaset that gives them", checks.NAME),
    ("target", "S", "the replicaset that takes them", checks.NAME),
    ("phase", "S", "how far it has come", one_of(Phase)),
    ("source_epoch", "U", "of the last freeze"),
    ("target_epoch", "U", "of the last freeze"),
    ("frozen_at", "U", "which freeze this is; 0: none"),
    ("thaws", "U", "freezes that took too long"),
    ("source_final", "M", "the source's last record of the range", checks.STAMP),
    ("target_first", "M", "where the target's log stood when it had everything", checks.STAMP),
    ("reason", "S", "why it began, or was given up"),
    ("started", "S", "UTC"),
    ("changed", "S", "UTC"),
)
CAIRN_SEQUENCE = _table(
    535,
    "_cairn_sequence",
    "table_id",
    "numbers of identity columns: instances take them in blocks",
    ("table_id", "U", "in `_pico_table`; for the hidden key of a table without one 2^40 more"),
    ("next", "I", "the first number that nobody has taken"),
)
PICO_ROUTINE = _table(
    536,
    "_pico_routine",
    "id",
    "procedures",
    ("id", "U", "never used twice"),
    ("name", "S", "", checks.NAME),
    ("kind", "S", "", one_of(("procedure",))),
    ("params", "A", "types of its parameters"),
    ("language", "S", "", one_of(("SQL",))),
    ("body", "S", "a statement, or BEGIN … END"),
    ("security", "S", "whose rights count", one_of(("invoker",))),
    ("schema_version", "U", "of the catalogue when it was made"),
    ("owner", "U", "in `_pico_user`"),
)
CAIRN_VIEW = _table(
    537,
    "_cairn_view",
    "id",
    "views",
    ("id", "U", "never used twice"),
    ("name", "S", "", checks.NAME),
    ("columns", "A", "names of its columns"),
    ("types", "A", "their types when it was made"),
    ("body", "S", "the query"),
    ("schema_version", "U", "of the catalogue when it was made"),
    ("owner", "U", "in `_pico_user`"),
)
CAIRN_TYPE = _table(
    538,
    "_cairn_type",
    "id",
    "types that people made",
    ("id", "U", "never used twice"),
    ("name", "S", "", checks.NAME),
    ("labels", "A", "of an enum, in their order", checks.LABELS),
    ("schema_version", "U", "of the catalogue when it was made or changed"),
    ("owner", "U", "in `_pico_user`"),
)
CAIRN_LOCK = _table(
    539,
    "_cairn_lock",
    "space number raft_id incarnation session mode",
    "advisory locks: sessions that hold them or wait for them",
    ("space", "U", "1: of one bigint, 2: of two integers", number(1, 2)),
    ("number", "I", "the bigint; of two integers the first has the upper half"),
    ("raft_id", "U", "the instance of the session", number(1)),
    ("incarnation", "U", "the life of the instance in which it was asked for"),
    ("session", "U", "`pg_backend_pid()` there"),
    ("mode", "S", "", one_of(("exclusive", "shared"))),
    ("held", "B", "false: it waits"),
    ("ticket", "U", "the order of those who wait"),
)
CAIRN_CLOSING = _table(
    540,
    "_cairn_closing",
    "table_id key",
    "rows of global tables that are about to go: no other row may begin to name them",
    ("table_id", "U", "in `_pico_table`"),
    ("key", "S", "places of the columns and their values, packed, in hexadecimal digits"),
    ("raft_id", "U", "the instance that deletes them", number(1)),
    ("incarnation", "U", "the life of that instance"),
)
CAIRN_EVENT = _table(
    600,
    "_cairn_event",
    "term index n",
    "topology events told by this instance, for resuming and for streams",
    ("term", "U", "position in Raft"),
    ("index", "U", "position in Raft"),
    ("n", "U", "which event of that entry"),
    ("version", "S", "of the protocol, `0.2`"),
    ("timestamp", "S", "the proposer's clock; not for order"),
    ("body", "S", "the event as JSON ([its fields](topology-protocol.md))"),
    local=True,
)
ROUTING = _table(
    601,
    "_routing",
    "subscriber source",
    "who takes whose rows through whom, as this instance knows it",
    ("subscriber", "G", "who takes rows"),
    ("source", "G", "whose rows"),
    ("via", "G", "through whom"),
    ("depth", "I", "in how many hops"),
    local=True,
)
GOVERNOR_STATUS = _table(
    602,
    "governor_status",
    "instance",
    "what the governor does, as seen on this instance",
    ("instance", "S", ""),
    ("step", "S", "what it does now; `not a leader` elsewhere"),
    ("subject", "S", "what the step is about"),
    ("blocked_by", "S", "what it waits for, and what a person can do"),
    ("since", "S", ""),
    ("next_retry_s", "D?", ""),
    ("last_error", "S?", ""),
    ("steps_done", "U", ""),
    local=True,
)
CAIRN_LINK = _table(
    603,
    "_cairn_link",
    "upstream",
    "whom this instance follows, how far behind it is, and what is wrong",
    ("upstream", "S", "whom this instance follows"),
    ("state", "S", "`follow`; `stopped`: something came that must not be applied"),
    ("problem", "S?", "what"),
    ("lag_rows", "U", "records that are missing here"),
    ("lag_s", "D?", "seconds since everything was here"),
    ("records", "U", "came"),
    ("twice", "U", "came although they were here"),
    ("bytes", "U", ""),
    local=True,
)
CAIRN_TRAFFIC = _table(
    604,
    "_cairn_traffic",
    "direction peer origin",
    "row-log records that crossed each link of this instance, by origin (in or out)",
    ("direction", "S", "`in` or `out`"),
    ("peer", "S", "who sent or got them"),
    ("origin", "S", "whose records they are"),
    ("records", "U", "since this instance started"),
    ("bytes", "U", "since this instance started"),
    ("twice", "U", "since this instance started"),
    local=True,
)
CAIRN_DIVERGED = _table(
    605,
    "_cairn_diverged",
    "origin epoch lsn n",
    "changes of masters that were replaced: part of no history, kept for people",
    ("origin", "S", "the record"),
    ("epoch", "U", "the record"),
    ("lsn", "U", "the record"),
    ("n", "U", "the change in it"),
    ("op", "S", "`insert`, `update`, `delete`, `schema`"),
    ("table_name", "S", ""),
    ("key", "S", "JSON"),
    ("old", "S?", "JSON"),
    ("new", "S?", "JSON"),
    local=True,
)
CAIRN_LEADER = _table(
    606,
    "_cairn_leader",
    "term",
    "who led Raft in which term, as this instance has seen it (a term has one leader)",
    ("term", "U", ""),
    ("raft_id", "U", "who led"),
    ("instance", "S?", "its name; null if it was not known here yet"),
    ("since", "S", "when this instance heard of it, by its clock"),
    local=True,
)
CAIRN_REBALANCE = _table(
    607,
    "_cairn_rebalance",
    "tier_name bucket_id_start",
    "moves of buckets that are planned or under way, and how far each has come, as the leader told",
    ("tier_name", "S", ""),
    ("bucket_id_start", "U", ""),
    ("bucket_id_end", "U", "inclusive"),
    ("source", "S", "the replicaset that gives them"),
    ("target", "S", "the replicaset that takes them"),
    ("phase", "S", "`planned`, or as in `_cairn_move`"),
    ("move_id", "U?", "its row in `_cairn_move`; null: planned"),
    ("attempt", "U", "how often the copy began"),
    ("rows_done", "U", "copied"),
    ("rows_to_do", "U?", "of those that were there when the copy began; null: not known"),
    ("bytes_done", "U", "of values"),
    ("bytes_to_do", "U?", "of values"),
    ("rows_per_s", "D?", "over the last seconds"),
    ("eta_s", "D?", "seconds until all rows are copied, at this rate"),
    ("records_behind", "U?", "changes at the source that the target has not seen"),
    ("waits_for", "S", "what does not go on, and why"),
    local=True,
)

#: Replicated through Raft, in the order in which they are created.
GLOBAL_TABLES: tuple[Table, ...] = (
    PICO_TABLE,
    PICO_INDEX,
    PICO_PEER_ADDRESS,
    PICO_INSTANCE,
    PICO_PROPERTY,
    PICO_REPLICASET,
    PICO_USER,
    PICO_PRIVILEGE,
    PICO_GOVERNOR_QUEUE,
    PICO_TIER,
    PICO_DB_CONFIG,
    PICO_BUCKET,
    CAIRN_MOVE,
    CAIRN_SEQUENCE,
    PICO_ROUTINE,
    CAIRN_VIEW,
    CAIRN_TYPE,
    CAIRN_LOCK,
    CAIRN_CLOSING,
)
LOCAL_TABLES: tuple[Table, ...] = (
    CAIRN_EVENT,
    ROUTING,
    GOVERNOR_STATUS,
    CAIRN_LINK,
    CAIRN_TRAFFIC,
    CAIRN_DIVERGED,
    CAIRN_LEADER,
    CAIRN_REBALANCE,
)
SYSTEM_TABLES = GLOBAL_TABLES + LOCAL_TABLES
BY_ID = {table.id: table for table in SYSTEM_TABLES}

#: Tables that unmodified drivers read as an ordinary user.
READABLE_BY_PUBLIC = (
    PICO_INSTANCE,
    PICO_REPLICASET,
    PICO_PEER_ADDRESS,
    PICO_TIER,
    PICO_BUCKET,
    CAIRN_MOVE,
    PICO_TABLE,
)
