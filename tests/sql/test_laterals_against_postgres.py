"""LATERAL, compared with PostgreSQL."""

from __future__ import annotations

import pytest

from .corpus import lines
from .corpus_laterals import LATERALS, REFUSED
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients


def test_laterals_find_the_same_rows(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(LATERALS)])


@pytest.mark.parametrize("text", lines(REFUSED))
def test_what_cannot_be_a_join_is_refused(both: Both, text: str) -> None:
    assert both.ours(text)[0] == "0A000"
