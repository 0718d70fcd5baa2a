"""Ranges and pages by the primary key: the same answers as of one big table, from few rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from cairn.sql.api import prepare
from cairn.sql.plans import ScatterRead
from cairn.sql.render import by_key
from cairn.sql.render.by_key import Bounds, Page

from .harness import Cluster

TABLES = {
    "rising": "id INT PRIMARY KEY, v INT",
    "gaps": "id INT PRIMARY KEY, v INT",
    "names": "id TEXT PRIMARY KEY, v INT",
    "moments": "id TIMESTAMP PRIMARY KEY, v INT",
    "pairs": "id INT, part TEXT, v INT, PRIMARY KEY (id, part)",
    "tenants": "id INT, part TEXT, v INT, PRIMARY KEY (id, part)) DISTRIBUTED BY (id",
}
PAIRS = ("pairs", "tenants")
ROWS = 1_200


def filled(bucket_count: int) -> Cluster:
    cluster, dice = Cluster(bucket_count=bucket_count), random.Random(7)
    for name, columns in TABLES.items():
        cluster.run(f"CREATE TABLE {name} ({columns})")
        keys = [_key(name, at, dice) for at in range(ROWS)]
        for at in range(0, ROWS, 200):
            values = ", ".join(f"({key}, {dice.randrange(9)})" for key in keys[at : at + 200])
            cluster.run(f"INSERT INTO {name} VALUES {values} ON CONFLICT DO NOTHING")
    return cluster


def _key(name: str, at: int, dice: random.Random) -> str:
    match name:
        case "rising":
            return str(at - 100)
        case "gaps":
            return str(dice.choice((at, dice.randrange(-(2**63), 2**63))))
        case "names":
            return f"'{dice.choice(('a', 'B', 'ü', '', 'zz', '_'))}{dice.randrange(10**6)}'"
        case "moments":
            return f"'2026-01-{dice.randrange(1, 29):02} 10:{at % 60:02}:{dice.randrange(60):02}'"
        case "pairs":
            return f"{dice.randrange(40)}, '{dice.randrange(10**6)}'"
    return f"{dice.choice((1, 1, 2, 5))}, '{dice.randrange(10**6)}'"


@pytest.fixture(scope="module", params=[30, 300], ids=["full buckets", "empty buckets"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return filled(request.param)


@pytest.fixture(params=["as it is", "each bucket"])
def _ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "each bucket":
        monkeypatch.setattr(by_key, "SAMPLE", 1)
        monkeypatch.setattr(by_key, "FULL", 0.0001)


def questions(name: str, cluster: Cluster, dice: random.Random) -> Iterator[str]:
    known = [row[0] for row in cluster.oracle(f"SELECT id FROM {name} ORDER BY id")]

    def some() -> str:
        value = dice.choice(known)
        return str(value) if isinstance(value, int) else f"'{value}'"

    keys = "id, part" if name in PAIRS else "id"
    for _ in range(12):
        way = dice.choice(("", " DESC"))
        order = ", ".join(f"{each}{way}" for each in keys.split(", "))
        low, high = sorted((some(), some()))
        word, other = (
            dice.choice((">", ">=", "<", "<=")),
            dice.choice(("", "AND v > 3", "AND v = 4")),
        )
        limit = f"LIMIT {dice.choice((1, 3, 10, 50, 400))}"
        limit += dice.choice(("", "", " OFFSET 7"))
        yield f"SELECT * FROM {name} WHERE id {word} {some()} {other} ORDER BY {order} {limit}"
        yield f"SELECT * FROM {name} WHERE {some()} {word} id {other} ORDER BY {order}, v {limit}"
        yield f"SELECT v, id FROM {name} ORDER BY {order} {limit}"
        yield f"SELECT * FROM {name} WHERE id BETWEEN {low} AND {high} {other} ORDER BY {order}"
        yield f"SELECT v, count(*) FROM {name} WHERE id {word} {some()} GROUP BY v ORDER BY v"
        yield f"SELECT max(id), min(id) FROM {name} WHERE id {word} {some()} {other}"
        yield f"SELECT coalesce({dice.choice(('max', 'min'))}(id), {some()}) FROM {name}"
        if name in PAIRS:
            end = f"ORDER BY {order} {limit}"
            yield f"SELECT * FROM {name} WHERE id = {some()} AND part {word} '5' {end}"
            yield f"SELECT * FROM {name} WHERE (id, part) {word} ({some()}, '5') {end}"
            yield f"SELECT id FROM {name} WHERE part > '7' ORDER BY id{way} {limit}"
            yield f"SELECT count(*) FROM {name} WHERE id = {some()} AND part {word} '3'"


@pytest.mark.usefixtures("_ways")
@pytest.mark.parametrize("name", TABLES)
def test_ranges_and_pages_by_the_key_are_those_of_one_big_table(
    cluster: Cluster, name: str
) -> None:
    for text in questions(name, cluster, random.Random(name)):
        wanted = cluster.oracle(text)
        for way in (None, 0):  # gathered, and at one that has all
            cluster.way = way
            assert cluster.run(text) == wanted, text


@pytest.mark.usefixtures("_ways")
def test_rows_of_buckets_that_left_are_not_told_again() -> None:
    """An owner that gave a bucket away still has its rows until they are swept."""
    cluster, dice = filled(30), random.Random(3)
    for name in ("rising", "names", "tenants"):
        table = cluster.catalog.tables[name].physical_name
        rows = cluster.oracle_node.execute(f"SELECT * FROM {table}").fetchall()
        marks = ", ".join("?" * len(rows[0]))
        for node in cluster.nodes:
            node.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)
        for text in questions(name, cluster, dice):
            assert cluster.run(text) == cluster.oracle(text), text


def test_pages_follow_each_other_to_the_end(cluster: Cluster) -> None:
    cluster.way = None
    for name, last in (("gaps", -(2**63)), ("rising", -101)):
        found: list[Any] = []
        text = f"SELECT id FROM {name} WHERE id > $1 ORDER BY id LIMIT 17"
        for _ in range(ROWS):
            page = cluster.run(text, [last])
            if not page:
                break
            found += page
            last = page[-1][0]
        assert found == cluster.oracle(
            f"SELECT id FROM {name} WHERE id > {found[0][0]} - 1 ORDER BY id"
        )


@pytest.mark.parametrize("limit", [None, 0, 10**9, 2**62])
def test_a_limit_that_is_no_page_is_read_as_before(cluster: Cluster, limit: int | None) -> None:
    cluster.way = None
    text = "SELECT id FROM rising WHERE id > 1000 ORDER BY id LIMIT $1"
    wanted = [(at,) for at in range(1001, ROWS - 100)] if limit != 0 else []
    assert cluster.run(text, [limit]) == wanted


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT * FROM rising WHERE id > $1 ORDER BY id LIMIT 10", Page),
        ("SELECT * FROM rising WHERE id > $1 AND v = 2 ORDER BY id LIMIT 10", Page),
        ("SELECT max(id) FROM rising", Page),
        ("SELECT * FROM rising WHERE id > $1", Bounds),
        ("SELECT * FROM rising WHERE id > $1 ORDER BY v LIMIT 10", Bounds),
        ("SELECT DISTINCT id FROM pairs WHERE id > 3 ORDER BY id LIMIT 10", Bounds),
        ("SELECT id FROM pairs ORDER BY id, v LIMIT 10", type(None)),
        ("SELECT id FROM pairs ORDER BY id, part DESC LIMIT 10", type(None)),
        ("SELECT max(id), count(*) FROM rising", type(None)),
        ("SELECT max(v) FROM rising", type(None)),
        ("SELECT id FROM rising WHERE random() < 1 ORDER BY id LIMIT 10", type(None)),
        ("SELECT * FROM listed WHERE id > 5 ORDER BY id LIMIT 10", type(None)),
        ("SELECT * FROM listed WHERE v = 5 ORDER BY id LIMIT 10", type(None)),
    ],
)
def test_what_is_read_by_the_key(text: str, kind: type) -> None:
    cluster = Cluster()
    for name, columns in TABLES.items():
        cluster.run(f"CREATE TABLE {name} ({columns})")
    cluster.run("CREATE TABLE listed (id INT PRIMARY KEY, v INT)")
    cluster.run("CREATE INDEX ON listed (id)")
    cluster.run("CREATE INDEX ON listed (v)")
    plan = prepare(text, cluster.catalog, user_id=1).plan
    assert isinstance(plan, ScatterRead)
    assert type(plan.fragments[0].by_key) is kind


def test_tables_of_sub_queries_keep_their_buckets() -> None:
    cluster = Cluster()
    cluster.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    text = "SELECT id, (SELECT sum(v) FROM t) FROM t WHERE id > 3"
    plan = prepare(text, cluster.catalog, user_id=1).plan
    assert isinstance(plan, ScatterRead)
    assert plan.alone is not None
    assert plan.alone.fragments[0].by_key is None


@pytest.fixture(scope="module")
def large() -> Cluster:
    """12,000 rows in 60 buckets: a seek is cheaper than the rows of a bucket."""
    cluster = Cluster(replicasets=1, bucket_count=60)
    cluster.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    for at in range(0, 12_000, 500):
        cluster.run("INSERT INTO t VALUES " + ", ".join(f"({n}, 1)" for n in range(at, at + 500)))
    cluster.run("CREATE TABLE s (id TEXT PRIMARY KEY, v INT)")
    for at in range(0, 12_000, 500):
        values = ", ".join(f"('{n * 7919 % 12_000:05}', 1)" for n in range(at, at + 500))
        cluster.run(f"INSERT INTO s VALUES {values}")
    return cluster


def steps(cluster: Cluster, text: str) -> int:
    """Of SQLite's machine, at the owner."""
    told: list[int] = []
    node = cluster.nodes[0]

    def note(event: dict[str, Any]) -> None:
        told.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    node.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
    try:
        cluster.way = None
        cluster.run(text)
    finally:
        node.trace_v2(0, None)
    return sum(told)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        # Of a key without gaps the next rows are looked for as single rows are.
        ("SELECT * FROM t WHERE id > 5000 ORDER BY id LIMIT 10", 2_000),
        ("SELECT * FROM t WHERE id < 5000 ORDER BY id DESC LIMIT 10", 2_000),
        ("SELECT * FROM t WHERE id BETWEEN 5000 AND 5020", 1_500),
        # Others take the sample of 2,000 rows, and seeks in 60 buckets.
        ("SELECT * FROM t ORDER BY id LIMIT 10", 25_000),
        ("SELECT * FROM s WHERE id > '05000' ORDER BY id LIMIT 10", 25_000),
        ("SELECT * FROM s WHERE id BETWEEN '05000' AND '05010'", 25_000),
        ("SELECT max(id) FROM s", 25_000),
        ("SELECT min(id) FROM t WHERE v = 1", 25_000),
    ],
)
def test_few_rows_are_read(large: Cluster, text: str, most: int) -> None:
    assert steps(large, text) < most < 36_000 < steps(large, "SELECT sum(v) FROM t")
