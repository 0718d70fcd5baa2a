"""What smart clients are told after Parse: which parameters name the bucket, and for which tier."""

from __future__ import annotations

import pytest

from cairn.sql.api import prepare

from .harness import Cluster

FOO = "CREATE TABLE foo(a INT PRIMARY KEY, b TEXT) USING MEMTX DISTRIBUTED BY (a);"


def cluster(*ddl: str) -> Cluster:
    found = Cluster()
    for statement in ddl:
        found.run(statement)
    return found


def told(found: Cluster, text: str, oids: tuple[int, ...] = ()) -> list[list[int]]:
    prepared = prepare(text, found.catalog, param_oids=oids, user_id=1)
    return [list(part) for part in prepared.metadata]


def test_statements_without_a_filter_by_the_key_are_unbounded() -> None:
    found = cluster(FOO)
    assert told(found, "SELECT * from foo;") == []
    assert told(found, "UPDATE foo SET b = $1::text;") == []


def test_a_part_of_the_key_is_not_enough() -> None:
    found = cluster(
        "CREATE TABLE foo(a INT PRIMARY KEY, b INT, c DECIMAL) USING MEMTX DISTRIBUTED BY (a,b);"
    )
    assert told(found, "SELECT a,b FROM foo WHERE a = $1::integer;") == []


def test_a_distributed_join_is_unbounded() -> None:
    found = cluster(
        FOO, "CREATE TABLE bar(b TEXT PRIMARY KEY, c DOUBLE) USING MEMTX DISTRIBUTED BY (b);"
    )
    assert told(found, "SELECT foo.a, foo.b FROM foo JOIN bar ON foo.b = bar.b;") == []


def test_a_key_that_comes_from_a_subquery_is_unbounded() -> None:
    found = cluster(
        FOO, "CREATE TABLE bar(b INT PRIMARY KEY, c double) USING MEMTX DISTRIBUTED BY (b);"
    )
    insert = (
        "INSERT INTO foo (a,b) VALUES ((SELECT cast(max(c) AS INT) FROM bar "
        "WHERE b > $1::integer), $2::text);"
    )
    select = (
        "SELECT a FROM foo WHERE a > (SELECT cast(max(c) AS INT) FROM bar WHERE b > $1::integer);"
    )
    assert told(found, insert) == []
    assert told(found, select) == []


WIDE = (
    "CREATE TABLE wide (a DECIMAL, c INT, f DATETIME, g BOOLEAN, u UUID, d DOUBLE, s TEXT, "
    "PRIMARY KEY (c)) DISTRIBUTED BY (f, a, g, c)"
)


def test_parts_come_in_the_order_of_the_distribution_key() -> None:
    found = cluster(WIDE)
    text = "INSERT INTO wide (c, a, g, f) VALUES ($1, $2, $3, $4)"
    assert told(found, text) == [[4, 1184], [2, 1700], [3, 16], [1, 20]]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO wide (c, a, g, f) VALUES ($1, $2, true, $3)",  # a literal in the key
        "INSERT INTO wide (c, a, f) VALUES ($1, $2, $3)",  # a part is missing
        "INSERT INTO wide (c, a, g, f) VALUES ($1, $1, $2, $3)",  # one parameter, two types
        "INSERT INTO wide (c, a, g, f) VALUES ($1, $2, $3, $4), ($5, $6, $7, $8)",
        "INSERT INTO wide SELECT * FROM wide WHERE f = $1 AND a = $2 AND g = $3 AND c = $4",
    ],
)
def test_inserts_that_no_parameter_places_are_unbounded(text: str) -> None:
    assert told(cluster(WIDE), text) == []


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO foo VALUES ($1, $2)",
        "INSERT INTO foo VALUES ($1::int, $2)",
        "INSERT INTO foo (a) VALUES ($1)",
        "SELECT b FROM foo WHERE a = $1",
        "SELECT b FROM foo WHERE $1::int = a AND b <> 'x'",
        "UPDATE foo SET b = 'x' WHERE a = $1",
        "DELETE FROM foo WHERE a = $1 AND b IS NULL",
        "SELECT x.b FROM (SELECT * FROM foo WHERE a = $1) x",
        "WITH x AS (SELECT * FROM foo WHERE a = $1) SELECT count(*) FROM x",
        "SELECT f.b FROM foo f JOIN foo g ON f.a = g.a WHERE f.a = $1",
        "SELECT b FROM foo WHERE a = $1 AND EXISTS (SELECT 1 FROM foo y WHERE y.a = foo.a)",
        "SELECT b FROM foo WHERE a = $1 OPTION (sql_motion_row_max = 10)",
    ],
)
def test_one_parameter_that_names_the_key_is_told(text: str) -> None:
    assert told(cluster(FOO), text) == [[1, 20]]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT b FROM foo WHERE a = $1 OR b = 'x'",
        "SELECT b FROM foo WHERE a > $1",
        "SELECT b FROM foo WHERE a IN ($1, $2)",
        "SELECT b FROM foo WHERE a = 1",
        "SELECT b FROM foo WHERE a = $1 + 1",
        "SELECT f.b FROM foo f JOIN _pico_tier t ON true WHERE f.a = $1",
        "SELECT f.b FROM foo f JOIN foo g ON f.b = g.b WHERE f.a = $1",
        "SELECT b FROM foo WHERE a = $1 AND b IN (SELECT b FROM foo WHERE a = $2)",
        "SELECT name FROM _pico_tier WHERE name = $1",
        "SELECT b FROM foo WHERE a = $1 AND version() = 'x'",
    ],
)
def test_other_conditions_name_no_bucket(text: str) -> None:
    assert told(cluster(FOO), text) == []


def test_a_parameter_declared_as_another_type_is_not_told() -> None:
    found = cluster(FOO)
    assert told(found, "INSERT INTO foo VALUES ($1, $2)", (1700, 25)) == []
    assert told(found, "INSERT INTO foo VALUES ($1, $2)", (23, 25)) == [[1, 20]]


def test_the_tier_is_told_and_global_tables_have_none() -> None:
    found = cluster(FOO)
    assert prepare("SELECT * FROM foo", found.catalog, user_id=1).tier == "default"
    assert prepare("SELECT name FROM _pico_tier", found.catalog, user_id=1).tier is None
