"""Mistakes for which others had to publish an advisory, tried on a real instance.

The rows about drivers are in tests/pgwire and tests/client; TLS has `test_tls.py`.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from base64 import b64encode
from contextlib import ExitStack
from struct import pack

import psycopg
import pytest

from cairn.pgwire.scram import ScramClient
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually
from tests.server.raw import Raw, fields, message, sasl_initial, startup_packet

pytestmark = pytest.mark.cluster

SSL_REQUEST = pack("!II", 8, 80877103)
GSS_REQUEST = pack("!II", 8, 80877104)
SECRET = "S3cret-that-nobody-logs"


# --- before the login ---------------------------------------------------------------------------


def test_bytes_behind_an_ssl_request_that_was_declined_are_the_startup(port: int) -> None:
    """CVE-2021-23214: without TLS nothing is encrypted, so nothing can be smuggled in."""
    with Raw(port) as raw:
        raw.send(SSL_REQUEST, startup_packet(user="admin"))
        assert raw.socket.recv(1) == b"N"
        assert raw.until(b"R")[-1][0] == b"R"


def test_encryption_is_asked_for_once_each(port: int) -> None:
    with Raw(port) as raw:
        raw.send(GSS_REQUEST, SSL_REQUEST)
        assert raw._take(2) == b"NN"
        assert raw.send(SSL_REQUEST).error()["C"] == "08P01"
        assert raw.is_closed()


def test_a_second_startup_during_scram_ends_the_connection(port: int) -> None:
    """CVE-2026-107350: user and database are fixed by the first packet."""
    with Raw(port) as raw:
        raw.send(startup_packet(user="guest")).until(b"R")
        raw.send(sasl_initial(ScramClient(PASSWORD, b"n" * 18).first())).read()
        assert raw.send(startup_packet(user="admin")).error()["C"] == "08P01"
        assert raw.is_closed()


def test_the_name_inside_scram_does_not_change_the_user(port: int) -> None:
    with Raw(port) as raw:
        raw.send(startup_packet(user="nobody")).until(b"R")
        raw.send(sasl_initial(b"n,,n=admin,r=abcdefghijklmnop"))
        _, body = raw.read()
        scram = ScramClient(PASSWORD, b"x" * 18)
        scram._first, scram._nonce = "n=admin,r=abcdefghijklmnop", "abcdefghijklmnop"
        assert raw.send(message(b"p", scram.final(body[4:]))).error()["C"] == "28P01"


@pytest.mark.parametrize(
    "options",
    [
        "-c=",
        "-c",
        "-c =1",
        "=,=,=",
        "-c -c -c",
        "--=",
        "\\",
        "-c geqo\\",
        ",,,",
        "-" * 500,
        "-c=" * 900,
    ],
)
def test_odd_options_neither_loop_nor_refuse(port: int, options: str) -> None:
    """CVE-2026-107349."""
    with Raw(port) as raw:
        raw.log_in(options=options)


def test_a_bad_value_of_an_option_of_ours_is_refused_by_name(port: int) -> None:
    with Raw(port) as raw:
        raw.send(startup_packet(user="admin", options="pico_query_metadata=maybe")).until(b"R")
        scram = ScramClient(PASSWORD, b"n" * 18)
        raw.send(sasl_initial(scram.first()))
        found = raw.send(message(b"p", scram.final(raw.read()[1][4:]))).error()
        assert "pico_query_metadata" in found["M"]


@pytest.mark.parametrize("length", [0, 3, 4, 7, 10_001, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_hostile_lengths_of_the_first_packet_are_refused_at_once(port: int, length: int) -> None:
    """CVE-2026-107348, CVE-2026-6668."""
    with Raw(port) as raw:
        found = raw.send(pack("!II", length, 196608)).error()
        assert found["C"] == "08P01"
        assert raw.is_closed()


@pytest.mark.parametrize("length", [0, 3, 20_000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_hostile_lengths_before_the_login_are_refused_at_once(port: int, length: int) -> None:
    with Raw(port) as raw:
        raw.send(startup_packet(user="admin")).until(b"R")
        assert raw.send(b"p" + pack("!I", length)).error()["C"] == "08P01"
        assert raw.is_closed()


@pytest.mark.parametrize("length", [0, 3, 0x7FFFFFFF, 0xFFFFFFFF])
def test_hostile_lengths_after_the_login_are_refused_at_once(port: int, length: int) -> None:
    with Raw(port) as raw:
        raw.log_in()
        assert raw.send(b"Q" + pack("!I", length)).error()["C"] == "08P01"
        assert raw.is_closed()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=",
        b"n,,n=,r=",
        b"p=tls-unique,,n=,r=abc",
        b"n,,n=,r=" + b"a" * 5000,
        b"n,,n=,r=a\x00b",
        b"n,x,n=,r=abc",
        b"\xff\xfe",
    ],
)
def test_a_malformed_first_message_of_scram_is_an_error(port: int, first: bytes) -> None:
    """CVE-2026-19888, CVE-2026-6665."""
    with Raw(port) as raw:
        raw.send(startup_packet(user="admin")).until(b"R")
        assert raw.send(sasl_initial(first)).error()["C"] == "08P01"
        assert raw.is_closed()


@pytest.mark.parametrize(
    "change",
    [
        lambda final, nonce: b"",
        lambda final, nonce: b"c=biws",
        lambda final, nonce: b"c=biws,r=" + nonce,
        lambda final, nonce: b"c=biws,p=" + b64encode(b"x" * 32),
        lambda final, nonce: b"c=biws,r=" + nonce + b",p=@@@",
        lambda final, nonce: b"c=biws,r=" + nonce + b",p=" + b64encode(b"short"),
        lambda final, nonce: b"c=biws,r=other,p=" + b64encode(b"x" * 32),
        lambda final, nonce: b"c=xxxx,r=" + nonce + b",p=" + b64encode(b"x" * 32),
        lambda final, nonce: final + b"," * 9000,
    ],
)
def test_a_malformed_last_message_of_scram_is_an_error(port: int, change: object) -> None:
    with Raw(port) as raw:
        raw.send(startup_packet(user="admin")).until(b"R")
        scram = ScramClient(PASSWORD, b"n" * 18)
        raw.send(sasl_initial(scram.first()))
        server_first = raw.read()[1][4:]
        nonce = server_first.split(b",")[0].removeprefix(b"r=")
        final = change(scram.final(server_first), nonce)  # type: ignore[operator]
        assert raw.send(message(b"p", final)).error()["C"] in ("08P01", "28P01")
        assert raw.is_closed()


def test_an_unknown_mechanism_is_refused(port: int) -> None:
    with Raw(port) as raw:
        raw.send(startup_packet(user="admin")).until(b"R")
        assert raw.send(sasl_initial(b"n,,n=,r=abc", b"PLAIN")).error()["C"] == "08P01"


def test_queries_before_the_login_are_refused(port: int) -> None:
    with Raw(port) as raw:
        raw.send(startup_packet(user="admin"), message(b"Q", b"SELECT 1\0"))
        assert raw.error()["C"] == "08P01"
        assert raw.is_closed()


@pytest.mark.parametrize("protocol", [(3 << 16) | 9999, (3 << 16) | 2])
def test_a_newer_protocol_is_negotiated_down(port: int, protocol: int) -> None:
    """libpq of PostgreSQL 19 asks for 3.9999 and an extension that nobody knows."""
    with Raw(port) as raw:
        unknown = {"_pq_.test_protocol_negotiation": ""}
        raw.send(startup_packet(protocol, user="admin", **unknown))
        kind, body = raw.read()
        assert kind == b"v"
        assert body == pack("!II", 196608, 1) + b"_pq_.test_protocol_negotiation\0"
        raw.answer_scram()
        assert (b"D", b"\0\1\0\0\0\1" + b"1") in raw.query("SELECT 1")


def test_our_own_extension_is_not_listed_as_unknown(port: int) -> None:
    with Raw(port) as raw:
        raw.send(startup_packet(user="admin", **{"_pq_.smart_connector": "0.1"}))
        assert raw.until(b"R", b"v")[-1][0] == b"R"


# --- who is who ---------------------------------------------------------------------------------


@pytest.fixture
def user(cluster: Cluster) -> str:
    node = cluster["i1"]
    node.sql("DROP USER IF EXISTS carol")
    node.sql(f"CREATE USER carol WITH PASSWORD '{SECRET}'")
    wait_for_user(cluster["i2"], "carol")
    return "carol"


def wait_for_user(node: Node, name: str) -> None:
    query = "SELECT id FROM _pico_user WHERE name = %s"
    eventually(lambda: node.sql(query, (name,)), f"{name} known to {node.name}")


def login_as(node: Node, user: str, password: str = SECRET) -> psycopg.Connection[object]:
    return psycopg.connect(
        host="127.0.0.1", port=node.pg_port, user=user, password=password, autocommit=True
    )


def exchange(port: int, user: str) -> tuple[list[tuple[bytes, int]], dict[str, str], float]:
    """The shape of a failed login, its error, and how long the server took."""
    with Raw(port) as raw:
        begun = time.perf_counter()
        shape = [
            (kind, len(body)) for kind, body in raw.send(startup_packet(user=user)).until(b"R")
        ]
        scram = ScramClient("wrong", b"n" * 18)
        raw.send(sasl_initial(scram.first()))
        kind, body = raw.read()
        shape.append((kind, len(body)))
        spent = time.perf_counter() - begun
        final = scram.final(body[4:])
        begun = time.perf_counter()
        found = raw.send(message(b"p", final)).error()
        return shape, found, spent + time.perf_counter() - begun


def test_a_user_who_does_not_exist_looks_like_one_who_does(
    port: int, cluster: Cluster, user: str
) -> None:
    """CVE-2015-6817: no other user's rights, and nothing that tells the two apart."""
    cluster["i1"].sql("ALTER SYSTEM SET auth_login_attempt_max = 1000")
    try:
        real, fake = [exchange(port, user)], [exchange(port, "nobody")]
        for _ in range(30):
            real.append(exchange(port, user))
            fake.append(exchange(port, "nobody"))
    finally:
        cluster["i1"].sql("ALTER SYSTEM RESET auth_login_attempt_max")
    assert real[0][0] == fake[0][0]
    assert real[0][1]["M"] == "authentication failed for user 'carol'"
    assert fake[0][1]["M"] == "authentication failed for user 'nobody'"
    assert {**real[0][1], "M": ""} == {**fake[0][1], "M": ""}
    slow, fast = (statistics.median(each[2] for each in found) for found in (real, fake))
    assert max(slow, fast) < 2 * min(slow, fast) + 0.002


