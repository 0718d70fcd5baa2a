"""docs/explanation-raft.md names what holds each rule; the code names its headings. All exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sim.mutants import MUTANTS

from .transcripts.teller import SCRIPTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation-raft.md").read_text()
WORDS = " ".join(PAGE.split())
HEADINGS = set(re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE))


def named(what: str) -> set[str]:
    """Names in backquotes after `Bug:`, `Bugs:`, `Test:` and so on."""
    lists = re.findall(rf"\b{what}s?: ((?:`[^`]+`(?:, )?)+)", WORDS)
    return {name for names in lists for name in re.findall(r"`([^`]+)`", names)}


def test_every_planted_bug_is_explained() -> None:
    assert named("Bug") == {mutant.name for mutant in MUTANTS}


def test_every_script_is_named_and_exists() -> None:
    assert named("Script") == {path.stem for path in SCRIPTS}


def test_every_test_that_is_named_exists() -> None:
    code = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tests = named("Test")
    assert len(tests) > 20
    assert tests <= set(re.findall(r"def (test_\w+)", code))


def test_headings_that_the_code_cites_exist() -> None:
    cited = set()
    for path in (ROOT / "src/cairn").rglob("*.py"):
        text = " ".join(path.read_text().split())
        cited |= set(re.findall(r'"([^"]+)" in docs/explanation-raft\.md', text))
    assert cited
    assert cited <= HEADINGS
