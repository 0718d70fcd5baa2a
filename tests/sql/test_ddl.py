"""Schema changes: what they build, what they refuse, and in which words."""

from __future__ import annotations

import pytest

from cairn.model.errors import CairnError
from cairn.model.log.ops import (
    AlterTable,
    CreateIndex,
    CreateTable,
    DropIndex,
    DropTable,
    RenameColumn,
    RenameIndex,
    RenameTable,
    TruncateTable,
)
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, Column, Index, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.sql.api import prepare
from cairn.sql.plans import DdlPlan

from .harness import Cluster


def plan(found: Cluster, text: str) -> DdlPlan:
    prepared = prepare(text, found.catalog, user_id=5)
    assert isinstance(prepared.plan, DdlPlan)
    return prepared.plan


def built(found: Cluster, text: str) -> object:
    return plan(found, text).build(found.catalog, 77, FIRST_USER_TABLE_ID)


def problem(found: Cluster, text: str) -> tuple[str, str]:
    with pytest.raises(CairnError) as error:
        built(found, text)
    return error.value.sqlstate, error.value.message


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.run("CREATE TABLE t (a INT, b TEXT, c DECIMAL, PRIMARY KEY (a)) DISTRIBUTED BY (a)")
    found.run("CREATE INDEX t_b ON t (b)")
    return found


def test_create_table_takes_all_clauses_of_the_reference(cluster: Cluster) -> None:
    text = (
        "CREATE TABLE IF NOT EXISTS Wide (id UNSIGNED NOT NULL, n BIGINT NULL, x DOUBLE PRECISION,"
        " s VARCHAR(10), d NUMERIC(10, 2), u UUID, at DATETIME, ok BOOL, j JSON, PRIMARY KEY (id))"
        " USING memtx DISTRIBUTED BY (id) IN TIER cold WAIT APPLIED LOCALLY OPTION (TIMEOUT = 3.5)"
    )
    found = plan(cluster, text)
    assert (found.wait_applied, found.timeout, found.notices) == ("locally", 3.5, ())
    assert built(cluster, text) == CreateTable(
        Table(
            id=1024,
            name="wide",
            columns=(
                Column("id", ColumnType.UNSIGNED, False),
                Column("n", ColumnType.INTEGER),
                Column("x", ColumnType.DOUBLE),
                Column("s", ColumnType.STRING, sizes=(10,)),
                Column("d", ColumnType.DECIMAL, sizes=(10, 2)),
                Column("u", ColumnType.UUID),
                Column("at", ColumnType.DATETIME),
                Column("ok", ColumnType.BOOLEAN),
                Column("j", ColumnType.MAP),
            ),
            primary_key=("id",),
            sharding=Sharded(("id",), "cold"),
            schema_version=77,
            operable=False,
            owner=5,
        )
    )


def test_without_a_clause_a_table_is_sharded_by_its_key(cluster: Cluster) -> None:
    ddl = built(cluster, "CREATE TABLE x (a INT, b INT, PRIMARY KEY (b, a))")
    assert isinstance(ddl, CreateTable)
    assert ddl.table.sharding == Sharded(("b", "a"), "default")


def test_a_key_without_the_distribution_key_is_noticed(cluster: Cluster) -> None:
    found = plan(cluster, "CREATE TABLE x (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (b)")
    assert "unique in each bucket only" in found.notices[0]


