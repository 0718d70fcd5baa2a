"""TLS on the PostgreSQL port of a real instance: required once it is configured."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import asyncpg
import psycopg
import pytest

from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.model.errors import ConfigProblem
from cairn.node.boot.config import InstanceConfig, load
from cairn.server.tls import from_config
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]

SSL_REQUEST = pack("!II", 8, 80877103)


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca, a server's certificate for 127.0.0.1, and a client's."""
    at = tmp_path_factory.mktemp("tls")
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*new, "-x509", "-subj", "/CN=ca", "-keyout", f"{at}/ca.key", "-out", f"{at}/ca.crt")
    (at / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        request = f"{at}/{name}.csr"
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{at}/{name}.key", "-out", request)
        signing = ("-CA", f"{at}/ca.crt", "-CAkey", f"{at}/ca.key", "-CAcreateserial")
        names = ("-extfile", f"{at}/names", "-days", "2", "-out", f"{at}/{name}.crt")
        openssl("x509", "-req", "-in", request, *signing, *names)
        os.chmod(at / f"{name}.key", 0o600)
    return at


def started(directory: Path, *flags: str) -> Node:
    node = Cluster(directory, "tls", *flags).add("i1")
    node.cluster.peers = node.peer
    node.start()
    eventually(lambda: "PostgreSQL clients are welcome" in node.log(), "the listener")
    return node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Node]:
    flags = ("--tls-cert", f"{files}/server.crt", "--tls-key", f"{files}/server.key")
    made = started(tmp_path_factory.mktemp("cluster"), *flags)
    eventually(lambda: connected(made, sslmode="require"), "a login over TLS")
    yield made
    made.cluster.close()


def connected(node: Node, **options: str) -> bool:
    with node.connect(**options) as connection:
        return bool(connection.pgconn.ssl_in_use) and connection.execute("SELECT 1") is not None


def dsn(node: Node, more: str) -> str:
    return f"postgresql://admin:{PASSWORD}@127.0.0.1:{node.pg_port}/cairn?{more}"


