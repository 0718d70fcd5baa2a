"""`cairn explain-route`: which instance a statement with these parameters goes to, and why."""

from __future__ import annotations

import json
from typing import Any

from cairn.cli.talking import DEFAULT_DSN, TalkProblem, Target
from cairn.client import sync


def value_of(text: str) -> Any:
    """A parameter from the command line: a number, true, false, null, or else a string."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, int | float | bool | None) else text


def run_explain_route(
    sql: str, params: list[str], dsn: str | None, password_file: str | None
) -> int:
    target = Target(dsn, password_file)
    try:
        connection = sync.connect(dsn or DEFAULT_DSN, password=target.password)
    except sync.Error as problem:
        raise TalkProblem(str(problem), 3) from None
    try:
        print(connection.explain_route(sql, [value_of(text) for text in params]))
    except sync.Error as problem:
        raise TalkProblem(str(problem)) from None
    finally:
        connection.close()
    return 0
