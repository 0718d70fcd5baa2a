"""Who may come from where, encrypted or not, and how often: settings of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from cairn.model.errors import InvalidParameter
from cairn.model.settings.auth_rules import admits, parse_rules
from tests.cluster.harness import Cluster, Node, eventually
from tests.server.raw import Raw
from tests.server.test_users import session, users

RULES = (
    "hostssl ann,bob 10.0.0.0/8 scram-sha-256; host all 192.168.1.0/24 reject; "
    "host all 192.168.0.0/16 scram-sha-256; host eve ::1/128 scram-sha-256; hostnossl old all "
    "scram-sha-256"
)


@pytest.mark.parametrize(
    ("user", "address", "is_encrypted", "expected"),
    [
        ("ann", "10.1.2.3", True, True),
        ("ann", "10.1.2.3", False, False),
        ("ann", "::ffff:10.1.2.3", True, True),
        ("eve", "10.1.2.3", True, False),
        ("ann", "192.168.1.7", True, False),
        ("ann", "192.168.2.7", False, True),
        ("eve", "::1", False, True),
        ("old", "8.8.8.8", False, True),
        ("old", "8.8.8.8", True, False),
        ("admin", "8.8.8.8", True, False),
        ("admin", "127.0.0.1", False, True),
        ("admin", "::ffff:127.0.0.1", False, True),
        ("admin", "::1", False, True),
        ("ann", "127.0.0.1", False, False),
        ("ann", "no address", True, False),
    ],
)
def test_the_first_rule_that_fits_decides(
    user: str, address: str, is_encrypted: bool, expected: bool
) -> None:
    rules = parse_rules(RULES)
    is_admin = user == "admin"
    assert admits(rules, user, address, is_encrypted=is_encrypted, is_admin=is_admin) == expected


def test_without_rules_everybody_may_try() -> None:
    assert admits((), "ann", "8.8.8.8", is_encrypted=False, is_admin=False)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "host all all",
        "local all all scram-sha-256",
        "host all all trust",
        "host all 10.0.0.1/8 scram-sha-256",
        "host all 1.2.3 scram-sha-256",
        "host all ::ffff:10.0.0.0/104 reject",
        "host all ::ffff:127.0.0.1 reject",
        "host , all scram-sha-256",
        "host ann,,bob all scram-sha-256",
        "host all all scram-sha-256; hostssl",
    ],
)
def test_a_rule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="auth_rules"):
        parse_rules(text)


@contextmanager
def setting(node: Node, name: str, value: str) -> Iterator[None]:
    node.sql(f"ALTER SYSTEM SET {name} = {value}")
    try:
        yield
    finally:
        node.sql(f"ALTER SYSTEM RESET {name}")


def test_a_user_whom_no_rule_admits_is_sent_away_before_the_password(cluster: Cluster) -> None:
    node = cluster["i1"]
    rules = "host bob all scram-sha-256; host all all reject"
    with users(node, "ann", "bob"), setting(node, "auth_rules", f"'{rules}'"):
        for user in ("ann", "nobody"):
            with pytest.raises(psycopg.OperationalError, match="no rule admits"):
                session(node, user)
        session(node, "bob").close()
        assert node.sql("SELECT 1") == [(1,)]  # the admin, from the machine itself
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        node.sql("ALTER SYSTEM SET auth_rules = 'host all'")


def test_only_administrators_see_the_rules(cluster: Cluster) -> None:
    node = cluster["i1"]
    rules = "host ann 127.0.0.0/8 scram-sha-256; host all all reject"
    listed = "SELECT setting FROM pg_settings WHERE name = 'auth_rules'"
    with users(node, "ann"), setting(node, "auth_rules", f"'{rules}'"):
        assert node.sql("SHOW auth_rules") == node.sql(listed) == [(rules,)]
        assert ("auth_rules", rules) in [row[:2] for row in node.sql("SHOW ALL")]
        with session(node, "ann") as own:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                own.execute("SHOW auth_rules")
            for text in (
                "SHOW ALL",
                "SELECT * FROM pg_settings",
                "SELECT * FROM _cairn_statements",
            ):
                assert rules not in str(own.execute(text).fetchall())
            asked = "SELECT current_setting('auth_rules')"
            assert own.execute(f"{asked} FROM pg_class LIMIT 1").fetchone() == (None,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                own.execute(asked)


def test_a_user_has_so_many_connections_and_no_more(cluster: Cluster) -> None:
    node = cluster["i1"]
    with ExitStack() as open_ones:
        open_ones.enter_context(users(node, "ann", "bob"))
        with setting(node, "pg_connections_per_user_max", "2"):
            first = open_ones.enter_context(session(node, "ann"))
            open_ones.enter_context(session(node, "ann"))
            with pytest.raises(psycopg.OperationalError, match="too many connections for user"):
                session(node, "ann")
            open_ones.enter_context(session(node, "bob"))
            for _ in range(3):
                open_ones.enter_context(node.connect())
            first.close()
            eventually(lambda: session(node, "ann").close() is None, "room for another")


def test_an_address_has_so_many_connections_those_without_a_login_too(cluster: Cluster) -> None:
    node = cluster["i2"]
    open_here = len(node.sql("SELECT pid FROM pg_stat_activity")) + 20
    with setting(cluster["i1"], "pg_connections_per_address_max", str(open_here)):
        shown = "SHOW pg_connections_per_address_max"
        eventually(lambda: node.sql(shown) == [(str(open_here),)], "the setting on i2")
        with ExitStack() as silent:
            for _ in range(open_here):
                silent.enter_context(Raw(node.pg_port))
            with Raw(node.pg_port) as refused:
                assert refused.error()["C"] == "53300"
        eventually(lambda: node.sql("SELECT 1") == [(1,)], "room again")
