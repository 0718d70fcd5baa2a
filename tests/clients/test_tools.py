"""Tools that look around: what they ask of the catalogue when they connect, in their own words."""

# ruff: noqa: E501 (a question to a line)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def sql(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for text in (
            "DROP VIEW IF EXISTS seen",
            "DROP TABLE IF EXISTS looked",
            "CREATE TABLE looked (a INT, b VARCHAR(20) NOT NULL, n NUMERIC(8, 2) DEFAULT 1.5, c TIMESTAMP, t TEXT[], PRIMARY KEY (a, b), UNIQUE (a, c), CHECK (n > 0)) DISTRIBUTED BY (a)",
            "CREATE INDEX looked_c ON looked (c)",
            "COMMENT ON TABLE looked IS 'said'",
            "CREATE VIEW seen AS SELECT a, b FROM looked",
        ):
            connection.execute(text)
        yield connection


#: Django's introspection (inspectdb), 5.2
DJANGO_CONSTRAINTS = """
SELECT c.conname, array(SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, arridx) JOIN pg_attribute AS ca ON cols.colid = ca.attnum WHERE ca.attrelid = c.conrelid ORDER BY cols.arridx), c.contype,
 (SELECT fkc.relname || '.' || fka.attname FROM pg_attribute AS fka JOIN pg_class AS fkc ON fka.attrelid = fkc.oid WHERE fka.attrelid = c.confrelid AND fka.attnum = c.confkey[1]), cl.reloptions
FROM pg_constraint AS c JOIN pg_class AS cl ON c.conrelid = cl.oid WHERE cl.relname = 'looked' AND pg_catalog.pg_table_is_visible(cl.oid) ORDER BY 1
"""
DJANGO_INDEXES = """
SELECT indexname, array_agg(attname ORDER BY arridx), indisunique, indisprimary, array_agg(ordering ORDER BY arridx), amname, exprdef, s2.attoptions FROM (
 SELECT c2.relname as indexname, idx.*, attr.attname, am.amname, CASE WHEN idx.indexprs IS NOT NULL THEN pg_get_indexdef(idx.indexrelid) END AS exprdef, CASE am.amname WHEN 'btree' THEN CASE (option & 1) WHEN 1 THEN 'DESC' ELSE 'ASC' END END as ordering, c2.reloptions as attoptions
 FROM (SELECT * FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY koi(key, option, arridx)) idx
 LEFT JOIN pg_class c ON idx.indrelid = c.oid LEFT JOIN pg_class c2 ON idx.indexrelid = c2.oid LEFT JOIN pg_am am ON c2.relam = am.oid LEFT JOIN pg_attribute attr ON attr.attrelid = c.oid AND attr.attnum = idx.key
 WHERE c.relname = 'looked' AND pg_catalog.pg_table_is_visible(c.oid)) s2
GROUP BY indexname, indisunique, indisprimary, amname, exprdef, attoptions ORDER BY 1
"""


def test_django_finds_keys_constraints_and_indexes(sql: Any) -> None:
    assert sql.execute(DJANGO_CONSTRAINTS).fetchall() == [
        ("looked_a_c_key", ["a", "c"], "u", None, None),
        ("looked_n_check", ["n"], "c", None, None),
        ("looked_pkey", ["a", "b"], "p", None, None),
    ]
    assert [row[:5] for row in sql.execute(DJANGO_INDEXES).fetchall()] == [
        ("looked_a_c_key", ["a", "c"], True, False, ["ASC", "ASC"]),
        ("looked_c", ["c"], False, False, ["ASC"]),
        ("looked_pkey", ["a", "b"], True, True, ["ASC", "ASC"]),
    ]


