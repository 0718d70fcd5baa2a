"""psql's backslash commands and its tab key: none of their queries may fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.cluster.harness import PASSWORD

_COMMANDS = (
    r"\d \d+ \dt \dt+ \di \di+ \du \du+ \l \l+ \dn \dn+ \df \df+ \dp \z \dT \dv \dm \ds \dx \db "
    r"\dg \da \do \dc \dC \dd \dD \ddp \des \dew \deu \dF \dFd \dFp \dFt \dL \dl \dO \dP \dRp \dRs "
    r"\dX \dy \dconfig \dA \dAc \dAf \dAo \dAp \dS \dtS \conninfo \encoding \timing "
)
COMMANDS = _COMMANDS.split()
COMPLETIONS = Path(__file__).with_name("data") / "psql_completions.sql"


def dsn(port: int) -> str:
    return f"postgresql://admin:{PASSWORD}@127.0.0.1:{port}/cairn"


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_no_backslash_command_fails(port: int) -> None:
    commands = [*COMMANDS, r"\d _pico_instance", r"\d+ _pico_tier", r"\df lower", r"\dp nowhere"]
    arguments = [part for command in commands for part in ("-c", command)]
    shown = subprocess.run(
        ["psql", "-X", dsn(port), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PAGER": "cat"},
        timeout=60,
    )
    assert "ERROR" not in shown.stderr and shown.returncode == 0


def test_the_tab_key_is_answered(port: int) -> None:
    body = COMPLETIONS.read_text().partition("\n")[2]
    with psycopg.connect(dsn(port), autocommit=True) as connection:
        for query in body.split("\n----\n"):
            connection.execute(query.encode())


TAB = (
    "SELECT c.relname, NULL::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.relkind IN "
    "('r', 'S', 'v', 'm', 'f', 'p') AND (c.relname) LIKE '{}%' AND "
    "pg_catalog.pg_table_is_visible(c.oid) AND c.relnamespace <> (SELECT oid FROM "
    "pg_catalog.pg_namespace WHERE nspname = 'pg_catalog')"
)


def test_the_tab_key_finds_names_with_underscores(port: int) -> None:
    with psycopg.connect(dsn(port), autocommit=True) as connection:
        connection.execute("CREATE TABLE tab_one (id INT PRIMARY KEY)")
        connection.execute("CREATE TABLE tabstone (id INT PRIMARY KEY)")
        try:
            for begun, wanted in (
                (r"tab\_", {"tab_one"}),
                ("tab", {"tab_one", "tabstone"}),
                ("TAB", set()),
                (r"\_pico\_ti", {"_pico_tier"}),
                (r"\_cairn\_diver", {"_cairn_diverged"}),
            ):
                found = connection.execute(TAB.format(begun).encode()).fetchall()
                assert {name for name, _ in found} == wanted, begun
        finally:
            connection.execute("DROP TABLE tab_one")
            connection.execute("DROP TABLE tabstone")


def test_the_health_of_an_instance_is_what_the_cluster_holds_of_it(port: int) -> None:
    with psycopg.connect(dsn(port), autocommit=True) as connection:
        text = "SELECT pico_instance_health_status(%s::text)"
        assert connection.execute(text, ("i1",)).fetchone() == ("healthy",)
        assert connection.execute(text, ("nobody",)).fetchone() == (None,)
        assert connection.execute("SELECT pico_instance_health_status()").fetchone() == ("healthy",)


def test_a_name_becomes_a_number_and_back(port: int) -> None:
    with psycopg.connect(dsn(port), autocommit=True) as connection:
        name = connection.execute("SELECT '_pico_tier'::regclass").fetchone()
        assert name == ("_pico_tier",)
        assert connection.execute("SELECT to_regclass('nowhere')").fetchone() == (None,)
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT 'nowhere'::regclass::oid")
