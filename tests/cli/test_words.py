"""What is typed wrong is refused in one sentence that names what was meant; every command helps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cairn.cli.app import app
from cairn.cli.options import finish
from cairn.cli.talking import TalkProblem, Target
from cairn.model.errors import InvalidParameter
from cairn.model.log.ops import Dml
from cairn.model.tables.catalog import Catalog
from cairn.node.statements.changes.access import setting_ops
from cairn.sql.plans import AlterSystemPlan

CAIRN = [sys.executable, "-m", "cairn.cli.main"]


def commands(group: Any = None, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *before, name)
        elif name != "run":
            yield (*before, name), command


ALL = list(commands())
NAMES = [" ".join(words) for words, _ in ALL]


@pytest.mark.parametrize("words", [words for words, _ in ALL], ids=NAMES)
def test_every_command_shows_an_example_of_itself(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*words, "--help"]).output
    assert f"Example: cairn {' '.join(words)}" in told


def test_every_command_that_answers_does_so_for_machines_too() -> None:
    """But for one sentence (`unlock`), a file (`config default`) and a work of its own."""
    plain = {name for name, (_, command) in zip(NAMES, ALL, strict=True) if not _has_json(command)}
    assert plain == {"unlock", "config default", "simulate"}


def _has_json(command: Any) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


@pytest.mark.parametrize(("words", "command"), ALL, ids=NAMES)
def test_a_flag_with_a_letter_missing_is_refused_with_the_right_one(
    words: tuple[str, ...], command: Any
) -> None:
    flags = [flag for each in command.params for flag in each.opts if flag.startswith("--")]
    flag = max(flags, key=len)
    ended = CliRunner().invoke(app, [*words, flag[:-1] + "~"])
    assert ended.exit_code == 2
    assert f"No such option: {flag[:-1]}~" in ended.output and flag in ended.output


def run(*words: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [*CAIRN, *words], capture_output=True, text=True, timeout=30, check=False, env=environment
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("weight", ["nan", "inf", "1e400"])
@pytest.mark.parametrize("words", [["rebalance", "weight", "r1"], ["drain", "r1", "--weight"]])
def test_a_weight_that_is_no_share_is_refused(words: list[str], weight: str) -> None:
    """They went to the cluster, which said `syntax error at or near "nan"`."""
    told = CliRunner().invoke(app, [*words, weight])
    assert (told.exit_code, "is no share" in told.output) == (2, True)


def test_a_flag_of_run_that_is_unknown_is_refused_with_the_nearest() -> None:
    assert run("run", "--pg-lisen", "127.0.0.1:1") == (
        2,
        "cairn run: there is no flag --pg-lisen: did you mean --pg-listen?\n",
    )
    assert run("run", "i1") == (2, "cairn run: i1 belongs to no flag: see cairn run --help\n")


def test_a_dsn_option_that_is_unknown_is_refused_with_the_nearest() -> None:
    with pytest.raises(TalkProblem) as refused:
        Target("postgresql://ann@h1/cairn?sslmod=require", None)
    assert (str(refused.value), refused.value.exit_code) == (
        "--dsn: unknown option in the DSN: sslmod (did you mean sslmode?)",
        2,
    )


def test_a_setting_that_is_unknown_is_refused_with_the_nearest() -> None:
    def asked(key: str) -> tuple[Dml, ...]:
        plan = AlterSystemPlan(key=key, value=1)
        return setting_ops(plan, Catalog(), {})

    with pytest.raises(InvalidParameter) as refused:
        asked("slow_statment_ms")
    assert refused.value.hint == "did you mean slow_statement_ms?"


def test_ctrl_c_ends_a_command_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as ended:
        finish(work)
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, "cairn: stopped by Ctrl-C\n")


def test_a_full_disk_ends_a_command_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """`cairn backup` to a full disk ended with sixty lines of Python."""
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(typer.Exit) as ended:
        finish(lambda: full.write(b"x"))
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == "cairn: No space left on device\n"


def test_a_shell_completes_commands_and_the_flags_of_run() -> None:
    def completed(*words: str) -> list[str]:
        at = str(len(words) - 1)
        asked = {"_CAIRN_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words)}
        return run(**asked, COMP_CWORD=at)[1].split()

    assert completed("cairn", "sw") == ["switchover"]
    assert completed("cairn", "run", "--pg") == ["--pg-listen", "--pg-advertise"]
