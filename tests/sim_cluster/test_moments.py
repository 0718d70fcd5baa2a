"""Blows at one moment exactly: every moment comes, and the cluster outlives what happens then."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from cairn.sim.cluster.blows.exact import strike_at
from cairn.sim.cluster.blows.moments import COMMITTED, MOMENTS
from cairn.sim.cluster.session_trials import OnceTrial
from cairn.sim.cluster.trial import Trial

QUICK = ("a copy goes on",)  # in `make test`


@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (COMMITTED, *MOMENTS)
            if name not in QUICK
        ),
    ],
)
def test_every_moment_comes_and_is_outlived(name: str) -> None:
    """A moment that never comes would find nothing."""
    for seed in range(1, 7):
        trial = (OnceTrial if name == "an operation is done" else Trial)(seed, "moments")
        blow = partial(strike_at, name)
        trial.kind = msgspec.structs.replace(trial.kind, blows=(blow, blow))
        result = trial.run()
        assert result.failure is None, f"seed {seed}: {result.failure}"
        if any(f" {name}: " in note for note in result.notes):
            return
    raise AssertionError(f"never: {name}")
