"""A test that failed once is told, one that fails twice fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNSTEADY = """
from pathlib import Path
def test_a():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""
BROKEN = "def test_b():\n    assert False\n"
MANY = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_c(n):\n    assert False\n"


@pytest.mark.parametrize(
    ("text", "code", "looked_again", "told"),
    [
        (UNSTEADY, 0, True, True),
        (UNSTEADY + BROKEN, 1, True, False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (BROKEN, 1, True, False),
                (MANY, 1, False, False),
                ("def test_d():\n    pass\n", 0, False, False),
                ("this is no Python", 2, True, False),
            )
        ),
    ],
)
def test_failures_are_looked_at_twice(
    tmp_path: Path, text: str, code: int, looked_again: bool, told: bool
) -> None:
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.second_look", "-q", "-n", "2"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = (done.returncode, "run again, alone" in done.stdout, "UNSTEADY" in done.stdout)
    assert found == (code, looked_again, told), done.stdout + done.stderr
