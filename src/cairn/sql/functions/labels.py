"""Labels of enums inside SQLite; a type travels as its `text`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cairn.model.types.enums import checker, ranks


def s_label(label: Any, type_: str) -> Any:
    """The label itself, if it is one."""
    return checker(type_)(label)


def s_rank(label: Any, type_: str) -> int | None:
    """Its place among the labels, counted from 1."""
    return None if label is None else ranks(type_)[1].get(label)


def s_nth(place: int | None, type_: str) -> str | None:
    return None if place is None else list(ranks(type_)[1])[place - 1]


def s_labels(listed: str | None, type_: str) -> str | None:
    """A list of texts, if all of them are labels."""
    for label in json.loads(listed) if listed is not None else ():
        checker(type_)(label)
    return listed


LABELS: dict[str, Callable[..., Any]] = {
    "s_label": s_label,
    "s_labels": s_labels,
    "s_rank": s_rank,
    "s_nth": s_nth,
}
