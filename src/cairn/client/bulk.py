"""Many rows at once: each goes to the owner of its bucket, one pipeline or INSERT an owner."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cairn.client import flows
from cairn.client.core import NOT_EXECUTED, Attempt, Core
from cairn.client.effects import Operation, Talk, Together, Wire
from cairn.model.errors import CairnError, PartialWrite
from cairn.pgwire.backend import Result
from cairn.pgwire.client_replies import Outcome

PIPELINE_ROWS: Final = 500  # rows between two Syncs
_INSERT: Final = re.compile(
    r"(?P<head>\s*insert\s+into\s+[^()]+?(?:\([^()]*\))?\s*values\s*)"
    r"(?P<rows>\(\s*\$\d+[^()]*\)(?:\s*,\s*\(\s*\$\d+[^()]*\))+)"
    r"(?P<tail>\s*(?:on\s+conflict\s+do\s+\w+\s*)?;?\s*)",
    re.IGNORECASE,
)
_ITEM: Final = re.compile(r"\s*\$(\d+)\s*((?:::\s*\w+)?)\s*")


class Split(msgspec.Struct, frozen=True):
    """An INSERT of several rows, all of them parameters, taken apart."""

    head: str
    casts: tuple[str, ...]  # of one row
    tail: str
    rows: int

    def text(self, rows: int) -> str:
        """The same INSERT with another number of rows."""
        width = len(self.casts)
        tuples = (
            "(" + ", ".join(f"${at * width + i}{c}" for i, c in enumerate(self.casts, 1)) + ")"
            for at in range(rows)
        )
        return f"{self.head}{', '.join(tuples)}{self.tail}"


def split_insert(sql: str) -> Split | None:
    """None unless it is `INSERT … VALUES ($1, $2), ($3, $4) …` with nothing but parameters."""
    found = _INSERT.fullmatch(sql)
    if found is None:
        return None
    casts: list[tuple[str, ...]] = []
    number = 0
    for row in re.findall(r"\(([^()]*)\)", found["rows"]):
        items = [_ITEM.fullmatch(item) for item in row.split(",")]
        if any(item is None for item in items):
            return None
        for item in items:
            number += 1
            if item is None or int(item[1]) != number:
                return None
        casts.append(tuple(item[2] for item in items if item is not None))
    if len(set(casts)) != 1:
        return None
    return Split(found["head"], casts[0], found["tail"], len(casts))


def statement(
    core: Core, splits: dict[str, Split | None], sql: str, params: Sequence[Any], **options: Any
) -> Operation[Result]:
    """One statement; an INSERT of several rows is split where they belong to several owners."""
    if params and core.settings.split_inserts:
        try:
            split = splits[sql]
        except KeyError:
            if len(splits) > core.settings.metadata_cache_size:
                splits.clear()
            split = splits[sql] = split_insert(sql)
        if split is not None and len(params) == split.rows * len(split.casts):
            return _insert(core, split, sql, params, **options)
    return core.execute(sql, params, **options)


def _insert(
    core: Core, split: Split, sql: str, params: Sequence[Any], **options: Any
) -> Operation[Result]:
    width = len(split.casts)
    rows = [params[at : at + width] for at in range(0, len(params), width)]
    metadata = yield from core.learn(split.text(1))
    groups: dict[str | None, list[Sequence[Any]]] = {}
    for row in rows:
        route = core.router.route(metadata, row, "master")
        groups.setdefault(None if route.reason else route.address, []).append(row)
    if None in groups:
        return (yield from core.execute(sql, params, **options))  # the server can split it too
    core.stats.rows_split += len(rows)
    outcomes = yield Together(
        [
            core.execute(
                split.text(len(part)), [value for row in part for value in row], at=at, **options
            )
            for at, part in groups.items()
        ]
    )
    return _joined(list(groups), outcomes)


def _joined(addresses: list[str | None], outcomes: list[Result | BaseException]) -> Result:
    """One result of several, or the error; what a part of the owners did is said in its detail."""
    failed = [each for each in outcomes if isinstance(each, BaseException)]
    done = [each for each in outcomes if isinstance(each, Result)]
    if not failed:
        count = sum(each.row_count for each in done)
        return Result(
            done[0].columns, [row for each in done for row in each.rows], f"INSERT 0 {count}"
        )
    if not done or not isinstance(failed[0], CairnError):
        raise failed[0]
    lines = [
        f"{address}: {each}" if isinstance(each, BaseException) else f"{address}: {each.tag}"
        for address, each in zip(addresses, outcomes, strict=True)
    ]
    raise PartialWrite(
        f"the rows were written on some replicasets only: {failed[0]}", detail="; ".join(lines)
    ) from failed[0]


# --- executemany ----------------------------------------------------------------------------------


def execute_many(core: Core, sql: str, rows: Sequence[Sequence[Any]]) -> Operation[int]:
    """Each row is a statement of its own. Returns rows touched; on failure the detail says how far
    it got."""
    progress = [0, 0]  # statements executed, rows touched
    try:
        yield from _by_owner(core, sql, rows, progress, depth=0)
    except CairnError as error:
        told = f"{progress[0]} of {len(rows)} statements were executed"
        error.detail = told if error.detail is None else f"{error.detail}; {told}"
        raise
    return progress[1]


def _by_owner(
    core: Core, sql: str, rows: Sequence[Sequence[Any]], progress: list[int], depth: int
) -> Operation[None]:
    if not rows:
        return
    metadata = yield from core.learn(sql)
    groups: dict[str, list[Sequence[Any]]] = {}
    anywhere: str | None = None
    for row in rows:
        route = core.router.route(metadata, row, "master")
        if route.reason:
            anywhere = anywhere or route.address  # all such rows to one instance
            groups.setdefault(anywhere, []).append(row)
        else:
            core.stats.rows_split += 1
            groups.setdefault(route.address, []).append(row)
    parts = [_pipelines(core, sql, at, part, progress, depth) for at, part in groups.items()]
    if len(parts) == 1:
        yield from parts[0]
        return
    for outcome in (yield Together([*parts])):
        if isinstance(outcome, BaseException):
            raise outcome


def _pipelines(
    core: Core, sql: str, at: str, rows: list[Sequence[Any]], progress: list[int], depth: int
) -> Operation[None]:
    """The rows of one owner. What it refuses is sent anew to where it belongs by then."""
    attempt = Attempt(core, sql, core.settings.timeout_s, at)
    while rows:
        wire: Wire | None = None
        chunk = rows[:PIPELINE_ROWS]
        try:
            wire, _ = yield from core.wire_for(sql, chunk[0], "master", attempt)
            attempt.sent = True
            flow = flows.execute_many(wire.pg, wire.names[sql][0], chunk)
            outcome: Outcome = yield Talk(wire, flow, attempt.timeout_s)
            core.stats.statements += len(outcome.results)
            progress[0] += len(outcome.results)
            progress[1] += sum(each.row_count for each in outcome.results)
            rows = rows[len(outcome.results) :]
            if outcome.error is not None:
                raise outcome.error
        except CairnError as error:
            yield from core.after_failure(error, wire, attempt)
            if error.sqlstate in NOT_EXECUTED and depth < 20:
                yield from _by_owner(core, sql, rows, progress, depth + 1)
                return
            continue
        except BaseException:
            if wire is not None:
                core.wires.discard(wire)
            raise
        core.wires.release(wire)
