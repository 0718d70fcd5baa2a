"""PostgreSQL's catalogue tables as far as psql's backslash commands and drivers ask for them.

Each table is `name: columns`; a column ends in `:i` (number), `:d` (number with a fraction),
`:b` (boolean), `:t` (time) or nothing (text).
Tables that have no counterpart here exist and are empty, so that joins with them give no rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from cairn.server.catalog.empty import COLUMNS, EMPTY

SYSTEM_SCHEMA, PUBLIC_SCHEMA, INFORMATION_SCHEMA, TEMP_SCHEMA = 11, 2200, 13000, 13001
DATABASE, HEAP, BTREE = "cairn", 2, 403

TABLES: dict[str, str] = {
    "pg_namespace": "oid:i nspname nspowner:i nspacl",
    "pg_class": (
        "oid:i relname relnamespace:i reltype:i reloftype:i relowner:i relam:i relfilenode:i "
        "reltablespace:i relpages:i reltuples:i reltoastrelid:i relhasindex:b relisshared:b "
        "relpersistence relkind relnatts:i relchecks:i relhasrules:b relhastriggers:b "
        "relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident "
        "relispartition:b relacl reloptions relpartbound"
    ),
    "pg_attribute": (
        "attrelid:i attname atttypid:i attlen:i attnum:i attndims:i atttypmod:i attnotnull:b "
        "atthasdef:b atthasmissing:b attidentity attgenerated attisdropped:b attislocal:b "
        "attinhcount:i attcollation:i attstorage attcompression attstattarget:i attacl attoptions "
        "attfdwoptions"
    ),
    "pg_index": (
        "indexrelid:i indrelid:i indnatts:i indnkeyatts:i indisunique:b indisprimary:b "
        "indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indisready:b indislive:b "
        "indisreplident:b indnullsnotdistinct:b indkey indcollation indclass indoption indexprs "
        "indpred"
    ),
    "pg_constraint": (
        "oid:i conname connamespace:i contype condeferrable:b condeferred:b convalidated:b "
        "conrelid:i contypid:i conindid:i conparentid:i confrelid:i confupdtype confdeltype "
        "confmatchtype conislocal:b coninhcount:i connoinherit:b conkey confkey conbin"
    ),
    "pg_type": (
        "oid:i typname typnamespace:i typowner:i typlen:i typbyval:b typtype typcategory "
        "typispreferred:b typisdefined:b typdelim typrelid:i typelem:i typarray:i typinput "
        "typoutput typreceive typsend typnotnull:b typbasetype:i typtypmod:i typndims:i "
        "typcollation:i typdefault typacl"
    ),
    "pg_roles": (
        "oid:i rolname rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b "
        "rolreplication:b rolconnlimit:i rolpassword rolvaliduntil rolbypassrls:b rolconfig"
    ),
    "pg_user": "usename usesysid:i usecreatedb:b usesuper:b passwd",
    "pg_auth_members": "roleid:i member:i grantor:i admin_option:b",
    "pg_database": (
        "oid:i datname datdba:i encoding:i datlocprovider datistemplate:b datallowconn:b "
        "datconnlimit:i dattablespace:i datcollate datctype daticulocale datacl"
    ),
    "pg_am": "oid:i amname amtype amhandler",
    "pg_tablespace": "oid:i spcname spcowner:i spcacl spcoptions",
    "pg_settings": "name setting unit category short_desc context vartype source",
    "pg_tables": "schemaname tablename tableowner tablespace hasindexes:b hasrules:b",
    "pg_indexes": "schemaname tablename indexname tablespace indexdef",
    "pg_attrdef": "oid:i adrelid:i adnum:i adbin",
    "pg_description": "objoid:i classoid:i objsubid:i description",
    "pg_shdescription": "objoid:i classoid:i description",
    "pg_collation": "oid:i collname collnamespace:i collprovider",
    "pg_inherits": "inhrelid:i inhparent:i inhseqno:i inhdetachpending:b",
    "pg_trigger": (
        "oid:i tgrelid:i tgname tgfoid:i tgenabled tgisinternal:b tgconstraint:i tgparentid:i"
    ),
    "pg_policy": "oid:i polname polrelid:i polcmd polpermissive:b polroles polqual polwithcheck",
    "pg_rewrite": "oid:i rulename ev_class:i ev_type ev_enabled is_instead:b",
    "pg_statistic_ext": (
        "oid:i stxrelid:i stxname stxnamespace:i stxowner:i stxstattarget:i stxkeys stxkind"
    ),
    "pg_publication": "oid:i pubname pubowner:i puballtables:b pubinsert:b pubupdate:b",
    "pg_publication_rel": "oid:i prpubid:i prrelid:i prqual prattrs",
    "pg_publication_namespace": "oid:i pnpubid:i pnnspid:i",
    "pg_foreign_table": "ftrelid:i ftserver:i ftoptions",
    "pg_foreign_server": "oid:i srvname srvowner:i srvfdw:i srvoptions",
    "pg_proc": "oid:i proname pronamespace:i proowner:i prokind prorettype:i proargtypes prosrc",
    "pg_enum": "oid:i enumtypid:i enumsortorder:i enumlabel",
    "pg_range": "rngtypid:i rngsubtype:i rngmultitypid:i",
    "pg_sequence": "seqrelid:i seqtypid:i seqstart:i seqincrement:i",
    "pg_depend": "classid:i objid:i objsubid:i refclassid:i refobjid:i refobjsubid:i deptype",
    "pg_extension": "oid:i extname extowner:i extnamespace:i extversion",
    "pg_event_trigger": "oid:i evtname evtevent evtowner:i evtenabled",
    "pg_views": "schemaname viewname viewowner definition",
    "pg_matviews": "schemaname matviewname matviewowner definition",
    "pg_db_role_setting": "setdatabase:i setrole:i setconfig",
    "pg_locks": (
        "locktype database:i relation:i page:i tuple:i virtualxid transactionid:i classid:i "
        "objid:i objsubid:i virtualtransaction pid:i mode granted:b fastpath:b waitstart"
    ),
    "pg_stat_activity": (
        "datid:i datname pid:i leader_pid:i usesysid:i usename application_name client_addr "
        "client_hostname client_port:i backend_start:t xact_start:t query_start:t state_change:t "
        "wait_event_type wait_event state backend_xid:i backend_xmin:i query_id:i query "
        "backend_type"
    ),
    "pg_partitioned_table": "partrelid:i partstrat partnatts:i",
    "information_schema_tables": (
        "table_catalog table_schema table_name table_type is_insertable_into is_typed"
    ),
    "information_schema_views": (
        "table_catalog table_schema table_name view_definition check_option is_updatable "
        "is_insertable_into"
    ),
    "information_schema_table_constraints": (
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema "
        "table_name constraint_type is_deferrable initially_deferred enforced"
    ),
    "information_schema_key_column_usage": (
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema "
        "table_name column_name ordinal_position:i position_in_unique_constraint:i"
    ),
    "information_schema_referential_constraints": (
        "constraint_catalog constraint_schema constraint_name unique_constraint_catalog "
        "unique_constraint_schema unique_constraint_name match_option update_rule delete_rule"
    ),
    "information_schema_sequences": (
        "sequence_catalog sequence_schema sequence_name data_type numeric_precision:i "
        "start_value minimum_value maximum_value increment cycle_option"
    ),
    "pg_sequences": (
        "schemaname sequencename sequenceowner data_type start_value:i min_value:i max_value:i "
        "increment_by:i cycle:b cache_size:i last_value:i"
    ),
    "information_schema_constraint_column_usage": (
        "table_catalog table_schema table_name column_name constraint_catalog constraint_schema "
        "constraint_name"
    ),
    "information_schema_check_constraints": (
        "constraint_catalog constraint_schema constraint_name check_clause"
    ),
    "information_schema_schemata": "catalog_name schema_name schema_owner",
    "information_schema_columns": (
        "table_catalog table_schema table_name column_name ordinal_position:i column_default "
        "is_nullable data_type character_maximum_length:i character_octet_length:i "
        "numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i "
        "interval_type interval_precision:i collation_name domain_schema domain_name udt_catalog "
        "udt_schema udt_name dtd_identifier is_self_referencing is_identity identity_generation "
        "identity_start identity_increment identity_maximum identity_minimum identity_cycle "
        "is_generated generation_expression is_updatable"
    ),
}

#: What the instances of the cluster do. Rows are made when they are asked for (`live_tables`).
LIVE: dict[str, str] = {
    "_cairn_sessions": (
        "instance pid:i usesysid:i usename application_name client_addr client_port:i "
        "backend_start:t xact_start:t query_start:t state_change:t state query backend_type"
    ),
    "_cairn_statements": (
        "instance usesysid:i usename kind query calls:i errors:i total_ms:d mean_ms:d max_ms:d "
        "rows:i hops:i bytes:i cache_hits:i evicted:i"
    ),
    "_cairn_slow_statements": (
        "instance ended_at:t usesysid:i usename query took_ms:d rows:i hops:i plan"
    ),
    "_cairn_table_stats": (
        "table_name table_id:i tier replicaset instance rows:i bytes:i index_bytes:i share:d skew:d"
    ),
}
TABLES.update(LIVE)

for _table, _columns in COLUMNS.items():
    TABLES[_table] += f" {_columns}"
TABLES.update(EMPTY)

#: oid → (name in format_type, internal name, length, category, oid of its array)
TYPES: dict[int, tuple[str, str, int, str, int]] = {
    16: ("boolean", "bool", 1, "B", 1000),
    17: ("bytea", "bytea", -1, "U", 1001),
    18: ('"char"', "char", 1, "Z", 1002),
    19: ("name", "name", 64, "S", 1003),
    20: ("bigint", "int8", 8, "N", 1016),
    21: ("smallint", "int2", 2, "N", 1005),
    23: ("integer", "int4", 4, "N", 1007),
    25: ("text", "text", -1, "S", 1009),
    26: ("oid", "oid", 4, "N", 1028),
    114: ("json", "json", -1, "U", 199),
    700: ("real", "float4", 4, "N", 1021),
    701: ("double precision", "float8", 8, "N", 1022),
    869: ("inet", "inet", -1, "I", 1041),  # drivers ask for its number, nobody can make one
    1042: ("character", "bpchar", -1, "S", 1014),
    1043: ("character varying", "varchar", -1, "S", 1015),
    1082: ("date", "date", 4, "D", 1182),
    1083: ("time without time zone", "time", 8, "D", 1183),
    1114: ("timestamp without time zone", "timestamp", 8, "D", 1115),
    1184: ("timestamp with time zone", "timestamptz", 8, "D", 1185),
    1186: ("interval", "interval", 16, "T", 1187),
    1700: ("numeric", "numeric", -1, "N", 1231),
    2950: ("uuid", "uuid", 16, "U", 2951),
    3802: ("jsonb", "jsonb", -1, "U", 3807),
}


_TOGETHER = ("inet", "json", "jsonb", "uuid", "numeric", "interval", "date", "time", "timestamp")
TYPE_FUNCTIONS = ("typinput", "typoutput", "typreceive", "typsend")


def type_functions(name: str) -> dict[str, str]:
    """Those by which PostgreSQL reads and writes a type: drivers know some types by them."""
    glue = "_" if name in (*_TOGETHER, "timestamptz", "array", "enum") else ""
    ends = ("in", "out", "recv", "send")
    return {of: f"{name}{glue}{end}" for of, end in zip(TYPE_FUNCTIONS, ends, strict=True)}


#: The same for arrays.
ARRAYS = {
    array: (f"{shown}[]", f"_{name}", -1, "A", 0) for shown, name, _, _, array in TYPES.values()
}


def columns_of(table: str) -> list[tuple[str, str]]:
    """(name, declared type) of each column, in order."""
    kinds = {"i": "INTEGER", "d": "DOUBLE", "b": "BOOLEAN", "t": "TIMESTAMP", "": "TEXT"}
    return [
        (name, kinds[kind])
        for name, _, kind in (word.partition(":") for word in TABLES[table].split())
    ]


def schema_sql() -> Iterator[str]:
    for table in TABLES:
        declared = ", ".join(f'"{name}" {kind}' for name, kind in columns_of(table))
        yield f"CREATE TABLE {table} ({declared})"
