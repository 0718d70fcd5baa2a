"""The planted bugs of `run_mutants` can still be planted: code that moved must take them along."""

from __future__ import annotations

from pathlib import Path

import pytest

import cairn

from .mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_place_is_there_exactly_once(mutant: Mutant) -> None:
    text = (Path(cairn.__file__).parent / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
