"""What the governor runs for somebody is run with the rights that they have when it is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually
from tests.server.test_users import session, users

FIRST = 5000
INSERT = (
    "INSERT INTO _pico_governor_queue (id, batch_id, op, op_format, status, kind, description, "
    "owner) VALUES (%s, 'rights', %s, 'sql', 'pending', 'custom', '', 1)"  # "I am the admin"
)


@pytest.fixture
def held(cluster: Cluster) -> Iterator[Node]:
    """A queue that waits behind a failed operation, and two who may write it."""
    node = cluster["i1"]
    with users(node, "queuer", "leaver"):
        node.sql("CREATE TABLE qr (k INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
        node.sql("INSERT INTO qr VALUES (1, 'kept')")
        for name in ("queuer", "leaver"):
            node.sql(f"GRANT INSERT, SELECT ON TABLE _pico_governor_queue TO {name}")
            node.sql(f"GRANT DELETE, SELECT ON TABLE qr TO {name}")
        node.sql(INSERT, (FIRST, "DROP TABLE nothing_of_that_name"))
        eventually(lambda: told(node, FIRST)[0] == "failed", "the failure")
        yield node
        node.sql("DROP TABLE IF EXISTS qr")
        node.sql("DROP TABLE IF EXISTS made_by_queuer")
        node.sql("DELETE FROM _pico_governor_queue WHERE id >= %s", (FIRST,))


def told(node: Node, at: int) -> Any:
    [row] = node.sql(
        "SELECT status, status_description, owner FROM _pico_governor_queue WHERE id = %s", (at,)
    )
    return row


def skip(node: Node, at: int) -> None:
    node.sql("UPDATE _pico_governor_queue SET status = 'done' WHERE id = %s", (at,))


def test_a_right_that_was_taken_away_counts_no_more(held: Node) -> None:
    [(queuer,)] = held.sql("SELECT id FROM _pico_user WHERE name = 'queuer'")
    with session(held, "queuer") as asking:
        asking.execute(INSERT, (FIRST + 1, "DELETE FROM qr"))
    held.sql("REVOKE DELETE ON TABLE qr FROM queuer")
    skip(held, FIRST)
    eventually(lambda: told(held, FIRST + 1)[0] == "failed", "the refusal")
    _, why, owner = told(held, FIRST + 1)
    assert "Delete access to space 'qr' is denied for user 'queuer'" in why
    assert owner == queuer  # whatever the statement said
    assert held.sql("SELECT v FROM qr") == [("kept",)]
    # An administrator lets it run again: still with its owner's rights. Who mends it owns it.
    held.sql("UPDATE _pico_governor_queue SET status = 'pending' WHERE id = %s", (FIRST + 1,))
    eventually(lambda: told(held, FIRST + 1)[0] == "failed", "the same refusal")
    held.sql(
        "UPDATE _pico_governor_queue SET status = 'pending', op = 'DELETE FROM qr WHERE k > 0' "
        "WHERE id = %s",
        (FIRST + 1,),
    )
    eventually(lambda: told(held, FIRST + 1)[0] == "done", "the mended one")
    assert held.sql("SELECT v FROM qr") == []


def test_what_a_queued_operation_makes_belongs_to_who_queued_it(held: Node) -> None:
    held.sql("GRANT CREATE TABLE TO queuer")
    with session(held, "queuer") as asking:
        asking.execute(INSERT, (FIRST + 1, "CREATE TABLE made_by_queuer (k INT PRIMARY KEY)"))
        asking.execute(INSERT, (FIRST + 2, "INSERT INTO made_by_queuer VALUES (7)"))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            asking.execute(INSERT, (FIRST + 3, "GRANT super TO queuer"))
        skip(held, FIRST)
        eventually(lambda: told(held, FIRST + 2)[0] == "done", "both operations")
        assert asking.execute("SELECT k FROM made_by_queuer").fetchall() == [(7,)]
        asking.execute("DROP TABLE made_by_queuer")


def test_a_queued_operation_makes_no_temporary_table(held: Node) -> None:
    """It needed no right, and came into the catalogue of all."""
    with session(held, "queuer") as queuer:
        queuer.execute(INSERT, (FIRST + 1, "CREATE TEMP TABLE made_by_queuer (k INT)"))
    skip(held, FIRST)
    eventually(lambda: told(held, FIRST + 1)[0] == "failed", "the failure")
    assert "needs a session of its own" in told(held, FIRST + 1)[1]
    assert held.sql("SELECT name FROM _pico_table WHERE name = 'made_by_queuer'") == []


def test_nobody_runs_anything_for_a_user_that_is_gone(held: Node) -> None:
    with session(held, "leaver") as asking:
        asking.execute(INSERT, (FIRST + 1, "DELETE FROM qr"))
    held.sql("DROP USER leaver")
    skip(held, FIRST)
    eventually(lambda: told(held, FIRST + 1)[0] == "failed", "the refusal")
    assert "was dropped" in told(held, FIRST + 1)[1]
    assert held.sql("SELECT v FROM qr") == [("kept",)]
