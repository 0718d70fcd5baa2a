"""The system tables: names, columns and ids. Everything the cluster knows about itself is here."""

from __future__ import annotations

from cairn.model.schema import Column, Table
from cairn.model.values import ColumnType

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
}


def _table(
    table_id: int, name: str, columns: str, key: str, *, local: bool = False, about: str = ""
) -> Table:
    """`columns` is "name:T …"; a `?` after the letter makes the column nullable."""
    parsed = []
    for word in columns.split():
        column, _, letter = word.partition(":")
        parsed.append(Column(column, _TYPES[letter[0]], letter.endswith("?")))
    return Table(
        id=table_id,
        name=name,
        columns=tuple(parsed),
        primary_key=tuple(key.split()),
        local=local,
        description=about,
    )


PICO_TABLE = _table(
    512,
    "_pico_table",
    "id:U name:S distribution:M format:A schema_version:U operable:B engine:S owner:U "
    "description:S opts:A?",
    "id",
    about="every table of the cluster",
)
PICO_INDEX = _table(
    513,
    "_pico_index",
    "table_id:U id:U name:S type:S opts:A parts:A operable:B schema_version:U",
    "table_id id",
    about="every index; index 0 of a table is its primary key",
)
PICO_PEER_ADDRESS = _table(
    514,
    "_pico_peer_address",
    "raft_id:U address:S connection_type:S",
    "raft_id connection_type",
    about="where each instance listens",
)
PICO_INSTANCE = _table(
    515,
    "_pico_instance",
    "name:S uuid:S raft_id:U replicaset_name:S replicaset_uuid:S current_state:A target_state:A "
    "failure_domain:M tier:S picodata_version:S sync_incarnation:U? target_state_reason:S? "
    "target_state_change_time:T?",
    "name",
    about="members of the cluster",
)
PICO_PROPERTY = _table(
    516, "_pico_property", "key:S value:X?", "key", about="facts about the cluster as a whole"
)
PICO_REPLICASET = _table(
    517,
    "_pico_replicaset",
    "name:S uuid:S current_master_name:S target_master_name:S tier:S weight:D weight_origin:S "
    "state:S current_config_version:U target_config_version:U promotion_vclock:M epoch:U "
    "members:A past_cuts:M?",
    "name",
    about="groups of instances with the same rows",
)
PICO_USER = _table(
    520,
    "_pico_user",
    "id:U name:S schema_version:U auth:A? owner:U type:S",
    "id",
    about="users and roles",
)
PICO_PRIVILEGE = _table(
    521,
    "_pico_privilege",
    "grantor_id:U grantee_id:U privilege:S object_type:S object_id:I schema_version:U",
    "grantee_id object_type object_id privilege",
    about="who may do what",
)
PICO_GOVERNOR_QUEUE = _table(
    522,
    "_pico_governor_queue",
    "id:U batch_id:S op:S op_format:S status:S kind:S description:S status_description:S?",
    "id",
    about="operations that the governor runs in order",
)
PICO_TIER = _table(
    523,
    "_pico_tier",
    "name:S replication_factor:U can_vote:B current_vshard_config_version:U "
    "target_vshard_config_version:U vshard_bootstrapped:B bucket_count:U is_default:B? "
    "hash_version:U replication_mode:S",
    "name",
    about="named groups of replicasets",
)
PICO_DB_CONFIG = _table(
    531,
    "_pico_db_config",
    "key:S scope:S value:X?",
    "key scope",
    about="settings changed by ALTER SYSTEM",
)
PICO_BUCKET = _table(
    533,
    "_pico_bucket",
    "tier_name:S bucket_id_start:U bucket_id_end:U state:S current_replicaset_name:S "
    "target_replicaset_name:S? frozen_at:U? move_id:U?",
    "tier_name bucket_id_start",
    about="which replicaset owns which range of buckets",
)
CAIRN_MOVE = _table(
    534,
    "_cairn_move",
    "id:U tier_name:S bucket_id_start:U bucket_id_end:U source:S target:S phase:S source_epoch:U "
    "target_epoch:U frozen_at:U thaws:U source_final:M target_first:M reason:S started:S "
    "changed:S",
    "id",
    about="ranges of buckets that move, or have moved lately, from one replicaset to another",
)
CAIRN_EVENT = _table(
    600,
    "_cairn_event",
    "term:U index:U n:U version:S timestamp:S body:S",
    "term index n",
    local=True,
    about="topology events told by this instance, for resuming and for streams",
)

ROUTING = Table(
    id=601,
    name="_routing",
    columns=(
        Column("subscriber", ColumnType.UUID, False),
        Column("source", ColumnType.UUID, False),
        Column("via", ColumnType.UUID, False),
        Column("depth", ColumnType.INTEGER, False),
    ),
    primary_key=("subscriber", "source"),
    local=True,
    description="who takes whose rows through whom, as this instance knows it",
)

GOVERNOR_STATUS = _table(
    602,
    "governor_status",
    "instance:S step:S subject:S blocked_by:S since:S next_retry_s:D? last_error:S? steps_done:U",
    "instance",
    local=True,
    about="what the governor does, as seen on this instance",
)

CAIRN_LINK = _table(
    603,
    "_cairn_link",
    "upstream:S state:S problem:S? lag_rows:U lag_s:D? records:U twice:U bytes:U",
    "upstream",
    local=True,
    about="whom this instance follows, how far behind it is, and what is wrong",
)
CAIRN_TRAFFIC = _table(
    604,
    "_cairn_traffic",
    "direction:S peer:S origin:S records:U bytes:U twice:U",
    "direction peer origin",
    local=True,
    about="row-log records that crossed each link of this instance, by origin (in or out)",
)
CAIRN_DIVERGED = _table(
    605,
    "_cairn_diverged",
    "origin:S epoch:U lsn:U n:U op:S table_name:S key:S old:S? new:S?",
    "origin epoch lsn n",
    local=True,
    about="changes of masters that were replaced: part of no history, kept for people",
)

CAIRN_LEADER = _table(
    606,
    "_cairn_leader",
    "term:U raft_id:U instance:S? since:S",
    "term",
    local=True,
    about="who led Raft in which term, as this instance has seen it (a term has one leader)",
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
)
LOCAL_TABLES: tuple[Table, ...] = (
    CAIRN_EVENT,
    ROUTING,
    GOVERNOR_STATUS,
    CAIRN_LINK,
    CAIRN_TRAFFIC,
    CAIRN_DIVERGED,
    CAIRN_LEADER,
)
SYSTEM_TABLES = GLOBAL_TABLES + LOCAL_TABLES
BY_ID = {table.id: table for table in SYSTEM_TABLES}

#: Tables that unmodified drivers read as an ordinary user (DESIGN 5.5).
READABLE_BY_PUBLIC = (
    PICO_INSTANCE,
    PICO_REPLICASET,
    PICO_PEER_ADDRESS,
    PICO_TIER,
    PICO_BUCKET,
    PICO_TABLE,
)
