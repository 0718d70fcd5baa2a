"""Aggregates in sub-queries over columns of the query around them, compared with PostgreSQL."""

from __future__ import annotations

import pytest

from .corpus import lines
from .corpus_outer_aggregates import QUERIES, WRONG
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients


def test_they_are_made_by_the_query_that_has_the_columns(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(QUERIES)])


def test_where_they_are_not_allowed_the_code_is_the_same(both: Both) -> None:
    problems = []
    for text in lines(WRONG):
        ours, theirs = both.ours(text)[0], both.theirs(text)[0]
        if ours != theirs or not ours:
            problems.append(f"{text}: {ours}, PostgreSQL {theirs}")
    report(problems)
