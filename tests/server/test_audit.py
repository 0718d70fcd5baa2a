"""The audit log tells who did what to the doors of an instance, and never a password."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cairn.server.audit import BUDGET_S, AuditLog, Who, statement
from tests.cluster.harness import Cluster, Node, eventually
from tests.server.test_users import PASSWORD, session, users

ANN = Who("ann", "127.0.0.1", 7)


def lines(directory: Path, name: str = "audit.log") -> list[dict[str, Any]]:
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def facts(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in ("time", "pid")}


def noted(node: Node, *events: str) -> list[dict[str, Any]]:
    return [facts(line) for line in lines(node.dir) if line["event"] in events]


def test_logins_and_refusals_are_noted_with_their_addresses(cluster: Cluster) -> None:
    node = cluster["i1"]
    with users(node, "clara"):
        session(node, "clara").close()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(
                f"host=127.0.0.1 port={node.pg_port} user=clara password=wrong dbname=cairn"
            )
        where = {"user": "clara", "address": "127.0.0.1"}
        eventually(
            lambda: (
                [each for each in noted(node, "login", "login_refused") if each["user"] == "clara"]
                == [
                    {"event": "login", **where},
                    {"event": "login_refused", **where, "why": "wrong password"},
                ]
            ),
            "two lines",
        )


def test_rights_tables_and_settings_are_noted_and_passwords_are_not(cluster: Cluster) -> None:
    node = cluster["i1"]
    texts = {
        "CREATE TABLE noted (id INT PRIMARY KEY) DISTRIBUTED BY (id)": "ddl",
        "GRANT READ ON TABLE noted TO dora": "rights",
        "ALTER SYSTEM SET sql_motion_row_max = 5001": "settings",
        "ALTER SYSTEM RESET sql_motion_row_max": "settings",
        "DROP TABLE noted": "ddl",
    }
    with users(node, "dora"), session(node, "dora") as dora:
        for text in texts:
            node.sql(text)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            dora.execute("DROP USER admin")
        with pytest.raises(psycopg.Error):
            node.sql("DROP TABLE noted")
        admin = {"user": "admin", "address": "127.0.0.1"}
        expected = [
            {"event": event, **admin, "statement": text, "outcome": "done"}
            for text, event in texts.items()
        ]
        eventually(
            lambda: (
                [each for each in noted(node, "ddl", "rights", "settings") if each in expected]
                == expected
            ),
            "a line for each",
        )
        hidden = "CREATE USER dora WITH PASSWORD '***'"
        assert hidden in [each["statement"] for each in noted(node, "rights")]
        refused = {"event": "denied", "user": "dora", "address": "127.0.0.1"}
        eventually(
            lambda: noted(node, "denied")[-1] == refused | {"statement": "DROP USER admin"},
            "the refusal",
        )
    everything = (node.dir / "audit.log").read_text()
    assert PASSWORD not in everything
    assert "SCRAM" not in everything


def test_every_instance_notes_how_the_topology_changes(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        online = [
            each["new"]
            for each in noted(node, "topology")
            if each.get("table") == "_pico_instance" and "Online" in str(each["new"])
        ]
        assert online, "no instance has become Online"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ALTER USER a WITH PASSWORD 'Secret1'", "ALTER USER a WITH PASSWORD '***'"),
        (
            "INSERT INTO _pico_governor_queue VALUES (1, 'CREATE USER b PASSWORD ''Secret1''')",
            "INSERT INTO _pico_governor_queue VALUES (1, '***')",
        ),
        (
            "UPDATE _pico_user SET auth = 'SCRAM-SHA-256$Secret1'",
            "UPDATE _pico_user SET auth = '***'",
        ),
        ("CREATE USER a PASSWORD 'Secret1", "(a statement with a password that cannot be read)"),
        ("SELECT 'plain'", "SELECT 'plain'"),
    ],
)
def test_a_statement_is_shown_without_its_secrets(text: str, shown: str) -> None:
    assert statement(text.encode()) == shown


def test_files_are_rotated_by_size_and_only_so_many_are_kept(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path, lambda: (1_000, 3))
    for number in range(100):
        audit.write("login", ANN, number=number)
    audit.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all((tmp_path / name).stat().st_size <= 1_000 for name in files)
    kept = [line["number"] for name in reversed(files) for line in lines(tmp_path, name)]
    assert kept == [*range(kept[0], 100)]
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_costs_lines_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = AuditLog(tmp_path, lambda: (1_000_000, 3))
    write, room = os.write, [10]

    def full(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        size, room[0] = room[0], 0
        return write(file, data[:size])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for number in range(3):
            audit.write("login", ANN, number=number)
        eventually(lambda: audit.lost == 3, "three lost lines")
    audit.write("login", ANN, number=3)
    audit.close()
    assert [facts(line) for line in _readable(tmp_path)] == [
        {"event": "lost", "lines": 3},
        {"event": "login", "user": "ann", "address": "127.0.0.1", "number": 3},
    ]


def _readable(directory: Path) -> list[dict[str, Any]]:
    """Without the line that was torn when the disk was full."""
    found = (directory / "audit.log").read_text().splitlines()
    return [json.loads(line) for line in found if line.endswith("}")]


def test_nobody_but_an_administrator_pushes_out_what_others_did(tmp_path: Path) -> None:
    """Some statements need no right, and logins none but that: the files were theirs to empty."""
    audit = AuditLog(tmp_path, lambda: (10_000_000, 3), lambda user: user == "admin")
    admin = Who("admin", "127.0.0.1")
    for number in range(2_000):
        audit.write("ddl", ANN, statement="x" * 900, number=number)
        audit.write("ddl", admin, statement="y" * 900, number=number)
    audit._spent["ann"][0] -= BUDGET_S + 1  # a minute later
    audit.write("login", ANN)
    audit.close()
    found = lines(tmp_path)
    told = [line for line in found if line["user"] == "ann" and line["event"] == "ddl"]
    assert [line["number"] for line in told] == [*range(len(told))]
    assert 100 < len(told) < 300
    assert [line["number"] for line in found if line["user"] == "admin"] == [*range(2_000)]
    assert found[-1]["untold"] == 2_000 - len(told)


def test_somebody_who_tries_again_and_again_does_not_push_out_the_rest(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path, lambda: (1_000_000, 3))
    for _ in range(1_000):
        audit.refused("login_refused", ANN, "127.0.0.1", why="wrong password")
    audit.close()
    assert [line["event"] for line in lines(tmp_path)] == ["login_refused"]


def test_without_a_size_nothing_is_written(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path, lambda: (0, 3))
    audit.write("login", ANN)
    audit.close()
    assert list(tmp_path.iterdir()) == []
