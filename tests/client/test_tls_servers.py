"""SCRAM-SHA-256-PLUS with channel binding: against our own server, and against PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.client import aio_wire, connect, sync_wire
from cairn.client.logic import flows
from cairn.client.settings import certificate_hash, parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import CairnError
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually, free_ports

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
POSTGRES = Path("/usr/lib/postgresql")


def certificate(at: Path, name: str, *key: str, digest: str = "-sha256") -> None:
    """Signed by itself, good for 127.0.0.1."""
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", f"{at}/{name}.key", "-out", f"{at}/{name}.crt")
    command = ["openssl", "req", "-x509", *key, "-nodes", "-days", "2", digest, *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    os.chmod(at / f"{name}.key", 0o600)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("tls")
    certificate(at, "sha256", "-newkey", "rsa:2048")
    certificate(at, "sha384", "-newkey", "rsa:2048", digest="-sha384")
    certificate(
        at, "sha512", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", digest="-sha512"
    )
    certificate(at, "ed25519", "-newkey", "ed25519")
    return at


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Node]:
    flags = ("--tls-cert", f"{files}/sha256.crt", "--tls-key", f"{files}/sha256.key")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), "tls", *flags)
    made = cluster.add("i1")
    cluster.peers = made.peer
    made.start()
    eventually(lambda: made.sql("SELECT 1"), "a login")
    yield made
    cluster.close()


def dsn(port: int, more: str, user: str = "admin") -> str:
    return f"postgresql://{user}:{PASSWORD}@127.0.0.1:{port}/postgres?{more}"


def test_the_hash_is_the_one_of_the_signature(files: Path) -> None:
    for name, size in (("sha256", 32), ("sha384", 48), ("sha512", 64)):
        command = ["openssl", "x509", "-in", f"{files}/{name}.crt", "-outform", "der"]
        der = subprocess.run(command, check=True, capture_output=True).stdout
        assert len(certificate_hash(der) or b"") == size
    command = ["openssl", "x509", "-in", f"{files}/ed25519.crt", "-outform", "der"]
    der = subprocess.run(command, check=True, capture_output=True).stdout
    assert certificate_hash(der) is None
    assert certificate_hash(b"") is None and certificate_hash(b"0") is None


def test_both_faces_bind_the_channel_to_our_server(node: Node, files: Path) -> None:
    more = f"channel_binding=require&sslmode=verify-full&sslrootcert={files}/sha256.crt"
    with SyncPool(parse_dsn(dsn(node.pg_port, more))).open() as pool:
        assert pool.fetch("SELECT 1") == [(1,)]
        with pool.wire() as wire:
            assert wire.encrypted

    async def test() -> None:
        async with await connect(dsn(node.pg_port, more)) as found:
            assert await found.fetch("SELECT 1") == [(1,)]

    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_statement_is_cancelled_over_tls_too(node: Node) -> None:
    long = "SELECT count(*) FROM " + ", ".join(f"_pico_db_config a{n}" for n in range(12))
    settings = parse_dsn(dsn(node.pg_port, "sslmode=require"), timeout_s=0.5, cancel_wait_s=20.0)
    with SyncPool(settings).open() as pool:
        with pytest.raises(CairnError, match="the statement was cancelled") as caught:
            pool.fetch(long)
        assert caught.value.sqlstate == "57014"
        assert pool.stats.cancels == 1 and pool.fetch("SELECT 1") == [(1,)]

    async def test() -> None:
        async with await connect(dsn(node.pg_port, "sslmode=require"), cancel_wait_s=20.0) as found:
            with pytest.raises(CairnError, match="the statement was cancelled"):
                await found.fetch(long, timeout_s=0.5)
            assert found.stats.cancels == 1

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[int]:
    found = sorted(POSTGRES.glob("*/bin/initdb"))
    if not found or os.geteuid() != 0:
        pytest.skip("PostgreSQL is not installed")
    at = Path(subprocess.check_output(["mktemp", "-d", "/tmp/cairn-pg-XXXX"], text=True).strip())
    (at / "pw").write_text(PASSWORD)
    for name in ("key", "crt"):
        shutil.copy(files / f"sha384.{name}", at / f"server.{name}")
    subprocess.run(["chown", "-R", "postgres", str(at)], check=True)
    (port,) = free_ports(1)
    run = ["runuser", "-u", "postgres", "--"]
    data, tools = str(at / "data"), found[-1].parent
    options = ["-A", "scram-sha-256", "--pwfile", str(at / "pw"), "-U", "admin"]
    subprocess.run([*run, str(found[-1]), "-D", data, *options], check=True, capture_output=True)
    flags = (
        f"-p {port} -k {at} -c listen_addresses=127.0.0.1 -c ssl=on "
        f"-c ssl_cert_file={at}/server.crt -c ssl_key_file={at}/server.key"
    )
    control = [*run, str(tools / "pg_ctl"), "-D", data, "-w", "-l", str(at / "log")]
    subprocess.run([*control, "-o", flags, "start"], check=True, capture_output=True)
    try:
        yield port
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)
        shutil.rmtree(at, ignore_errors=True)


def test_both_faces_bind_the_channel_to_postgresql(postgres: int, files: Path) -> None:
    """Its certificate is signed with SHA-384: PostgreSQL hashes it with that."""
    more = f"channel_binding=require&sslmode=verify-full&sslrootcert={files}/sha384.crt"
    settings = parse_dsn(dsn(postgres, more))
    wire = sync_wire.open_wire(settings, settings.hosts[0], {})
    assert wire.talk(flows.run_once(wire.pg, "SELECT $1::int8 + 1", [41]), 5).rows == [(42,)]
    wire.close()

    async def test() -> None:
        found = await aio_wire.open_wire(settings, settings.hosts[0], {})
        result = await found.talk(flows.run_once(found.pg, "SELECT 6 * 7"), 5)
        assert result.rows == [(42,)]
        found.close()

    asyncio.run(asyncio.wait_for(test(), 30))
