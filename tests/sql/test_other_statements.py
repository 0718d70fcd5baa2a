"""Users and rights, settings, the session, COPY: read into structured plans."""

from __future__ import annotations

import pytest

from cairn.model.errors import CairnError, SyntaxProblem
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.plans import AclPlan, AlterSystemPlan, Prepared, SessionPlan

from .harness import Cluster, empty_catalog


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    found.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT)")
    return found


def ready(cluster: Cluster, text: str) -> Prepared:
    return prepare(text, cluster.catalog, user_id=1)


@pytest.mark.parametrize(
    ("text", "tag", "plan"),
    [
        (
            "CREATE USER Bob WITH PASSWORD 'T0psecret' USING scram-sha256",
            "CREATE ROLE",
            AclPlan("create_user", "bob", "T0psecret", "scram-sha256"),
        ),
        (
            "CREATE USER IF NOT EXISTS bob PASSWORD 'x' OPTION (TIMEOUT = 2)",
            "CREATE ROLE",
            AclPlan("create_user", "bob", "x", if_exists=True, timeout=2.0),
        ),
        ("ALTER USER bob NOLOGIN", "ALTER ROLE", AclPlan("alter_user", "bob", login=False)),
        ("ALTER USER bob WITH LOGIN", "ALTER ROLE", AclPlan("alter_user", "bob", login=True)),
        ("ALTER USER bob PASSWORD 'y'", "ALTER ROLE", AclPlan("alter_user", "bob", "y")),
        ("ALTER USER bob RENAME TO al", "ALTER ROLE", AclPlan("alter_user", "bob", new_name="al")),
        ("DROP USER IF EXISTS bob", "DROP ROLE", AclPlan("drop_user", "bob", if_exists=True)),
        ("CREATE ROLE r", "CREATE ROLE", AclPlan("create_role", "r")),
        ("DROP ROLE r", "DROP ROLE", AclPlan("drop_role", "r")),
        (
            "GRANT READ ON TABLE t TO bob",
            "GRANT",
            AclPlan("grant", privilege="read", object_type="table", object_name="t", grantee="bob"),
        ),
        (
            "GRANT SELECT ON t TO bob",
            "GRANT",
            AclPlan("grant", privilege="read", object_type="table", object_name="t", grantee="bob"),
        ),
        (
            "GRANT CREATE TABLE TO bob",
            "GRANT",
            AclPlan("grant", privilege="create", object_type="table", grantee="bob"),
        ),
        (
            "REVOKE WRITE ON TABLE t FROM bob",
            "REVOKE",
            AclPlan(
                "revoke", privilege="write", object_type="table", object_name="t", grantee="bob"
            ),
        ),
        (
            "GRANT SELECT, INSERT, UPDATE ON t TO bob",
            "GRANT",
            AclPlan(
                "grant",
                privilege="read",
                more=("insert", "update"),
                object_type="table",
                object_name="t",
                grantee="bob",
            ),
        ),
        (
            "REVOKE ALL PRIVILEGES ON TABLE t FROM bob",
            "REVOKE",
            AclPlan(
                "revoke",
                privilege="read",
                more=("write", "references", "create", "alter", "drop"),
                object_type="table",
                object_name="t",
                grantee="bob",
            ),
        ),
        ("GRANT LOGIN TO bob", "GRANT", AclPlan("alter_user", "bob", login=True)),
        ("REVOKE LOGIN FROM bob", "REVOKE", AclPlan("alter_user", "bob", login=False)),
        (
            "GRANT admins TO bob",
            "GRANT ROLE",
            AclPlan(
                "grant_role",
                privilege="execute",
                object_type="role",
                object_name="admins",
                grantee="bob",
            ),
        ),
        (
            "ALTER SYSTEM SET sql_motion_row_max = 7 FOR ALL TIERS",
            "ALTER SYSTEM",
            AlterSystemPlan("sql_motion_row_max", 7, scope="*"),
        ),
        (
            "ALTER SYSTEM SET x TO 'y' FOR TIER hot",
            "ALTER SYSTEM",
            AlterSystemPlan("x", "y", scope="hot"),
        ),
        ("ALTER SYSTEM SET x = DEFAULT", "ALTER SYSTEM", AlterSystemPlan("x", default=True)),
        ("ALTER SYSTEM SET x = -1.5", "ALTER SYSTEM", AlterSystemPlan("x", -1.5)),
        ("ALTER SYSTEM RESET ALL", "ALTER SYSTEM", AlterSystemPlan(None, default=True)),
        ("SET client_encoding TO 'UTF8'", "SET", SessionPlan("set", "client_encoding", "UTF8")),
        (
            "SET search_path = a, public",
            "SET",
            SessionPlan("set", "search_path", "a, public"),
        ),
        ("SET TIME ZONE 'UTC'", "SET", SessionPlan("set", "timezone", "UTC")),
        ("SHOW server_version", "SHOW", SessionPlan("show", "server_version")),
        (
            "SHOW TRANSACTION ISOLATION LEVEL",
            "SHOW",
            SessionPlan("show", "transaction_isolation"),
        ),
        ("RESET ALL", "RESET", SessionPlan("reset", "all")),
        ("BEGIN", "BEGIN", SessionPlan("begin")),
        (
            "START TRANSACTION READ ONLY",
            "START TRANSACTION",
            SessionPlan("begin", value="read only"),
        ),
        ("COMMIT", "COMMIT", SessionPlan("commit")),
        ("END", "COMMIT", SessionPlan("commit")),
        ("ROLLBACK", "ROLLBACK", SessionPlan("rollback")),
        ("ROLLBACK AND NO CHAIN", "ROLLBACK", SessionPlan("rollback")),
        ("SAVEPOINT a", "SAVEPOINT", SessionPlan("savepoint", "a")),
        ("RELEASE SAVEPOINT a", "RELEASE", SessionPlan("release", "a")),
        ("RELEASE a", "RELEASE", SessionPlan("release", "a")),
        ("ROLLBACK WORK TO SAVEPOINT a", "ROLLBACK", SessionPlan("rollback_to", "a")),
        ("ROLLBACK TO a", "ROLLBACK", SessionPlan("rollback_to", "a")),
        ("DEALLOCATE ALL", "DEALLOCATE ALL", SessionPlan("deallocate")),
        ("DEALLOCATE PREPARE s1", "DEALLOCATE", SessionPlan("deallocate", "s1")),
        ("DISCARD ALL", "DISCARD ALL", SessionPlan("discard", "all")),
        (
            "CREATE SCHEMA IF NOT EXISTS public",
            "CREATE SCHEMA",
            SessionPlan("nothing", notices=('schema "public" already exists, skipping',)),
        ),
    ],
)
def test_statements_become_their_plan(cluster: Cluster, text: str, tag: str, plan: object) -> None:
    prepared = ready(cluster, text)
    assert (prepared.tag, prepared.plan) == (tag, plan)


