"""Queries that are said in another way find what PostgreSQL finds, and move fewer rows."""

from __future__ import annotations

import pytest

from cairn.sql import plans
from cairn.sql.api import prepare

from .corpus import lines
from .corpus_shapes import SHAPES
from .postgres import Both, compare, report

pytestmark = pytest.mark.clients


def test_joins_and_sub_queries_find_the_same_rows(both: Both) -> None:
    report([compare(both, text, ordered=False) for text in lines(SHAPES)])


def planned(both: Both, text: str) -> plans.ScatterRead:
    plan = prepare(text, both.cluster.catalog, user_id=1).plan
    assert isinstance(plan, plans.ScatterRead)
    return plan


def test_tables_that_lie_together_are_joined_by_their_owners_wherever_they_stand_in_from(
    both: Both,
) -> None:
    text = "SELECT t.id, p.no FROM item i, note t, part p, kind k WHERE t.n = i.grp"
    plan = planned(both, f"{text} AND p.item_id = i.id AND k.id = p.no AND k.name = 'one'")
    tables = sorted(len(each.tables) for each in plan.fragments)
    assert tables == [1, 3]  # notes; items, their parts and the kinds of these


def test_an_equality_that_follows_from_others_is_told_to_the_owners(both: Both) -> None:
    plan = planned(
        both, "SELECT i.id FROM item i, note t, part p WHERE t.n = i.id AND p.item_id = t.n"
    )
    [together] = [each for each in plan.fragments if len(each.tables) == 2]
    assert "bucket_id" in together.sql  # of both: rows are found by their keys


@pytest.mark.parametrize(
    "text",
    [
        "SELECT t.id FROM note t WHERE EXISTS (SELECT 1 FROM item i WHERE i.grp = t.n)",
        "SELECT t.id FROM note t WHERE t.n > (SELECT avg(i.n) FROM item i WHERE i.grp = t.id)",
        "SELECT t.id, (SELECT count(*) FROM item i WHERE i.grp = t.n) FROM note t",
    ],
)
def test_owners_send_each_value_or_group_once_that_rows_elsewhere_ask_for(
    both: Both, text: str
) -> None:
    plan = planned(both, text)
    [asked] = [each for each in plan.fragments if "AS r2" in each.sql]
    assert "DISTINCT" in asked.sql or "GROUP BY" in asked.sql
    assert plan.indexes == ()  # nothing is looked up for each row


def test_gathered_rows_that_are_looked_up_for_each_row_get_an_index(both: Both) -> None:
    text = "SELECT t.id FROM note t WHERE EXISTS"
    plan = planned(both, f"{text} (SELECT 1 FROM item i WHERE i.grp = t.n AND i.n > t.id)")
    assert plan.indexes == ((1, (0,)),)


def test_what_may_fail_is_not_computed_for_groups_that_nobody_asks_for(both: Both) -> None:
    both.cluster.run("INSERT INTO spare VALUES (1, 0, 'zero', 1), (2, 2, 'two', 1)")
    text = "SELECT t.id, (SELECT sum(1 / s.n) FROM spare s WHERE s.id = t.n) FROM note t"
    sent, rows = both.ours(f"{text} WHERE t.n = 2")
    both.cluster.run("DELETE FROM spare")
    assert (sent, rows) == ("", [(2, 0)])