def test_the_salt_of_a_user_who_does_not_exist_is_the_same_everywhere(cluster: Cluster) -> None:
    salts = set()
    for name in ("i1", "i2", "i1"):
        with Raw(cluster[name].pg_port) as raw:
            raw.send(startup_packet(user="nobody")).until(b"R")
            raw.send(sasl_initial(ScramClient("x", b"n" * 18).first()))
            salts.add(raw.read()[1].split(b",")[1])
    assert len(salts) == 1


def test_a_user_is_locked_out_until_unlocked(cluster: Cluster, user: str) -> None:
    node = cluster["i1"]
    for _ in range(4):
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            login_as(node, user, "wrong")
    with pytest.raises(psycopg.OperationalError, match="authentication failed for user 'carol'"):
        login_as(node, user)
    node.sql(f"ALTER USER {user} WITH LOGIN")
    login_as(node, user).close()


def test_guesses_that_are_begun_together_are_counted_too(cluster: Cluster, user: str) -> None:
    """Each has its turn before any has failed: the last one knows the password."""
    node = cluster["i1"]
    with ExitStack() as all_of_them:
        begun = []
        for password in (*["wrong"] * 4, SECRET):
            raw = all_of_them.enter_context(Raw(node.pg_port))
            raw.send(startup_packet(user=user)).until(b"R")
            scram = ScramClient(password, os.urandom(18))
            _, body = raw.send(sasl_initial(scram.first())).read()
            begun.append((raw, message(b"p", scram.final(body[4:]))))
        for raw, final in begun:
            assert raw.send(final).error()["C"] == "28P01"
    told = r"login of 'carol' from 127.0.0.1 failed \(locked out for \d+ s more\)"
    assert re.search(told, node.log())
    node.sql(f"ALTER USER {user} WITH LOGIN")