def test_a_password_never_shows_in_a_plan_s_text(cluster: Cluster) -> None:
    plan = ready(cluster, "CREATE USER bob PASSWORD 'T0psecret1'").plan
    assert "T0psecret1" not in repr(plan)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE USER x USING ldap",
        "CREATE PROCEDURE p() LANGUAGE plpgsql AS ''",
    ],
)
def test_what_is_left_out_is_refused_by_name(cluster: Cluster, text: str) -> None:
    with pytest.raises(CairnError) as error:
        ready(cluster, text)
    assert error.value.sqlstate == "0A000"


def test_copy_knows_its_table_columns_and_options(cluster: Cluster) -> None:
    plan = ready(cluster, "COPY t (b, a) FROM STDIN WITH (FORMAT csv, HEADER, NULL '')").plan
    assert isinstance(plan, plans.CopyPlan) and plan.insert is not None
    assert (plan.direction, plan.columns) == ("in", ("b", "a"))
    assert plan.options == {"format": "csv", "header": "true", "null": ""}
    assert isinstance(plan.insert.plan, plans.PointWrite)
    assert [type_.value for type_ in plan.insert.param_types] == ["string", "integer"]


def test_copy_of_a_query_plans_the_query(cluster: Cluster) -> None:
    prepared = ready(cluster, "COPY (SELECT a, count(*) FROM t GROUP BY a) TO STDOUT")
    assert isinstance(prepared.plan, plans.CopyPlan) and prepared.plan.query is not None
    assert [column.name for column in prepared.columns] == ["a", "count"]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("COPY t FROM '/etc/passwd'", "0A000"),
        ("COPY t FROM PROGRAM 'rm'", "0A000"),
        ("COPY nope FROM STDIN", "42P01"),
        ("COPY t (nope) FROM STDIN", "42703"),
        ("COPY t FROM STDIN (wibble 1)", "42601"),
    ],
)
def test_copy_refuses_files_and_unknown_things(cluster: Cluster, text: str, sqlstate: str) -> None:
    with pytest.raises(CairnError) as error:
        ready(cluster, text)
    assert error.value.sqlstate == sqlstate


TAILS = [
    "BEGIN SELECT 1",
    "BEGIN UPDATE item SET n = 1",
    "BEGIN WORK ISOLATION LEVEL WONDERFUL",
    "START TRANSACTION READ ONLY,",
    "SET TRANSACTION READ ONLY UPDATE item SET n = 1",
    "SET SESSION CHARACTERISTICS AS TRANSACTION wibble",
]


@pytest.mark.parametrize("text", TAILS)
def test_what_stands_behind_begin_is_no_part_of_it(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        prepare(text, empty_catalog())


MODES = {
    "BEGIN": None,
    "BEGIN TRANSACTION ISOLATION LEVEL Repeatable  Read READ WRITE, NOT DEFERRABLE": (
        "isolation level repeatable read, read write, not deferrable"
    ),
    "START TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE": (
        "read only, isolation level serializable"
    ),
}


@pytest.mark.parametrize("text", MODES)
def test_modes_of_a_transaction_come_in_any_order(text: str) -> None:
    plan = prepare(text, empty_catalog()).plan
    assert isinstance(plan, SessionPlan)
    assert (plan.action, plan.value) == ("begin", MODES[text])
