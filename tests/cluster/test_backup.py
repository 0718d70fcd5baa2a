"""Backups that are taken while people work: one moment of the whole cluster, and what undoes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from cairn.cli.copies.backup import Shown
from cairn.cli.copies.restore_backup import Restore
from cairn.cli.copies.rows import Rows
from cairn.cli.talking import Talk, Target
from tests.cluster.backups import (
    CHAINS,
    backed_up,
    cairn,
    chains,
    check_chains,
    command,
    content_at,
    content_of,
    is_quiet_folder,
    long_statements,
    prepare,
)
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]
TABLES = ("steps", "lists", "facts")

BACKUPS = int(os.environ.get("BACKUPS", "6"))  # more find more: it is a matter of chance


def two_replicasets(new_cluster: Make) -> Cluster:
    cluster = new_cluster("--init-replication-factor", "1").start("i1", "i2")
    prepare(cluster["i1"])
    return cluster


def test_a_backup_under_load_is_one_moment_of_all_replicasets(new_cluster: Make) -> None:
    cluster = two_replicasets(new_cluster)
    node, folder = cluster["i1"], cluster.dir / "backups"
    # Long statements at one of the writers: the masters do not stop at the same time.
    with chains(cluster, "i1", "i2") as load, long_statements(node):
        eventually(lambda: min(chain.acked for chain in load) > 5, "a load")
        for n in range(BACKUPS):
            low = [chain.acked for chain in load]
            taken = backed_up(node, folder, *(("--from", "latest") if n % 2 else ()))
            check_chains(content_of(taken), low, [chain.issued for chain in load])
    last = backed_up(node, folder, "--from", "latest")
    # Into a cluster of another shape, as a new history.
    other = new_cluster("--init-replication-factor", "2", name="other").start("j1", "j2")
    code, said = cairn(other["j1"], "restore", str(last), "--json")
    assert code == 0, said
    assert content_at(other["j1"], *TABLES) == content_at(node, *TABLES)
    assert other["j1"].status()["cluster"]["uuid"] != node.status()["cluster"]["uuid"]


@pytest.mark.slow
def test_everything_is_there_exactly_once_while_buckets_move_and_tables_change(
    new_cluster: Make,
) -> None:
    cluster = two_replicasets(new_cluster)
    node, folder = cluster["i1"], cluster.dir / "backups"
    node.sql("CREATE TABLE many (k INT PRIMARY KEY, v INT)")
    node.sql("INSERT INTO many VALUES " + ", ".join(f"({n}, {n * n})" for n in range(2000)))
    node.sql("ALTER SYSTEM SET rebalance_rows_per_s = 50")
    maps = set()
    with chains(cluster, "i1", "i2") as load:
        eventually(lambda: min(chain.acked for chain in load) > 5, "a load")
        cluster.add("i3").start()
        cluster.wait_online("i3", via="i1")
        for n in range(100):
            low = [chain.acked for chain in load]
            taken = backed_up(node, folder, *(("--from", "latest") if n % 3 else ()))
            found = content_of(taken)
            check_chains(found, low, [chain.issued for chain in load])
            assert found["many"] == {n: n * n for n in range(2000)}
            parts = json.loads((taken / "manifest.json").read_text())["parts"]
            maps.add(json.dumps([part["owned"] for part in parts]))
            if n % 5 == 1:
                node.sql(f"CREATE TABLE extra{n} (k INT PRIMARY KEY, v INT)")
            owned = node.sql("SELECT DISTINCT current_replicaset_name, state FROM _pico_bucket")
            if n > 3 and sorted(owned) == [(f"default_{at}", "active") for at in (1, 2, 3)]:
                break
        else:
            raise AssertionError(f"the buckets are still moving: {owned}")
    assert len(maps) > 1, maps  # some were taken in the middle of it
    last = backed_up(node, folder, "--from", "latest")
    assert content_of(last)["many"] == {n: n * n for n in range(2000)}


@pytest.mark.slow
def test_a_master_that_dies_makes_it_begin_anew(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2", "i3", "i4")
    node = cluster["i1"]
    node.sql("CREATE TABLE t (k INT PRIMARY KEY, v TEXT)")
    node.sql("INSERT INTO t VALUES (1, 'one')")
    node.sql("ALTER SYSTEM SET backup_bytes_per_s = 20000")
    masters = node.sql("SELECT current_master_name FROM _pico_replicaset")
    victim = next(name for (name,) in masters if name != "i1")
    folder = cluster.dir / "backups"
    running = subprocess.Popen(
        command(node, "backup", str(folder)), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        copies = cluster[victim].dir / "backup"
        eventually(lambda: copies.is_dir() and any(copies.iterdir()), "a copy at the master")
        cluster[victim].kill()
        faster = "ALTER SYSTEM SET backup_bytes_per_s = 0"
        eventually(lambda: node.sql(faster) == [], "a leader")
        out, told = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            running.kill()
    assert running.returncode == 0, told
    assert b"beginning anew" in told
    assert [content_of(each)["t"] for each in folder.glob("2*")] == [{1: "one"}], out


def test_what_is_interrupted_leaves_nothing_that_looks_whole(new_cluster: Make) -> None:
    cluster = two_replicasets(new_cluster)
    node, folder = cluster["i1"], cluster.dir / "backups"
    node.sql("ALTER SYSTEM SET backup_bytes_per_s = 20000")
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
        for _ in range(5):
            running = subprocess.Popen(
                command(node, "backup", str(folder)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                eventually(lambda: any(folder.glob(".partial-*/*.db")), "a file of the backup")
            finally:
                running.send_signal(number)
                ended = running.wait(20)
            if ended != 0:
                break
            [whole] = folder.glob("2*")  # it was quicker than the signal
            shutil.rmtree(whole)
        assert ended == code
        assert list(folder.glob("2*")) == []
        assert is_quiet_folder(folder) == (number != signal.SIGKILL)
    node.sql("ALTER SYSTEM SET backup_bytes_per_s = 0")
    taken = backed_up(node, folder)
    assert is_quiet_folder(folder)  # what was left of the killed one is gone as well
    assert content_of(taken)["facts"] == dict.fromkeys(range(CHAINS), 0)


def test_only_who_may_do_everything_takes_one_and_nobody_else_reads_it(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    node, folder = cluster["i1"], cluster.dir / "backups"
    node.sql("CREATE USER ann WITH PASSWORD 'T0psecret1'")
    code, said = cairn(node, "backup", str(folder), user="ann")
    assert (code, "access to cairn_backup is denied for user 'ann'" in said) == (1, True), said
    taken = backed_up(node, folder)
    code, said = cairn(node, "restore", str(taken), user="ann")
    assert (code, "access to cairn_restore is denied" in said) == (1, True), said
    modes = {stat.S_IMODE(path.stat().st_mode) for path in taken.iterdir()}
    assert (modes, stat.S_IMODE(taken.stat().st_mode)) == ({0o600}, 0o700)


def test_bad_input_is_refused_in_one_sentence(new_cluster: Make) -> None:
    cluster = two_replicasets(new_cluster)
    node, folder = cluster["i1"], cluster.dir / "backups"
    taken = backed_up(node, folder)

    def refused(*words: str, code: int = 1, says: str) -> None:
        ended, said = cairn(node, *words)
        assert (ended, says in said, said.count("\n")) == (code, True, 1), said

    refused("restore", str(taken), says="this cluster is not empty, it has the tables")
    refused("restore", str(folder), code=2, says="has backups in it: name one")
    refused("backup", "--verify", str(cluster.dir / "i1"), code=2, says="is no backup")
    refused("backup", str(taken), code=2, says="is a backup itself")
    refused("backup", str(folder), "--from", "nothing", code=2, says="is no backup")
    refused("backup", "/etc/passwd", code=2, says="is a file: name a directory for backups")
    full = subprocess.run(  # a file of 10 KB is all that may be written, as on a full disk
        ["bash", "-c", 'ulimit -f 10; exec "$@"', "-", *command(node, "backup", str(folder))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    left = "nothing of this backup is left there\n"
    assert (full.returncode, full.stderr) == (1, f"cairn: {folder}: File too large; {left}")
    assert [each.name for each in folder.iterdir() if each.is_dir()] == [taken.name]
    refused("restore", str(taken), "--to", "soon", code=2, says="write a time")
    refused("restore", str(taken), "--to", "2020-01-01", code=2, says="these backups go from")
    manifest = taken / "manifest.json"
    good = manifest.read_text()
    manifest.write_text(good.replace('"format": 1', '"format": 2'))
    refused("restore", str(taken), says="which is newer than this one")
    manifest.write_text(good[:100])
    refused("backup", "--verify", str(taken), says="cannot be read")
    manifest.write_text(good)
    file = next(taken.glob("*.db"))
    data = file.read_bytes()
    file.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    refused("backup", "--verify", str(taken), says="its checksum (sha256) is wrong")
    refused("restore", str(taken), says="its checksum (sha256) is wrong")
    file.unlink()
    refused("backup", "--verify", str(taken), says="is missing")


def test_old_backups_go_and_those_that_are_needed_stay(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    node, folder = cluster["i1"], cluster.dir / "backups"
    first = backed_up(node, folder)
    second = backed_up(node, folder)
    third = backed_up(node, folder, "--from", "latest")
    fourth = backed_up(node, folder, "--from", "latest", "--keep", "1")
    assert sorted(folder.glob("2*")) == [second, third, fourth]  # the last goes back to the second
    assert not first.exists()
    fifth = backed_up(node, folder, "--keep", "1")
    assert list(folder.glob("2*")) == [fifth]
    assert cairn(node, "backup", "--verify", str(folder))[0] == 0


def test_a_restore_brings_back_all_that_people_made(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "1").start("i1", "i2")
    node, folder = cluster["i1"], cluster.dir / "backups"
    for text in (
        "CREATE TABLE t (k INT PRIMARY KEY, v TEXT NOT NULL DEFAULT 'x', d DECIMAL)",
        "CREATE UNIQUE INDEX tv ON t (k, v)",
        "CREATE TABLE n (k INT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v INT)",
        *(
            f"CREATE TABLE {name} (k INT PRIMARY KEY, a TEXT NOT NULL, b INT) {where}"
            for name, where in (("s", ""), ("g", "DISTRIBUTED GLOBALLY"))
        ),
        *(
            text.format(name)
            for name in ("s", "g")
            for text in (
                "INSERT INTO {} VALUES (1, 'a', 1), (2, 'b', 2)",
                "ALTER TABLE {} ADD c NUMERIC NOT NULL DEFAULT 1.50, DROP a, ALTER b SET NOT NULL",
                "INSERT INTO {} VALUES (3, 3)",
            )
        ),
        "CREATE USER ann WITH PASSWORD 'T0psecret1'",
        "CREATE ROLE readers",
        "GRANT READ ON TABLE t TO readers",
        "GRANT readers TO ann",
        "REVOKE READ ON TABLE _pico_bucket FROM public",
        "ALTER SYSTEM SET row_log_max = 654321",
        "INSERT INTO t VALUES (1, 'a', 1.50), (2, 'b', NULL)",
        "INSERT INTO n (v) VALUES (1)",
        "INSERT INTO _pico_governor_queue VALUES (1000, 'one', 'DROP TABLE nothing', 'sql', "
        "'pending', 'custom', 'a migration', NULL)",
    ):
        node.sql(text)
    queue = "SELECT id, op, status FROM _pico_governor_queue WHERE id >= 1000"
    eventually(lambda: node.sql(queue)[0][2] == "failed", "a failed migration")
    taken = backed_up(node, folder)

    other = new_cluster(name="other").start("j1")
    there = other["j1"]
    # Killed in the middle: the cluster says so, is not backed up, and the next one begins anew.
    leave_a_restore_halfway(there, taken)
    assert there.sql("SELECT v FROM n") == []
    code, said = cairn(there, "backup", str(folder))
    assert (code, "a restore of this cluster is not finished" in said) == (1, True), said
    code, said = cairn(there, "restore", str(taken))
    assert code == 0, said
    assert "what an interrupted restore has left is removed first" in said

    for query in (
        "SELECT * FROM t ORDER BY k",
        "SELECT * FROM n",
        "SELECT * FROM s ORDER BY k",
        "SELECT * FROM g ORDER BY k",
        queue,
        "SELECT name, type FROM _pico_user",
        "SELECT name, parts FROM _pico_index WHERE name = 'tv'",
        "SELECT value FROM _pico_db_config WHERE key = 'row_log_max'",
        "SELECT p.privilege, p.object_type, u.name FROM _pico_privilege p "
        "JOIN _pico_user u ON p.grantee_id = u.id ORDER BY 1, 2, 3",
    ):
        assert there.sql(query) == node.sql(query), query
    for name in ("s", "g"):
        assert there.sql(f"INSERT INTO {name} VALUES (4, 4) RETURNING *") == [
            (4, 4, Decimal("1.50"))
        ]
        with pytest.raises(psycopg.errors.NotNullViolation):
            there.sql(f"INSERT INTO {name} (k) VALUES (5)")
    [(number,)] = there.sql("INSERT INTO n (v) VALUES (2) RETURNING k")
    assert number > 1  # none is given twice
    dsn = f"postgresql://ann:T0psecret1@127.0.0.1:{there.pg_port}/cairn"
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_rows_come_back_as_of_a_time_between_two_backups(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "1").start("i1", "i2")
    node, folder = cluster["i1"], cluster.dir / "backups"
    node.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    node.sql("CREATE INDEX ON t ((v % 10))")  # the log is repeated with what it needs
    node.sql("CREATE TABLE n (k INT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v INT)")
    for k in range(20):
        node.sql("INSERT INTO t VALUES (%s, 0)", (k,))
    first = backed_up(node, folder)
    node.sql("UPDATE t SET v = k WHERE k < 10")
    node.sql("DELETE FROM t WHERE k >= 15")
    node.sql("INSERT INTO n (v) VALUES (7)")  # its number was taken after the first backup
    wanted, numbers = content_at(node, "t"), node.sql("SELECT k FROM n")
    moment = clock()
    node.sql("DELETE FROM t")
    second = backed_up(node, folder, "--from", first.name)
    node.sql("ALTER TABLE t ADD COLUMN w INT")
    late = clock()
    third = backed_up(node, folder, "--from", second.name)

    other = new_cluster(name="other").start("j1")
    there = other["j1"]
    code, said = cairn(there, "restore", str(third), "--to", late)
    assert (code, "a table was changed at" in said) == (1, True), said
    assert there.sql("SELECT name FROM _pico_table WHERE id >= 1024") == []  # nothing is left
    code, said = cairn(there, "restore", str(second), "--to", moment)
    assert code == 0, said
    assert content_at(there, "t") == wanted
    [(number,)] = there.sql("INSERT INTO n (v) VALUES (8) RETURNING k")
    assert (number,) not in numbers  # none is given twice


def clock() -> str:
    """A moment that no record has: the clocks of the masters are this machine's."""
    time.sleep(0.002)
    found = datetime.now(UTC).isoformat()
    time.sleep(0.002)
    return found


def leave_a_restore_halfway(node: Node, backup: Path) -> None:
    """As one that was killed when it had made its tables."""
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{node.pg_port}/cairn"
    talk = Talk(Target(dsn, None))
    try:
        restore = Restore(talk, Rows(backup, None, backup), Shown("restore"))
        restore.make_tables(restore.begin())
    finally:
        talk.close()