def test_a_success_forgets_the_failures(cluster: Cluster, user: str) -> None:
    node = cluster["i1"]
    for _ in range(3):
        for _ in range(3):
            with pytest.raises(psycopg.OperationalError):
                login_as(node, user, "wrong")
        login_as(node, user).close()


def test_who_may_not_log_in_does_not(cluster: Cluster, user: str) -> None:
    node = cluster["i1"]
    node.sql(f"ALTER USER {user} WITH NOLOGIN")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        login_as(node, user)
    node.sql(f"ALTER USER {user} WITH LOGIN")
    login_as(node, user).close()


def test_a_role_and_a_user_without_a_password_cannot_log_in(cluster: Cluster) -> None:
    for name in ("public", "super", "guest", "pico_service", ""):
        with pytest.raises(psycopg.OperationalError):
            login_as(cluster["i1"], name, "")


def test_an_old_password_ends_with_the_new_one(cluster: Cluster, user: str) -> None:
    node = cluster["i1"]
    node.sql(f"ALTER USER {user} WITH PASSWORD 'An0therSecret'")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        login_as(node, user)
    login_as(node, user, "An0therSecret").close()


def test_an_expiry_that_we_would_not_enforce_is_refused(cluster: Cluster) -> None:
    """CVE-2025-2291: VALID UNTIL is not accepted and forgotten."""
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="VALID"):
        cluster["i1"].sql("CREATE USER late WITH PASSWORD 'Passw0rd1' VALID UNTIL '2000-01-01'")


