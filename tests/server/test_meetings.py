"""Joins over two replicasets: few rows go to where the many are, and what that saves is counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
BUYS, CLIENTS = 20_000, 200
BY_RANK = (
    "SELECT c.rank, count(*), sum(b.amount), max(b.note) "
    "FROM buy b JOIN client c ON b.client_id = c.id GROUP BY c.rank ORDER BY 1"
)


@pytest.fixture(scope="module")
def sql(cluster: Cluster) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE client (id INT PRIMARY KEY, rank INT)")
        connection.execute(
            "CREATE TABLE buy (id INT PRIMARY KEY, client_id INT, amount INT, note TEXT)"
        )
        connection.execute(
            f"INSERT INTO client SELECT k, k % 5 FROM generate_series(1, {CLIENTS}) k"
        )
        connection.execute(
            f"INSERT INTO buy SELECT k, k % 250, k, repeat('n', 40) "
            f"FROM generate_series(1, {BUYS}) k"
        )
        yield connection
        connection.execute("DROP TABLE client, buy")


def told(connection: Connection, text: str) -> dict[str, Any]:
    row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}".encode()).fetchone()
    assert row is not None
    [found] = row[0]
    return dict(found)


def bytes_by_stage(connection: Connection, text: str) -> dict[str, int]:
    return {each["Stage"]: each.get("Bytes", 0) for each in told(connection, text)["Stages"]}


def gathered_bytes(connection: Connection, columns: str) -> int:
    """What the other owner has to tell of these columns when all of them are gathered."""
    return bytes_by_stage(connection, f"SELECT {columns} FROM buy")["motion 1"]


def test_groups_over_a_join_move_a_fraction_of_the_bytes(sql: Connection) -> None:
    amounts: dict[int, list[int]] = {}
    for key in range(1, BUYS + 1):
        if 1 <= key % 250 <= CLIENTS:
            amounts.setdefault(key % 250 % 5, []).append(key)
    expected = [(rank, len(all_), sum(all_), "n" * 40) for rank, all_ in sorted(amounts.items())]
    assert sql.execute(BY_RANK.encode()).fetchall() == expected
    found = bytes_by_stage(sql, BY_RANK)
    assert found["motion 1, met by the others"] > 0
    # The first 64 KiB of the other owner are in vain; all of it used to be told.
    assert sum(found.values()) < 75_000
    assert gathered_bytes(sql, "client_id, amount, note") > 400_000


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT b.note, c.rank FROM buy b JOIN client c ON b.client_id = c.id WHERE c.id = 7", 80),
        ("SELECT b.note FROM buy b WHERE b.client_id IN (SELECT id FROM client WHERE id = 7)", 80),
        (
            "SELECT b.note, c.rank FROM client c LEFT JOIN buy b ON b.client_id = c.id "
            "WHERE c.id < 3",
            160,
        ),
    ],
)
def test_only_rows_that_meet_others_travel(sql: Connection, text: str, rows: int) -> None:
    assert len(sql.execute(text.encode()).fetchall()) == rows
    found = bytes_by_stage(sql, text)
    met = next(size for stage, size in found.items() if stage.endswith("met by the others"))
    assert 0 < met < rows * 60
    assert sum(found.values()) * 4 < gathered_bytes(sql, "client_id, note")


def test_explain_tells_where_the_rows_may_meet_and_analyze_where_they_met(sql: Connection) -> None:
    lines = [line.strip() for (line,) in sql.execute(f"EXPLAIN {BY_RANK}".encode()).fetchall()]
    assert 'or at the owners of "buy": the rows of the other motions go there, if few' in lines
    text = f"EXPLAIN (ANALYZE, TIMING off) {BY_RANK}".encode()
    met = [line.strip() for (line,) in sql.execute(text).fetchall()]
    motions = [line for line in met if line.startswith("motion [")]
    assert len(motions) == 2
    assert motions[1].endswith('to the owners of "buy"')
    assert met.index(motions[0]) < met.index('scan "buy" -> "b"') < met.index(motions[1])


def test_rows_that_tell_a_bucket_find_their_partner_by_its_primary_key(sql: Connection) -> None:
    text = "SELECT b.note FROM client c JOIN buy b ON b.id = c.rank * 1 WHERE c.id < 50"
    other = "SELECT b.note FROM client c JOIN buy b ON b.id = c.rank WHERE c.id < 50"
    assert sql.execute(text.encode()).fetchall() == sql.execute(other.encode()).fetchall()
    lines = [line for (line,) in sql.execute(f"EXPLAIN ANALYZE {other}".encode()).fetchall()]
    assert any('scan "buy" -> "b" by primary key (id=?)' in line for line in lines)
    assert any("motion [policy: segment]" in line for line in lines)


def test_two_large_sides_are_gathered_as_before(sql: Connection) -> None:
    text = (
        "SELECT count(*), count(DISTINCT repeat(a.note, 9) || a.amount::text "
        "|| repeat(b.note, 9) || b.id::text) FROM buy a JOIN buy b ON a.client_id = b.amount"
    )
    found = bytes_by_stage(sql, text)
    assert sql.execute(text.encode()).fetchone() == (BUYS - BUYS // 250, BUYS - BUYS // 250)
    assert found["motion 1"] > 0 and found["motion 2"] > 0


def test_a_limit_on_rows_holds_for_those_that_meet(sql: Connection) -> None:
    text = (
        "SELECT b.note, c.rank FROM buy b JOIN client c ON b.client_id = c.id "
        "OPTION (sql_motion_row_max = 500)"
    )
    with pytest.raises(psycopg.Error) as problem:
        sql.execute(text.encode())
    assert problem.value.sqlstate == "54000"


@pytest.mark.parametrize("width", [256, 257, 400])
def test_rows_of_hundreds_of_columns_are_merged(sql: Connection, width: int) -> None:
    """More than C packs: they were an internal error."""
    sums = ", ".join(f"sum(id) + {number}" for number in range(width - 1))
    sorts = ", ".join(f"id + {number}" for number in range(width))
    found = sql.execute(f"SELECT rank, {sums} FROM client GROUP BY rank ORDER BY 1".encode())
    by_rank = [sum(key for key in range(1, CLIENTS + 1) if key % 5 == rank) for rank in range(5)]
    assert found.fetchall() == [
        (rank, *(by_rank[rank] + number for number in range(width - 1))) for rank in range(5)
    ]
    ordered = sql.execute(f"SELECT id FROM client ORDER BY {sorts} LIMIT 2".encode())
    assert ordered.fetchall() == [(1,), (2,)]
    joined = (
        "SELECT count(*) FROM (SELECT c.id, "
        + ", ".join(f"b.amount + {number} AS a{number}" for number in range(width))
        + " FROM buy b JOIN client c ON b.amount = c.rank) s WHERE "
        + " + ".join(f"a{number}" for number in range(0, width, 4))
        + " > 0"
    )
    assert sql.execute(joined.encode()).fetchall() == [(CLIENTS // 5 * 4,)]
