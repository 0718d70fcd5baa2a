"""What PostgreSQL's own test suite found: the same rows, names, types and errors as there."""

from __future__ import annotations

from typing import Any

import pytest

from .corpus import lines
from .corpus_own_suite import ASKED, REFUSED, TABLES
from .postgres import report
from .test_work_against_postgres import Work

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def work(postgres: Any) -> Work:
    return Work(postgres, TABLES)


def test_rows_names_types_and_errors_are_the_same(work: Work) -> None:
    report([work.compared(text) for text in lines(ASKED)])


def test_what_would_be_answered_wrongly_is_refused_by_name(work: Work) -> None:
    told = {text: work.ours(text)[0] for text in lines(REFUSED)}
    assert {text: state for text, state in told.items() if state != "0A000"} == {}
