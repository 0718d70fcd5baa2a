"""GRANT and REVOKE as scripts for PostgreSQL write them: several objects and users, ALL TABLES."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster

pytestmark = pytest.mark.cluster

Connection = psycopg.Connection[Any]
PASSWORD = "Very-l0ng-word"
USERS = ("gr_reader", "gr_writer")
TABLES = ("gr_one", "gr_two")


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Connection]:
    with cluster["i1"].connect() as connection:
        for name in USERS:
            connection.execute(f"CREATE USER {name} WITH PASSWORD '{PASSWORD}'")
        for name in TABLES:
            connection.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        connection.execute("CREATE SEQUENCE gr_numbers")
        try:
            yield connection
        finally:
            for name in TABLES:
                connection.execute(f"DROP TABLE IF EXISTS {name}")
            connection.execute("DROP TABLE IF EXISTS gr_late")
            connection.execute("DROP SEQUENCE gr_numbers")
            for name in USERS:
                connection.execute(f"DROP USER {name}")


def as_user(cluster: Cluster, name: str) -> Connection:
    port = cluster["i1"].pg_port
    dsn = f"postgresql://{name}:{PASSWORD}@127.0.0.1:{port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


def told(connection: Connection, text: str) -> str:
    """The SQLSTATE of a refusal, or nothing."""
    try:
        connection.execute(text.encode())
    except psycopg.Error as error:
        return str(error.sqlstate)
    return ""


def rights(admin: Connection, cluster: Cluster) -> dict[str, list[str]]:
    """What each of them may read and insert into, tried."""
    found: dict[str, list[str]] = {}
    for name in USERS:
        with as_user(cluster, name) as connection:
            may = [f"read {table}" for table in TABLES if not told(connection, f"TABLE {table}")]
            for at, table in enumerate(TABLES):
                if not told(connection, f"INSERT INTO {table} VALUES ({len(name)}{at})"):
                    may.append(f"insert {table}")
                    admin.execute(f"DELETE FROM {table}")
            if not told(connection, "SELECT nextval('gr_numbers')"):
                may.append("count")
            found[name] = may
    return found


READ, INSERT = ["read gr_one", "read gr_two"], ["insert gr_one", "insert gr_two"]


def test_a_read_only_user_is_made_as_everybody_makes_it(
    admin: Connection, cluster: Cluster
) -> None:
    notices: list[str] = []
    admin.add_notice_handler(lambda each: notices.append(str(each.message_primary)))
    admin.execute("GRANT CONNECT ON DATABASE cairn TO gr_reader")
    admin.execute("GRANT USAGE ON SCHEMA public TO gr_reader")
    assert notices == [
        "whoever may log in may connect to the database and make temporary tables",
        "everybody may use schema public",
    ]
    admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO gr_reader")
    assert rights(admin, cluster) == {"gr_reader": READ, "gr_writer": []}
    admin.execute("CREATE TABLE gr_late (id INT PRIMARY KEY)")
    with as_user(cluster, "gr_reader") as reader:  # it was for those that there were
        assert told(reader, "TABLE gr_late") == "42501"
        assert told(reader, "TABLE _pico_user") == "42501"
    admin.execute("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM gr_reader CASCADE")
    assert rights(admin, cluster) == {"gr_reader": [], "gr_writer": []}


def test_several_objects_and_several_users_in_one_statement(
    admin: Connection, cluster: Cluster
) -> None:
    admin.execute("GRANT SELECT, INSERT ON gr_one, gr_two, gr_one TO gr_reader, gr_writer")
    both = READ + INSERT
    assert rights(admin, cluster) == {"gr_reader": both, "gr_writer": both}
    admin.execute("REVOKE INSERT ON TABLE gr_one, gr_two FROM gr_reader")
    admin.execute("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO gr_writer")
    assert rights(admin, cluster) == {"gr_reader": READ, "gr_writer": [*both, "count"]}
    # All of it or nothing.
    assert told(admin, "REVOKE SELECT ON gr_one, gr_nothing FROM gr_reader") == "42P01"
    assert told(admin, "GRANT INSERT ON gr_one TO gr_reader, gr_nobody") == "42704"
    assert rights(admin, cluster)["gr_reader"] == READ


def test_create_on_the_schema_is_the_right_to_make_tables(
    admin: Connection, cluster: Cluster
) -> None:
    with as_user(cluster, "gr_writer") as writer:
        assert told(writer, "CREATE TABLE gr_late (id INT PRIMARY KEY)") == "42501"
        admin.execute("GRANT USAGE, CREATE ON SCHEMA public TO gr_writer")
        assert told(writer, "CREATE TABLE gr_late (id INT PRIMARY KEY)") == ""
        # Who owns one table gives no rights to those of others.
        assert told(writer, "GRANT SELECT ON gr_late TO gr_reader") == ""
        assert told(writer, "GRANT SELECT ON gr_late, gr_one TO gr_reader") == "42501"
        assert told(writer, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO gr_writer") == "42501"
        assert told(writer, "DROP TABLE gr_late") == ""
        admin.execute("REVOKE CREATE ON SCHEMA public FROM gr_writer")
        assert told(writer, "CREATE TABLE gr_late (id INT PRIMARY KEY)") == "42501"


REFUSED = {
    "GRANT SELECT ON SCHEMA public TO gr_reader": "0LP01",
    "GRANT CONNECT ON gr_one TO gr_reader": "0LP01",
    "GRANT USAGE ON gr_one TO gr_reader": "0LP01",
    "GRANT USAGE ON SCHEMA other TO gr_reader": "3F000",
    "GRANT USAGE ON SCHEMA public TO gr_nobody": "42704",
    "GRANT SELECT ON ALL TABLES IN SCHEMA other TO gr_reader": "3F000",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO gr_reader": "0A000",
    "GRANT SELECT ON gr_one TO gr_reader WITH GRANT OPTION": "0A000",
    "REVOKE CONNECT ON DATABASE cairn FROM gr_reader": "0A000",
    "REVOKE USAGE ON SCHEMA public FROM gr_reader": "0A000",
    "GRANT NONSENSE ON gr_one TO gr_reader": "42601",
    "GRANT SELECT ON gr_one, TO gr_reader": "42601",
}


def test_what_cannot_be_granted_is_told(admin: Connection) -> None:
    assert {text: told(admin, text) for text in REFUSED} == REFUSED


def test_users_are_made_as_roles_that_may_log_in(admin: Connection, cluster: Cluster) -> None:
    for made in (
        f"CREATE ROLE gr_app LOGIN PASSWORD '{PASSWORD}'",
        f"CREATE ROLE gr_app WITH NOSUPERUSER NOCREATEDB LOGIN ENCRYPTED PASSWORD '{PASSWORD}'",
        f"CREATE USER gr_app WITH LOGIN PASSWORD '{PASSWORD}' VALID UNTIL 'infinity'",
    ):
        admin.execute(made.encode())
        with as_user(cluster, "gr_app") as connection:
            assert told(connection, "SELECT 1") == ""
        assert told(admin, f"ALTER ROLE gr_app WITH ENCRYPTED PASSWORD '{PASSWORD}2'") == ""
        assert told(admin, "ALTER ROLE gr_app NOLOGIN") == ""
        assert told(admin, "DROP ROLE gr_app") == ""
    assert told(admin, "CREATE ROLE gr_group NOLOGIN") == ""
    assert told(admin, "GRANT gr_group TO gr_reader, gr_writer") == ""
    assert told(admin, "GRANT SELECT ON gr_one TO gr_group") == ""
    reading = {name: ["read gr_one"] for name in USERS}
    assert rights(admin, cluster) == reading
    assert told(admin, "DROP USER gr_group") == ""
    refused = {
        "CREATE ROLE gr_app SUPERUSER": "0A000",
        "CREATE ROLE gr_app LOGIN": "42601",
        f"CREATE ROLE gr_app PASSWORD '{PASSWORD}'": "0A000",
        f"CREATE USER gr_app VALID UNTIL '2030-01-01' PASSWORD '{PASSWORD}'": "0A000",
        "CREATE USER gr_app": "42601",
        "ALTER ROLE gr_app": "42601",
        "DROP ROLE gr_app": "42704",
    }
    assert {text: told(admin, text) for text in refused} == refused


def test_who_may_not_name_the_rows_of_a_table_learns_nothing_of_them(
    admin: Connection, cluster: Cluster
) -> None:
    """By a foreign key of its own anybody could ask which rows there are, and keep them there."""
    child = "CREATE TABLE gr_child (id INT PRIMARY KEY REFERENCES gr_late) DISTRIBUTED BY ()"
    admin.execute("CREATE TABLE gr_late (id INT PRIMARY KEY) DISTRIBUTED BY ()")
    admin.execute("INSERT INTO gr_late VALUES (7)")
    admin.execute("GRANT CREATE TABLE TO gr_reader")
    admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON gr_late TO gr_reader")
    with as_user(cluster, "gr_reader") as connection:
        assert told(connection, child) == "42501"
        admin.execute("GRANT REFERENCES ON gr_late TO gr_reader")
        asked = "SELECT has_table_privilege('gr_reader', 'gr_late', 'references')"
        assert admin.execute(asked).fetchall() == [(True,)]
        access = admin.execute("SELECT relacl FROM pg_class WHERE relname = 'gr_late'").fetchone()
        assert access is not None and "x" in str(access[0]).split("gr_reader=")[1].split("/")[0]
        assert told(connection, child) == ""
        assert told(connection, "INSERT INTO gr_child VALUES (8)") == "23503"
        assert told(connection, "DROP TABLE gr_child") == ""
        admin.execute("REVOKE ALL ON gr_late FROM gr_reader")
        assert told(connection, child) == "42501"
        assert told(admin, "GRANT REFERENCES ON PROCEDURE nothing TO gr_reader") == "0LP01"
