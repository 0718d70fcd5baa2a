"""EXCEPT ALL, INTERSECT ALL and WITH RECURSIVE, compared with PostgreSQL."""

from __future__ import annotations

import pytest

from cairn.model.errors import CairnError

from .corpus import lines
from .corpus_sets import MULTISETS, RECURSIONS, WRONG
from .harness import Cluster
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients


def test_multisets_keep_as_many_rows_as_in_postgresql(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(MULTISETS)])


def test_recursions_find_the_same_rows(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(RECURSIONS)])


def test_what_a_recursion_must_not_do_has_the_same_code(both: Both) -> None:
    problems = []
    for text in lines(WRONG):
        ours, theirs = both.ours(text)[0], both.theirs(text)[0]
        if ours != theirs or not ours:
            problems.append(f"{text}: {ours}, PostgreSQL {theirs}")
    report(problems)


def test_rows_found_by_a_recursion_can_be_inserted(both: Both) -> None:
    made = "WITH RECURSIVE r(n) AS (SELECT 901 UNION ALL SELECT n + 1 FROM r WHERE n < 905)"
    text = f"INSERT INTO spare (id, n) {made} SELECT n, n * 2 FROM r"
    problems = [compare(both, text, ordered=False)]
    report([*problems, compare(both, "SELECT * FROM spare WHERE id > 900", ordered=False)])


@pytest.mark.parametrize(
    "step",
    [
        "SELECT DISTINCT n + 1 FROM r WHERE n < 3",
        "SELECT n + 1 FROM r WHERE n < 3 GROUP BY n",
        "(SELECT n + 1 FROM r WHERE n < 3 LIMIT 1)",
        "SELECT n + row_number() OVER () FROM r WHERE n < 3",
    ],
)
def test_a_step_that_needs_its_whole_round_is_refused_by_name(step: str) -> None:
    with pytest.raises(CairnError) as found:
        Cluster().run(f"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL {step}) SELECT * FROM r")
    assert (found.value.sqlstate, "recursive term" in str(found.value)) == ("0A000", True)
