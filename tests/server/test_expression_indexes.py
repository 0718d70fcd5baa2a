"""Indexes of expressions: CREATE [UNIQUE] INDEX ON t (lower(name)), as PostgreSQL keeps them."""

# ruff: noqa: E501 (a statement to a line)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster
from tests.server.test_partial_indexes import plan, told
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

pytestmark = pytest.mark.cluster
MADE = "CREATE TABLE made (id int PRIMARY KEY, mail text, n bigint, at timestamp, j jsonb)"


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[psycopg.Connection[Any]]:
    with cluster["i1"].connect() as connection:
        connection.execute("DROP TABLE IF EXISTS made, other")
        yield connection
        connection.execute("DROP TABLE IF EXISTS made, other")


STORY = """
CREATE UNIQUE INDEX one_mail ON made (lower(mail))
CREATE INDEX ON made (n, upper(mail) DESC NULLS LAST)
CREATE INDEX ON made ((n % 10))
CREATE INDEX by_kind ON made ((j ->> 'kind')) WHERE n > 5
INSERT INTO made VALUES (1, 'Ann', 1), (2, 'BOB', 2), (3, NULL, 3), (4, NULL, 4)
INSERT INTO made VALUES (5, 'aNN', 1)
INSERT INTO made VALUES (5, 'aNN', 1) ON CONFLICT DO NOTHING
UPDATE made SET mail = 'bob' WHERE id = 1
UPDATE made SET mail = 'bob' WHERE id = 2
UPDATE made SET id = id + 10 WHERE mail = 'bob'
INSERT INTO made VALUES (6, 'Écu', 16, NULL, '{"kind": "x"}'), (7, 'z', 17, NULL, '{"kind": "y"}')
SELECT id FROM made WHERE lower(mail) = 'ann'
SELECT id FROM made WHERE lower(mail) IN ('bob', 'z') ORDER BY id
SELECT id FROM made WHERE n % 10 = 6
SELECT id FROM made WHERE j ->> 'kind' = 'y' AND n > 5
SELECT id FROM made WHERE lower(mail) > 'a' ORDER BY lower(mail), id
SELECT indexname FROM pg_indexes WHERE tablename = 'made' ORDER BY 1
SELECT pg_get_indexdef('one_mail'::regclass)
SELECT pg_get_indexdef('made_n_upper_idx'::regclass, 2, true)
SELECT indkey::text, indexprs IS NULL, indnatts FROM pg_index WHERE indexrelid = 'made_n_upper_idx'::regclass
SELECT attname FROM pg_attribute WHERE attrelid = 'one_mail'::regclass
SELECT conname FROM pg_constraint WHERE conrelid = 'made'::regclass AND contype IN ('u', 'p')
CREATE INDEX bad ON made (lower(nothing))
CREATE INDEX bad ON made (lower(n))
CREATE INDEX bad ON made (lower(mail) || )
CREATE INDEX bad ON made (nobody(mail))
ALTER TABLE made RENAME COLUMN mail TO address
SELECT replace(pg_get_indexdef('one_mail'::regclass), '"', '')
INSERT INTO made VALUES (8, 'ANN', 1)
ALTER TABLE made ADD COLUMN more int DEFAULT 3
INSERT INTO made VALUES (8, 'ANN', 1)
ALTER TABLE made DROP COLUMN n
SELECT indexname FROM pg_indexes WHERE tablename = 'made' ORDER BY 1
DELETE FROM made WHERE lower(address) = 'ann'
INSERT INTO made (id, address) VALUES (8, 'ANN')
SELECT id, address FROM made ORDER BY id
DROP INDEX one_mail
INSERT INTO made (id, address) VALUES (9, 'aNN')
CREATE UNIQUE INDEX one_mail ON made (lower(address))
"""


@pytest.mark.clients
def test_a_story_of_indexes_of_expressions_is_that_of_postgresql(
    sql: psycopg.Connection[Any],
    postgres: Any,  # noqa: F811
) -> None:
    sql.execute(f"{MADE} DISTRIBUTED BY ()".encode())
    postgres.execute("DROP TABLE IF EXISTS made, other")
    postgres.execute(MADE)
    problems = [
        f"{text}\n  {ours}\n  {theirs}"
        for text in STORY.strip().splitlines()
        for ours, theirs in ((told(sql, text), told(postgres, text)),)
        if ours != theirs
    ]
    assert not problems, "\n".join(problems)