@pytest.mark.parametrize(
    ("text", "sqlstate", "message"),
    [
        ("CREATE TABLE t (a INT PRIMARY KEY)", "42P07", "table t already exists"),
        (
            "CREATE TABLE x (a INT PRIMARY KEY, a INT)",
            "42701",
            "several fields have the same name: a",
        ),
        ("CREATE TABLE x (a INT, PRIMARY KEY (z))", "42703", "no field with name: z"),
        (
            "CREATE TABLE x (a INT PRIMARY KEY) DISTRIBUTED BY (z)",
            "42703",
            "no field with name: z",
        ),
        (
            "CREATE TABLE x (a INT, PRIMARY KEY (bucket_id))",
            "42P16",
            "primary key must include at least one column in addition to bucket_id",
        ),
        (
            "CREATE TABLE x (a INT PRIMARY KEY) DISTRIBUTED BY (a) IN TIER nope",
            "42704",
            "specified tier 'nope' doesn't exist",
        ),
        (
            "CREATE TABLE x (a INT PRIMARY KEY) WITH (fillfactor = 5)",
            "22023",
            "fillfactor must be between 10 and 100",
        ),
        (
            "CREATE TABLE x (a INT PRIMARY KEY) WITH (oids = on)",
            "42P16",
            "table engine memtx does not support options",
        ),
        (
            "ALTER TABLE t ADD PRIMARY KEY (a)",
            "42P16",
            'multiple primary keys for table "t"',
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY (a)",
            "42P16",
            'multiple primary keys for table "t"',
        ),
        ("CREATE TABLE x (a INT) DISTRIBUTED GLOBALLY", "42P16", "Primary key must be declared"),
        (
            "CREATE TABLE x (_cairn_row INT)",
            "42P16",
            'the column name "_cairn_row" is reserved',
        ),
        (
            "CREATE TABLE x (a INT PRIMARY KEY) USING vinyl",
            "0A000",
            "the vinyl engine is not supported",
        ),
        (
            "CREATE UNLOGGED TABLE x (a INT PRIMARY KEY)",
            "0A000",
            "UNLOGGED tables are not supported",
        ),
        ("CREATE TABLE x (a WIBBLE PRIMARY KEY)", "42704", 'type "wibble" does not exist'),
        (
            "CREATE TABLE x (a INT REFERENCES _pico_tier, PRIMARY KEY (a))",
            "42P01",
            'relation "_pico_tier" does not exist',
        ),
        ("CREATE TABLE x (a INT PRIMARY KEY", "42601", "syntax error at end of input"),
        ("DROP TABLE nope", "42P01", 'table with name "nope" not found'),
        (
            "DROP TABLE _pico_table",
            "42501",
            'table "_pico_table" belongs to the system and cannot be changed',
        ),
        (
            "ALTER TABLE t DROP COLUMN a",
            "2BP01",
            "cannot drop column a of table t: it is part of its primary key",
        ),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", "0A000", "a primary key cannot be dropped"),
        (
            "ALTER TABLE t ADD COLUMN u UUID DEFAULT gen_random_uuid()",
            "0A000",
            'the DEFAULT of column "u" is no constant: rows that are there would have to be '
            "written anew",
        ),
        (
            "CREATE TABLE u (a INT PRIMARY KEY, b INT UNIQUE)",
            "42P16",
            "unique index for the sharded table must include all sharding key columns as a prefix",
        ),
        ("ALTER TABLE t ADD COLUMN a INT", "42701", "several fields have the same name: a"),
        ("ALTER TABLE t RENAME COLUMN z TO y", "42703", 'column with name "z" not found'),
        ("CREATE INDEX t_b ON t (c)", "42P07", "index t_b already exists"),
        (
            "CREATE UNIQUE INDEX x ON t (b)",
            "42P16",
            "unique index for the sharded table must include all sharding key columns as a prefix",
        ),
        ("CREATE INDEX x ON t (z)", "42703", "no field with name: z"),
        ("CREATE INDEX x ON t USING rtree (a)", "0A000", "index type rtree is not supported"),
        ("DROP INDEX nope", "42704", 'index with name "nope" not found'),
        ("CREATE PROCEDURE p() AS $$ $$", "42601", 'syntax error at or near ";"'),
        ("CREATE PLUGIN x 1.0", "0A000", "CREATE PLUGIN is not supported"),
        ("AUDIT POLICY x BY y", "0A000", "AUDIT POLICY is not supported"),
        ("BACKUP", "0A000", "BACKUP is not supported"),
    ],
)
def test_wrong_schema_changes_are_refused_in_the_reference_s_words(
    cluster: Cluster, text: str, sqlstate: str, message: str
) -> None:
    assert problem(cluster, text) == (sqlstate, message)


def test_if_exists_leaves_nothing_to_do(cluster: Cluster) -> None:
    assert built(cluster, "CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)") is None
    assert built(cluster, "DROP TABLE IF EXISTS nope") is None
    assert built(cluster, "DROP INDEX IF EXISTS nope") is None
    assert built(cluster, "CREATE INDEX IF NOT EXISTS t_b ON t (c)") is None
    assert built(cluster, "ALTER TABLE t ADD COLUMN IF NOT EXISTS b TEXT") is None


def test_other_changes_build_their_operation(cluster: Cluster) -> None:
    table = cluster.catalog.tables["t"].id
    assert built(cluster, "DROP TABLE t") == DropTable(table, "t")
    assert built(cluster, "TRUNCATE TABLE t") == TruncateTable(table, "t")
    assert built(cluster, "TRUNCATE t") == TruncateTable(table, "t")
    assert built(cluster, "ALTER TABLE t RENAME TO u") == RenameTable(table, "t", "u")
    assert built(cluster, "ALTER TABLE t RENAME COLUMN b TO z") == RenameColumn(
        table, "t", "b", "z"
    )
    wide = built(cluster, "ALTER TABLE t ADD COLUMN x INT, ADD y TEXT NOT NULL, DROP c")
    assert isinstance(wide, AlterTable)
    assert wide.table.columns[2:] == (
        Column("........dropped.2........", ColumnType.DECIMAL, is_hidden=True, is_dropped=True),
        Column("x", ColumnType.INTEGER),
        Column("y", ColumnType.STRING, False, is_judged=True),
    )
    assert wide.indexes == cluster.catalog.indexes[table]
    assert built(cluster, "CREATE UNIQUE INDEX u ON t (a, b) WAIT APPLIED GLOBALLY") == CreateIndex(
        Index(table, 2, "u", ("a", "b"), True, False, 77)
    )
    assert built(cluster, "DROP INDEX t_b") == DropIndex(table, 1, "t_b")
    assert built(cluster, "ALTER INDEX t_b RENAME TO q") == RenameIndex(table, 1, "t_b", "q")


