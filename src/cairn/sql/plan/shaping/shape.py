"""The way in: every block of a query over rows of several owners, from the innermost on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cairn.sql.ir import Query, Select, rewrite
from cairn.sql.plan.locality import is_sharded
from cairn.sql.plan.shaping.conditions import factored
from cairn.sql.plan.shaping.joins import in_places
from cairn.sql.plan.shaping.subqueries import untied

NextRel = Callable[[], int]


def shaped(query: Query, next_rel: NextRel) -> Query:
    def change(each: Any) -> Any:
        if not isinstance(each, Select):
            return None
        if not is_sharded(each):
            return each
        below = replace(
            each,
            items=rewrite(each.items, change),
            source=rewrite(each.source, change),
            where=rewrite(each.where, change),
            group=rewrite(each.group, change),
            having=rewrite(each.having, change),
            order=rewrite(each.order, change),
        )
        return in_places(untied(in_places(factored(below)), next_rel))

    found: Query = rewrite(query, change)
    return found
