"""Commands by what a person sees: the status table, failed starts, the demo's words."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cairn.cli.app import app
from cairn.cli.demo.start import Demo, DemoOptions, _welcome
from cairn.cli.demo.stop import stop_demo
from cairn.cli.looking import status
from cairn.cli.migrations import migrate
from cairn.cli.talking import Target

CAIRN = [sys.executable, "-m", "cairn.cli.main"]


def instance(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "raft_id": 1,
        "replicaset": "default_1",
        "current_state": "Online(1)",
        "target_state": "Online(1)",
        "failure_domain": {},
        "addresses": {"pg": "database-17.example.org:4327"},
        "leader": False,
        "voter": True,
        "lag": 0,
        "lag_rows": 0,
        **fields,
    }


def shown(width: int, *instances: dict[str, Any]) -> str:
    picture = {
        "cluster": {"name": "demo", "version": "1", "uuid": "u"},
        "raft": {"leader": "i1", "term": 1, "index": 1},
        "governor": {"step": "idle"},
        "replicasets": [],
        "instances": list(instances),
    }
    console = Console(width=width, file=io.StringIO())
    console.print(status.render(picture))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80])
def test_states_and_addresses_are_never_cut(width: int) -> None:
    going = instance("i2", current_state="Offline(12)", target_state="Online(13)")
    text = shown(width, instance("i1"), going)
    assert text.count("database-17.example.org:4327") == 2
    assert "Offline(12) → Online(13)" in text and "…" not in text


def test_domains_are_shown_where_somebody_has_one() -> None:
    assert "domain" not in shown(120, instance("i1"))
    with_domain = shown(120, instance("i1", failure_domain={"DC": "MSK"}), instance("i2"))
    assert "domain" in with_domain and "DC=MSK" in with_domain


def test_help_tells_every_command_whole() -> None:
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert "explain-route" in told and "..." not in told.partition("Commands:")[2]
    assert "Example: cairn config default" in CliRunner().invoke(app, ["config", "--help"]).output


class Queue:
    """A connection whose queue has one long operation."""

    OP = "INSERT INTO a_table_with_a_long_name VALUES ('[red]', 'and some more words')"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [(1000, "001_a_batch.sql", "done", "custom", "what for", None, self.OP)]


def test_the_queue_is_not_wrapped_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate.show(Queue(), as_json=False) == 0  # type: ignore[arg-type]
    header, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["1000", "001_a_batch.sql", "custom", "done", *Queue.OP.split()]
    assert header.split() == ["id", "batch", "kind", "status", "operation"]


def test_a_demo_with_a_wrong_flag_says_who_speaks() -> None:
    ended = CliRunner().invoke(app, ["demo", "--replication-mode", "both"])
    assert (ended.exit_code, ended.output) == (
        2,
        "cairn demo: --replication-mode both: async or sync\n",
    )


def test_a_target_may_be_moved_to_another_instance() -> None:
    target = Target("postgresql://ann:pw@h1:1/cairn", None)
    other = target.at("h2:2")
    assert (other.user, other.password, other.hosts) == ("ann", "pw", [("h2", 2)])
    assert target.hosts == [("h1", 1)]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--listen", "banana"], "--listen banana:3301: there is no host banana; write HOST:PORT"),
        (["--pg-listen", "pear:99"], "--pg-listen pear:99: there is no host pear"),
        (["--log-level", "loud"], "--log-level loud"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, flags: list[str], said: str
) -> None:
    folder = tmp_path / "new" / "i1"
    command = [*CAIRN, "run", "--instance-dir", str(folder), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2 and said in ended.stderr
    assert not (tmp_path / "new").exists()


def test_a_directory_that_was_there_stays(tmp_path: Path) -> None:
    command = [*CAIRN, "run", "--instance-dir", str(tmp_path), "--log-level", "loud"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 2
    assert tmp_path.exists()


def options(directory: str | None, *, detach: bool = False) -> DemoOptions:
    return DemoOptions(3, 1, "async", 4327, directory, None, detach)


def test_a_demo_says_what_becomes_of_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _welcome(Demo(options(str(tmp_path), detach=True)), 1.0)
    told = capsys.readouterr().out
    assert "removed when" not in told and f"demo --stop --dir {tmp_path}" in told
    demo = Demo(options(None))
    try:
        _welcome(demo, 1.0)
    finally:
        os.rmdir(demo.dir)
    told = capsys.readouterr().out
    assert "(removed when it stops; --dir keeps them)" in told and "Ctrl-C stops" in told


def test_stop_says_what_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo.json").write_text('{"instances": [{"name": "i1", "pid": 0}]}')
    assert stop_demo(str(tmp_path)) == 0
    assert f"no instance was running; files stay in {tmp_path}" in capsys.readouterr().out


def test_a_demo_is_stopped_by_any_name_of_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was started as `there/../d`, through a link, and is stopped as `d`."""
    place = tmp_path / "d"
    (place / "i1").mkdir(parents=True)
    (tmp_path / "there").symlink_to(tmp_path, target_is_directory=True)
    word = f"{tmp_path}/there/../{tmp_path.name}/d/i1"
    holding = (
        "import sys; held = open(sys.argv[1] + '/lock', 'w'); print('up', flush=True); input()"
    )
    command = [sys.executable, "-c", holding, word]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # from here on it has the lock
    try:
        (place / "i1" / "cairn.pid").write_text(f"{process.pid}\n")
        (place / "demo.json").write_text("{}")
        assert stop_demo(str(place)) == 0
        assert process.wait(10) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    assert f"stopped i1; files stay in {place}" in capsys.readouterr().out
