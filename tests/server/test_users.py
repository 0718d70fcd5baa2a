"""A session is one user's: it ends with the user, and nobody is taken for another."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually

PASSWORD = "Passw0rd1"


@contextmanager
def users(node: Node, *names: str) -> Iterator[None]:
    for name in names:
        node.sql(f"CREATE USER {name} WITH PASSWORD '{PASSWORD}'")
    try:
        yield
    finally:
        for name in names:
            node.sql(f"DROP USER IF EXISTS {name}")


def session(node: Node, user: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        f"host=127.0.0.1 port={node.pg_port} user={user} password={PASSWORD} dbname=cairn",
        autocommit=True,
    )


def ends(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return connection.closed
    return False


@pytest.mark.parametrize("why", ["DROP USER gone", "ALTER USER gone WITH NOLOGIN"])
def test_the_sessions_of_a_user_end_with_it_on_every_instance(cluster: Cluster, why: str) -> None:
    with users(cluster["i1"], "gone"):
        open_ones = [session(node, "gone") for node in cluster.nodes.values()]
        cluster["i1"].sql(why)
        for connection in open_ones:
            eventually(lambda c=connection: ends(c), "the end of the session")  # type: ignore[misc]


def test_the_next_user_is_somebody_else(cluster: Cluster) -> None:
    node = cluster["i1"]
    ids = []
    for name in ("first", "second"):
        with users(node, name):
            ids += node.sql("SELECT id FROM _pico_user WHERE name = %s", (name,))
    assert ids[0] < ids[1]


def test_who_was_locked_out_does_not_let_itself_in(cluster: Cluster) -> None:
    node = cluster["i1"]
    with users(node, "locked"), session(node, "locked") as own:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            own.execute("ALTER USER locked WITH LOGIN")
        own.execute(f"ALTER USER locked WITH PASSWORD '{PASSWORD}2'")


def test_current_user_is_the_sessions_own(cluster: Cluster) -> None:
    """Also where another session's statement runs between, and where another instance answers."""
    node = cluster["i1"]
    names = ("ann", "bob", "eve")
    node.sql("CREATE TABLE whose (id INT PRIMARY KEY, who TEXT) DISTRIBUTED BY (id)")
    wrong: list[Any] = []

    def ask(name: str, at: int) -> None:
        with session(node, name) as own:
            for number in range(25):
                for text in (
                    "SELECT current_user, count(*) FROM generate_series(1, 20000)",
                    "SELECT session_user",
                    "SELECT current_user, count(*) FROM whose",
                ):
                    found = own.execute(text).fetchone()
                    if found is None or found[0] != name:
                        wrong.append((name, text, found))
                key = at * 1000 + number
                own.execute(f"INSERT INTO whose VALUES ({key}, current_user)")

    try:
        with users(node, *names):
            for name in names:
                node.sql(f"GRANT READ, INSERT ON TABLE whose TO {name}")
            threads = [
                threading.Thread(target=ask, args=(name, at)) for at, name in enumerate(names)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert wrong == []
            found = node.sql("SELECT id / 1000, who, count(*) FROM whose GROUP BY 1, 2 ORDER BY 1")
            assert found == [(at, name, 25) for at, name in enumerate(names)]
    finally:
        node.sql("DROP TABLE whose")


@pytest.mark.parametrize(
    ("kind", "definition"),
    [
        ("TABLE", "(id INT PRIMARY KEY) DISTRIBUTED BY (id)"),
        ("VIEW", "AS SELECT 1 AS x"),
        ("PROCEDURE", "(INT) LANGUAGE SQL AS $$ BEGIN RETURN QUERY SELECT $1; END $$"),
    ],
)
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_drop_does_not_outlive_the_rights_it_was_checked_with(
    cluster: Cluster, kind: str, definition: str, is_prepared: bool
) -> None:
    """It was not there when the text was understood; now it is somebody's."""
    node = cluster["i1"]
    drop = f"DROP {kind} IF EXISTS precious"
    with users(node, "eve"), session(node, "eve") as own:
        cursor = own.cursor()
        cursor.execute(drop, prepare=is_prepared)
        node.sql(f"CREATE {kind} precious {definition}")
        try:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                cursor.execute(drop, prepare=is_prepared)
        finally:
            node.sql(f"DROP {kind} precious")


def test_a_schema_change_that_waited_has_the_rights_of_the_moment_at_which_it_is_made(
    cluster: Cluster,
) -> None:
    """The name belonged to nobody when DROP was asked for, and to the admin when its turn came."""
    node = cluster["i1"]
    wrong: list[str | None] = []
    for at in range(8):
        name = f"waits{at}"
        with users(node, "eve"), session(node, "eve") as own:

            def drop(own: psycopg.Connection[Any] = own, name: str = name) -> None:
                try:
                    own.execute(f"DROP TABLE IF EXISTS {name}")
                except psycopg.Error as problem:
                    wrong.append(problem.sqlstate)

            making = threading.Thread(
                target=node.sql, args=(f"CREATE TABLE {name} (id INT PRIMARY KEY)",)
            )
            dropping = threading.Thread(target=drop)
            making.start()
            dropping.start()
            making.join(30)
            dropping.join(30)
            assert node.sql(f"SELECT count(*) FROM {name}") == [(0,)]  # it is still there
            node.sql(f"DROP TABLE {name}")
    assert set(wrong) <= {"42501"}


def test_one_user_does_not_take_all_threads_from_another(cluster: Cluster) -> None:
    """Eight endless statements of one; the scan of another would wait for them in vain."""
    node = cluster["i1"]
    endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"
    with users(node, "hog", "guest_of_hog"):
        hogs = [session(node, "hog") for _ in range(8)]

        def run(connection: psycopg.Connection[Any]) -> None:
            with suppress(psycopg.Error):
                connection.execute(endless)

        threads = [threading.Thread(target=run, args=(each,)) for each in hogs]
        for thread in threads:
            thread.start()
        try:
            running = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'hog' AND query = %s"
            eventually(lambda: node.sql(running, (endless,)) == [(8,)], "eight at work")
            with session(node, "guest_of_hog") as other:
                other.execute("SET statement_timeout = '20s'")
                asked = (
                    "SELECT count(*) FROM generate_series(1, 100000) a(i) WHERE md5(i::text) > 'f'"
                )
                assert other.execute(asked).fetchall() != []
        finally:
            for each in hogs:
                each.cancel()
            for thread in threads:
                thread.join(20)
                assert not thread.is_alive()
            for each in hogs:
                each.close()


def test_a_text_may_limit_the_statements_after_it(cluster: Cluster) -> None:
    endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"
    with cluster["i1"].connect() as connection:
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(f"SET statement_timeout = '300ms'; {endless}")
        # Each has its own time, and what is set to 0 is without an end.
        assert connection.execute("SET statement_timeout = 0; SELECT 1").nextset()


@pytest.mark.slow  # whether an instance rests is seen only where nobody else uses it
@pytest.mark.parametrize(
    "work",
    [
        "regexp_replace(repeat('a', 40000000), 'a', 'b', 'g')",
        "count(*) FROM generate_series(1, 10000) g(i) WHERE repeat('ab', 9000000 + i) ~ '(a|b)*c'",
    ],
)
def test_a_function_that_works_long_is_ended_with_its_statement(
    cluster: Cluster, work: str
) -> None:
    """Or it would keep its thread, and the memory that it fills, for minutes."""
    node = cluster["i1"]

    def cpu_s() -> float:
        found = Path(f"/proc/{node.child_pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(found[11]) + int(found[12])) / os.sysconf("SC_CLK_TCK")

    def rests() -> bool:
        before, begun = cpu_s(), time.monotonic()
        time.sleep(0.2)
        return cpu_s() - before < 0.3 * (time.monotonic() - begun)

    with node.connect() as connection:
        connection.execute("SET statement_timeout = '500ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(f"SELECT {work}")
    eventually(rests, "an idle instance", 10)


def test_the_topology_is_hidden_from_whom_it_is_taken_by_every_way(cluster: Cluster) -> None:
    node = cluster["i1"]
    with users(node, "visitor"), session(node, "visitor") as visitor:
        assert "instances" in visitor.execute("CALL cairn_status()").fetchone()[0]  # type: ignore[index]
        node.sql("REVOKE READ ON TABLE _pico_instance FROM public")
        try:
            for text in ("SELECT name FROM _pico_instance", "CALL cairn_status()"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="_pico_instance"):
                    visitor.execute(text)
        finally:
            node.sql("GRANT READ ON TABLE _pico_instance TO public")


def test_everybody_is_told_truly_what_they_may_do(cluster: Cluster) -> None:
    """`has_table_privilege` was NULL for everybody."""
    node = cluster["i1"]
    node.sql("CREATE TABLE held (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    node.sql("CREATE VIEW seen AS SELECT id FROM held")
    asked = {
        "has_table_privilege('held', 'SELECT')": False,
        "has_table_privilege('held', 'insert, UPDATE')": True,
        "has_table_privilege('held'::regclass, 'INSERT WITH GRANT OPTION')": True,
        "has_table_privilege('admin', 'held', 'SELECT')": True,
        "has_table_privilege('visitor', 'public.held', 'TRIGGER')": False,
        "has_table_privilege(999999, 'select')": None,
        "has_table_privilege('seen', 'SELECT')": False,
        "has_table_privilege('admin', 'seen', 'SELECT')": True,
        "has_any_column_privilege('held', 'INSERT')": True,
        "has_column_privilege('held', 'id', 'INSERT')": True,
        "has_schema_privilege('public', 'USAGE')": True,
        "has_schema_privilege('public', 'CREATE')": False,
        "has_database_privilege('cairn', 'CONNECT')": True,
        "has_database_privilege('cairn', 'TEMP')": False,
        "pg_has_role('super', 'MEMBER')": False,
        "pg_has_role('admin', 'super', 'USAGE')": True,
    }
    refused = {
        "has_table_privilege('nowhere', 'SELECT')": "42P01",
        "has_table_privilege('nobody', 'held', 'SELECT')": "42704",
        "has_table_privilege('held', 'look')": "22023",
        "has_column_privilege('held', 'x', 'SELECT')": "42703",
    }
    try:
        with users(node, "visitor"), session(node, "visitor") as visitor:
            node.sql("GRANT INSERT ON TABLE held TO visitor")
            told = {each: visitor.execute(f"SELECT {each}").fetchone() for each in asked}
            assert told == {each: (answer,) for each, answer in asked.items()}
            for each, sqlstate in refused.items():
                with pytest.raises(psycopg.Error) as problem:
                    visitor.execute(f"SELECT {each}")
                assert (each, problem.value.sqlstate) == (each, sqlstate)
            listed = visitor.execute(
                "SELECT relname FROM pg_class WHERE has_table_privilege(oid, 'INSERT')"
            )
            assert listed.fetchall() == [("held",)]
            node.sql("GRANT SELECT ON TABLE held TO visitor")
            for each in ("held", "seen"):
                now = visitor.execute(f"SELECT has_table_privilege('{each}', 'SELECT')")
                assert now.fetchone() == (True,)
    finally:
        node.sql("DROP VIEW seen")
        node.sql("DROP TABLE held")
