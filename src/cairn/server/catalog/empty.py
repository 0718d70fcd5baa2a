"""Tables of PostgreSQL's catalogue that are always empty here, and columns that are always NULL.

Taken from PostgreSQL 15, so that what psql and other tools ask finds its names.
"""

from __future__ import annotations

#: Whole tables, in the notation of `pg_schema.TABLES`.
EMPTY: dict[str, str] = {
    "information_schema_routines": (
        "specific_catalog specific_schema specific_name routine_catalog routine_schema "
        "routine_name routine_type data_type routine_body routine_definition external_language"
    ),
    "information_schema_parameters": (
        "specific_catalog specific_schema specific_name ordinal_position:i parameter_mode "
        "parameter_name data_type"
    ),
    "information_schema_triggers": (
        "trigger_catalog trigger_schema trigger_name event_manipulation event_object_catalog "
        "event_object_schema event_object_table action_statement action_timing"
    ),
    "information_schema_element_types": (
        "object_catalog object_schema object_name object_type collection_type_identifier data_type"
    ),
    "information_schema_domains": "domain_catalog domain_schema domain_name data_type",
    "pg_aggregate": (
        "aggfnoid aggkind aggnumdirectargs:i aggtransfn aggfinalfn aggcombinefn aggserialfn "
        "aggdeserialfn aggmtransfn aggminvtransfn aggmfinalfn aggfinalextra:b aggmfinalextra:b "
        "aggfinalmodify aggmfinalmodify aggsortop:i aggtranstype:i aggtransspace:i "
        "aggmtranstype:i aggmtransspace:i agginitval aggminitval"
    ),
    "pg_amop": (
        "oid:i amopfamily:i amoplefttype:i amoprighttype:i amopstrategy:i amoppurpose amopopr:i "
        "amopmethod:i amopsortfamily:i"
    ),
    "pg_amproc": "oid:i amprocfamily:i amproclefttype:i amprocrighttype:i amprocnum:i amproc",
    "pg_available_extension_versions": (
        "name version installed:b superuser:b trusted:b relocatable:b schema requires comment"
    ),
    "pg_available_extensions": "name default_version installed_version comment",
    "pg_cast": "oid:i castsource:i casttarget:i castfunc:i castcontext castmethod",
    "pg_config": "name setting",
    "pg_conversion": (
        "oid:i conname connamespace:i conowner:i conforencoding:i contoencoding:i conproc "
        "condefault:b"
    ),
    "pg_cursors": "name statement is_holdable:b is_binary:b is_scrollable:b creation_time",
    "pg_default_acl": "oid:i defaclrole:i defaclnamespace:i defaclobjtype defaclacl",
    "pg_foreign_data_wrapper": (
        "oid:i fdwname fdwowner:i fdwhandler:i fdwvalidator:i fdwacl fdwoptions"
    ),
    "pg_get_keywords": "word catcode barelabel:b catdesc baredesc",
    "pg_group": "groname grosysid:i grolist",
    "pg_language": (
        "oid:i lanname lanowner:i lanispl:b lanpltrusted:b lanplcallfoid:i laninline:i "
        "lanvalidator:i lanacl"
    ),
    "pg_largeobject_metadata": "oid:i lomowner:i lomacl",
    "pg_opclass": (
        "oid:i opcmethod:i opcname opcnamespace:i opcowner:i opcfamily:i opcintype:i opcdefault:b "
        "opckeytype:i"
    ),
    "pg_operator": (
        "oid:i oprname oprnamespace:i oprowner:i oprkind oprcanmerge:b oprcanhash:b oprleft:i "
        "oprright:i oprresult:i oprcom:i oprnegate:i oprcode oprrest oprjoin"
    ),
    "pg_opfamily": "oid:i opfmethod:i opfname opfnamespace:i opfowner:i",
    "pg_policies": "schemaname tablename policyname permissive roles cmd qual with_check",
    "pg_prepared_statements": (
        "name statement prepare_time parameter_types from_sql:b generic_plans:i custom_plans:i"
    ),
    "pg_prepared_xacts": "transaction:i gid prepared owner database",
    "pg_publication_tables": "pubname schemaname tablename attnames rowfilter",
    "pg_replication_slots": (
        "slot_name plugin slot_type datoid:i database temporary:b active:b active_pid:i xmin:i "
        "catalog_xmin:i restart_lsn confirmed_flush_lsn wal_status safe_wal_size:i two_phase:b"
    ),
    "pg_rules": "schemaname tablename rulename definition",
    "pg_seclabels": "objoid:i classoid:i objsubid:i objtype objnamespace:i objname provider label",
    "pg_shdepend": "dbid:i classid:i objid:i objsubid:i refclassid:i refobjid:i deptype",
    "pg_stat_all_tables": (
        "relid:i schemaname relname seq_scan:i seq_tup_read:i idx_scan:i idx_tup_fetch:i "
        "n_tup_ins:i n_tup_upd:i n_tup_del:i n_tup_hot_upd:i n_live_tup:i n_dead_tup:i "
        "n_mod_since_analyze:i n_ins_since_vacuum:i last_vacuum last_autovacuum last_analyze "
        "last_autoanalyze vacuum_count:i autovacuum_count:i analyze_count:i autoanalyze_count:i"
    ),
    "pg_stat_database": (
        "datid:i datname numbackends:i xact_commit:i xact_rollback:i blks_read:i blks_hit:i "
        "tup_returned:i tup_fetched:i tup_inserted:i tup_updated:i tup_deleted:i conflicts:i "
        "temp_files:i temp_bytes:i deadlocks:i checksum_failures:i checksum_last_failure "
        "blk_read_time blk_write_time session_time active_time idle_in_transaction_time "
        "sessions:i sessions_abandoned:i sessions_fatal:i sessions_killed:i stats_reset"
    ),
    "pg_statio_all_tables": (
        "relid:i schemaname relname heap_blks_read:i heap_blks_hit:i idx_blks_read:i "
        "idx_blks_hit:i toast_blks_read:i toast_blks_hit:i tidx_blks_read:i tidx_blks_hit:i"
    ),
    "pg_stat_replication": (
        "pid:i usesysid:i usename application_name client_addr client_hostname client_port:i "
        "backend_start backend_xmin:i state sent_lsn write_lsn flush_lsn replay_lsn write_lag "
        "flush_lag replay_lag sync_priority:i sync_state reply_time"
    ),
    "pg_stat_user_indexes": (
        "relid:i indexrelid:i schemaname relname indexrelname idx_scan:i idx_tup_read:i "
        "idx_tup_fetch:i"
    ),
    "pg_stat_user_tables": (
        "relid:i schemaname relname seq_scan:i seq_tup_read:i idx_scan:i idx_tup_fetch:i "
        "n_tup_ins:i n_tup_upd:i n_tup_del:i n_tup_hot_upd:i n_live_tup:i n_dead_tup:i "
        "n_mod_since_analyze:i n_ins_since_vacuum:i last_vacuum last_autovacuum last_analyze "
        "last_autoanalyze vacuum_count:i autovacuum_count:i analyze_count:i autoanalyze_count:i"
    ),
    "pg_statio_user_tables": (
        "relid:i schemaname relname heap_blks_read:i heap_blks_hit:i idx_blks_read:i "
        "idx_blks_hit:i toast_blks_read:i toast_blks_hit:i tidx_blks_read:i tidx_blks_hit:i"
    ),
    "pg_statistic_ext_data": (
        "stxoid:i stxdinherit:b stxdndistinct stxddependencies stxdmcv stxdexpr"
    ),
    "pg_stats": (
        "schemaname tablename attname inherited:b null_frac avg_width:i n_distinct "
        "most_common_vals most_common_freqs histogram_bounds correlation most_common_elems "
        "most_common_elem_freqs elem_count_histogram"
    ),
    "pg_subscription": (
        "oid:i subdbid:i subskiplsn subname subowner:i subenabled:b subbinary:b substream:b "
        "subtwophasestate subdisableonerr:b subconninfo subslotname subsynccommit subpublications"
    ),
    "pg_timezone_abbrevs": "abbrev utc_offset is_dst:b",
    "pg_timezone_names": "name abbrev utc_offset is_dst:b",
    "pg_transform": "oid:i trftype:i trflang:i trffromsql trftosql",
    "pg_ts_config": "oid:i cfgname cfgnamespace:i cfgowner:i cfgparser:i",
    "pg_ts_config_map": "mapcfg:i maptokentype:i mapseqno:i mapdict:i",
    "pg_ts_dict": "oid:i dictname dictnamespace:i dictowner:i dicttemplate:i dictinitoption",
    "pg_ts_parser": "oid:i prsname prsnamespace:i prsstart prstoken prsend prsheadline prslextype",
    "pg_ts_template": "oid:i tmplname tmplnamespace:i tmplinit tmpllexize",
    "pg_user_mappings": "umid:i srvid:i srvname umuser:i usename umoptions",
}

