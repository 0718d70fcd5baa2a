"""Whatever a statement is busy with, it ends when its time is over, and others are answered."""

from __future__ import annotations

import pytest

from tests.cluster.harness import Cluster
from tests.server.giants import OTHERS, Ending, ending_of, of_functions, quick_sample

#: What is promised is 0.2 s for the end and 0.25 s for others, on a machine with a free core. The
#: best of some tries counts, and twice as much is allowed: work that nobody can end takes seconds.
PATIENCE_S, TRIES = 0.5, 3

pytestmark = pytest.mark.cluster


def best_ending(cluster: Cluster, text: str) -> Ending:
    found: list[Ending] = []
    while len(found) < TRIES and min((e.worst_s for e in found), default=1.0) > PATIENCE_S:
        found.append(ending_of(cluster["i1"], text))
        assert found[-1].sqlstate != "XX000"
    return min(found, key=lambda each: each.worst_s)


@pytest.mark.parametrize("what", quick_sample())
def test_a_statement_on_giants_ends_in_time(cluster: Cluster, what: str) -> None:
    assert (found := best_ending(cluster, OTHERS[what])).worst_s < PATIENCE_S, found


@pytest.mark.slow
def test_every_function_of_sql_ends_in_time_and_keeps_nothing(cluster: Cluster) -> None:
    wrong = {
        name: found
        for name, text in {**OTHERS, **dict(of_functions())}.items()
        if (found := best_ending(cluster, text)).worst_s > PATIENCE_S
    }
    assert wrong == {}
    with open(f"/proc/{cluster['i1'].child_pid}/status") as status:
        resident = next(line for line in status if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 700 * 1024, resident  # one statement takes some 100 MB
