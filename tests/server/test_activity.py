"""An operator sees who is connected and what they do, and can end it; a user only its own."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually
from tests.server.test_users import session, users

LONG = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 9000) b"


def pid_of(connection: psycopg.Connection[Any]) -> int:
    found = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert found is not None
    return int(found[0])


def test_pg_backend_pid_is_the_number_that_the_client_was_told(cluster: Cluster) -> None:
    with cluster["i1"].connect() as one, cluster["i1"].connect() as other:
        assert pid_of(one) == one.info.backend_pid
        assert pid_of(other) == other.info.backend_pid != one.info.backend_pid


def test_a_session_is_a_row_with_its_address_its_times_and_its_query(cluster: Cluster) -> None:
    node = cluster["i1"]
    with node.connect(application_name="clerk") as watched, node.connect() as operator:
        pid, port = watched.info.backend_pid, _port(watched)
        watched.execute("BEGIN")
        watched.execute("SELECT 42")
        ask = (
            "SELECT usename, application_name, client_addr, client_port, state, query, "
            "backend_type, backend_start <= xact_start, xact_start <= query_start, "
            "query_start <= state_change FROM pg_stat_activity WHERE pid = %s"
        )
        assert operator.execute(ask, (pid,)).fetchall() == [
            (
                *("admin", "clerk", "127.0.0.1", port, "idle in transaction", "SELECT 42"),
                *("client backend", True, True, True),
            )
        ]
        watched.execute("COMMIT")
        own = "SELECT state, query FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        assert operator.execute(own).fetchall() == [("active", own)]
        age = "SELECT max(now() - query_start) FROM pg_stat_activity"
        old = (
            "SELECT now() - backend_start AS age FROM pg_stat_activity "
            "WHERE pid = pg_backend_pid() AND now() - backend_start < interval '1 hour'"
        )
        ages = operator.execute(old).fetchall()
        assert len(ages) == 1
        assert timedelta(0) <= ages[0][0] < timedelta(minutes=5)
        assert operator.execute(age).fetchone() is not None
    gone = f"SELECT pid FROM pg_stat_activity WHERE pid = {pid}"
    eventually(lambda: node.sql(gone) == [], "the end of its row")


def _port(connection: psycopg.Connection[Any]) -> int:
    with socket.socket(fileno=socket.dup(connection.pgconn.socket)) as same:
        return int(same.getsockname()[1])


def test_times_of_sessions_are_gathered_as_lists_of_times(cluster: Cluster) -> None:
    """Lists of whole numbers and texts only were known: these were an internal error."""
    with cluster["i1"].connect() as one:
        text = (
            "SELECT array_agg(query_start), array_agg(query_start - backend_start), "
            "min(query_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        )
        [(starts, ages, start)] = one.execute(text).fetchall()
        assert starts == [start]
        assert [type(age) for age in ages] == [timedelta]


def test_others_see_that_a_session_is_there_but_not_what_it_does(cluster: Cluster) -> None:
    node = cluster["i1"]
    with users(node, "ann"), node.connect() as admin, session(node, "ann") as ann:
        admin.execute("SELECT 'a secret'")
        ask = (
            "SELECT usename, application_name, client_addr, client_port, backend_start, state, "
            "query FROM pg_stat_activity WHERE pid = %s"
        )
        assert ann.execute(ask, (admin.info.backend_pid,)).fetchall() == [
            ("admin", None, None, None, None, None, "<insufficient privilege>")
        ]


def test_a_password_is_not_seen_by_anybody(cluster: Cluster) -> None:
    node = cluster["i1"]
    with users(node, "ann"), node.connect() as admin, session(node, "ann") as ann:
        ann.execute("ALTER USER ann WITH PASSWORD 'Passw0rd2'")
        ask = f"SELECT query FROM pg_stat_activity WHERE pid = {ann.info.backend_pid}"
        assert admin.execute(ask).fetchall() == [("ALTER USER ann WITH PASSWORD '***'",)]


def test_a_cancel_ends_the_statement_and_a_termination_the_session(cluster: Cluster) -> None:
    node = cluster["i1"]
    with node.connect() as busy, node.connect() as operator:
        ended: list[Any] = []

        def run() -> None:
            try:
                busy.execute(LONG)
            except psycopg.Error as problem:
                ended.append(problem.sqlstate)

        thread = threading.Thread(target=run)
        thread.start()
        active = f"SELECT state FROM pg_stat_activity WHERE pid = {busy.info.backend_pid} AND "
        active += "query LIKE '%%generate_series%%'"
        eventually(lambda: operator.execute(active).fetchall() == [("active",)], "its statement")
        pid = busy.info.backend_pid
        assert operator.execute("SELECT pg_cancel_backend(%s)", (pid,)).fetchall() == [(True,)]
        thread.join()
        assert ended == ["57014"]
        assert busy.execute("SELECT 1").fetchall() == [(1,)]
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s"
        assert operator.execute(kill, (pid,)).fetchall() == [(True,)]
        with pytest.raises(psycopg.errors.AdminShutdown):
            busy.execute("SELECT 1")
        gone = f"SELECT pid FROM pg_stat_activity WHERE pid = {pid}"
        eventually(lambda: operator.execute(gone).fetchall() == [], "its end")
        assert operator.execute(f"SELECT pg_terminate_backend({pid})").fetchall() == [(False,)]
        assert operator.execute("SELECT pg_cancel_backend(NULL)").fetchall() == [(None,)]


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_user_ends_its_own_sessions_only(cluster: Cluster, function: str) -> None:
    node = cluster["i1"]
    with (
        users(node, "ann", "bob"),
        session(node, "ann") as ann,
        session(node, "ann") as second,
        session(node, "bob") as bob,
        node.connect() as admin,
    ):
        for other in (admin, bob):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                ann.execute(f"SELECT {function}({other.info.backend_pid})")
            assert other.execute("SELECT 1").fetchall() == [(1,)]
        own = f"SELECT {function}({second.info.backend_pid})"
        assert ann.execute(own).fetchall() == [(True,)]


def test_what_belongs_to_a_session_is_not_asked_together_with_rows(cluster: Cluster) -> None:
    with cluster["i1"].connect() as one, pytest.raises(psycopg.errors.FeatureNotSupported):
        one.execute("SELECT pg_backend_pid(), name FROM _pico_instance")
