"""The scripts of `transcripts/` still happen as they are written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.model.errors import CairnError
from tests.sim.mutants import MUTANTS, planted

from .transcripts.teller import SCRIPTS, retell

# Planted bugs, and the script whose text each one changes.
SHOWS = {
    "ack before fsync": "power_cut",
    "vote request before fsync": "election",
    "leader counts its entry before fsync": "slow_disk",
    "append without looking at the previous term": "log_conflict",
    "old term committed by counting": "old_term",
    "two votes in a term": "split_vote",
    "acks of learners counted": "learner",
    "read without a quorum": "read_partition",
    "read before commit in term": "read_new_leader",
    "campaign with an unapplied conf change": "pending_change",
    "joint commit with the new half only": "joint",
    "joint configuration never left": "joint_auto",
    "removed leader goes on": "removed_leader",
    "snapshot peer never un-paused": "snapshot_lost",
    "refused probe is not repeated lower": "lost_append",
    "leader never checks its quorum": "check_quorum",
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_happens_as_it_is_written_down(path: Path) -> None:
    """If the change is meant: `python -m tests.raft.transcripts`, then read the diff."""
    told = path.read_text()
    assert retell(told) == told


@pytest.mark.parametrize("bug", SHOWS)
def test_a_change_of_behaviour_shows_in_its_script(bug: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == bug)
    told = next(path for path in SCRIPTS if path.stem == SHOWS[bug]).read_text()
    with planted(mutant):
        try:
            retold = retell(told)
        except CairnError as problem:  # some bugs are found by the core itself
            retold = str(problem)
    assert retold != told
