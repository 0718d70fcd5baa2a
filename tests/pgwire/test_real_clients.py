"""Real drivers and programs against PgServer on loopback, with SCRAM and, for one, TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from .loopback import echo_server

pytestmark = pytest.mark.clients

MOMENT = datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=UTC)
KEY = UUID("12345678-1234-5678-1234-567812345678")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with echo_server() as (number, _):
        yield number


def dsn(port: int, more: str = "") -> str:
    return f"postgresql://alice:secret@127.0.0.1:{port}/db{more}"


def test_asyncpg_prepares_fetches_in_binary_and_copies(port: int) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def session() -> None:
        connection = await asyncpg.connect(dsn(port))
        values = (7, "text", True, 2.5, Decimal("1.50"), KEY, MOMENT)
        types = ("int8", "text", "bool", "float8", "numeric", "uuid", "timestamptz")
        sql = "echo " + ", ".join(f"${i}::{t}" for i, t in enumerate(types, 1))
        assert tuple(await connection.fetchrow(sql, *values)) == values
        assert [row["n"] for row in await connection.fetch("rows 3")] == [0, 1, 2]
        assert await connection.execute("begin") == "BEGIN"
        await connection.execute("commit")
        seen: list[str] = []
        connection.add_log_listener(lambda _, notice: seen.append(notice.message))
        await connection.execute("notice hello")
        await asyncio.sleep(0)
        assert seen == ["hello"]
        with pytest.raises(asyncpg.InternalServerError, match="asked to fail"):
            await connection.fetch("fail")
        with pytest.raises(asyncpg.PostgresSyntaxError) as caught:
            await connection.fetch("nonsense")
        assert caught.value.position == "1"
        async with connection.transaction():
            cursor = await connection.cursor("rows 5")
            assert len(await cursor.fetch(2)) == 2 and len(await cursor.fetch(9)) == 3
        await connection.close()

    asyncio.run(session())


def test_asyncpg_with_a_wrong_password_is_told_so(port: int) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    with pytest.raises(asyncpg.InvalidPasswordError):
        asyncio.run(asyncpg.connect(dsn(port).replace("secret", "wrong")))


def test_psycopg_binds_pipelines_and_copies(port: int) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(dsn(port), autocommit=True) as connection:
        values = (7, 1 << 40, "text", True, 2.5, Decimal("1.50"), KEY, MOMENT, None)
        marks = ", ".join(["%s"] * len(values))
        for binary in (False, True):
            cursor = connection.cursor(binary=binary)
            assert cursor.execute(f"echo {marks}", values).fetchone() == values
        for _ in range(7):  # after five it uses a named statement
            assert connection.execute("echo %s", ("x",)).fetchone() == ("x",)
        connection.cursor().executemany("echo %s", [(n,) for n in range(50)])
        with connection.pipeline():
            first, second = connection.execute("rows 2"), connection.execute("rows 1")
            assert (len(first.fetchall()), len(second.fetchall())) == (2, 1)
        with connection.cursor().copy("copy out 3") as copy:
            assert list(copy.rows()) == [(str(n), f"row\t{n}") for n in range(3)]
        cursor = connection.cursor()
        with cursor.copy("copy in") as copy:
            for n in range(1000):
                copy.write_row((n, f"row {n}"))
        assert cursor.rowcount == 1000
        with pytest.raises(psycopg.errors.BadCopyFileFormat), cursor.copy("copy in") as copy:
            copy.write(b"1\n")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="not a valid int8"):
            connection.execute("echo %s::int8", ("abc",))
        assert connection.execute("rows 1").fetchone() == (0, "row 0")


def test_psycopg_in_a_transaction_sees_the_status(port: int) -> None:
    psycopg = pytest.importorskip("psycopg")
    status = psycopg.pq.TransactionStatus
    with psycopg.connect(dsn(port)) as connection:
        connection.execute("rows 1")
        assert connection.info.transaction_status == status.INTRANS
        with pytest.raises(psycopg.Error, match="asked to fail"):
            connection.execute("fail")
        assert connection.info.transaction_status == status.INERROR
        connection.execute("commit")


def test_psycopg_sends_the_key_when_it_cancels() -> None:
    psycopg = pytest.importorskip("psycopg")
    with echo_server() as (port, cancelled), psycopg.connect(dsn(port)) as connection:
        connection.cancel_safe(timeout=10)
        assert cancelled == [(7, b"\1\2\3\4")]


def test_pg8000_talks_to_us(port: int) -> None:
    native = pytest.importorskip("pg8000.native")
    connection = native.Connection("alice", host="127.0.0.1", port=port, password="secret")
    assert connection.run("echo :a, :b", a="x", b="y") == [["x", "y"]]
    assert connection.run("rows 2") == [[0, "row 0"], [1, "row 1"]]
    with pytest.raises(native.DatabaseError, match="asked to fail"):
        connection.run("fail")
    connection.close()


def run(*command: str, text: str = "") -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_psql_prints_rows_errors_notices_and_copies(port: int) -> None:
    url = dsn(port)
    assert run("psql", "-XAt", url, "-c", "rows 2") == "0|row 0\n1|row 1\n"
    assert run("psql", "-XAt", url, "-c", "notice hello") == "NOTICE\nNOTICE:  hello\n"
    failed = run("psql", "-XAt", url, "-c", "fail")
    assert (
        failed
        == "ERROR:  asked to fail\nLINE 1: fail\n          ^\nDETAIL:  a detail\nHINT:  a hint\n"
    )
    assert run("psql", "-XAt", url, "-c", "copy out 1") == "0\trow\\t0\n"
    assert run("psql", "-XAt", url, "-c", "copy in", text="1\ta\n2\tb\n\\.\n") == "COPY 2\n"


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench_runs_in_every_mode(port: int, mode: str, tmp_path: Path) -> None:
    script = tmp_path / "read.sql"
    script.write_text("rows 1;\n" if mode == "simple" else "\\set aid 5\necho :aid::int8;\n")
    output = run("pgbench", "-n", "-f", str(script), "-M", mode, "-c", "2", "-t", "50", dsn(port))
    assert "number of transactions actually processed: 100/100" in output


def test_psycopg_speaks_tls_to_us(tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    key, certificate = str(tmp_path / "key"), str(tmp_path / "crt")
    subject = ["-nodes", "-subj", "/CN=localhost", "-days", "2", "-newkey", "rsa:2048"]
    run("openssl", "req", "-x509", *subject, "-keyout", key, "-out", certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with (
        echo_server(tls) as (port, _),
        psycopg.connect(dsn(port, "?sslmode=require"), autocommit=True) as connection,
    ):
        assert connection.pgconn.ssl_in_use
        assert connection.execute("rows 1").fetchone() == (0, "row 0")