def test_passwords_are_in_no_log_and_in_no_error(cluster: Cluster, user: str) -> None:
    node = cluster["i1"]
    with pytest.raises(psycopg.Error) as caught:
        node.sql(f"ALTER USER nobody WITH PASSWORD '{SECRET}'")
    assert SECRET not in str(caught.value)
    with pytest.raises(psycopg.Error):
        node.sql(f"ALTER USER {user} PASWORD '{SECRET}'")
    with pytest.raises(psycopg.OperationalError):
        login_as(node, user, SECRET + "x")
    for each in cluster.nodes.values():
        assert SECRET not in each.log() and PASSWORD not in each.log()
    for file in node.dir.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


# --- rights -------------------------------------------------------------------------------------


@pytest.fixture
def table(cluster: Cluster) -> str:
    node = cluster["i1"]
    node.sql("DROP TABLE IF EXISTS secrets")
    node.sql(
        "CREATE TABLE secrets (id INTEGER PRIMARY KEY, body TEXT) "
        "DISTRIBUTED BY (id) WAIT APPLIED GLOBALLY"
    )
    values = ", ".join(f"({n}, 'b{n}')" for n in range(40))
    node.sql(f"INSERT INTO secrets VALUES {values}")
    return "secrets"


def test_cached_plans_respect_revoked_rights(cluster: Cluster, user: str, table: str) -> None:
    """GHSA-v26h: a statement that was allowed is asked again."""
    node = cluster["i1"]
    node.sql(f"GRANT READ ON TABLE {table} TO {user}")
    with login_as(node, user) as connection:
        read = f"SELECT body FROM {table} WHERE id = %s"
        for n in range(10):  # prepared on the server by now
            assert connection.execute(read, (n,), prepare=True).fetchone() == (f"b{n}",)
        node.sql(f"REVOKE READ ON TABLE {table} FROM {user}")
        for n in range(10):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(read, (n,), prepare=True)
        node.sql(f"GRANT READ ON TABLE {table} TO {user}")
        assert connection.execute(read, (1,)).fetchone() == ("b1",)


