"""A number of thousands of digits, wherever a number may stand, is refused with a code."""

from __future__ import annotations

import pytest

from cairn.model.errors import CairnError

from .harness import Cluster

CLUSTER = Cluster()
CLUSTER.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)")
PLACES = (
    "SELECT {}",
    "SELECT -{}::decimal",
    "SELECT 1 LIMIT {}",
    "SELECT 1 OFFSET {}",
    "SELECT 1 ORDER BY {}",
    "SELECT ('{{1}}'::int[])[{}]",
    "SELECT ${}",
    "SELECT round(1.5, {})",
    "SELECT repeat('x', {})",
    "SELECT lag(a, {}) OVER () FROM t",
    "SELECT sum(a) OVER (ROWS {} PRECEDING) FROM t",
    "SELECT x FROM generate_series(1, {}) x",
    "SELECT * FROM t WHERE a = {}",
    "INSERT INTO t VALUES ({}, 'x')",
    "CALL cairn_status({})",
    "FETCH {} FROM c",
    "CREATE TABLE z (a VARCHAR({}) PRIMARY KEY)",
    "CREATE TABLE z (a DECIMAL({}, 2), b INT PRIMARY KEY)",
    "CREATE TABLE z (a INT PRIMARY KEY, b INT DEFAULT {})",
    "CREATE TABLE z (a INT PRIMARY KEY, b INT GENERATED ALWAYS AS IDENTITY (START {}))",
    "ALTER SYSTEM SET row_log_max = {}",
    "EXPLAIN SELECT {}",
)


@pytest.mark.parametrize("digits", [30, 400, 5_000, 100_000])
@pytest.mark.parametrize("place", PLACES)
def test_a_number_of_many_digits_is_a_value_or_has_a_code(place: str, digits: int) -> None:
    """A `ValueError` or an `OverflowError` of Python would be an internal error."""
    try:
        CLUSTER.run(place.format("9" * digits))
    except CairnError as problem:
        assert problem.sqlstate != "XX000", problem  # noqa: PT017
        assert len(str(problem)) < 5_000  # noqa: PT017


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "1e999"])
def test_what_is_no_number_of_digits_is_refused(word: str) -> None:
    with pytest.raises(CairnError) as told:
        CLUSTER.run(f"CREATE TABLE z (a DECIMAL('{word}', 2), b INT PRIMARY KEY)")
    assert told.value.sqlstate == "22023"
