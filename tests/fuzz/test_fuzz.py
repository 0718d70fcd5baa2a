"""A few seconds of each kind of fuzzing; `make fuzz` goes on for as long as you like."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import run
from tests.fuzz.kinds import KINDS, PEER_CALLS
from tests.fuzz.target import Target

SEED, SECONDS = 14, 1.5


@pytest.mark.cluster
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_sent_ends_an_instance_or_makes_it_deaf(target: Target, kind: str) -> None:
    assert run(target, kind, SEED, 0, SECONDS) > 0


def test_every_call_of_a_peer_is_fuzzed() -> None:
    assert {"raft", "cas", "read_rows", "write_rows", "subscribe", "expel", "status"} <= set(
        PEER_CALLS
    )