def test_rights_hold_wherever_the_row_is(cluster: Cluster, user: str, table: str) -> None:
    """Every row from every instance: half of these go one hop to the owner."""
    for node in cluster.nodes.values():
        with login_as(node, user) as connection:
            for n in range(10):
                for text in (
                    f"SELECT body FROM {table} WHERE id = %s",
                    f"UPDATE {table} SET body = 'x' WHERE id = %s",
                    f"DELETE FROM {table} WHERE id = %s",
                    f"INSERT INTO {table} VALUES (%s, 'x') ON CONFLICT DO REPLACE",
                    f"EXPLAIN SELECT * FROM {table} WHERE id = %s",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(text, (n,))
            for text in (f"COPY {table} TO STDOUT", f"COPY {table} FROM STDIN"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.cursor().copy(text).__enter__()
    assert cluster["i1"].sql(f"SELECT count(*) FROM {table} WHERE body <> 'x'") == [(40,)]


def test_a_right_to_read_is_none_to_write(cluster: Cluster, user: str, table: str) -> None:
    cluster["i1"].sql(f"GRANT READ ON TABLE {table} TO {user}")
    with login_as(cluster["i1"], user) as connection:
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (40,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"DELETE FROM {table}")
        for text in (
            f"DROP TABLE {table}",
            f"ALTER TABLE {table} ADD COLUMN x TEXT",
            f"TRUNCATE TABLE {table}",
            "CREATE USER mallory WITH PASSWORD 'Passw0rd1'",
            f"GRANT WRITE ON TABLE {table} TO {user}",
            "ALTER USER admin WITH PASSWORD 'Passw0rd1'",
            "ALTER SYSTEM SET auth_login_attempt_max = 1",
            "CALL cairn_expel('i2')",
            "SELECT * FROM _pico_user",
            "SELECT * FROM _pico_privilege",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(text)


def test_nothing_in_pg_catalog_tells_a_password(cluster: Cluster, user: str) -> None:
    with login_as(cluster["i1"], user) as connection:
        found = connection.execute("SELECT rolpassword FROM pg_catalog.pg_roles").fetchall()
        assert {row[0] for row in found} == {"********"}
        for name in ("pg_authid", "pg_shadow"):
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.execute(f"SELECT * FROM pg_catalog.{name}")


# --- topology -----------------------------------------------------------------------------------


def test_sql_cannot_forge_a_notice(cluster: Cluster) -> None:
    """Nothing a user can say becomes a NoticeResponse on a service connection."""
    forged = '{"op":"replace","map":"instance","instance_uuid":"evil","address":"evil:1"}'
    with Raw(cluster["i1"].pg_port) as service:
        service.log_in(smart_connector="0.1")
        seen = []
        with cluster["i1"].connect() as connection:
            connection.add_notice_handler(lambda notice: seen.append(notice.message_primary))
            for text in (
                f"SELECT '{forged}'",
                f"DO $$ BEGIN RAISE NOTICE '{forged}'; END $$",
                f"NOTIFY topology, '{forged}'",
                f"SET application_name = '{forged}'",
            ):
                try:
                    connection.execute(text)
                except psycopg.Error:
                    continue
        assert not any("evil" in (text or "") for text in seen)
        told = [body for kind, body in service.query("SELECT 1") if kind == b"N"]
        assert not any(b"evil" in body for body in told)


def test_topology_tables_cannot_be_written_by_an_ordinary_user(cluster: Cluster, user: str) -> None:
    with login_as(cluster["i1"], user) as connection:
        for text in (
            "UPDATE _pico_peer_address SET address = 'evil:1'",
            "DELETE FROM _pico_instance",
            "INSERT INTO _pico_peer_address VALUES (99, 'evil:1', 'pgproto')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(text)


def test_topology_is_hidden_from_those_without_the_right(cluster: Cluster, user: str) -> None:
    node = cluster["i1"]
    node.sql("REVOKE READ ON TABLE _pico_instance FROM public")
    try:
        with Raw(node.pg_port) as raw:
            raw.send(startup_packet(user=user, smart_connector="0.1")).until(b"R")
            scram = ScramClient(SECRET, b"n" * 18)
            raw.send(sasl_initial(scram.first()))
            raw.send(message(b"p", scram.final(raw.read()[1][4:])))
            told = raw.until(b"E", b"Z")
            assert fields(told[-1][1])["C"] == "42501"
            assert not any(kind == b"N" for kind, _ in told)
        with (
            login_as(node, user) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("SELECT * FROM _pico_instance")
    finally:
        node.sql("GRANT READ ON TABLE _pico_instance TO public")


def test_unlocking_on_one_instance_unlocks_everywhere(cluster: Cluster, user: str) -> None:
    for _ in range(4):
        with pytest.raises(psycopg.OperationalError):
            login_as(cluster["i1"], user, "wrong")
    cluster["i2"].sql(f"ALTER USER {user} WITH LOGIN")

    def logged_in() -> bool:
        login_as(cluster["i1"], user).close()
        return True

    eventually(logged_in, "the login", 2)
