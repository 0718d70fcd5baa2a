"""A few seconds of each kind of fuzzing; `make fuzz` goes on for as long as you like."""

from __future__ import annotations

import time

import pytest

from tests.cluster.harness import eventually
from tests.fuzz.__main__ import run
from tests.fuzz.kinds import KINDS, PEER_CALLS
from tests.fuzz.target import Broken, Target, Watch

SEED, SECONDS = 14, 1.5


@pytest.mark.cluster
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_sent_ends_an_instance_or_makes_it_deaf(target: Target, kind: str) -> None:
    assert run(target, kind, SEED, 0, SECONDS) > 0


def test_every_call_of_a_peer_is_fuzzed() -> None:
    assert {"raft", "cas", "read_rows", "write_rows", "subscribe", "expel", "status"} <= set(
        PEER_CALLS
    )


@pytest.mark.cluster
def test_an_instance_that_stands_still_is_found_deaf(target: Target) -> None:
    """The oracle itself: it forgives a busy machine, and nothing else."""
    with pytest.raises(Broken, match="deaf for"), Watch(target.node, deaf_s=0.5) as watch:
        eventually(lambda: watch.slowest_s > 0, "a first answer")
        target.node.pause()
        time.sleep(0.8)
        target.node.resume()
        eventually(lambda: watch.slowest_s > 0.5, "an answer after the pause")