#: Further columns of the tables that have rows.
COLUMNS: dict[str, str] = {
    "pg_attribute": "attcacheoff:i attbyval:b attalign attmissingval",
    "pg_class": "relallvisible:i relrewrite:i relfrozenxid:i relminmxid:i",
    "pg_collation": (
        "collowner:i collisdeterministic:b collencoding:i collcollate collctype colliculocale "
        "collversion"
    ),
    "pg_constraint": "conpfeqop conppeqop conffeqop confdelsetcols conexclop",
    "pg_database": "datfrozenxid:i datminmxid:i datcollversion",
    "pg_event_trigger": "evtfoid:i evttags",
    "pg_extension": "extrelocatable:b extconfig extcondition",
    "pg_foreign_server": "srvtype srvversion srvacl",
    "pg_index": "indcheckxmin:b",
    "pg_matviews": "tablespace hasindexes:b ispopulated:b",
    "pg_partitioned_table": "partdefid:i partattrs partclass partcollation partexprs",
    "pg_proc": (
        "prolang:i procost prorows provariadic:i prosupport prosecdef:b proleakproof:b "
        "proisstrict:b proretset:b provolatile proparallel pronargs:i pronargdefaults:i "
        "proallargtypes proargmodes proargnames proargdefaults protrftypes probin prosqlbody "
        "proconfig proacl"
    ),
    "pg_publication": "pubdelete:b pubtruncate:b pubviaroot:b",
    "pg_range": "rngcollation:i rngsubopc:i rngcanonical rngsubdiff",
    "pg_rewrite": "ev_qual ev_action",
    "pg_sequence": "seqmax:i seqmin:i seqcache:i seqcycle:b",
    "pg_settings": (
        "extra_desc min_val max_val enumvals boot_val reset_val sourcefile sourceline:i "
        "pending_restart:b"
    ),
    "pg_statistic_ext": "stxexprs",
    "pg_tables": "hastriggers:b rowsecurity:b",
    "pg_trigger": (
        "tgtype:i tgconstrrelid:i tgconstrindid:i tgdeferrable:b tginitdeferred:b tgnargs:i "
        "tgattr tgargs tgqual tgoldtable tgnewtable"
    ),
    "pg_type": "typsubscript typmodin typmodout typanalyze typalign typstorage typdefaultbin",
    "pg_user": "userepl:b usebypassrls:b valuntil useconfig",
}
