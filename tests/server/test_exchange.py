"""Joins of two large sides over two replicasets: rows are dealt out, joined in parts, and counted.

The same statement with `sql_repartition = off` gathers both sides as it always did: it is the
oracle.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
ROWS = 500


def connect(cluster: Cluster, name: str = "i1") -> Connection:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster[name].pg_port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


@pytest.fixture(scope="module")
def sql(cluster: Cluster) -> Iterator[Connection]:
    """Two tables of which nothing but the values of some columns is the same."""
    with connect(cluster) as connection:
        for name in ("l", "r"):
            connection.execute(
                f"CREATE TABLE {name} (id INT PRIMARY KEY, i INT, n DECIMAL, p NUMERIC(9, 2), "
                "d DOUBLE, s TEXT, b BOOLEAN, t TIMESTAMP, y DATE, u UUID, v INT)".encode()
            )
            with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                for row in rows_of(name):
                    copy.write_row(row)
        connection.execute("CREATE TABLE small (id INT PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO small SELECT k, 'n' || k FROM generate_series(0, 9) k")
        connection.execute(
            "CREATE TABLE dealt_nowhere (id INT PRIMARY KEY, name TEXT) DISTRIBUTED GLOBALLY"
        )
        connection.execute("INSERT INTO dealt_nowhere SELECT id, name FROM small WHERE id < 5")
        yield connection
        connection.execute("DROP TABLE l, r, small, dealt_nowhere")


def rows_of(name: str) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(f"exchange {name}")

    def some(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    for key in range(ROWS):
        number = chance.randrange(-100, 100)
        zeros = "0" * chance.randrange(3)
        yield (
            key,
            some(number),
            some(f"{number}.{chance.choice('05')}{zeros}"),
            some(f"{number}.{chance.choice('05')}"),
            some(number / 2 if chance.random() < 0.9 else chance.choice((-0.0, 0.0, 1e300))),
            some(chance.choice(("", "a", "A", "ä", "ö", "\U0001f642")) + str(number % 200)),
            some(number % 2 == 0),
            some(f"2026-01-01 00:{number % 60:02}:00"),
            some(f"2026-01-{1 + number % 28:02}"),
            some(f"00000000-0000-0000-0000-{number % 500:012}"),
            chance.randrange(50),
        )


ON = [
    *(f"l.{column} = r.{column}" for column in "inpdstyu"),
    *("l.i = r.n", "l.n = r.p", "l.i = r.d", "l.p = r.i", "l.d = r.n", "l.t = r.y"),
    *("l.i = r.i AND l.s = r.s", "l.i = r.i AND l.v < r.v", "l.b = r.b AND l.n = r.i"),
    *("l.id = r.i", "l.i = r.id AND l.v = r.v", "l.id = r.d", "l.n = r.id"),
    *("l.i = r.i AND l.v > 40", "l.s = r.s AND r.v < 10 AND l.v + r.v > 20"),
]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
ITEMS = [
    "SELECT count(*), count(l.id), sum(r.v), max(l.s)",
    "SELECT l.v, count(*), sum(l.n), count(DISTINCT r.id)",
    "SELECT DISTINCT l.v, r.v",
    "SELECT l.id, r.id",
    "SELECT l.i, r.i, count(*)",
]
TAILS = {
    0: ["", " WHERE l.v > 10", " HAVING count(*) > 3"],
    1: [" GROUP BY 1", " WHERE l.v IS DISTINCT FROM r.v GROUP BY l.v HAVING count(*) > 2"],
    2: ["", " WHERE coalesce(l.v, 1) < 5", " ORDER BY 2, 1 LIMIT 7"],
    3: [
        " ORDER BY l.id, r.id LIMIT 20",
        " WHERE l.id < 200",
        " ORDER BY 2 DESC, 1 LIMIT 9 OFFSET 3",
    ],
    4: [" GROUP BY l.i, r.i", " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 5"],
}


def statements(seed: int, count: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.randrange(len(ITEMS))
        tail, join, on = chance.choice(TAILS[kind]), chance.choice(JOINS), chance.choice(ON)
        yield f"{ITEMS[kind]} FROM l {join} r ON {on}{tail}"


SEVERAL = """
SELECT count(*), sum(r.v) FROM l, r WHERE l.i = r.i AND l.v = 3
SELECT s.name, count(*) FROM l JOIN r ON l.i = r.i JOIN small s ON s.id = l.v GROUP BY s.name
SELECT s.name, count(*) FROM l LEFT JOIN r ON l.i = r.i LEFT JOIN small s ON s.id = r.v GROUP BY 1
SELECT e.name, count(*) FROM l JOIN r ON l.s = r.s JOIN dealt_nowhere e ON e.id = r.v GROUP BY e.name
SELECT count(*), sum(x.v) FROM l JOIN r ON l.i = r.i JOIN l x ON x.i = r.i WHERE l.v < 4 AND x.v < 4
SELECT count(*) FROM l JOIN r ON l.i = r.i JOIN l x ON x.s = r.s WHERE l.v < 3 AND x.v < 3
SELECT x.v, x.n FROM (SELECT l.v, count(*) AS n FROM l JOIN r ON l.n = r.n GROUP BY 1) x WHERE x.n > 9
SELECT v, count(*) FROM l WHERE i IN (SELECT i FROM r WHERE v < 5) GROUP BY v
SELECT count(*) FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.i = l.i AND r.v > l.v)
SELECT count(*) FROM (SELECT l.id FROM l JOIN r ON l.i = r.i UNION SELECT r.id FROM r JOIN l ON l.s = r.s) x
SELECT l.v, rank() OVER (ORDER BY count(*)) FROM l JOIN r ON l.i = r.i GROUP BY l.v
SELECT count(*), (SELECT max(id) FROM small) FROM l JOIN r ON l.u = r.u WHERE l.v > (SELECT avg(v) FROM r)
SELECT string_agg(l.s, ',' ORDER BY l.id, r.id) FROM l JOIN r ON l.i = r.i WHERE l.v = 1 AND r.v = 2
SELECT avg(l.d), stddev(r.v) FROM l JOIN r ON l.i = r.i
"""  # noqa: E501


def told(connection: Connection, text: str, how: str) -> Counter[str]:
    found = connection.execute(f"{text} OPTION (sql_repartition = {how})".encode()).fetchall()
    return Counter(map(repr, found))


def stages(connection: Connection, text: str) -> dict[str, dict[str, Any]]:
    row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}".encode()).fetchone()
    assert row is not None
    return {each["Stage"]: each for each in row[0][0]["Stages"]}


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))]
)
def test_a_join_in_parts_answers_as_a_gathered_one(sql: Connection, seed: int) -> None:
    for text in statements(seed, 12):
        assert told(sql, text, "on") == told(sql, text, "off"), text


@pytest.mark.parametrize("text", SEVERAL.strip().splitlines())
def test_what_cannot_be_dealt_out_is_gathered_and_the_answer_is_the_same(
    sql: Connection, text: str
) -> None:
    assert told(sql, text, "on") == told(sql, text, "off")


# --- what travels ---------------------------------------------------------------------------------

MANY = 40_000
BY_KIND = (
    "SELECT a.kind, count(*), sum(b.amount) FROM many a JOIN more b ON a.ref = b.ref "
    "GROUP BY a.kind ORDER BY 1"
)


@pytest.fixture(scope="module")
def large(cluster: Cluster) -> Iterator[Connection]:
    """Two tables of 6 MB each, half of them at each owner."""
    with connect(cluster) as connection:
        connection.execute("CREATE TABLE many (id INT PRIMARY KEY, ref INT, kind INT, note TEXT)")
        connection.execute("CREATE TABLE more (id INT PRIMARY KEY, ref INT, amount INT, note TEXT)")
        for name in ("many", "more"):
            text = (
                f"INSERT INTO {name} SELECT k, k * 7 % {MANY}, k % 5, repeat('x', 120) "
                f"FROM generate_series(0, {MANY - 1}) k"
            )
            connection.execute(text.encode())
        yield connection
        connection.execute("DROP TABLE many, more")


def wide(text: str) -> str:
    """With columns that make both sides too large to be sent along with a fragment."""
    return text.replace("count(*)", "count(*), max(a.note), min(b.note)")


def test_only_the_groups_of_a_join_of_two_large_sides_come_to_the_asker(large: Connection) -> None:
    text = wide(BY_KIND)
    expected = [
        (kind, MANY // 5, "x" * 120, "x" * 120, sum(k % 5 for k in range(MANY) if k % 5 == kind))
        for kind in range(5)
    ]
    large.execute("SET sql_repartition = off")
    gathered = stages(large, text)
    assert large.execute(text.encode()).fetchall() == expected
    large.execute("RESET sql_repartition")
    first = stages(large, text)
    assert large.execute(text.encode()).fetchall() == expected
    found = stages(large, text)
    both = gathered["motion 1"]["Bytes"] + gathered["motion 2"]["Bytes"]
    assert both > 5_000_000  # of the other owner
    assert "join in parts" not in gathered
    assert "motion 1" in first  # it was found out that they are large …
    assert "motion 1" not in found  # … and need not be found out again
    assert 0 < found["join in parts"]["Bytes"] < 5_000
    for each in ("motion 1, dealt out", "motion 2, dealt out"):
        assert found[each]["Rows"] == MANY  # each row once …
        moved = found[each]["Bytes"]
        assert both / 2 * 0.9 < moved < both / 2 * 1.1  # … and half of them to the other owner


def test_a_side_that_is_distributed_by_the_key_stays_and_only_the_other_travels(
    large: Connection,
) -> None:
    text = wide(BY_KIND.replace("a.ref = b.ref", "a.id = b.ref"))
    assert [row[:2] for row in large.execute(text.encode())] == [(k, MANY // 5) for k in range(5)]
    found = stages(large, text)
    assert found["motion 1, dealt out"]["Rows"] == found["motion 2, dealt out"]["Rows"] == MANY
    assert found["motion 1, dealt out"]["Bytes"] == 0 < found["motion 2, dealt out"]["Bytes"]
    lines = [line.strip() for (line,) in large.execute(f"EXPLAIN ANALYZE {text}".encode())]
    motions = [line for line in lines if line.startswith("motion [")]
    assert motions[1].endswith('staying in the bucket of ("id"::int)')
    assert motions[2].endswith('dealt out by bucket of ("ref"::int)')


def test_explain_tells_what_may_be_dealt_out_and_analyze_what_was(large: Connection) -> None:
    text = wide(BY_KIND)
    lines = [line.strip() for (line,) in large.execute(f"EXPLAIN {text}".encode()).fetchall()]
    way = next(line for line in lines if line.startswith("or in parts at i"))
    assert 'the rows of "many" dealt out by hash of ("ref"::int) and the rows of "more"' in way
    large.execute(text.encode())
    analyze = f"EXPLAIN (ANALYZE, TIMING off) {text}".encode()
    lines = [line.strip() for (line,) in large.execute(analyze).fetchall()]
    motions = [line for line in lines if line.startswith("motion [")]
    assert [line.split(" from ")[0] for line in motions] == [
        "motion [policy: full]",
        *["motion [policy: segment]"] * 2,
    ]
    assert all(line.endswith('dealt out by hash of ("ref"::int)') for line in motions[1:])
    assert any(line.startswith("join in parts: rows=10 ") for line in lines)
    assert any(line.startswith("motion 2, dealt out: rows=40000 bytes=") for line in lines)


def test_a_join_that_gives_as_many_rows_as_it_takes_is_gathered(large: Connection) -> None:
    found = stages(large, "SELECT a.note, b.note FROM many a JOIN more b ON a.ref = b.ref")
    assert found["motion 1"]["Rows"] == found["motion 2"]["Rows"] == MANY
    assert "join in parts" not in found


def test_a_side_that_is_small_goes_to_the_owners_of_the_other_as_before(large: Connection) -> None:
    found = stages(large, BY_KIND.replace("GROUP", "WHERE b.ref < 50 GROUP"))
    assert "motion 1, met by the others" in found
    assert "join in parts" not in found


def test_the_limit_on_rows_counts_all_parts_together(large: Connection) -> None:
    large.execute(wide(BY_KIND).encode())
    text = f"{wide(BY_KIND)} OPTION (sql_repartition = on, sql_motion_row_max = %s)"
    assert len(large.execute((text % MANY).encode()).fetchall()) == 5
    with pytest.raises(psycopg.Error) as problem:
        large.execute((text % (MANY - 1)).encode())
    assert problem.value.sqlstate == "54000"


def test_the_limit_on_temporary_files_holds_for_each_part(large: Connection) -> None:
    text = f"{wide(BY_KIND)} OPTION (sql_repartition = on)".encode()
    large.execute("ALTER SYSTEM SET sql_spill_max_bytes = 1000")
    try:
        with pytest.raises(psycopg.Error) as problem:
            large.execute(text.replace(b"max(a.note)", b"max(a.note || repeat('y', 500))"))
        assert problem.value.sqlstate == "53400"
    finally:
        large.execute("ALTER SYSTEM RESET sql_spill_max_bytes")
    assert len(large.execute(text).fetchall()) == 5


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE r(n, s) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, n || repeat('k', 500) "
        "FROM r) SELECT count(*) FROM (SELECT s FROM r ORDER BY s) q",
        "SELECT count(*) FROM (SELECT DISTINCT a.name || b.name || c.name || d.name || e.name "
        "FROM _pico_table a, _pico_table b, _pico_table c, _pico_table d, _pico_table e) q",
    ],
    ids=["of nothing", "of global tables"],
)
def test_what_an_instance_sorts_for_itself_goes_to_counted_files(
    large: psycopg.Connection[Any], sql: str
) -> None:
    """They had no limit: who had no right at all could fill the disk, which ends an instance."""
    large.execute("ALTER SYSTEM SET sql_spill_max_bytes = 2000000")
    large.execute("SET statement_timeout = '60s'")
    try:
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="temporary files"):
            large.execute(sql.encode())
    finally:
        large.execute("RESET statement_timeout")
        large.execute("ALTER SYSTEM RESET sql_spill_max_bytes")
