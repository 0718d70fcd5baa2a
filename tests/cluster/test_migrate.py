"""`cairn migrate`: files into the queue of a real cluster, and what people do with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import PASSWORD, Cluster, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]


class Command:
    """`cairn migrate` in a directory of SQL files, against every instance of a cluster."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        hosts = ",".join(f"127.0.0.1:{node.pg_port}" for node in cluster.nodes.values())
        self._dsn = f"postgresql://admin:{PASSWORD}@{hosts}/cairn"
        self._dir = directory

    def write(self, name: str, text: str) -> None:
        (self._dir / name).write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cairn.cli.main", "migrate", "--dsn", self._dsn, *words],
            cwd=self._dir,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output, and what was said to stderr."""
        process = self.start(*words)
        said, complained = process.communicate(timeout=90)
        return process.returncode, said, complained

    def statuses(self) -> dict[int, str]:
        _, said, _ = self("status", "--json")
        rows: list[dict[str, Any]] = json.loads(said)
        return {row["id"]: row["status"] for row in rows if row["kind"] == "custom"}


@pytest.fixture
def migrate(new_cluster: Make, tmp_path: Path) -> Command:
    return Command(new_cluster().start("i1"), tmp_path)


def test_a_failed_file_is_explained_repaired_and_finished(migrate: Command) -> None:
    migrate.write("001.sql", "CREATE TABLE g (k INT PRIMARY KEY, v INT) DISTRIBUTED GLOBALLY;")
    migrate.write("002.sql", "INSERT INTO g VALUES (1, 1);\nINSERT INTO h VALUES (1);")
    migrate.write("003.sql", "UPDATE g SET v = v + 1")
    files = ("001.sql", "002.sql", "003.sql")
    code, said, complained = migrate(*files, "--wait")
    assert (code, said) == (
        1,
        "001.sql: 1 operation queued as 1000\n"
        "002.sql: 2 operations queued as 1001…1002\n"
        "003.sql: 1 operation queued as 1003\n",
    )
    assert complained == (
        'cairn: operation 1002 (002.sql, statement 2) failed: table with name "h" not found\n'
        "repair it, then: cairn migrate retry 1002   (or: cairn migrate skip 1002)\n"
    )
    assert migrate("status")[0] == 1
    assert migrate.statuses() == {1000: "done", 1001: "done", 1002: "failed", 1003: "pending"}

    assert migrate("retry", "1002") == (0, "operation 1002 is pending\n", "")
    eventually(lambda: migrate.statuses()[1002] == "failed", "the second failure")
    assert migrate("skip", "1002") == (0, "operation 1002 is done\n", "")
    again = "".join(f"{name}: queued before\n" for name in files) + "4 operations done\n"
    assert migrate(*files, "--wait") == (0, again, "")

    migrate.write("003.sql", "-- a word of explanation\nUPDATE g  SET v = v + 1;")
    assert migrate(*files, "--wait") == (0, again, "")
    migrate.write("003.sql", "UPDATE g SET v = v + 2")
    migrate.write("004.sql", "DROP TABLE g")
    assert migrate(*files, "004.sql") == (
        1,
        "",
        "cairn: batch 003.sql is queued already with other statements: "
        "never change a migration, add another file\n",
    )
    assert set(migrate.statuses()) == {1000, 1001, 1002, 1003}  # nothing of 004 either


def test_nothing_is_queued_when_one_file_is_bad(migrate: Command) -> None:
    migrate.write("001.sql", "CREATE TABLE t (a INT PRIMARY KEY)")
    migrate.write("002.sql", "DROP TABLE t;\nDELETE FROM t WHERE;")
    migrate.write("003.sql", "SELECT 1")
    migrate.write("004.sql", "-- later")
    code, said, complained = migrate("001.sql", "002.sql", "--wait")
    assert (code, said) == (2, "")
    assert complained.startswith("cairn: 002.sql:2:20: syntax error at end of input")
    assert migrate("001.sql", "003.sql")[0] == 2
    assert migrate("001.sql", "004.sql") == (2, "", "cairn: 004.sql: holds no statement\n")
    assert migrate.statuses() == {}


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("retry", "77"), 1, "there is no operation 77; see `cairn migrate status`"),
        (("skip", "1"), 1, "operation 1 is done, not failed"),
        (("retry", "x"), 2, "x is no operation id; see `cairn migrate status`"),
        (("skip",), 2, "write `cairn migrate retry ID` or `cairn migrate skip ID`"),
        (("status", "now"), 2, "write `cairn migrate status`"),
    ],
)
def test_a_wrong_command_says_what_to_write(
    shared: Command, words: tuple[str, ...], code: int, complaint: str
) -> None:
    assert shared(*words) == (code, "", f"cairn: {complaint}\n")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    cluster = Cluster(tmp_path_factory.mktemp("shared"))
    try:
        command = Command(cluster.start("i1"), cluster.dir)
        eventually(lambda: command("skip", "1")[2].endswith("not failed\n"), "the upgrade")
        yield command
    finally:
        cluster.close()


def test_waiting_outlives_the_leader(new_cluster: Make, tmp_path: Path) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 3, "three voters")
    migrate = Command(cluster, tmp_path)
    migrate.write("001.sql", "CREATE TABLE c (k INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY")
    migrate.write("002.sql", "INSERT INTO c VALUES (1, 0)")
    migrate.write("003.sql", "UPDATE c SET n = n + 1;\n" * 200)
    process = migrate.start("001.sql", "002.sql", "003.sql", "--wait")
    leader = cluster.leader("i1")
    other = next(name for name in cluster.nodes if name != leader)
    eventually(lambda: cluster[leader].sql("SELECT n FROM c") > [(20,)], "the first of them")
    cluster[leader].kill()
    said, complained = process.communicate(timeout=90)
    assert (process.returncode, said.splitlines()[-1], complained) == (
        0,
        "202 operations done",
        "",
    )
    assert cluster[other].sql("SELECT n FROM c") == [(200,)]
