"""The scripts of `transcripts/` still happen as they are written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from .transcripts.teller import SCRIPTS, retell


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_happens_as_it_is_written_down(path: Path) -> None:
    """If the change is meant: `python -m tests.raft.transcripts`, then read the diff."""
    told = path.read_text()
    assert retell(told) == told


def test_a_change_of_behaviour_shows() -> None:
    told = next(path for path in SCRIPTS if path.stem == "election").read_text()
    assert retell(told.replace("pre_vote=no", "pre_vote=yes")) != told.replace(
        "pre_vote=no", "pre_vote=yes"
    )
