"""Both faces log in over TLS with SCRAM and channel binding."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.client import aio_wire, sync_wire
from cairn.client.logic import flows
from cairn.client.settings import parse_dsn
from cairn.model.errors import CairnError
from tests.pgwire.loopback import echo_server

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


def made(directory: Path, name: str) -> tuple[str, str]:
    """A key, and a certificate that it has signed itself."""
    key, certificate = str(directory / f"{name}key"), str(directory / f"{name}crt")
    subject = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    command = ["openssl", "req", "-x509", *subject, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    key, certificate = made(tmp_path, "")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_the_blocking_face_encrypts(tls: ssl.SSLContext) -> None:
    with echo_server(tls) as (port, _):
        settings = parse_dsn(f"postgresql://alice:secret@127.0.0.1:{port}/x?sslmode=require")
        wire = sync_wire.open_wire(settings, settings.hosts[0], {})
        result = wire.talk(flows.run_once(wire.pg, "echo $1::int8", [5]), 5)
        assert result.rows == [(5,)]
        wire.close()
        strict = parse_dsn(f"postgresql://alice:secret@127.0.0.1:{port}/x?sslmode=verify-full")
        with pytest.raises(CairnError, match="certificate"):
            sync_wire.open_wire(strict, strict.hosts[0], {})


def test_the_asyncio_face_encrypts(tls: ssl.SSLContext) -> None:
    async def talk(port: int) -> None:
        settings = parse_dsn(f"postgresql://alice:secret@127.0.0.1:{port}/x?sslmode=require")
        wire = await aio_wire.open_wire(settings, settings.hosts[0], {})
        result = await wire.talk(flows.run_once(wire.pg, "echo $1::int8", [5]), 5)
        assert result.rows == [(5,)]
        wire.close()
        strict = parse_dsn(f"postgresql://alice:secret@127.0.0.1:{port}/x?sslmode=verify-full")
        with pytest.raises(CairnError, match="certificate"):
            await aio_wire.open_wire(strict, strict.hosts[0], {})

    with echo_server(tls) as (port, _):
        asyncio.run(asyncio.wait_for(talk(port), 20))


def test_a_server_without_tls_is_refused_when_it_is_required() -> None:
    with echo_server() as (port, _):
        settings = parse_dsn(f"postgresql://alice:secret@127.0.0.1:{port}/x?sslmode=require")
        with pytest.raises(CairnError, match="does not support TLS"):
            sync_wire.open_wire(settings, settings.hosts[0], {})
        plain = parse_dsn(f"postgresql://alice:secret@127.0.0.1:{port}/x")
        wire = sync_wire.open_wire(plain, plain.hosts[0], {})
        wire.close()
        wrong = parse_dsn(f"postgresql://alice:wrong@127.0.0.1:{port}/x")
        with pytest.raises(CairnError) as caught:
            sync_wire.open_wire(wrong, wrong.hosts[0], {})
        assert caught.value.sqlstate == "28P01"


def talked(port: int, more: str) -> list[Any]:
    """What `cairn status` and its like get to hear."""
    talk = Talk(Target(f"postgresql://alice:secret@127.0.0.1:{port}/x?{more}", None))
    try:
        return talk.rows("echo $1::int8", (5,))
    finally:
        talk.close()


def test_commands_encrypt_as_the_driver_does(tls: ssl.SSLContext, tmp_path: Path) -> None:
    with echo_server(tls) as (port, _):
        for mode in ("", "sslmode=prefer", "sslmode=require"):
            assert talked(port, mode) == [(5,)]
        trusted = f"sslmode=verify-ca&sslrootcert={tmp_path / 'crt'}"
        assert talked(port, trusted) == [(5,)]
        other = made(tmp_path, "other")[1]
        for mode in ("", "sslmode=prefer&", "sslmode=require&"):
            assert talked(port, f"{mode}sslrootcert={tmp_path / 'crt'}") == [(5,)]
            with pytest.raises(TalkProblem, match="certificate verify failed"):
                talked(port, f"{mode}sslrootcert={other}")  # it was given to be asked
        for mode in ("verify-ca", "verify-full"):
            with pytest.raises(TalkProblem, match="certificate verify failed") as caught:
                talked(port, f"sslmode={mode}")
            assert caught.value.exit_code == 3
        with pytest.raises(TalkProblem, match="sslrootcert") as caught:
            talked(port, "sslmode=verify-ca&sslrootcert=/nonexist")
        assert caught.value.exit_code == 2
    with pytest.raises(TalkProblem, match="sslmode=maybe: use one of disable") as caught:
        talked(1, "sslmode=maybe")
    assert caught.value.exit_code == 2
    with echo_server() as (port, _):
        for mode in ("sslmode=disable", "sslmode=prefer"):
            assert talked(port, mode) == [(5,)]
        with pytest.raises(TalkProblem, match="does not support TLS"):
            talked(port, "sslmode=require")
