"""The same statements on PostgreSQL and on three replicasets give the same rows and errors."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from .corpus import ERRORS, ORDERED, PLAIN, WRITES, lines
from .generate import Generator
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients
GENERATED = int(os.environ.get("CAIRN_SQL_GENERATED", "800"))
SEED = int(os.environ.get("CAIRN_SQL_SEED", "20260101"))


def test_ordered_queries_give_the_same_rows_in_the_same_order(both: Both) -> None:
    report([compare(both, text, ordered=True) for text in lines(ORDERED)])


def test_other_queries_give_the_same_rows(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(PLAIN)])


def test_wrong_statements_fail_with_the_same_class_of_sqlstate(both: Both) -> None:
    problems = []
    for text in lines(ERRORS):
        theirs, ours = both.theirs(text), both.ours(text)
        same = theirs[0][:2] == ours[0][:2] and theirs[0]
        problems.append(None if same else f"{text}\n    ours: {ours}\n    PostgreSQL: {theirs}")
    report(problems)


def test_generated_queries_give_the_same_rows(both: Both) -> None:
    print(f"seed {SEED}, {GENERATED} statements")
    generator = Generator(random.Random(SEED))
    problems = []
    for _ in range(GENERATED):
        text, ordered = generator.query()
        problems.append(compare(both, text, ordered=ordered))
    report(problems)


def test_generated_queries_with_parameters_give_the_same_rows(both: Both) -> None:
    generator = Generator(random.Random(SEED + 2), with_params=True)
    problems = []
    for _ in range(GENERATED // 3):
        text, ordered = generator.query()
        problems.append(compare(both, text, ordered=ordered, params=generator.params))
    report(problems)


def test_writes_leave_the_same_rows(postgres: Any) -> None:
    both = Both(postgres)
    problems: list[str | None] = []
    for text, table in WRITES:
        problems.append(compare(both, text, ordered=False))
        problems.append(compare(both, f"SELECT * FROM {table}", ordered=False))
    report(problems)


def test_generated_writes_leave_the_same_rows(postgres: Any) -> None:
    both = Both(postgres)
    generator = Generator(random.Random(SEED + 1))
    problems: list[str | None] = []
    for _ in range(GENERATED // 10):
        text = generator.write()
        problems.append(compare(both, text, ordered=False))
        problems.append(compare(both, "SELECT * FROM spare", ordered=False))
    report(problems)
