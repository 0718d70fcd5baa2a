"""pg_advisory_lock and its like: of one session as in PostgreSQL, and for the whole cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually
from tests.sql.postgres import postgres  # noqa: F401 (a fixture)

pytestmark = pytest.mark.cluster
FREE = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


@pytest.fixture
def session(cluster: Cluster) -> Iterator[Callable[[str], psycopg.Connection[Any]]]:
    """Sessions; nobody has a lock before and after."""
    made: list[psycopg.Connection[Any]] = []

    def connect(name: str) -> psycopg.Connection[Any]:
        made.append(cluster[name].connect())
        return made[-1]

    yield connect
    for each in made:
        each.close()
    eventually(lambda: cluster["i1"].sql(FREE) == [(0,)], "all locks to be free")


def told(connection: psycopg.Connection[Any], text: str) -> Any:
    """Rows, or the SQLSTATE."""
    try:
        found = connection.execute(text.encode())
    except psycopg.Error as problem:
        return problem.sqlstate
    return found.fetchall() if found.description else []


def is_free(connection: psycopg.Connection[Any], key: str) -> bool:
    [[got]] = told(connection, f"SELECT pg_try_advisory_xact_lock({key})")
    return bool(got)


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    return thread, found


def waits(connection: psycopg.Connection[Any]) -> bool:
    return told(connection, "SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)]


# --- of one session, and of another one beside it: as PostgreSQL tells it -------------------------

#: Who says it, and what: `a` and `b` are two sessions.
STORY = """
a SELECT pg_advisory_lock(1)
a SELECT pg_advisory_lock(1), pg_try_advisory_lock(1) AS again, 1 + 1 AS two
b SELECT pg_try_advisory_lock(1)
b SELECT pg_try_advisory_lock_shared(1)
b SELECT pg_advisory_unlock(1)
b SELECT pg_try_advisory_lock(1, 0), pg_try_advisory_lock(0, 1)
a SELECT pg_try_advisory_lock(0, 1)
a SELECT pg_advisory_unlock(1)
a SELECT pg_advisory_unlock(1)
b SELECT pg_try_advisory_lock(1)
a SELECT pg_advisory_unlock(1)
a SELECT pg_advisory_unlock(1)
b SELECT pg_try_advisory_lock(1)
b SELECT pg_advisory_unlock_shared(1), pg_advisory_unlock(1)
b SELECT pg_advisory_unlock_all()
a SELECT pg_try_advisory_lock_shared(7), pg_try_advisory_lock_shared(7)
b SELECT pg_try_advisory_lock_shared(7), pg_try_advisory_lock(7)
a SELECT pg_try_advisory_lock(7), pg_advisory_unlock(7), pg_advisory_unlock_shared(7)
b SELECT pg_advisory_unlock_shared(7)
a SELECT pg_try_advisory_lock(7)
b SELECT pg_try_advisory_lock_shared(7)
a SELECT pg_advisory_unlock_shared(7)
b SELECT pg_try_advisory_lock_shared(7)
a SELECT pg_advisory_unlock(7)
b SELECT pg_try_advisory_lock_shared(7)
b SELECT pg_advisory_unlock_all()
a BEGIN
a SELECT pg_advisory_xact_lock(5), pg_try_advisory_xact_lock(5), pg_advisory_lock(6)
a SELECT pg_advisory_unlock(5)
b SELECT pg_try_advisory_lock(5), pg_try_advisory_lock(6)
a SAVEPOINT s
a SELECT pg_advisory_xact_lock(8), pg_advisory_lock(9)
b SELECT pg_try_advisory_lock(8)
a ROLLBACK TO s
b SELECT pg_try_advisory_lock(8), pg_try_advisory_lock(9), pg_try_advisory_lock(5)
a SELECT 1 / 0
b SELECT pg_try_advisory_lock(5)
a SELECT pg_advisory_lock(1)
a ROLLBACK
b SELECT pg_try_advisory_lock(5), pg_try_advisory_lock(6)
a SELECT pg_advisory_unlock(6), pg_advisory_unlock(9), pg_advisory_unlock(8)
b SELECT pg_advisory_unlock_all()
a BEGIN
a SELECT pg_advisory_lock(3), pg_advisory_xact_lock(3)
a SELECT pg_advisory_unlock(3)
b SELECT pg_try_advisory_lock(3)
a COMMIT
b SELECT pg_try_advisory_lock(3), pg_advisory_unlock(3)
a SELECT pg_advisory_xact_lock(4)
b SELECT pg_try_advisory_lock(4), pg_advisory_unlock(4)
a SELECT pg_advisory_xact_lock(4); SELECT pg_advisory_lock(2)
b SELECT pg_try_advisory_lock(4), pg_advisory_unlock(4), pg_try_advisory_lock(2)
a SELECT pg_advisory_xact_lock(4); SELECT 1 / 0
b SELECT pg_try_advisory_lock(4), pg_advisory_unlock(4)
a SELECT pg_advisory_lock(NULL), pg_try_advisory_lock(NULL, 1), pg_advisory_unlock(NULL)
a SELECT pg_try_advisory_lock(-1), pg_try_advisory_lock(9223372036854775807)
a SELECT pg_try_advisory_lock(-2147483648, 2147483647)
a SELECT pg_advisory_lock()
a SELECT pg_advisory_lock(1, 2, 3)
a SELECT pg_advisory_lock('x')
a SELECT pg_catalog.pg_try_advisory_lock('12'::bigint) AS "Got It", pg_advisory_unlock(10 + 2) ok
b SELECT locktype, classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype = 'advisory' ORDER BY 2, 3, 4
a PREPARE take (bigint) AS SELECT pg_try_advisory_lock($1)
a EXECUTE take (77)
b SELECT pg_try_advisory_lock(77)
a DISCARD ALL
b SELECT pg_try_advisory_lock(77), pg_try_advisory_lock(2), pg_advisory_unlock(77), pg_advisory_unlock(2)
b SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
"""  # noqa: E501


@pytest.mark.clients
def test_a_story_of_two_sessions_is_that_of_postgresql(
    session: Callable[[str], psycopg.Connection[Any]],
    postgres: Any,  # noqa: F811
) -> None:
    ours = {"a": session("i1"), "b": session("i2")}
    theirs = {"a": postgres, "b": psycopg.connect(postgres.info.dsn, autocommit=True)}
    seen: dict[int, list[str]] = {}
    for each in (*ours.values(), *theirs.values()):
        heard = seen[id(each)] = []

        def note(diagnostic: Any, heard: list[str] = heard) -> None:
            heard.append(f"{diagnostic.severity} {diagnostic.message_primary}")

        each.add_notice_handler(note)
    try:
        for line in STORY.strip().splitlines():
            who, _, text = line.partition(" ")
            both = [(told(side[who], text), seen[id(side[who])]) for side in (ours, theirs)]
            assert both[0] == both[1], line
    finally:
        theirs["b"].close()


# --- of the cluster -------------------------------------------------------------------------------


def test_who_waits_at_another_instance_gets_it_in_its_turn(session: Any) -> None:
    first, second, third = session("i1"), session("i2"), session("i1")
    told(first, "SELECT pg_advisory_lock(1)")
    order: list[str] = []

    def take(name: str, connection: Any) -> None:
        told(connection, "SELECT pg_advisory_lock(1)")
        order.append(name)
        told(connection, "SELECT pg_advisory_unlock(1)")

    look, threads = session("i1"), []
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    for count, (name, connection) in enumerate((("second", second), ("third", third)), 1):
        threads.append(in_background(lambda n=name, c=connection: take(n, c))[0])
        eventually(lambda n=count: told(look, waiting) == [(n,)], "one more who waits")
    assert told(first, "SELECT pg_advisory_unlock(1)") == [(True,)]
    for thread in threads:
        thread.join(20.0)
    assert order == ["second", "third"]


@pytest.mark.parametrize(
    ("setting", "code"),
    [("lock_timeout = '100ms'", "55P03"), ("statement_timeout = '100ms'", "57014")],
)
def test_a_wait_ends_in_time(session: Any, setting: str, code: str) -> None:
    first, second = session("i1"), session("i2")
    told(first, "SELECT pg_advisory_lock(1)")
    told(second, f"SET {setting}")
    assert told(second, "SELECT pg_advisory_lock(1)") == code
    eventually(lambda: not waits(first), "nobody to wait")
    told(second, "SET lock_timeout = 0; SET statement_timeout = 0")
    told(first, "SELECT pg_advisory_unlock(1)")
    assert told(second, "SELECT pg_advisory_lock(1)") == [("",)]


def test_a_wait_ends_by_a_cancel_and_by_the_end_of_its_session(session: Any) -> None:
    first, second = session("i1"), session("i2")
    told(first, "SELECT pg_advisory_lock(1)")
    thread, found = in_background(lambda: told(second, "SELECT pg_advisory_lock(1)"))
    eventually(lambda: waits(first), "the second to wait")
    second.cancel()
    thread.join(20.0)
    assert found == ["57014"]
    thread, found = in_background(lambda: told(second, "SELECT pg_advisory_lock(1)"))
    eventually(lambda: waits(first), "the second to wait again")
    second.pgconn.finish()
    eventually(lambda: not waits(first), "nobody to wait")


def test_locks_end_with_their_session(session: Any) -> None:
    first, second = session("i1"), session("i2")
    told(first, "SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2, 3)")
    first.close()
    assert told(second, "SELECT pg_advisory_lock(1), pg_advisory_lock(2, 3)") == [("", "")]


def test_of_two_who_wait_for_each_other_one_is_told(session: Any) -> None:
    first, second = session("i1"), session("i2")
    told(first, "SELECT pg_advisory_lock(1)")
    told(second, "SELECT pg_advisory_lock(2)")

    def take(connection: Any, key: int) -> Any:
        answer = told(connection, f"SELECT pg_advisory_lock({key})")
        if answer == "40P01":  # who is told gives up what it has
            told(connection, "SELECT pg_advisory_unlock_all()")
        return answer

    thread, found = in_background(lambda: take(first, 2))
    other = take(second, 1)
    thread.join(20.0)
    assert sorted(map(str, (*found, other))) == ["40P01", "[('',)]"]


def test_a_lock_is_of_the_cluster_by_every_way_of_asking(session: Any) -> None:
    """The extended protocol with parameters, a pipeline, and a text of several statements."""
    first, second = session("i1"), session("i2")
    found = first.execute("SELECT pg_try_advisory_lock(%s) AS got", (5,), prepare=True)
    assert (found.fetchall(), found.description[0].name) == ([(True,)], "got")
    assert first.execute("SELECT pg_try_advisory_lock(%s, %s)", (1, -2)).fetchall() == [(True,)]
    assert not is_free(second, "5") and not is_free(second, "1, -2") and is_free(second, "1, 2")
    with first.pipeline():
        first.execute("SELECT pg_advisory_unlock(5)")
        first.execute("SELECT pg_advisory_unlock(%s, -2)", (1,))
    assert is_free(second, "5") and is_free(second, "1, -2")
    first.execute("BEGIN; SELECT pg_advisory_xact_lock(6); SELECT 1")
    assert not is_free(second, "6")
    first.execute("COMMIT")
    assert is_free(second, "6")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT pg_advisory_lock(x) FROM generate_series(1, 3) AS x",
        "SELECT 1 WHERE pg_try_advisory_lock(1)",
        "SELECT NOT pg_try_advisory_lock(1)",
        "SELECT CASE WHEN pg_try_advisory_lock(1) THEN 1 END",
        "SELECT pg_advisory_lock(pg_advisory_lock(1)::int)",
        "SELECT pg_advisory_lock(1) UNION SELECT pg_advisory_lock(2)",
        "EXPLAIN SELECT pg_advisory_lock(1)",
        "COPY (SELECT pg_advisory_lock(1)) TO STDOUT",
        "DO $$ BEGIN RETURN QUERY SELECT pg_try_advisory_lock(1); END $$",
    ],
)
def test_elsewhere_they_are_refused(session: Any, text: str) -> None:
    first = session("i1")
    assert told(first, text) == "0A000"
    for made in ("TABLE", "VIEW"):
        assert told(first, f"CREATE {made} m AS SELECT pg_try_advisory_lock(1) AS x") == "42601"
    assert told(first, FREE) == [(0,)]


def test_what_is_no_key_is_refused(session: Any) -> None:
    first = session("i1")
    assert told(first, "SELECT pg_advisory_lock(9223372036854775808)") == "22003"
    assert told(first, "SELECT pg_advisory_lock(2147483648, 1)") == "22003"
    assert told(first, FREE) == [(0,)]


def test_the_table_of_locks_is_written_by_locks_alone(session: Any) -> None:
    first = session("i1")
    calls = ", ".join(f"pg_advisory_lock({each})" for each in range(30))
    told(first, f"SELECT {calls}")
    assert told(first, FREE) == [(30,)]
    assert told(first, "INSERT INTO _cairn_lock VALUES (1, 2, 1, 1, 1, 'shared', true, 1)") == (
        "42501"
    )
    assert told(first, "CALL cairn_changes('_cairn_lock')") == "0A000"
    assert told(first, "SELECT pg_advisory_unlock_all()") == [("",)]
    assert told(first, FREE) == [(0,)]


def test_a_statement_with_locks_waits_for_nobody(session: Any) -> None:
    """Whether locks are still there is asked once in a while and not for every statement."""
    first = session("i1")
    told(first, "SELECT pg_advisory_lock(1)")
    until = time.monotonic() + 2.0
    while time.monotonic() < until:  # longer than an answer counts
        assert told(first, "SELECT 1") == [(1,)]
