"""`cairn explain-route`: which instance a statement with these parameters goes to, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.cli.talking import TalkProblem, Target
from cairn.client.logic.metadata import Metadata
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import CairnError, Unreachable
from cairn.model.types.values import TYPE_OF_OID, parse_text
from cairn.pgwire.values.oids import TYPE_NAMES


def value_of(oid: int, text: str) -> Any:
    """A parameter from the command line, as the statement takes it; `null` is NULL."""
    if text.lower() == "null":
        return None
    type_ = TYPE_OF_OID.get(oid)
    return text if type_ is None else parse_text(type_, text)


def run_explain_route(
    sql: str,
    params: list[str],
    dsn: str | None,
    password_file: str | None,
    *,
    as_json: bool = False,
) -> int:
    try:
        pool = SyncPool(Target(dsn, password_file).settings).open()
    except CairnError as problem:
        raise TalkProblem(str(problem), 3) from None
    with pool:
        try:
            oids, metadata = pool.describe(sql)
            if len(oids) != len(params):
                raise TalkProblem(_needed(oids, params, metadata), 2)
            values = [value_of(oid, text) for oid, text in zip(oids, params, strict=True)]
            route = pool.explain_route(sql, *values)
            print(msgspec.json.encode(route).decode() if as_json else route)
        except CairnError as problem:
            code = 3 if isinstance(problem, Unreachable) else 1
            raise TalkProblem(_told(problem, sql), code) from None
    return 0


def _needed(oids: Sequence[int], params: list[str], metadata: Metadata) -> str:
    """Which parameters the statement takes, and what each is to its route."""
    takes = "1 parameter" if len(oids) == 1 else f"{len(oids)} parameters"
    given = "1 was given" if len(params) == 1 else f"{len(params)} were given"
    lines = [f"the statement takes {takes}, {given}"]
    for number, oid in enumerate(oids, 1):
        key = ""
        if number - 1 in metadata.positions:
            part = metadata.positions.index(number - 1) + 1
            key = f", part {part} of {len(metadata.positions)} of the distribution key"
        lines.append(f"  ${number} {TYPE_NAMES.get(oid, oid)}{key}")
    if oids and not metadata.positions:
        lines.append("  none of them gives the distribution key: it goes to any instance")
    return "\n".join(lines)


def _told(problem: CairnError, sql: str) -> str:
    """The server's error with its code, and the place it points at."""
    lines = [f"{problem.sqlstate}: {problem.message}"]
    if problem.position is not None and 1 <= problem.position <= len(sql):
        before = sql[: problem.position - 1]
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1)
        shown = f"LINE {line}: "
        lines += [shown + sql.split("\n")[line - 1], " " * (len(shown) + column) + "^"]
    lines += [f"{word}: {text}" for word, text in _more(problem) if text]
    return "\n".join(lines)


def _more(problem: CairnError) -> list[tuple[str, str | None]]:
    return [("DETAIL", problem.detail), ("HINT", problem.hint)]
