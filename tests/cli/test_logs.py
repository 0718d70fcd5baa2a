"""`cairn logs`: several instances in the order of time, since when, as they grow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cairn.cli.looking.logs import run_logs, since_when
from cairn.cli.talking import TalkProblem

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def local(at: datetime) -> str:
    """As `logging` writes a time: the machine's, without a zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def wrote(directory: Path, *lines: tuple[int, str], file: str = "cairn.log") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "raft.db").touch()
    with (directory / file).open("a") as stream:
        for minute, text in lines:
            stream.write(f"{local(NOON.replace(minute=minute))} {text}\n")
    return directory


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def logs(*directories: Path, **options: object) -> int:
    given = {"which": "log", "since": None, "level": "debug", "count": 50, "follow": False}
    given |= {"as_json": False, **options}
    return run_logs(list(directories), **given)  # type: ignore[arg-type]


def test_lines_of_several_instances_come_in_the_order_of_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrote(tmp_path / "i1", (1, "I cairn: one"), (3, "W cairn.net: three"))
    wrote(tmp_path / "i2", (2, "I cairn: two"), (4, "E cairn: four"))
    with (tmp_path / "i2" / "cairn.log").open("a") as file:
        file.write("Traceback of four\nhalf a li")
    assert logs(tmp_path) == 0
    found = [(line[:2], line.rpartition(" ")[2]) for line in told(capsys)]
    assert found == [("i1", "one"), ("i2", "two"), ("i1", "three"), ("i2", "four"), ("i2", "four")]
    logs(tmp_path, count=2, level="warning")
    assert [line.rpartition(" ")[2] for line in told(capsys)] == ["four", "four"]
    logs(tmp_path, since="2026-11-16T12:02:00+00:00", as_json=True)
    rows = [json.loads(line) for line in told(capsys)]
    assert [row.get("message") for row in rows] == ["two", "three", "four", "Traceback of four"]
    assert rows[1] == {
        "time": "2026-11-16T12:03:00+00:00",
        "instance": "i1",
        "log": "log",
        "level": "W",
        "part": "cairn.net",
        "message": "three",
    }


def test_an_audit_log_keeps_its_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = wrote(tmp_path / "i1")
    (directory / "audit.log").write_text(
        '{"time":"2026-11-16T12:00:00+00:00","event":"login","user":"ann"}\nnot JSON\n'
    )
    logs(directory, which="audit", as_json=True)
    assert json.loads(told(capsys)[0]) == {
        "time": "2026-11-16T12:00:00+00:00",
        "event": "login",
        "user": "ann",
        "instance": "i1",
        "log": "audit",
    }
    logs(directory, which="slow")
    assert told(capsys) == []


def test_a_log_that_is_elsewhere_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under systemd there is none in the directory: nothing at all was said."""
    (tmp_path / "i1").mkdir()
    (tmp_path / "i1" / "raft.db").touch()
    assert logs(tmp_path) == 0
    said = capsys.readouterr()
    assert said.out == "" and "i1: no cairn.log" in said.err and "journalctl" in said.err
    assert logs(tmp_path, which="slow") == 0
    assert capsys.readouterr().err == "i1: no slow.log\n"


def test_since_is_a_time_or_so_long_ago() -> None:
    assert since_when("90s", NOON) == NOON.replace(hour=11, minute=58, second=30)
    assert since_when("2h", NOON) == NOON.replace(hour=10)
    assert since_when("2026-11-16T13:00:00+01:00", NOON) == NOON
    with pytest.raises(TalkProblem, match="--since yesterday: write 10m"):
        since_when("yesterday", NOON)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    for options, text in (
        ({"which": "all"}, "--which all: one of log, audit, slow"),
        ({"level": "loud"}, "--level loud: one of debug"),
    ):
        with pytest.raises(TalkProblem, match=text):
            logs(tmp_path, **options)
    with pytest.raises(TalkProblem, match="no instance is here"):
        logs(tmp_path)


def test_a_log_is_followed_through_its_rotation_until_ctrl_c(tmp_path: Path) -> None:
    directory = wrote(tmp_path / "i1", (1, "I cairn: one"))
    following = subprocess.Popen(
        [sys.executable, "-m", "cairn.cli.main", "logs", str(directory), "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert following.stdout is not None
        assert following.stdout.readline().endswith("cairn: one\n")
        wrote(directory, (2, "I cairn: two"))
        assert following.stdout.readline().endswith("cairn: two\n")
        (directory / "cairn.log").rename(directory / "cairn.log.1")
        wrote(directory, (3, "I cairn: three"))
        assert following.stdout.readline().endswith("cairn: three\n")
        following.send_signal(signal.SIGINT)
        _, problem = following.communicate(timeout=20)
        assert (following.returncode, problem) == (130, "cairn: stopped by Ctrl-C\n")
    finally:
        following.kill()
        following.communicate()
