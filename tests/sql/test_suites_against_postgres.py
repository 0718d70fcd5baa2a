"""What other people's test suites send, compared with PostgreSQL in rows, names and types."""

from __future__ import annotations

from typing import Any

import pytest

from .corpus import lines
from .corpus_suites import ASKED, REFUSED, TABLES
from .postgres import report
from .test_work_against_postgres import Work

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def work(postgres: Any) -> Work:
    return Work(postgres, TABLES)


def test_what_suites_ask_gives_the_same_rows_names_types_and_errors(work: Work) -> None:
    report([work.compared(text) for text in lines(ASKED)])


def test_types_that_are_not_there_are_refused_by_name(work: Work) -> None:
    told = {text: work.ours(text)[0] for text in lines(REFUSED)}
    assert {text: state for text, state in told.items() if state != "0A000"} == {}
