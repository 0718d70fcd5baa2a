"""Parameters of sessions, as drivers know them from PostgreSQL, and settings of the cluster."""

from __future__ import annotations

from typing import Any

from cairn.model.settings import limits
from cairn.model.tables.catalog import Catalog

#: `_pico_db_config` of a new cluster; the names are those of ALTER SYSTEM.
SETTINGS: dict[str, Any] = {
    "auth_password_length_min": 8,
    "auth_password_enforce_uppercase": True,
    "auth_password_enforce_lowercase": True,
    "auth_password_enforce_digits": True,
    "auth_password_enforce_specialchars": False,
    "auth_login_attempt_max": 4,
    "auth_rules": "",  # who may log in from where; "": everybody from everywhere
    "audit_log_size_max": 16_777_216,  # bytes of one file; 0: no audit log
    "audit_log_count_max": 4,  # files
    "slow_statement_ms": 1_000,  # from how long on a statement is noted with its plan; 0: none is
    "slow_log_size_max": 16_777_216,  # bytes of one file; 0: no log of slow statements
    "slow_log_count_max": 4,  # files
    "trace_endpoint": "",  # of a collector of traces, http://host:4318; "": none
    "trace_sample_ratio": 0.01,  # of statements whose client does not decide
    "pg_connections_per_user_max": 0,  # of one instance; 0: no limit
    "pg_connections_per_address_max": 0,
    "pg_logins_max": 1_000,  # connections of one instance that have not logged in; 0: no limit
    "pg_logins_per_address_max": 500,
    "pg_statement_max": 100_000,
    "pg_portal_max": 100_000,
    "pg_session_bytes_max": 268_435_456,  # of portals and prepared statements; 0: no limit
    "pg_user_bytes_max": 1_073_741_824,  # of all sessions of one user at one instance
    "pg_instance_bytes_max": 4_294_967_296,  # of all sessions of one instance
    "raft_wal_size_max": 67_108_864,
    "raft_wal_count_max": 16_384,
    "automatic_failover": True,  # off: whoever is silent keeps its place, a master too
    "governor_auto_offline_timeout": 2.0,
    "governor_raft_op_timeout": 3.0,
    "governor_common_rpc_timeout": 3.0,
    "governor_rpc_batch_size": 200,
    "atomic_blocks": True,  # BEGIN … COMMIT; off: each statement commits by itself
    "sql_motion_row_max": 0,  # no limit
    "sql_spill_max_bytes": limits.SPILL_BYTES,  # of one statement; 0: no limit
    "temp_tables_max_bytes": limits.SPILL_BYTES,  # of one session's temporary tables; 0: no limit
    "sql_vdbe_opcode_max": 0,  # no limit
    "sql_ddl_timeout": 60.0,
    "ddl_apply_timeout": 30.0,
    "read_preference": "leader",
    "table_distribution": "key",  # of tables that do not say: by their key, or all rows together
    "default_int_size": 8,  # bytes of columns that are declared INT, INTEGER or SERIAL: 4 or 8
    "foreign_keys": "refuse",  # or ignore: they are read and not kept
    "topology_events_max": 100_000,
    "row_log_max": 1_000_000,
    "global_log_max": 100_000,  # changes of rows of global tables
    "rebalance_concurrency": 1,  # moves of one replicaset at the same time
    "rebalance_rows_per_s": 20_000,  # of one move; 0: no limit
    "scrub_interval": 86_400.0,  # seconds from one reading of everything to the next; 0: never
    "scrub_rows_per_s": 20_000,  # of one instance; 0: no limit
    "backup_bytes_per_s": 33_554_432,  # that one master copies and gives; 0: no limit
    "rebalance_drop_delay": 5.0,  # seconds that old rows stay after a hand-over
    "replication_graph": "",  # "": a full mesh; else edges "i1>i2,i2>i3"
}

#: Told to every client after login, in this order.
REPORTED: dict[str, str] = {
    "server_version": "15.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "integer_datetimes": "on",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
}

#: What nobody can change: facts about the server that drivers ask for as settings.
PRESETS: dict[str, str] = {
    "server_version": REPORTED["server_version"],
    "server_version_num": "150000",
    "server_encoding": REPORTED["server_encoding"],
    "integer_datetimes": REPORTED["integer_datetimes"],
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "max_function_args": "100",
    "block_size": "8192",
    "lc_collate": "C",
    "lc_ctype": "C",
}

DEFAULTS: dict[str, str] = {
    **PRESETS,
    **{name.lower(): value for name, value in REPORTED.items()},
    "application_name": "",
    "search_path": '"$user", public',
    "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "transaction_read_only": "off",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "is_superuser": "off",
    "session_authorization": "",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "in_hot_standby": "off",
    "client_min_messages": "notice",
    "forward": "on",
    "sql_repartition": "auto",  # joins of two large sides, by parts: auto, on, off
    "read_concern": "majority",
    "jit": "off",
    "unsafe_system_writes": "off",
    "traceparent": "",  # the trace that a client's statements belong to
}


#: Settings that only administrators see: they name users and networks.
PRIVATE = frozenset(("auth_rules", "trace_endpoint"))


def default(catalog: Catalog, name: str) -> str | None:
    """`current_setting(name)` where no session is at hand; None for what nobody knows."""
    key = name.lower()
    if key in PRIVATE:
        return None
    value = DEFAULTS.get(key, catalog.setting(key))
    return None if value is None else shown(value)


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