def test_psql_encrypts(node: Node) -> None:
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    command = ["psql", "-X", dsn(node, "sslmode=require"), "-c", r"\conninfo", "-c", "SELECT 41+1"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    assert "SSL connection (protocol: TLSv1.3" in shown and "42" in shown


def test_who_does_not_encrypt_is_told_to(node: Node) -> None:
    with pytest.raises(psycopg.OperationalError, match="requires the client to use ssl"):
        node.connect(sslmode="disable")


def test_the_certificate_can_be_verified(node: Node, files: Path) -> None:
    with node.connect(sslmode="verify-full", sslrootcert=f"{files}/ca.crt") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        node.connect(sslmode="verify-full", sslrootcert=f"{files}/client.crt")


@pytest.mark.parametrize("command", ["status", "migrate status"])
def test_commands_encrypt_as_the_dsn_says(node: Node, files: Path, command: str) -> None:
    def run(more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "cairn.cli.main", *command.split(), "--dsn", dsn(node, more)]
        return subprocess.run(words, capture_output=True, text=True, timeout=30)

    trusted = f"sslmode=verify-full&sslrootcert={files}/ca.crt"
    assert run(trusted).returncode == 0
    other = run(f"sslmode=verify-full&sslrootcert={files}/client.crt")
    assert other.returncode == 3 and "certificate verify failed" in other.stderr
    plain = run("sslmode=disable")
    assert plain.returncode == 1 and "requires the client to use ssl" in plain.stderr


def test_the_channel_is_bound_to_the_password(node: Node) -> None:
    with node.connect(sslmode="require", channel_binding="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with node.connect(sslmode="require", channel_binding="disable") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_large_answers_and_copy_pass_through(node: Node) -> None:
    with node.connect(sslmode="require") as connection:
        connection.execute("CREATE TABLE big (id INTEGER PRIMARY KEY, body TEXT)")
        body = "x" * 100_000
        with connection.cursor().copy("COPY big FROM STDIN") as copy:
            for n in range(50):
                copy.write_row((n, body))
        rows = connection.execute("SELECT body FROM big").fetchall()
        assert len(rows) == 50 and all(row == (body,) for row in rows)


def test_asyncpg_encrypts(node: Node) -> None:
    import asyncio

    async def session() -> None:
        connection = await asyncpg.connect(dsn(node, "sslmode=require"))
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()

    asyncio.run(session())


@pytest.mark.parametrize("together", [True, False])
def test_bytes_in_clear_after_the_ssl_request_end_the_connection(
    node: Node, together: bool
) -> None:
    startup = b"\0\3\0\0user\0admin\0\0"
    injected = pack("!I", len(startup) + 4) + startup
    with socket.create_connection(("127.0.0.1", node.pg_port), 10) as raw:
        if together:
            raw.sendall(SSL_REQUEST + injected)
        else:
            raw.sendall(SSL_REQUEST)
            assert raw.recv(1) == b"S"
            raw.sendall(injected)
        answer = received(raw)
        assert b"SCRAM" not in answer and b"R\0\0" not in answer
    assert connected(node, sslmode="require")


def received(raw: socket.socket) -> bytes:
    """Everything until the other end hangs up."""
    found = b""
    try:
        while piece := raw.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def test_what_follows_the_ssl_request_is_not_kept_for_after_the_handshake(node: Node) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    startup = b"\0\3\0\0user\0mallory\0\0"
    with socket.create_connection(("127.0.0.1", node.pg_port), 10) as raw:
        raw.sendall(SSL_REQUEST)
        assert raw.recv(1) == b"S"
        raw.sendall(pack("!I", len(startup) + 4) + startup)
        with pytest.raises((ssl.SSLError, OSError)):
            context.wrap_socket(raw, server_hostname="localhost")


def test_clients_must_show_a_certificate_when_an_authority_is_given(
    tmp_path: Path, files: Path
) -> None:
    flags = ("--tls-cert", f"{files}/server.crt", "--tls-key", f"{files}/server.key")
    node = started(tmp_path, *flags, "--tls-ca", f"{files}/ca.crt")
    own = {"sslcert": f"{files}/client.crt", "sslkey": f"{files}/client.key"}
    try:
        eventually(lambda: connected(node, sslmode="require", **own), "a login with a certificate")
        with pytest.raises(psycopg.OperationalError):
            node.connect(sslmode="require", sslcert="/nowhere")
        shown = "&".join(f"{name}={path}" for name, path in own.items())
        Talk(Target(dsn(node, f"sslmode=require&{shown}"), None)).close()
        with pytest.raises(TalkProblem):
            Talk(Target(dsn(node, "sslmode=require"), None))
    finally:
        node.cluster.close()


def test_files_flags_and_environment_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: {name: x}\ninstance: {pg: {tls: {cert_file: a, key_file: b}}}\n")
    config = load({"config": str(file), "tls-key": "k"}, {"CAIRN_TLS_CA": "c"})
    assert (config.tls_cert, config.tls_key, config.tls_ca) == ("a", "k", "c")


def test_files_that_do_not_belong_together_are_told_apart(files: Path) -> None:
    for cert, key, said in (
        ("server.key", "server.crt", "are they swapped"),
        ("server.crt", "client.key", "belongs to another certificate"),
        ("names", "server.key", "no certificate is in the first"),
        ("server.crt", "names", "no key is in the second"),
    ):
        given = InstanceConfig(tls_cert=f"{files}/{cert}", tls_key=f"{files}/{key}")
        with pytest.raises(ConfigProblem, match=said):
            from_config(given)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tls_cert": "a"}, "--tls-key is missing"),
        ({"tls_key": "a"}, "--tls-cert is missing"),
        ({"tls_ca": "a"}, "--tls-ca needs"),
        ({"tls_cert": "/nowhere", "tls_key": "/nowhere"}, "--tls-cert /nowhere"),
    ],
)
def test_what_is_missing_is_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigProblem, match=problem):
        from_config(InstanceConfig(**options))
