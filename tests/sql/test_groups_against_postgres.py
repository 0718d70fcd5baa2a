"""ROLLUP, CUBE and GROUPING SETS, compared with PostgreSQL."""

from __future__ import annotations

import pytest

from cairn.model.errors import CairnError

from .corpus import lines
from .corpus_groups import GROUPINGS, ORDERED, STATISTICS, WRONG, WRONG_STATISTICS
from .harness import Cluster
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients


def test_grouping_sets_find_the_same_rows(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(GROUPINGS)])


def test_rows_of_all_grouping_sets_are_sorted_together(both: Both) -> None:
    report([compare(both, text, ordered=True) for text in lines(ORDERED)])


def test_aggregates_of_pairs_bits_and_places_are_the_same(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(STATISTICS)])


def test_wrong_aggregates_have_the_same_code(both: Both) -> None:
    problems = []
    for text in lines(WRONG_STATISTICS):
        ours, theirs = both.ours(text)[0], both.theirs(text)[0]
        problems.append(None if ours == theirs and ours else f"{text}: {ours}, {theirs}")
    report(problems)


def test_what_is_not_grouped_by_every_set_has_the_same_code(both: Both) -> None:
    problems = []
    for text in lines(WRONG):
        ours, theirs = both.ours(text)[0], both.theirs(text)[0]
        if ours != theirs or not ours:
            problems.append(f"{text}: {ours}, PostgreSQL {theirs}")
    report(problems)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT 1 FROM (VALUES (1)) AS t (a) GROUP BY CUBE (a, a, a, a, a, a)", "54000"),
        ("SELECT row_number() OVER () FROM (VALUES (1)) AS t (a) GROUP BY CUBE (a)", "0A000"),
    ],
)
def test_what_is_too_much_is_refused_by_name(text: str, code: str) -> None:
    with pytest.raises(CairnError) as found:
        Cluster().run(text)
    assert found.value.sqlstate == code