def test_rights_name_what_the_caller_has_to_check(cluster: Cluster) -> None:
    table = cluster.catalog.tables["t"].id

    def rights(text: str) -> tuple[object, ...]:
        return prepare(text, cluster.catalog, user_id=5).rights

    assert rights("CREATE TABLE x (a INT PRIMARY KEY)") == (("create", "table", -1, "x"),)
    assert rights("DROP TABLE t") == (("drop", "table", table, "t"),)
    assert rights("ALTER TABLE t RENAME TO u") == (("alter", "table", table, "t"),)
    assert rights("SELECT * FROM t") == (("read", "table", table, "t"),)
    assert rights("INSERT INTO t (a) VALUES (1)") == (("insert", "table", table, "t"),)
    assert rights("DELETE FROM t WHERE b = 'x'") == (
        ("delete", "table", table, "t"),
        ("read", "table", table, "t"),
    )
    assert ("read", "table", 523, "_pico_tier") in rights(
        "INSERT INTO t (b, a) SELECT name, 1 FROM _pico_tier"
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "CREATE TABLE n (id INT PRIMARY KEY, x INT, UNIQUE (id, x))",
            ["create table n, sharded by (id) in tier", "    unique index n_id_x_key (id, x)"],
        ),
        ("DROP TABLE t", ["drop table t with its rows"]),
        ("DROP TABLE IF EXISTS nope", ["nothing to do: table nope does not exist"]),
        ("CREATE INDEX i ON t (c)", ["create index i (c) on t: every owner reads all its rows"]),
        (
            "ALTER TABLE t ADD x INT DEFAULT 5, DROP c, ALTER b SET NOT NULL, ADD CHECK (b <> '')",
            [
                "alter table t",
                "    drop column c: its place stays",
                "    add column x integer: rows that are there read it",
                "    column b not null: every owner reads",
                "    check t_b_check: every owner reads",
            ],
        ),
        ("ALTER TABLE t RENAME TO u", ["rename in the catalogue of t: u"]),
        ("CREATE TABLE n AS SELECT 1 AS a", ["create table n, ", "then: INSERT INTO public.n (a)"]),
    ],
)
def test_explain_says_what_a_change_would_do_and_does_nothing(
    cluster: Cluster, text: str, lines: list[str]
) -> None:
    before = cluster.catalog
    told = [line.replace('"', "") for (line,) in cluster.run(f"EXPLAIN {text}")]
    for line in lines:
        assert any(each.startswith(line) for each in told), told
    assert cluster.catalog is before
    for wrong in (f"EXPLAIN ANALYZE {text}", f"EXPLAIN (FORMAT JSON) {text}"):
        assert problem_of(cluster, wrong) == "0A000"


def problem_of(cluster: Cluster, text: str) -> str:
    with pytest.raises(CairnError) as error:
        cluster.run(text)
    return error.value.sqlstate


def test_what_dumps_write_about_pages_is_taken_with_a_notice() -> None:
    cluster = Cluster()
    made = "CREATE TABLE leaf (id INT PRIMARY KEY, n INT)"
    options = "(fillfactor = 70, autovacuum_enabled = false, toast.autovacuum_enabled = off)"
    cluster.run(f"{made} WITH {options}")
    told = {
        text: prepare(text, cluster.catalog, user_id=1).plan.notices
        for text in (
            "ALTER TABLE leaf SET (fillfactor = 80, parallel_workers = 2)",
            "ALTER TABLE leaf RESET (fillfactor)",
            "ALTER TABLE ONLY leaf ALTER COLUMN n SET STORAGE PLAIN",
            "ALTER TABLE leaf ALTER n SET STATISTICS -1",
            "ALTER TABLE leaf REPLICA IDENTITY FULL",
            "ALTER TABLE leaf CLUSTER ON leaf_pkey",
            "CREATE INDEX ON leaf USING hash (n) WITH (fillfactor = 50)",
        )
    }
    assert [len(notices) for notices in told.values()] == [2, 1, 1, 1, 1, 1, 2], told
    for text, sqlstate in (
        ("ALTER TABLE leaf ALTER COLUMN nothing SET STORAGE PLAIN", "42703"),
        ("ALTER TABLE leaf SET (oids)", "42P16"),
        ("ALTER TABLE leaf SET UNLOGGED", "0A000"),
        ("ALTER TABLE leaf ENABLE ROW LEVEL SECURITY", "0A000"),
    ):
        with pytest.raises(CairnError) as problem:
            cluster.run(text)
        assert problem.value.sqlstate == sqlstate, text
