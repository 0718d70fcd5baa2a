"""Counters of statements: what they say is right, and their memory has a bound."""

from __future__ import annotations

import random

import pytest

from cairn.model.watched import SAMPLED, Kind
from cairn.node.watching import statistics as counting
from cairn.node.watching.histograms import BOUNDS_S, quantile_s
from cairn.node.watching.samples import KEPT, Samples
from cairn.node.watching.statistics import Seen, Statistics


def run(statistics: Statistics, query: str, took_s: float, user: int = 1) -> Seen:
    seen = statistics.statement(user, query, Kind.SELECT_POINT)
    statistics.ended(seen, took_s, rows=1, hops=0, size=10)
    return seen


@pytest.mark.parametrize("took_s", [1e-9, 1e-6, 4e-5, 1.7e-3, 0.25, 0.99, 1.0, 59.0, 1e4])
def test_a_time_is_counted_in_the_step_that_holds_it(took_s: float) -> None:
    statistics = Statistics()
    run(statistics, "SELECT", took_s)
    counts = statistics.latencies[Kind.SELECT_POINT].counts
    [at] = [at for at, count in enumerate(counts) if count]
    low = BOUNDS_S[at - 1] if at else 0.0
    high = BOUNDS_S[at] if at + 1 < len(BOUNDS_S) else float("inf")
    assert low <= took_s < high


def test_quantiles_are_right_to_an_eighth() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    times = sorted(chance.lognormvariate(-8, 1.5) for _ in range(20_000))
    statistics = Statistics()
    for took_s in times:
        run(statistics, "SELECT", took_s)
    counts = statistics.latencies[Kind.SELECT_POINT].counts
    for share in (0.5, 0.95, 0.99):
        exact = times[int(share * len(times))]
        assert quantile_s(counts, share) == pytest.approx(exact, rel=0.125)
    assert quantile_s([0] * len(counts), 0.5) == 0.0


def test_runs_of_one_statement_are_added_up() -> None:
    statistics = Statistics()
    first = run(statistics, "SELECT", 0.25)
    assert run(statistics, "SELECT", 0.5) is first
    statistics.failed(first, "23505")
    [told] = statistics.statements()
    assert told == first.told()
    assert (told.calls, told.errors, told.rows, told.bytes) == (2, 1, 2, 20)
    assert (told.total_s, told.max_s) == (0.75, 0.5)
    assert statistics.errors == {"23": 1}


def test_two_plans_of_one_statement_that_ran_late_are_one_row() -> None:
    statistics = Statistics()
    early = statistics.statement(1, "SELECT", Kind.SELECT_POINT)
    late = statistics.statement(1, "SELECT", Kind.SELECT_POINT)
    for seen in (early, late, late):
        statistics.ended(seen, 0.5, rows=1, hops=1, size=0)
    [told] = statistics.statements()
    assert (told.calls, told.rows, told.hops, told.total_s) == (3, 3, 3, 1.5)


def test_the_cheapest_statements_are_forgotten_first_and_it_is_told() -> None:
    statistics = Statistics()
    dear = run(statistics, "dear", 10.0)
    cheap = run(statistics, "cheap", 1e-6)
    for number in range(3 * counting.MOST):
        run(statistics, f"number {number}", 0.001)
    queries = {told.query for told in statistics.statements()}
    assert len(queries) <= counting.MOST
    assert "dear" in queries and "cheap" not in queries
    assert statistics.evicted == 3 * counting.MOST + 2 - len(queries)
    statistics.ended(cheap, 0.5, rows=1, hops=0, size=0)  # its plan was kept: it begins anew
    told = {told.query: told.calls for told in statistics.statements()}
    assert told["cheap"] == 1 and told["dear"] == dear.calls == 1


def test_a_long_text_is_kept_short() -> None:
    statistics = Statistics()
    run(statistics, "x" * 1_000_000, 0.1)
    [told] = statistics.statements()
    assert len(told.query) == counting.SHOWN


def test_only_what_takes_long_is_slow() -> None:
    statistics, told = Statistics(), []
    statistics.slow_s = 0.5
    statistics.on_slow.append(
        lambda seen, took_s, rows, hops: told.append((seen.query, took_s, rows, hops))
    )
    run(statistics, "quick", 0.499)
    run(statistics, "slow", 0.5)
    assert told == [("slow", 0.5, 1, 0)]


def test_an_hour_of_samples_is_kept_and_no_more() -> None:
    samples = Samples()
    for at in range(2 * KEPT):
        samples.add(float(at), dict.fromkeys(SAMPLED, 1.0))
    assert [sample[0] for sample in samples.since(0.0)] == [*map(float, range(KEPT, 2 * KEPT))]
    assert samples.since(2.0 * KEPT - 2) == ((2.0 * KEPT - 1, *[1.0] * len(SAMPLED)),)