#: pgjdbc 42.7: DatabaseMetaData.getPrimaryKeys and getSQLKeywords
JDBC_KEYS = """
SELECT result.TABLE_CAT, result.TABLE_SCHEM, result.TABLE_NAME, result.COLUMN_NAME, result.KEY_SEQ, result.PK_NAME FROM (
 SELECT current_database() AS TABLE_CAT, n.nspname AS TABLE_SCHEM, ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME, (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME, information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM
 FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid) JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid) JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
 WHERE true AND n.nspname = 'public' AND ct.relname = 'looked' AND i.indisprimary) result
where result.A_ATTNUM = (result.KEYS).x ORDER BY result.table_name, result.pk_name, result.key_seq
"""
JDBC_WORDS = "select string_agg(word, ',') from pg_catalog.pg_get_keywords() where word <> ALL ('{a,abs}'::text[])"


def test_pgjdbc_finds_keys_in_their_order(sql: Any) -> None:
    found = sql.execute(JDBC_KEYS).fetchall()
    assert [(row[3], int(row[4]), row[5]) for row in found] == [
        ("a", 1, "looked_pkey"),
        ("b", 2, "looked_pkey"),
    ]
    assert sql.execute(JDBC_WORDS).fetchall() == [(None,)]


def test_columns_of_an_answer_name_their_table(sql: Any) -> None:
    """By this JDBC tools know what can be edited, and how precise it is."""
    cursor = sql.execute("SELECT l.n, l.a + 1, l.t, x.b FROM looked l, seen x")
    (oid,) = sql.execute("SELECT 'looked'::regclass::oid").fetchone()
    result = cursor.pgresult
    assert [(result.ftable(at), result.ftablecol(at)) for at in range(3)] == [
        (oid, 3),
        (0, 0),
        (oid, 5),
    ]
    assert [cursor.description[0].precision, cursor.description[0].scale] == [8, 2]


#: Metabase and Superset (through SQLAlchemy) and Flyway ask information_schema.
def test_information_schema_has_keys_columns_and_views(sql: Any) -> None:
    keys = (
        "SELECT tc.constraint_name, tc.constraint_type, kcu.column_name FROM information_schema.table_constraints tc "
        "JOIN information_schema.key_column_usage kcu ON tc.constraint_name = kcu.constraint_name AND tc.table_schema = kcu.table_schema "
        "WHERE tc.table_name = 'looked' ORDER BY 1, kcu.ordinal_position"
    )
    assert sql.execute(keys).fetchall() == [
        ("looked_a_c_key", "UNIQUE", "a"),
        ("looked_a_c_key", "UNIQUE", "c"),
        ("looked_pkey", "PRIMARY KEY", "a"),
        ("looked_pkey", "PRIMARY KEY", "b"),
    ]
    columns = (
        "SELECT column_name, data_type, character_maximum_length, numeric_precision, numeric_scale, datetime_precision, is_nullable "
        "FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'looked' ORDER BY ordinal_position"
    )
    assert sql.execute(columns).fetchall() == [
        ("a", "bigint", None, 64, 0, None, "NO"),
        ("b", "character varying", 20, None, None, None, "NO"),
        ("n", "numeric", None, 8, 2, None, "YES"),
        ("c", "timestamp without time zone", None, None, None, 6, "YES"),
        ("t", "ARRAY", None, None, None, None, "YES"),
    ]
    views = "SELECT table_name FROM information_schema.views WHERE table_schema = 'public'"
    assert ("seen",) in sql.execute(views).fetchall()
    assert sql.execute("SELECT pg_get_viewdef('seen')").fetchone() == (" SELECT a, b FROM looked;",)
    for empty in ("referential_constraints", "sequences", "routines", "triggers"):
        assert sql.execute(f"SELECT * FROM information_schema.{empty}").fetchall() == []


def test_a_version_table_of_alembic_goes_forwards_and_back(sql: Any) -> None:
    sql.execute("DROP TABLE IF EXISTS alembic_version")
    sql.execute(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    sql.execute("INSERT INTO alembic_version (version_num) VALUES ('a1')")
    for old, new in (("a1", "b2"), ("b2", "c3"), ("c3", "b2")):
        text = f"UPDATE alembic_version SET version_num='{new}' WHERE alembic_version.version_num = '{old}'"
        assert sql.execute(text).rowcount == 1
    assert sql.execute("SELECT * FROM alembic_version").fetchall() == [("b2",)]
