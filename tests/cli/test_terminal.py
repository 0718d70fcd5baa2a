"""What people read at a terminal: narrow ones, and those that do not know every letter."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from cairn.cli.steering.tier import run_tier
from cairn.cli.talking import TalkProblem
from cairn.cli.terminal import Fitted


def shown(columns: int, text: str = "is on its way") -> list[str]:
    table = Table("instance", "state", "lag", "what it does", box=None)
    table.add_row("i1", "Online(1)", "0", text)
    out = io.StringIO()
    Console(file=out, width=columns).print(Fitted(table, "lag", "state", long="what it does"))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_words() -> None:
    assert shown(60) == [
        " instance  state      lag  what it does",
        " i1        Online(1)  0    is on its way",
    ]
    assert shown(38) == [
        " instance  state      what it does",
        " i1        Online(1)  is on its way",
        " narrow terminal, not shown: lag",
    ]
    assert shown(30) == [
        " instance  what it does",
        " i1        is on its way",
        " narrow terminal, not shown:",
        "lag, state",
    ]


def test_a_long_sentence_is_broken_before_a_column_goes() -> None:
    lines = shown(60, "waits until each of the others has all of its rows")
    assert lines[0] == " instance  state      lag  what it does"
    assert len(lines) > 2


def test_a_terminal_without_the_letter_shows_another_one() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "cairn.cli.main", "tier", "drop", "ä"],
        env={"PYTHONIOENCODING": "ascii", "CAIRN_DSN": "postgresql://ä:x@127.0.0.1:9/ä"},
        capture_output=True,
        timeout=60,
    )
    assert (made.returncode, b"Traceback" in made.stderr) == (3, False)


@pytest.mark.parametrize("action", ["add", "set", "drop"])
def test_a_tier_without_a_name_is_asked_for(action: str) -> None:
    with pytest.raises(TalkProblem, match=f"say which tier: cairn tier {action} NAME") as refused:
        run_tier("postgresql://admin:x@127.0.0.1:9/cairn", None, action, "", {})
    assert refused.value.exit_code == 2


def test_a_directory_that_cannot_be_looked_at_ends_with_a_sentence(tmp_path: Path) -> None:
    nowhere = tmp_path / ("d" * 300)
    made = subprocess.run(
        [sys.executable, "-m", "cairn.cli.main", "run", "--instance-dir", str(nowhere)],
        capture_output=True,
        timeout=60,
    )
    assert (made.returncode, made.stderr.decode()) == (
        2,
        f"cairn run: --instance-dir {nowhere}: File name too long\n",
    )
