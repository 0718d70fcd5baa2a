"""Arrays, RETURNING, upserts, intervals and beginners' slips, compared with PostgreSQL."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest

from cairn.model.errors import CairnError

from .corpus import lines
from .corpus_more import HINTS, MORE_ORDERED, MORE_PLAIN, MORE_WRITES, SLIPS
from .harness import Cluster
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients


def test_more_queries_give_the_same_rows(both: Both) -> None:
    problems = [compare(both, text, ordered=True) for text in lines(MORE_ORDERED)]
    report(problems + [compare(both, text, ordered=False) for text in lines(MORE_PLAIN)])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT id FROM item WHERE id = ANY($1)", [[1, 2, 99]]),
        ("SELECT id FROM item WHERE id = ANY($1) AND n = ANY($2)", [[1, 2, 3, 4], [10, -7]]),
        ("SELECT id FROM item WHERE s = ANY($1::text[])", [["apple", "it's"]]),
        ("SELECT id FROM item WHERE d = ANY($1)", [[Decimal("1.50"), Decimal("7")]]),
        ("SELECT id FROM item WHERE NOT id = ANY($1)", [[]]),
        ("SELECT id FROM item JOIN unnest($1::bigint[]) AS k ON k = id", [[3, 4, 4]]),
        ("SELECT n FROM generate_series($1::bigint, $2::bigint) AS n", [2, 5]),
        ("SELECT count(*) FROM item WHERE id = ANY($1)", [list(range(2000))]),
    ],
)
def test_arrays_are_parameters(both: Both, text: str, values: list[Any]) -> None:
    report([compare(both, text, ordered=False, params=values)])


def test_returning_tells_what_was_done_and_upserts_do_the_same(postgres: Any) -> None:
    both = Both(postgres)
    problems: list[str | None] = []
    for text, table in MORE_WRITES:
        in_order = text.startswith("INSERT") and "SELECT" not in text
        problems.append(compare(both, text, ordered=in_order))
        problems.append(compare(both, f"SELECT * FROM {table}", ordered=False))
    report(problems)


def test_slips_get_the_same_code_at_the_same_place(both: Both) -> None:
    problems: list[str | None] = []
    for text in lines(SLIPS):
        with pytest.raises(psycopg.Error) as theirs:
            both.postgres.execute(text.encode())
        diag = theirs.value.diag
        place = diag.statement_position
        try:
            both.cluster.run(text)
            problems.append(f"{text}: no error, PostgreSQL says {diag.sqlstate}")
            continue
        except CairnError as ours:
            mine = (ours.sqlstate, None if ours.position is None else str(ours.position))
        if mine != (diag.sqlstate, place):
            problems.append(f"{text}: {mine}, PostgreSQL {diag.sqlstate} {place}")
    report(problems)


@pytest.mark.parametrize(("text", "hint"), HINTS.items())
def test_a_slip_gets_a_hint(text: str, hint: str) -> None:
    cluster = Cluster()
    cluster.run("CREATE TABLE item (id INT PRIMARY KEY, grp INT, s TEXT)")
    cluster.run("CREATE TABLE kind (id INT PRIMARY KEY, name TEXT) DISTRIBUTED GLOBALLY")
    cluster.run("CREATE TABLE spare (id INT PRIMARY KEY, n INT)")
    with pytest.raises(CairnError) as found:
        cluster.run(text)
    assert found.value.hint == hint
