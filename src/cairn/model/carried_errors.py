"""Errors that cross to another process, which raises them as its own."""

from __future__ import annotations

from typing import Any

from cairn.model.errors import About, CairnError, NotLeader


def to_wire(error: CairnError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "sqlstate": error.sqlstate,
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "position": error.position,
        "leader": getattr(error, "leader", None),
        "about": error.about,
    }


def from_wire(fields: dict[str, Any]) -> CairnError:
    """An unknown kind keeps its SQLSTATE and text."""
    cls = _by_name().get(str(fields.get("kind")), CairnError)
    error = CairnError.__new__(cls)
    CairnError.__init__(
        error,
        str(fields.get("message", "")),
        detail=_text(fields.get("detail")),
        hint=_text(fields.get("hint")),
        position=_number(fields.get("position")),
        sqlstate=str(fields.get("sqlstate", "XX000")),
        about=_about(fields.get("about")),
    )
    if isinstance(error, NotLeader):
        error.leader = _number(fields.get("leader"))
    return error


def _about(field: Any) -> About | None:
    if not isinstance(field, list | tuple) or len(field) != 3 or not field[0]:
        return None
    table, column, constraint = map(_text, field)
    return About(str(table), column, constraint)


def _text(field: Any) -> str | None:
    return None if field is None else str(field)


def _number(field: Any) -> int | None:
    return field if isinstance(field, int) else None


def _by_name() -> dict[str, type[CairnError]]:
    found: dict[str, type[CairnError]] = {}
    queue: list[type[CairnError]] = [CairnError]
    while queue:
        cls = queue.pop()
        found[cls.__name__] = cls
        queue.extend(cls.__subclasses__())
    return found
