"""Functions that only the instance can answer that got the statement."""

from __future__ import annotations

from typing import Any

from cairn.sql.functions.function_list import LATE_FUNCTIONS, NEXT_NUMBER
from cairn.sql.ir import Call, walk


def calls_late(node: Any) -> bool:
    """Whether it asks for facts of the instance that got the statement."""
    return any(isinstance(each, Call) and is_late(each.name) for each in walk(node))


def is_late(function: str) -> bool:
    return function in LATE_FUNCTIONS or function == NEXT_NUMBER
