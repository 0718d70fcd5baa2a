"""Comments and pages cite only what a reader has: the repository itself."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    (
        *(ROOT / "src").rglob("*.py"),
        *(path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)),
        *(ROOT / "bench").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        ROOT / ".importlinter",
    )
)
#: Papers and lists that are kept elsewhere.
OUTSIDE = re.compile(
    r"\bDESIGN\b|\bseeds/\d|\bseed's\b|\bbrief \d|data-plane rule|\(rules? \d|\brule \d+\)|"
    r"raft-testing \d|wishes-and-pitfalls|bucket-moves\.md|picodata-facts|\bperf\.md|"
    r"\bE#\d|\bissue #?\d|the audit\b(?! log)|style guide"
)
PAGE = re.compile(r"docs/[\w/-]+\.md")


def test_nothing_is_cited_that_is_not_in_the_repository() -> None:
    assert OUTSIDE.search("judged by the cut (data-plane rule 2)")
    assert OUTSIDE.search("# counted twice (rule 10)")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OUTSIDE.search(line)
    ]
    assert found == []


def test_every_page_that_is_cited_is_there() -> None:
    cited = {page for path in TEXTS for page in PAGE.findall(path.read_text())}
    assert len(cited) > 5
    assert sorted(page for page in cited if not (ROOT / page).exists()) == []
