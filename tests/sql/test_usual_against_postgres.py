"""What people write, compared with PostgreSQL."""

from __future__ import annotations

import pytest

from .corpus import lines
from .corpus_usual import USUAL, WRONG
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients


def test_usual_queries_give_the_same_rows(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(USUAL)])


def test_wrong_ones_fail_with_the_same_class_of_sqlstate(both: Both) -> None:
    problems = []
    for text in lines(WRONG):
        theirs, ours = both.theirs(text), both.ours(text)
        same = theirs[0][:2] == ours[0][:2] and theirs[0]
        problems.append(None if same else f"{text}\n    ours: {ours}\n    PostgreSQL: {theirs}")
    report(problems)


def test_default_values_are_a_row(both: Both) -> None:
    text = "INSERT INTO spare DEFAULT VALUES"
    assert both.ours(text)[0] == both.theirs(text)[0] == "23502"
