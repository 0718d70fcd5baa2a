"""What `random()` and its kind tell is told once for each row, however often it is named.

In the other tests of this folder `random()` is a constant, so that answers can be compared.
"""

from __future__ import annotations

from itertools import count

import pytest

from cairn.model.errors import CairnError, Unsupported
from cairn.sql.api import prepare

from .harness import Cluster

ROWS = 40


@pytest.fixture
def cluster() -> Cluster:
    """`random()` gives 0, 1/7, 2/7 … 6/7, and then the same again: no two calls are alike."""
    made = Cluster()
    made.run("CREATE TABLE t (id INT PRIMARY KEY, v INT) DISTRIBUTED BY (id)")
    made.run("CREATE TABLE u (id INT PRIMARY KEY, x TEXT) DISTRIBUTED BY (id)")
    values = ", ".join(f"({n}, {n % 5})" for n in range(ROWS))
    made.run(f"INSERT INTO t VALUES {values}")
    calls = count()
    for node in made.everyone():
        node.create_scalar_function("random", lambda *_: next(calls) % 7 / 7, -1)
        node.create_scalar_function("gen_random_uuid", lambda *_: next(calls).to_bytes(16), -1)
    return made


#: Each of them is true of every row, if a call is made once.
HOLDS = {
    "a sub-query of FROM": "SELECT u = v AND v = w FROM (SELECT u, u AS v, u AS w FROM "
    "(SELECT random() AS u FROM t) a) b",
    "conditions on it": "SELECT count(*) = 0 FROM (SELECT random() AS u FROM t) s "
    "WHERE u < 0.5 AND u > 0.5",
    "a union of them": "SELECT u = v FROM (SELECT u, u AS v FROM (SELECT random() AS u FROM t "
    "UNION ALL SELECT random() FROM t) a) b",
    "without FROM": "SELECT a = b FROM (SELECT a, a AS b FROM (SELECT gen_random_uuid() AS a) s) q",
    "a join": "SELECT s.u = s.u + 0 FROM t JOIN (SELECT id, random() AS u FROM t) s USING (id)",
    "WITH": "WITH q AS (SELECT id, random() AS u FROM t) SELECT u >= 0.5 OR u < 0.5 FROM q",
    "BETWEEN": "SELECT count(*) = 0 FROM t WHERE random() BETWEEN 0.5 AND 0.4",
    "NOT BETWEEN": "SELECT random() NOT BETWEEN 0.4 AND 0.3 FROM t",
    "greatest": "SELECT greatest(random(), 0.5) >= 0.5 FROM t",
    "least": "SELECT least(random(), 0.5) <= 0.5 FROM t",
    "nullif": "SELECT coalesce(nullif((random() * 7)::int % 2, 0), 1) = 1 FROM t",
    "CASE of a value": "SELECT CASE (random() * 7)::int % 3 WHEN 0 THEN 1 WHEN 1 THEN 1 "
    "WHEN 2 THEN 1 END = 1 FROM t",
    "IN": "SELECT (random() * 7)::int % 3 IN (0, 1, 2) FROM t",
    "GROUP BY": "SELECT count(*) = count(DISTINCT b) FROM (SELECT (random() * 7)::int % 4 AS b, "
    "count(*) FROM t GROUP BY 1) s",
    "GROUP BY by name": "SELECT count(*) = count(DISTINCT b) FROM (SELECT v, "
    "(random() * 7)::int % 4 AS b, sum(id) FROM t GROUP BY v, b) s GROUP BY v",
    "ORDER BY": "SELECT u <= next OR next IS NULL FROM (SELECT u, lead(u) OVER (ORDER BY at) AS "
    "next FROM (SELECT u, row_number() OVER () AS at FROM (SELECT random() AS u FROM t "
    "ORDER BY u LIMIT 30) a) b) c",
    "a correlated one": "SELECT (SELECT min(a - b) = 0 FROM (SELECT u AS a, u AS b FROM "
    "(SELECT random() + t.v AS u FROM t AS inside) x) y) FROM t",
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_call_is_made_once_for_a_row(cluster: Cluster, name: str) -> None:
    found = cluster.run(HOLDS[name])
    assert found
    assert {value for (value,) in found} == {True}


def test_two_calls_are_two_values(cluster: Cluster) -> None:
    found = cluster.run("SELECT random() = random(), random() - random() = 0 FROM t")
    assert set(found) == {(False, False)}


TWICE = [
    "WITH q AS (SELECT random() AS u FROM t) SELECT 1 FROM q AS a JOIN q AS b ON a.u = b.u",
    "WITH q AS (SELECT random() AS u FROM t) SELECT u FROM q WHERE u = (SELECT max(u) FROM q)",
    "WITH q AS (SELECT id FROM t WHERE random() < 0.5), r AS (SELECT id FROM q) "
    "SELECT id FROM r EXCEPT SELECT id FROM r",
    "WITH q AS (SELECT gen_random_uuid()::text AS x), w AS (INSERT INTO u SELECT 1, x FROM q) "
    "INSERT INTO t SELECT 100, length(x) FROM q",
]


@pytest.mark.parametrize("text", TWICE)
def test_a_query_of_with_that_would_be_made_twice_is_refused(cluster: Cluster, text: str) -> None:
    with pytest.raises(Unsupported, match="named twice"):
        prepare(text, cluster.catalog)


ONCE = [
    "WITH q AS (SELECT random() AS u FROM t) SELECT a.u, b.n FROM q AS a, (SELECT 1 AS n) AS b",
    "WITH q AS (SELECT random() AS u FROM t), r AS (SELECT u FROM q) SELECT max(u) FROM r",
    "WITH q AS (SELECT v AS u FROM t) SELECT 1 FROM q AS a JOIN q AS b ON a.u = b.u",
    "WITH RECURSIVE q (n, u) AS (SELECT 1, random() UNION ALL SELECT n + 1, random() FROM q "
    "WHERE n < 5) SELECT count(*) FROM q",
]


@pytest.mark.parametrize("text", ONCE)
def test_a_query_of_with_that_is_named_once_may_tell_anything(cluster: Cluster, text: str) -> None:
    assert cluster.run(text)


def test_merge_asks_for_its_rows_once_for_each_when(cluster: Cluster) -> None:
    cluster.run("CREATE TABLE k (id INT PRIMARY KEY, v INT) DISTRIBUTED BY ()")
    source = "MERGE INTO k USING (SELECT id, random() AS r FROM k) AS s ON k.id = s.id"
    update = "WHEN MATCHED THEN UPDATE SET v = 1"
    prepare(f"{source} {update}", cluster.catalog)
    with pytest.raises(CairnError, match="several WHEN"):
        prepare(f"{source} WHEN MATCHED AND r < 0.5 THEN DELETE {update}", cluster.catalog)
