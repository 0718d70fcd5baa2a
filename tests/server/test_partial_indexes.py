"""Indexes of some rows: CREATE [UNIQUE] INDEX … WHERE, as PostgreSQL keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

pytestmark = pytest.mark.cluster
MADE = "CREATE TABLE part (id int PRIMARY KEY, mail text, gone timestamptz, n int, open boolean)"


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[psycopg.Connection[Any]]:
    with cluster["i1"].connect() as connection:
        connection.execute("DROP TABLE IF EXISTS part, other")
        yield connection
        connection.execute("DROP TABLE IF EXISTS part, other")


def told(connection: Any, text: str) -> Any:
    try:
        found = connection.execute(text.encode())
    except psycopg.Error as problem:
        return problem.sqlstate
    return found.fetchall() if found.description else found.statusmessage


STORY = """
CREATE UNIQUE INDEX one_open ON part (mail) WHERE gone IS NULL
CREATE INDEX few ON part (n) WHERE n > 10 AND open = true
INSERT INTO part VALUES (1, 'a', NULL, 1, true), (2, 'a', now(), 20, true), (3, 'a', now(), 30, false)
INSERT INTO part VALUES (4, 'a', NULL, 1, true)
INSERT INTO part VALUES (4, 'b', NULL, 20, true)
UPDATE part SET gone = NULL WHERE id = 2
UPDATE part SET mail = 'a' WHERE id = 4
UPDATE part SET gone = now() WHERE id = 1
UPDATE part SET gone = NULL WHERE id = 2
INSERT INTO part VALUES (5, 'a', NULL, 1, true) ON CONFLICT DO NOTHING
INSERT INTO part VALUES (5, 'c', NULL, 1, true) ON CONFLICT (mail) DO NOTHING
SELECT id FROM part WHERE n > 10 AND open = true ORDER BY id
SELECT id, gone IS NULL FROM part WHERE mail = 'a' AND gone IS NULL ORDER BY id
SELECT indexname, indexdef LIKE '%WHERE%' FROM pg_indexes WHERE tablename = 'part' ORDER BY 1
SELECT conname FROM pg_constraint WHERE conrelid = 'part'::regclass AND contype IN ('u', 'p')
SELECT indpred IS NULL FROM pg_index WHERE indexrelid = 'one_open'::regclass
CREATE INDEX bad ON part (n) WHERE nothing > 1
CREATE INDEX bad ON part (n) WHERE n
CREATE INDEX bad ON part (n) WHERE n > (SELECT 1)
ALTER TABLE part RENAME COLUMN gone TO left_at
INSERT INTO part VALUES (6, 'a', NULL, 1, true)
ALTER TABLE part DROP COLUMN left_at
SELECT indexname FROM pg_indexes WHERE tablename = 'part' ORDER BY 1
INSERT INTO part (id, mail) VALUES (6, 'a')
SELECT count(*) FROM part
"""  # noqa: E501


@pytest.mark.clients
def test_a_story_of_indexes_of_some_rows_is_that_of_postgresql(
    sql: psycopg.Connection[Any],
    postgres: Any,  # noqa: F811
) -> None:
    sql.execute(f"{MADE} DISTRIBUTED BY ()".encode())
    postgres.execute("DROP TABLE IF EXISTS part, other")
    postgres.execute(MADE)
    for text in STORY.strip().splitlines():
        assert told(sql, text) == told(postgres, text), text
    child = "CREATE TABLE other (m int REFERENCES part (n)) DISTRIBUTED BY ()"
    sql.execute("CREATE UNIQUE INDEX some_n ON part (n) WHERE n > 100")
    assert told(sql, child) == "42830"  # it makes not all of them unique


def plan(sql: psycopg.Connection[Any], query: str) -> str:
    return "\n".join(row[0] for row in sql.execute(f"EXPLAIN {query}".encode()).fetchall())


def test_the_owners_use_it(sql: psycopg.Connection[Any]) -> None:
    sql.execute(MADE)
    sql.execute("CREATE INDEX few ON part (n) WHERE open = true")
    sql.execute("INSERT INTO part SELECT x, '', NULL, x, x % 9 = 0 FROM generate_series(1, 500) x")
    assert "few" in plan(sql, "SELECT mail FROM part WHERE n = 9 AND open = true")
    assert "few" not in plan(sql, "SELECT mail FROM part WHERE n = 9")
    assert told(sql, "SELECT id FROM part WHERE n = 9 AND open = true") == [(9,)]
    assert told(sql, "SELECT id FROM part WHERE n = 10") == [(10,)]
    shown = "SELECT pg_get_indexdef('few'::regclass)"
    definition = "CREATE INDEX few ON public.part USING btree (n) WHERE (open = true)"
    assert told(sql, shown) == [(definition,)]
    assert told(sql, "SELECT id FROM part INDEXED BY few WHERE n = 10") == "0A000"


def test_a_renamed_column_is_renamed_in_its_condition(sql: psycopg.Connection[Any]) -> None:
    sql.execute(MADE)
    sql.execute("CREATE INDEX few ON part (n) WHERE mail <> 'mail' AND n > 1")
    sql.execute('ALTER TABLE part RENAME COLUMN mail TO "E-Mail"')
    assert told(sql, "SELECT pg_get_indexdef('few'::regclass)") == [
        ("CREATE INDEX few ON public.part USING btree (n) WHERE (\"E-Mail\" <> 'mail' AND n > 1)",)
    ]


def test_what_cannot_be_judged_everywhere_is_refused(sql: psycopg.Connection[Any]) -> None:
    sql.execute(f"{MADE} DISTRIBUTED GLOBALLY".encode())
    assert told(sql, "CREATE UNIQUE INDEX x ON part (mail) WHERE gone IS NULL") == "0A000"
    assert told(sql, "CREATE INDEX x ON part (mail) WHERE lower(mail) = 'a'") == "0A000"
    assert told(sql, "CREATE INDEX x ON part (mail) WHERE gone > now()") == "0A000"
    assert told(sql, "CREATE INDEX x ON part (mail) WHERE gone IS NULL") == "CREATE INDEX"
    assert told(sql, "INSERT INTO part VALUES (1, 'a'), (2, 'a')") == "INSERT 0 2"
    assert told(sql, "SELECT id FROM part WHERE mail = 'a' AND gone IS NULL ORDER BY id") == [
        (1,),
        (2,),
    ]
    assert told(sql, "CREATE TABLE other (LIKE part INCLUDING INDEXES)") == "0A000"


def test_a_unique_index_with_the_distribution_key_may_have_some_rows(
    sql: psycopg.Connection[Any],
) -> None:
    sql.execute(
        f"{MADE} DISTRIBUTED BY (mail)".replace(
            "id int PRIMARY KEY, mail text", "id int, mail text, PRIMARY KEY (mail, id)"
        ).encode()
    )
    assert told(sql, "CREATE UNIQUE INDEX x ON part (n) WHERE open = true") == "42P16"
    assert told(sql, "CREATE UNIQUE INDEX x ON part (mail, n) WHERE open = true") == "CREATE INDEX"
    many = ", ".join(f"({each}, 'm{each % 7}', NULL, 1, false)" for each in range(50))
    assert told(sql, f"INSERT INTO part VALUES {many}") == "INSERT 0 50"
    assert told(sql, "INSERT INTO part VALUES (90, 'm1', NULL, 1, true)") == "INSERT 0 1"
    assert told(sql, "INSERT INTO part VALUES (91, 'm1', NULL, 1, true)") == "23505"
    assert told(sql, "UPDATE part SET open = true WHERE mail = 'm2'") == "23505"
