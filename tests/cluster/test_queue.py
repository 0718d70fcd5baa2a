"""Operations put into the governor's queue are carried out in order, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]

TEN = [
    "CREATE TABLE q (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)",
    "CREATE TABLE g (k TEXT PRIMARY KEY, v INT) DISTRIBUTED GLOBALLY",
    "INSERT INTO g VALUES ('n', 1)",
    "INSERT INTO q VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')",
    "UPDATE q SET b = b || '!'",
    "INSERT INTO nowhere VALUES (1)",
    "CREATE USER worker WITH PASSWORD 'Passw0rd1'",
    "GRANT READ ON TABLE q TO worker",
    "ALTER SYSTEM SET sql_motion_row_max = 7000",
    "UPDATE g SET v = v + 1 WHERE k = 'n'",
]


def enqueue(cluster: Cluster, via: str, statements: list[str], first: int = 100) -> None:
    for at, text in enumerate(statements, first):
        cluster[via].sql(
            "INSERT INTO _pico_governor_queue (id, batch_id, op, op_format, status, kind, "
            "description) VALUES (%s, 'batch', %s, 'sql', 'pending', 'custom', '')",
            (at, text),
        )


def queue(cluster: Cluster, via: str) -> dict[int, Any]:
    rows = cluster[via].sql(
        "SELECT id, status, status_description FROM _pico_governor_queue WHERE id >= 100"
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def test_the_queue_is_made_by_code_and_begins_with_the_upgrade(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")

    def upgraded() -> bool:
        rows = cluster["i1"].sql("SELECT batch_id, kind, status FROM _pico_governor_queue")
        return bool(rows) and set(rows) == {("0.1.0", "upgrade", "done")}

    eventually(upgraded, "the initial upgrade")
    [(table_id,)] = cluster["i1"].sql(
        "SELECT id FROM _pico_table WHERE name = '_pico_governor_queue'"
    )
    assert table_id == 522


def test_a_failure_in_the_middle_stops_the_queue_until_it_is_repaired(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    enqueue(cluster, "i2", TEN)
    eventually(lambda: queue(cluster, "i1")[105][0] == "failed", "the failure")
    eventually(lambda: len(queue(cluster, "i1")) == 10, "all that i2 was given to be known at i1")
    found = queue(cluster, "i1")
    assert [found[at][0] for at in range(100, 110)] == ["done"] * 5 + ["failed"] + ["pending"] * 4
    assert "nowhere" in found[105][1]
    assert "operation 105 failed" in str(cluster["i1"].status()["governor"]["blocked_by"])
    cluster["i3"].sql("CREATE TABLE meanwhile (a INT PRIMARY KEY)")  # others' work goes on
    cluster["i2"].sql("UPDATE _pico_governor_queue SET op = 'SELECT 1' WHERE id = 105")
    cluster["i2"].sql(
        "UPDATE _pico_governor_queue SET op = 'INSERT INTO g VALUES (''m'', 5)', "
        "status = 'pending' WHERE id = 105"
    )
    eventually(
        lambda: {status for status, _ in queue(cluster, "i1").values()} == {"done"}, "the rest"
    )
    assert cluster["i3"].sql("SELECT a, b FROM q ORDER BY a") == [
        (1, "one!"),
        (2, "two!"),
        (3, "three!"),
        (4, "four!"),
    ]
    assert cluster["i1"].sql("SELECT v FROM g WHERE k = 'n'") == [(2,)]
    assert cluster["i1"].sql("SHOW sql_motion_row_max") == [("7000",)]


def test_killing_the_leader_in_the_middle_changes_nothing_in_the_result(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 3, "three voters")
    counting = ["CREATE TABLE c (k INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY"]
    counting += ["CREATE TABLE s (k INT PRIMARY KEY, n INT) DISTRIBUTED BY (k)"]
    counting += ["INSERT INTO c VALUES (1, 0)", "INSERT INTO s VALUES (1, 0)"]
    counting += ["UPDATE c SET n = n + 1", "UPDATE s SET n = n + 1"] * 8
    enqueue(cluster, "i1", counting)
    for _ in range(2):
        leader = eventually(
            lambda: (found := cluster.leader("i1")) in cluster.nodes and found, "a leader"
        )
        others = [name for name in cluster.nodes if name != leader]
        cluster[leader].kill()
        eventually(lambda via=others[0]: cluster.leader(via) in others, "a new leader")  # noqa: B023
        cluster[leader].start()
        cluster.wait_online("i1", "i2", "i3", via=others[0])
    eventually(
        lambda: {status for status, _ in queue(cluster, "i1").values()} == {"done"},
        "all operations done",
        60.0,
    )
    assert cluster["i1"].sql("SELECT n FROM c") == [(8,)]
    eventually(lambda: cluster["i1"].sql("SELECT n FROM s") == [(8,)], "each exactly once")


def test_the_queue_takes_no_nonsense(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    eventually(lambda: cluster["i1"].sql("SELECT 1 FROM _pico_governor_queue"), "the queue")

    def refused(**changed: Any) -> str:
        row = {"id": 200, "op": "SELECT 1", "op_format": "sql", "status": "pending"}
        row |= {"kind": "custom", "batch_id": "b", "description": "", **changed}
        names = ", ".join(row)
        marks = ", ".join(["%s"] * len(row))
        text = f"INSERT INTO _pico_governor_queue ({names}) VALUES ({marks})"
        with pytest.raises(psycopg.Error) as caught:
            cluster["i1"].sql(text, tuple(row.values()))
        assert caught.value.diag.message_primary is not None
        return f"{caught.value.sqlstate} {caught.value.diag.message_primary}"

    assert refused(kind="strange") == "23514 kind of _pico_governor_queue: 'strange' is not allowed"
    assert refused(kind="upgrade") == "23514 kind 'upgrade' is not known to the governor's queue"
    assert (
        refused(op_format="lua") == "23514 op_format of _pico_governor_queue: 'lua' is not allowed"
    )
    assert refused(status="soon") == "23514 status of _pico_governor_queue: 'soon' is not allowed"
    assert refused(op=" ") == "23514 op of _pico_governor_queue: ' ' is not allowed"
    assert refused(id=1).startswith("23505 ")  # an id of the upgrade
    with pytest.raises(psycopg.errors.CheckViolation):
        cluster["i1"].sql("UPDATE _pico_governor_queue SET status = 'never' WHERE id = 1")
    assert queue(cluster, "i1") == {}


def test_an_operation_that_cannot_be_is_failed_with_a_reason(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    eventually(lambda: cluster["i1"].sql("SELECT 1 FROM _pico_governor_queue"), "the queue")
    reasons = {
        "CREATE TABEL x": "CREATE TABEL is not supported",
        "UPDATE _pico_instance SET raft_id = 77": (
            "changing raft_id of _pico_instance is not allowed"
        ),
        "DELETE FROM _pico_instance": ("rows of _pico_instance come and go by the governor alone"),
        "INSERT INTO _pico_property VALUES ('a', '1')": "_pico_property cannot be written by SQL",
        "SELECT 1": "SELECT cannot be queued",
        "INSERT INTO g VALUES ($1)": 'table with name "g" not found',
        "UPDATE _pico_replicaset SET epoch = (SELECT 1 UNION ALL SELECT 2)": "more than one row",
    }
    for at, (text, reason) in enumerate(reasons.items(), 100):
        enqueue(cluster, "i1", [text], at)
        status, why = eventually(
            lambda at=at: (found := queue(cluster, "i1")[at])[0] != "pending" and found,
            f"the end of {text}",
        )
        assert status == "failed", text
        assert reason in why
        cluster["i1"].sql(f"UPDATE _pico_governor_queue SET status = 'done' WHERE id = {at}")


def test_an_update_by_key_is_queued_unless_rows_would_leave_their_replicaset(
    new_cluster: Make,
) -> None:
    """Which rows it changes is only known when others have been read."""
    cluster = new_cluster().start("i1", "i2")
    rows = ", ".join(f"({at}, {at}, 'old')" for at in range(40))
    statements = [
        "CREATE TABLE q (a INT PRIMARY KEY, d INT, b TEXT) DISTRIBUTED BY (d)",
        "CREATE TABLE p (x INT PRIMARY KEY, c INT) DISTRIBUTED BY (x)",
        f"INSERT INTO q VALUES {rows}",
        "INSERT INTO p VALUES (1, 3), (2, 5), (3, 7)",
        "UPDATE q SET b = 'new' FROM p WHERE q.a = p.c",
        "UPDATE q SET d = d + 1000",
    ]
    enqueue(cluster, "i2", statements)
    eventually(lambda: queue(cluster, "i1")[105][0] == "failed", "the last one")
    found = queue(cluster, "i1")
    assert [found[at][0] for at in range(100, 105)] == ["done"] * 5
    assert "cannot move a row to another replicaset" in found[105][1]
    changed = cluster["i1"].sql("SELECT a FROM q WHERE b = 'new' ORDER BY a")
    assert changed == [(3,), (5,), (7,)]
    assert cluster["i1"].sql("SELECT min(d), max(d), count(*) FROM q") == [(0, 39, 40)]
