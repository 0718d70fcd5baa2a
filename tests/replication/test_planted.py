"""The planted bugs of `run_mutants` can still be planted: code that moved must take them along."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import cairn

from .mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_place_is_there_exactly_once(mutant: Mutant) -> None:
    text = (Path(cairn.__file__).parent / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    planted = text.replace(mutant.old, mutant.new)
    if not mutant.file.startswith("native/"):
        compile(planted, mutant.file, "exec")
    elif mutant.file.endswith(".c") and shutil.which("gcc"):
        beside = f"-I{(Path(cairn.__file__).parent / mutant.file).parent}"
        check = ["gcc", "-std=c11", "-fsyntax-only", "-xc", beside, "-"]
        subprocess.run(check, input=planted.encode(), check=True)
