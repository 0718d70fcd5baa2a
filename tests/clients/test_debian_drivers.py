"""Drivers of Go, PHP, Ruby and Perl as Debian has them, each with a small program of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import PASSWORD, Cluster

pytestmark = pytest.mark.clients

Run = Callable[..., str]
PROGRAMS = Path(__file__).parent / "programs"
GO_SOURCES = Path("/usr/share/gocode")  # where Debian keeps libraries of Go


@pytest.fixture
def table(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """With types that some of them are strict about, and a number that the table gives."""
    name = f"d_{request.node.name.removeprefix('test_')}"
    cluster["i1"].sql(
        f"CREATE TABLE {name} (id SERIAL PRIMARY KEY, small SMALLINT, name VARCHAR(20), "
        "price NUMERIC(8, 2), there BOOLEAN)"
    )
    yield name
    cluster["i1"].sql(f"DROP TABLE {name}")


@pytest.fixture
def port(cluster: Cluster) -> str:
    return str(cluster["i1"].pg_port)


def needs(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=30)
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not installed")
    if done.returncode:
        pytest.skip(f"{command[0]} has no driver for PostgreSQL")


def test_php(run: Run, port: str, table: str) -> None:
    needs(["php", "-r", 'exit(extension_loaded("pdo_pgsql") ? 0 : 1);'])
    shown = run("php", str(PROGRAMS / "session.php"), port, PASSWORD, table)
    assert shown.splitlines() == [
        '"1"',
        '"1"',
        '[[1,7,"\\u00e9","1.50",true]]',
        '["int8","int2","varchar","numeric","bool"]',
        "7",
        "true",
        '"23505"',
        "true",
        '"old"',
    ]


def test_ruby(run: Run, port: str, table: str) -> None:
    needs(["ruby", "-e", 'require "pg"'])
    shown = run("ruby", str(PROGRAMS / "session.rb"), port, PASSWORD, table)
    assert shown.splitlines() == [
        "[[1]]",
        '[[1,7,"é",true]]',
        '[[[1,2],["a"],1.5]]',
        "[[4]]",
        f"{table}_pkey",
        "[[9]]",
    ]


def test_perl(run: Run, port: str, table: str) -> None:
    needs(["perl", "-MDBD::Pg", "-e", "1"])
    shown = run("perl", str(PROGRAMS / "session.pl"), port, PASSWORD, table)
    assert shown.splitlines() == [
        "1",
        "1|7|x|1.50|1",
        "id bigint|small smallint|name character varying|price numeric|there boolean",
        "id",
        f"{table}_pkey id A",
        "8",
        "2",
    ]


def test_go(run: Run, dsn: str, table: str, tmp_path: Path) -> None:
    drivers = [GO_SOURCES / "src/github.com" / each for each in ("jackc/pgx/v4", "lib/pq")]
    if not all(each.is_dir() for each in drivers):
        pytest.skip("pgx and lib/pq are not installed")
    program = tmp_path / "session"
    environment = {
        **os.environ,
        "GOPATH": str(GO_SOURCES),
        "GO111MODULE": "off",
        "GOCACHE": str(tmp_path / "cache"),
    }
    build = ["go", "build", "-o", str(program), str(PROGRAMS / "session.go")]
    subprocess.run(build, env=environment, check=True, timeout=120)
    shown = run(str(program), dsn, table)
    assert shown.splitlines() == [
        "1 7 é",
        "5000",
        "5001",
        f"23505 {table} {table}_pkey",
        "10",
    ]
