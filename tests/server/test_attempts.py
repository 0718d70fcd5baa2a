"""What migration tools send, as they send it: each of these stopped one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[psycopg.Connection[Any]]:
    with cluster["i1"].connect() as connection:
        connection.execute("DROP TABLE IF EXISTS mail, child")
        connection.execute("DROP TYPE IF EXISTS mood")
        yield connection
        connection.execute("DROP TABLE IF EXISTS mail, child")
        connection.execute("DROP TYPE IF EXISTS mood")


def rows(sql: psycopg.Connection[Any], text: str) -> Any:
    try:
        found = sql.execute(text.encode())
    except psycopg.Error as problem:
        return problem.sqlstate
    return found.fetchall() if found.description else found.statusmessage


MOOD = "CREATE TYPE mood AS ENUM(''a'', ''b'')"


@pytest.mark.parametrize(
    "text",
    [
        # Sequelize, and drizzle-kit before 0.30
        f"DO 'BEGIN {MOOD}; EXCEPTION WHEN duplicate_object THEN null; END'",
        "DO $$ BEGIN CREATE TYPE mood AS ENUM('a', 'b');\nEXCEPTION\n WHEN duplicate_object OR "
        "duplicate_table THEN null;\nEND $$;",
        "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_type WHERE typname = 'mood') THEN "
        "CREATE TYPE mood AS ENUM('a', 'b'); END IF; END $$ LANGUAGE plpgsql",
        "DO LANGUAGE plpgsql $$ BEGIN CREATE TYPE mood AS ENUM('a', 'b'); "
        "EXCEPTION WHEN OTHERS THEN NULL; END; $$",
    ],
)
def test_a_type_is_made_unless_it_is_there(sql: psycopg.Connection[Any], text: str) -> None:
    for _ in range(2):
        assert rows(sql, text) == "DO"
    assert rows(sql, "SELECT 'b'::mood") == [("b",)]


def test_what_was_not_meant_is_told(sql: psycopg.Connection[Any]) -> None:
    made = "DO $$ BEGIN {}; EXCEPTION WHEN duplicate_object THEN null; END $$"
    assert rows(sql, made.format("CREATE TABLE mail (id int PRIMARY KEY)")) == "DO"
    assert rows(sql, made.format("CREATE TABLE mail (id int PRIMARY KEY)")) == "42P07"
    assert rows(sql, made.format("DROP TABLE nothing")) == "42P01"
    assert rows(sql, "SELECT count(*) FROM mail") == [(0,)]
    assert rows(sql, "DO $$ BEGIN DROP TABLE mail; DROP TABLE mail; EXCEPTION WHEN undefined_table "
                "THEN null; END $$") in ("42601", "0A000")  # fmt: skip
    assert rows(sql, "SELECT count(*) FROM mail") == [(0,)]


def test_rights_are_those_of_the_statement_inside(
    cluster: Cluster, sql: psycopg.Connection[Any]
) -> None:
    sql.execute("DROP USER IF EXISTS tom")
    sql.execute("CREATE USER tom WITH PASSWORD 'T0psecret1'")
    try:
        with cluster["i1"].connect(user="tom", password="T0psecret1") as other:
            text = "DO $$ BEGIN CREATE TABLE mail (id int PRIMARY KEY); {} END $$"
            assert rows(other, text.format("EXCEPTION WHEN duplicate_table THEN null;")) == "42501"
            read = "DO $$ BEGIN IF EXISTS (SELECT 1 FROM _pico_user) THEN DROP TABLE mail; END IF; END $$"  # noqa: E501
            assert rows(other, read) == "42501"
    finally:
        sql.execute("DROP USER tom")


def test_a_text_without_a_length_may_have_any(sql: psycopg.Connection[Any]) -> None:
    """Rails writes `character varying`: it had one letter."""
    sql.execute('CREATE TABLE mail ("id" bigserial primary key, "name" character varying NOT NULL)')
    sql.execute("INSERT INTO mail (name) VALUES ('more than one letter')")
    assert rows(sql, "SELECT name FROM mail") == [("more than one letter",)]


def test_defaults_are_shown_as_postgresql_shows_them(sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        "CREATE TABLE mail (id int PRIMARY KEY, a text DEFAULT 'x', b boolean DEFAULT TRUE, "
        "c varchar(9) DEFAULT 'it''s', d jsonb DEFAULT '{}', e timestamptz DEFAULT "
        "current_timestamp, f text DEFAULT NULL, g int[] DEFAULT '{}', h int DEFAULT 7)"
    )
    asked = (
        "SELECT a.attname, pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a LEFT JOIN "
        "pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
        "WHERE a.attrelid = 'mail'::regclass AND a.attnum > 1 ORDER BY a.attnum"
    )
    shown = [
        ("a", "'x'::text"), ("b", "true"), ("c", "'it''s'::character varying"),
        ("d", "'{}'::jsonb"), ("e", "CURRENT_TIMESTAMP"), ("f", None), ("g", "'{}'::bigint[]"),
        ("h", "7"),
    ]  # fmt: skip
    assert rows(sql, asked) == shown
    told = "SELECT column_name, column_default FROM information_schema.columns "
    assert rows(sql, told + "WHERE table_name = 'mail' AND ordinal_position > 1") == shown
    sql.execute("INSERT INTO mail (id) VALUES (1)")
    assert rows(sql, "SELECT a, b, c, d, f, g, h FROM mail") == [
        ("x", True, "it's", {}, None, [], 7)
    ]


def test_the_name_of_a_primary_key_is_kept(sql: psycopg.Connection[Any]) -> None:
    """TypeORM looks for it, and would make the key anew."""
    sql.execute('CREATE TABLE mail (id int NOT NULL, CONSTRAINT "PK_1" PRIMARY KEY (id))')
    named = "SELECT conname, contype FROM pg_constraint WHERE conrelid = 'mail'::regclass"
    assert rows(sql, named) == [("PK_1", "p")]
    sql.execute("ALTER TABLE mail ADD COLUMN a int")
    sql.execute("CREATE INDEX by_a ON mail (a)")
    assert rows(sql, named) == [("PK_1", "p")]
    assert rows(sql, "CREATE TABLE child (id int, CONSTRAINT by_a PRIMARY KEY (id))") == "42P07"
    assert rows(sql, 'ALTER TABLE mail DROP CONSTRAINT "PK_1"') == "0A000"


def test_indexes_and_checks_go_with_their_column(sql: psycopg.Connection[Any]) -> None:
    """As in PostgreSQL, and as knex and Rails count on."""
    sql.execute("CREATE TABLE mail (id int PRIMARY KEY, a int, b int, CHECK (a < b))")
    sql.execute("CREATE INDEX by_a ON mail (a, b)")
    sql.execute("ALTER TABLE mail DROP COLUMN a")
    assert rows(sql, "SELECT indexname FROM pg_indexes WHERE tablename = 'mail'") == [
        ("mail_pkey",)
    ]
    assert rows(sql, "INSERT INTO mail VALUES (1, 0)") == "INSERT 0 1"


def test_queries_of_tools_on_the_catalogue(sql: psycopg.Connection[Any]) -> None:
    sql.execute("CREATE TABLE mail (id int PRIMARY KEY, a int UNIQUE) DISTRIBUTED BY ()")
    # Rails: its types, its indexes, its tables
    arrays = "SELECT count(*) > 0 FROM pg_type WHERE typinput = 'array_in(cstring,oid,integer)'"
    assert rows(sql, arrays + "::regprocedure") == [(True,)]
    indexes = (
        "SELECT distinct i.relname, d.indisunique FROM pg_class t INNER JOIN pg_index d ON "
        "t.oid = d.indrelid INNER JOIN pg_class i ON d.indexrelid = i.oid LEFT JOIN pg_namespace n "
        "ON n.oid = i.relnamespace WHERE d.indisprimary = 'f' AND t.relname = 'mail' "
        "AND n.nspname = ANY (current_schemas(false))"
    )
    assert rows(sql, indexes) == [("mail_a_key", True)]
    tables = (
        "SELECT count(*) FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = ANY (current_schemas({})) AND c.relname LIKE '\\_pico%'"
    )
    assert rows(sql, tables.format("false")) == [(0,)]
    assert rows(sql, tables.format("true")) != [(0,)]
    assert rows(sql, "SELECT current_schemas(false), current_schemas(true)") == [
        ("{public}", "{pg_catalog,public}")
    ]
    # TypeORM
    assert rows(sql, "SELECT * FROM current_schema()") == [("public",)]
    assert rows(sql, "SELECT s FROM current_schema() AS s") == [("public",)]
    unique = (
        "SELECT CASE ix.indisunique WHEN 't' THEN 'TRUE' ELSE 'FALSE' END FROM pg_index ix "
        "WHERE ix.indexrelid = 'mail_a_key'::regclass"
    )
    assert rows(sql, unique) == [("TRUE",)]
    # Sequelize: words that SQLite keeps for itself; a list of names is none of texts
    listed = sql.execute(
        "SELECT ix.indisprimary AS primary, array_agg(a.attname) AS names FROM pg_index ix, "
        "pg_attribute a WHERE a.attrelid = ix.indrelid AND ix.indrelid = 'mail'::regclass "
        "GROUP BY ix.indisprimary ORDER BY 1"
    )
    assert [column.type_code for column in listed.description or ()] == [16, 1003]
    assert [len(names) for _, names in listed.fetchall()] == [2, 2]
    assert rows(sql, "SELECT * FROM pg_catalog.pg_statio_all_tables") == []
    # dbt says who it is first, Prisma asks for tables that have a type, peewee for subscripts
    named = '/* {"app": "dbt"} */\n-- it\n SELECT nspname FROM pg_namespace WHERE nspname = '
    assert rows(sql, named + "'public'") == [("public",)]
    assert rows(sql, "SELECT relname FROM pg_class WHERE reltype > 0 AND relname = 'mail'") == [
        ("mail",)
    ]
    subscripts = (
        "SELECT ARRAY(SELECT pg_get_indexdef(idx.indexrelid, k + 1, TRUE) FROM "
        "generate_subscripts(idx.indkey, 1) AS k ORDER BY k) FROM pg_catalog.pg_index AS idx "
        "WHERE idx.indexrelid = 'mail_a_key'::regclass"
    )
    assert rows(sql, subscripts) == [(["a"],)]


def test_a_name_may_begin_with_that_of_the_database(sql: psycopg.Connection[Any]) -> None:
    """As dbt and SQL of other databases' users write it."""
    sql.execute('CREATE TABLE "cairn"."public"."mail" (id int PRIMARY KEY, cairn int)')
    sql.execute("INSERT INTO cairn.public.mail VALUES (1, 2)")
    asked = "SELECT m.cairn, 'cairn.public.mail' FROM cairn.public.mail AS m WHERE m.cairn = 2"
    assert rows(sql, asked) == [(2, "cairn.public.mail")]
    listed = "SELECT table_name FROM \"cairn\".INFORMATION_SCHEMA.tables WHERE table_name = 'mail'"
    assert rows(sql, listed) == [("mail",)]
    sql.execute("CREATE VIEW v AS SELECT id FROM cairn.public.mail")  # dbt renames it as a table
    sql.execute("ALTER TABLE cairn.public.v RENAME TO w")
    assert rows(sql, "SELECT * FROM w") == [(1,)]
    sql.execute("DROP VIEW w")
    assert rows(sql, "SELECT * FROM other.public.mail") in ("42P01", "3F000", "0A000")


def test_columns_as_tools_write_them(sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        'CREATE TABLE mail ("id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name '
        '"mail_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 5 CACHE 1), '
        "u uuid DEFAULT uuid_generate_v4(), t varchar(10))"
    )
    assert rows(sql, "INSERT INTO mail (t) VALUES ('a') RETURNING id, u IS NOT NULL") == [(5, True)]
    sql.execute('ALTER TABLE mail ALTER COLUMN "t" TYPE varchar(300) USING ("t"::varchar(300))')
    assert rows(sql, "ALTER TABLE mail ALTER t TYPE varchar(400) USING (upper(t))") == "0A000"
    wrong = "CREATE TABLE child (id int GENERATED ALWAYS AS IDENTITY (MAXVALUE 100) PRIMARY KEY)"
    assert rows(sql, wrong) == "0A000"
