"""Statements that end between any two callbacks: nothing is left, and what was told is so."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cairn.node.statements.ending import Ticket, to_its_end
from cairn.node.statements.owner.writes import OwnerWrites
from cairn.sim.cluster.short_records import short_records
from tests.sim_cluster.ended_anywhere import (
    End,
    Ended,
    Told,
    cancel,
    cancel_while_others_stand_still,
    hang_up,
    lose_links,
)

Patch = pytest.MonkeyPatch
SCHEMA = (
    "CREATE TABLE t (id INT PRIMARY KEY, n INT, v TEXT) DISTRIBUTED BY (id)",
    "CREATE TABLE g (id INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY",
    "CREATE SEQUENCE numbers",
    "INSERT INTO t SELECT i, i, 'v' || i FROM generate_series(1, 40) g(i)",
    "INSERT INTO g SELECT i, i FROM generate_series(1, 10) g(i)",
)
SUM, SUM_OF_GLOBAL = "SELECT sum(n) FROM t", "SELECT sum(n) FROM g"
LONG = "(SELECT count(*) FROM generate_series(1, 20)) > 1"
MORE, LESS = "INSERT INTO t SELECT id + 1000, n, v FROM t", "DELETE FROM t WHERE id > 1000"
LINES = b"".join(b"%d\t1\tx\n" % each for each in range(1_001, 1_040))
TAKEN, FREE = "SELECT pg_advisory_lock(5)", "SELECT pg_advisory_unlock(5)"
NO_TABLE, TABLE = (
    "DROP TABLE IF EXISTS c",
    "CREATE TABLE c (id INT PRIMARY KEY) DISTRIBUTED BY (id)",
)
#: Rows 1 and 2 belong to different replicasets. What begins with $ is a prepared statement.
STATEMENTS = {
    "all rows": Told("$SELECT * FROM t"),
    "all rows, by simple query": Told("SELECT * FROM t"),
    "groups": Told("SELECT v, count(*) FROM t GROUP BY v ORDER BY v"),
    "a join": Told("SELECT * FROM t a JOIN t b ON a.n = b.n"),
    "a join of parts": Told(
        "SET sql_repartition = 'on'; SELECT a.id, b.id FROM t a JOIN t b ON a.v = b.v"
    ),
    "a window": Told("SELECT id, sum(n) OVER (PARTITION BY v) FROM t"),
    "a sub-query": Told("SELECT * FROM t WHERE id IN (SELECT id FROM t WHERE n > 3) ORDER BY 1"),
    "a row here": Told("$SELECT * FROM t WHERE id = 1"),
    "a row there": Told("$SELECT * FROM t WHERE id = 2"),
    "a change here": Told("$UPDATE t SET n = n + 1 WHERE id = 1", counts=SUM),
    "a change there": Told("$UPDATE t SET n = n + 1 WHERE id = 2", counts=SUM),
    "a long change here": Told(f"UPDATE t SET n = n + 1 WHERE id = 1 AND {LONG}", counts=SUM),
    "a long change there": Told(f"UPDATE t SET n = n + 1 WHERE id = 2 AND {LONG}", counts=SUM),
    "a change of all": Told("UPDATE t SET n = n + 1", counts=SUM),
    "returning": Told("$UPDATE t SET n = n + 1 RETURNING id, v", counts=SUM),
    "rows from rows": Told(MORE, (LESS,), (LESS,)),
    "COPY in": Told("COPY t FROM STDIN", (), (LESS,), LINES),
    "COPY out": Told("COPY t TO STDOUT"),
    "a global change": Told("UPDATE g SET n = n + 1 WHERE id = 1", counts=SUM_OF_GLOBAL),
    "a block here": Told("BEGIN; UPDATE t SET n = n + 1 WHERE id = 1; COMMIT", counts=SUM),
    "a longer block here": Told(
        "BEGIN; UPDATE t SET n = 5 WHERE id = 1; UPDATE t SET v = 'w' WHERE id = 1; "
        "DELETE FROM t WHERE id = 1; COMMIT",
        ("INSERT INTO t VALUES (1, 1, 'v1') ON CONFLICT DO NOTHING",),
        counts=SUM,
    ),
    "a block there": Told("BEGIN; UPDATE t SET n = n + 1 WHERE id = 2; COMMIT", counts=SUM),
    "DO": Told("DO $$ BEGIN UPDATE t SET n = n + 1 WHERE id = 2; END $$", counts=SUM),
    "a number": Told("SELECT nextval('numbers')"),
    "a lock": Told("SELECT pg_advisory_lock(5)"),
    "a lock and its end": Told(f"{TAKEN}; {FREE}"),
    "locks and their end": Told(f"{TAKEN}, pg_advisory_lock(6); SELECT pg_advisory_unlock_all()"),
    "a lock of a block": Told("BEGIN; SELECT pg_advisory_xact_lock(5); SELECT n FROM t; COMMIT"),
    "a lock that another one has": Told(TAKEN, (TAKEN,), (FREE,), most=60),
    "temporary tables": Told(
        "CREATE TEMP TABLE x AS SELECT * FROM t; INSERT INTO x SELECT * FROM x; "
        "SELECT * FROM x; DROP TABLE x"
    ),
    "a cursor": Told(
        "BEGIN; DECLARE k CURSOR FOR SELECT * FROM t; FETCH 5 FROM k; FETCH 5 FROM k; COMMIT"
    ),
    "EXPLAIN ANALYZE": Told("EXPLAIN ANALYZE SELECT * FROM t ORDER BY v"),
    "the catalogue": Told("SELECT relname FROM pg_class ORDER BY 1"),
    "CREATE TABLE": Told(TABLE, (NO_TABLE,), (NO_TABLE,)),
    "CREATE TABLE AS": Told("CREATE TABLE c AS SELECT id, n FROM t", (NO_TABLE,), (NO_TABLE,)),
    "CREATE INDEX": Told("CREATE INDEX ON t (n)", ("DROP INDEX IF EXISTS t_n_idx",)),
    "TRUNCATE": Told("TRUNCATE c", (NO_TABLE, TABLE), (NO_TABLE,)),
}
OF_SCHEMA = ("CREATE", "TRUNCATE")
ENDS: dict[str, End] = {
    "cancelled": cancel,
    "left": hang_up,
    "without links": lose_links,
    "cancelled at once": cancel_while_others_stand_still,
}
LONG_ONES = ("a change of all", "returning", "rows from rows", "a longer block here", "COPY in")
#: What was found by these, and costs a second or two each.
QUICK = [
    ("a lock and its end", "cancelled"),
    ("a block here", "left"),
    ("a join", "cancelled"),
    ("a long change there", "cancelled at once"),
]


def what_is_left(what: str, end: str, every: int = 1) -> list[str]:
    scene, found = Ended(), []

    async def live() -> None:
        found.extend(await scene.everywhere(STATEMENTS[what], ENDS[end], every=every))

    scene.run(SCHEMA, live)
    return found


@pytest.mark.parametrize(("what", "end"), QUICK)
def test_nothing_is_left_of_a_statement_whenever_it_ends(what: str, end: str) -> None:
    assert what_is_left(what, end) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("what", STATEMENTS)
@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_of_any_statement(what: str, end: str) -> None:
    every = 7 if what.startswith(OF_SCHEMA) else 1
    assert what_is_left(what, end, every) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("while_it_runs", [True, False])
@pytest.mark.parametrize("what", LONG_ONES)
@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_of_any_statement_of_several_records(
    what: str, end: str, *, while_it_runs: bool
) -> None:
    with short_records(while_it_runs=while_it_runs):
        assert what_is_left(what, end) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_left_of_statements_that_are_ended_twice(seed: int) -> None:
    chance, scene = random.Random(seed), Ended()
    texts = [each for each in STATEMENTS if not each.startswith(OF_SCHEMA)]

    async def live() -> None:
        for _ in range(60):
            what = chance.choice(texts)
            ends = {
                step: chance.choice([*ENDS.values()])
                for step in sorted(chance.sample(range(150), 3))
            }
            assert await scene.once(STATEMENTS[what], ends) == "", (seed, what, ends)

    scene.run(SCHEMA, live)


# --- bugs -----------------------------------------------------------------------------------------


def test_a_write_that_is_queued_before_its_task_begins_is_found(monkeypatch: Patch) -> None:
    def too_early(self: OwnerWrites, request: Any, stopped: Any) -> Any:
        ticket = Ticket(stopped)
        return to_its_end(self.write(request, ticket), ticket)

    monkeypatch.setattr(OwnerWrites, "write_or_end", too_early)
    found = what_is_left("a long change there", "cancelled at once")
    assert any("57014 was told, and it was done" in each for each in found)
