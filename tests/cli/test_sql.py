"""`cairn sql`: scripts, our own shell on a terminal, and what psql is started with."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cairn.cli.shell import tables
from cairn.cli.shell.psql import conninfo
from cairn.cli.shell.shell import is_whole
from cairn.client.settings import parse_dsn
from tests.cluster.backups import cairn, command
from tests.cluster.harness import Cluster, Node, eventually


def test_psql_gets_every_host_and_option_and_never_the_password() -> None:
    dsn = "postgresql://ann:Gr4nite@h1,[::1]:5000/shop?sslmode=verify-full&read_preference=any"
    assert conninfo(parse_dsn(dsn)) == (
        "postgresql://ann@h1:4327,[::1]:5000/shop?sslmode=verify-full&channel_binding=prefer"
        "&options=-c%20read_preference%3Dany&application_name=cairn%20sql&connect_timeout=5"
    )


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';'", False),
        ("SELECT 'a;", False),
        ('SELECT "a;', False),
        ("DO $$ BEGIN RETURN; END", False),
        ("-- only a remark;\n", True),
        ("SELECT ` 1;", True),
    ],
)
def test_a_statement_ends_with_its_semicolon(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_rows_are_shown_as_psql_shows_them() -> None:
    assert tables.table(["id", "name"], [(1, "ann"), (20, None)]) == (
        " id | name\n----+------\n  1 | ann\n 20 |\n(2 rows)\n"
    )
    assert tables.records(["id", "name"], [(1, "ann")]) == ("-[ RECORD 1 ]\nid   | 1\nname | ann\n")


def test_a_script_prints_rows_and_ends_at_the_first_error(small: Cluster, tmp_path: Path) -> None:
    node = small["i1"]
    code, told = cairn(node, "sql", "--json", "-c", "SELECT 1 AS a, NULL AS b; SELECT true AS c")
    assert (code, [json.loads(line) for line in told.splitlines()]) == (
        0,
        [[{"a": 1, "b": None}], [{"c": True}]],
    )
    for own in ((), ("--own",)):  # the first of several was dropped without a word
        code, told = cairn(node, "sql", *own, "-c", "SELECT 'one'", "-c", "SELECT 'two'")
        assert code == 0 and "one" in told and "two" in told
        code, told = cairn(node, "sql", *own, "-c", "SELEC", "-c", "SELECT 'never'")
        assert code == 1 and "never" not in told
    file = tmp_path / "some.sql"
    file.write_text("SELECT 1 AS a;\nSELEC 2;\nSELECT 3 AS never;\n")
    code, told = cairn(node, "sql", "--own", "-f", str(file))
    assert code == 1
    assert 'ERROR:  42601: syntax error at or near "SELEC"' in told
    assert "never" not in told
    assert cairn(node, "sql", "-c", "SELECT 1", "-f", "x") == (2, "cairn: -c or -f, not both\n")


LONG = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"
RUNNING = (
    "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%generate_series%' "
    "AND query NOT LIKE '%pg_stat_activity%'"
)


class Terminal:
    def __init__(self, handle: int) -> None:
        self._handle, self._seen = handle, ""

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def until(self, word: str, timeout_s: float = 30.0) -> str:
        """What was shown up to and with this word."""
        deadline = time.monotonic() + timeout_s
        while word not in self._seen:
            assert time.monotonic() < deadline, self._seen
            if select.select([self._handle], [], [], 0.1)[0]:
                self._seen += os.read(self._handle, 65536).decode(errors="replace")
        at = self._seen.index(word) + len(word)
        found, self._seen = self._seen[:at], self._seen[at:]
        return found


@contextmanager
def terminal(node: Node, home: Path) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "HOME": str(home), "TERM": "dumb"}
    process = subprocess.Popen(
        command(node, "sql", "--own"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours), process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_the_shell_takes_lines_until_the_semicolon_and_remembers_them(
    small: Cluster, tmp_path: Path
) -> None:
    node = small["i1"]
    node.sql("CREATE TABLE typed (id INT PRIMARY KEY, word TEXT) DISTRIBUTED BY (id)")
    with terminal(node, tmp_path) as (screen, process):
        screen.until("cairn=> ")
        screen.type("SELECT 40 +\n")
        screen.until("cairn-> ")
        screen.type("2 AS sum;\n")
        assert "42" in screen.until("(1 row)")
        screen.type("\\d typed\n")
        assert "typed_pkey" in screen.until("(1 row)")
        screen.type("SELECT * FROM typ\t LIMIT 0;\n")
        assert "FROM typed" in screen.until("(0 rows)")
        screen.type("SELECT nothing;\n")
        screen.until("ERROR:  ")
        screen.type(f"{LONG};\n")
        eventually(lambda: node.sql(RUNNING), "the long statement")
        process.send_signal(signal.SIGINT)
        screen.until("57014")
        screen.type("\\q\n")
        assert process.wait(10) == 0
    history = tmp_path / ".cairn_history"
    assert "2 AS sum;" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