def test_the_owners_use_it(sql: psycopg.Connection[Any]) -> None:
    sql.execute(MADE)
    sql.execute("INSERT INTO made SELECT x, 'Name' || x, x FROM generate_series(1, 500) x")
    sql.execute("CREATE INDEX by_name ON made (lower(mail))")
    sql.execute("CREATE INDEX by_rest ON made ((n % 100), id)")
    sql.execute("CREATE INDEX by_day ON made (date_trunc('day', at))")
    for query, name, ids in (
        ("SELECT id FROM made WHERE lower(mail) = 'name77'", "by_name", [77]),
        ("SELECT id FROM made WHERE n % 100 = 7 AND id > 300 ORDER BY id", "by_rest", [307, 407]),
        ("SELECT id FROM made WHERE date_trunc('day', at) = '2024-01-01'", "by_day", []),
    ):
        assert f'index "{name}"' in plan(sql, query), plan(sql, query)
        assert told(sql, query) == [(each,) for each in ids]
    assert '"by_name" (lower(mail)=?)' in plan(sql, "SELECT n FROM made WHERE lower(mail) = 'x'")
    mail = "SELECT id FROM made WHERE lower(mail) = %s"
    assert sql.execute(mail, ("name9",)).fetchall() == [(9,)]
    assert "by_name" in plan(sql, "UPDATE made SET n = 1 WHERE lower(mail) = 'name9'")
    with sql.cursor().copy("COPY made (id, mail) FROM STDIN") as copy:
        copy.write("".join(f"{k}\tCopied{k}\n" for k in range(1000, 1100)))
    assert sql.execute(mail, ("copied1050",)).fetchall() == [(1050,)]
    for k in range(2000, 2008):  # some of them would be compiled
        sql.execute("INSERT INTO made (id, mail) VALUES (%s, %s)", (k, f"P{k}"), prepare=True)
        assert sql.execute(mail, (f"p{k}",)).fetchall() == [(k,)]


def test_what_cannot_be_kept_is_refused(sql: psycopg.Connection[Any]) -> None:
    sql.execute(f"{MADE} DISTRIBUTED BY (n)".encode().replace(b"int PRIMARY KEY", b"int", 1))
    for text, state in (
        ("CREATE UNIQUE INDEX x ON made (lower(mail))", "42P16"),
        ("CREATE UNIQUE INDEX x ON made (lower(mail), n)", "42P16"),
        ("CREATE UNIQUE INDEX x ON made (n, lower(mail))", "CREATE INDEX"),
        ("CREATE INDEX y ON made ((random()))", "0A000"),
        ("CREATE INDEX y ON made ((now() - at))", "0A000"),
        ("CREATE INDEX y ON made ((n * 1.5))", "0A000"),
        ("CREATE INDEX y ON made ((j -> 'a'))", "0A000"),
        ("CREATE INDEX y ON made ((1 + 1))", "0A000"),
        ("CREATE TABLE other (LIKE made INCLUDING INDEXES)", "0A000"),
        ("CREATE TABLE other (id int PRIMARY KEY, m text) DISTRIBUTED GLOBALLY", "CREATE TABLE"),
        ("CREATE INDEX y ON other (lower(m))", "0A000"),
        ("INSERT INTO made VALUES (1, 'A', 1), (2, 'a', 2)", "INSERT 0 2"),
        ("INSERT INTO made VALUES (3, 'a', 1)", "23505"),
    ):
        assert told(sql, text) == state, text


def test_a_temporary_table_may_have_one(sql: psycopg.Connection[Any]) -> None:
    sql.execute("CREATE TEMP TABLE mine (id int PRIMARY KEY, mail text)")
    sql.execute("CREATE UNIQUE INDEX ON mine (lower(mail))")
    assert told(sql, "INSERT INTO mine VALUES (1, 'A')") == "INSERT 0 1"
    assert told(sql, "INSERT INTO mine VALUES (2, 'a')") == "23505"
    assert told(sql, "SELECT id FROM mine WHERE lower(mail) = 'a'") == [(1,)]
