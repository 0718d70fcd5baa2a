"""Tables whose rows all lie together (DISTRIBUTED BY ()), alone and beside sharded ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from .corpus import ORDERED, PLAIN, WRITES, lines
from .generate import Generator
from .postgres import Both, compare, report
from .test_against_postgres import GENERATED, SEED

pytestmark = pytest.mark.clients
TOGETHER = ("item", "part", "spare")


@pytest.fixture(scope="module")
def together(postgres: Any) -> Both:
    return Both(postgres, TOGETHER)


def test_queries_give_the_same_rows(together: Both) -> None:
    problems = [compare(together, text, ordered=True) for text in lines(ORDERED)]
    report(problems + [compare(together, text, ordered=False) for text in lines(PLAIN)])


def test_generated_queries_give_the_same_rows(together: Both) -> None:
    print(f"seed {SEED}")
    generator = Generator(random.Random(SEED + 3))
    problems = []
    for _ in range(GENERATED // 5):
        text, ordered = generator.query()
        problems.append(compare(together, text, ordered=ordered))
    report(problems)


def test_writes_leave_the_same_rows(postgres: Any) -> None:
    both = Both(postgres, TOGETHER)
    generator = Generator(random.Random(SEED + 4))
    problems: list[str | None] = []
    generated = [(generator.write(), "spare") for _ in range(GENERATED // 20)]
    for text, table in (*WRITES, *generated):
        problems.append(compare(both, text, ordered=False))
        problems.append(compare(both, f"SELECT * FROM {table}", ordered=False))
    report(problems)


def test_a_unique_index_may_have_any_columns(postgres: Any) -> None:
    both = Both(postgres, TOGETHER)
    both.cluster.run("CREATE UNIQUE INDEX by_name ON spare (s, n)")
    assert both.ours("INSERT INTO spare VALUES (801, 1, 'x', 1), (802, 2, 'x', 1)")[0] == ""
    assert both.ours("INSERT INTO spare VALUES (803, 1, 'x', 1)")[0] == "23505"
    assert both.ours("INSERT INTO spare VALUES (803, 1, 'x', 1) ON CONFLICT (s, n) DO NOTHING") == (
        "",
        [0],
    )
