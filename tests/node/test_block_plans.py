"""A block that came as one statement: whose plan is of before, it is planned again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cairn.model.errors import PlanOutdated
from cairn.node.statements.blocks.asking import Blocks


def blocks(*, version: int, operable: bool) -> Any:
    """Of an instance that knows one table."""
    table = SimpleNamespace(schema_version=version, operable=operable)
    state = SimpleNamespace(catalog=SimpleNamespace(table_by_id={1: table}.get))
    nothing: Any = SimpleNamespace(wall_clock=None, learn=lambda *told: None)
    return Blocks("i1", state, nothing, nothing, nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("operable", [True, False])
def test_a_plan_of_before_is_made_anew_also_while_the_next_change_is_under_way(
    operable: bool,
) -> None:
    """It was told as 40001: one change had ended, and another one was prepared already."""
    statement: Any = SimpleNamespace(sharded={1: 5}, prepared=None, oids=())
    with pytest.raises(PlanOutdated):
        blocks(version=6, operable=operable).check_fresh(statement, 1)
    blocks(version=5, operable=operable).check_fresh(statement, 1)
