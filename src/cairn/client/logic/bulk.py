"""Many rows at once: each goes to the owner of its bucket, one pipeline or INSERT an owner."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cairn.client.logic import flows
from cairn.client.logic.core import NOT_EXECUTED, Attempt, Core
from cairn.client.logic.effects import Operation, Talk, Together, Wire
from cairn.client.logic.shares import Share, failed_share, owner_name, raise_failed, state_of
from cairn.model.errors import CairnError, OutcomeUnknown
from cairn.pgwire.client.backend import Result
from cairn.pgwire.client.replies import ServerAnswer

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
    return _joined(core, list(groups), outcomes)


def _joined(
    core: Core, addresses: list[str | None], outcomes: list[Result | BaseException]
) -> Result:
    """One result of several, or one error that says what each owner did."""
    failed = [each for each in outcomes if isinstance(each, BaseException)]
    done = [each for each in outcomes if isinstance(each, Result)]
    if failed:
        shares: list[Share] = []
        for address, each in zip(addresses, outcomes, strict=True):
            name = owner_name(core.table, address or "")
            if isinstance(each, Result):
                shares.append(Share(name, "done", each.tag or ""))
            else:
                shares.append(failed_share(name, each))
        raise_failed(shares, failed)
    count = sum(each.row_count for each in done)
    return Result(done[0].columns, [row for each in done for row in each.rows], f"INSERT 0 {count}")


# --- executemany ----------------------------------------------------------------------------------


class Progress(msgspec.Struct):
    """How far the rows of one call have come, by address."""

    total: int
    touched: int = 0
    done: Counter[str] = msgspec.field(default_factory=Counter)
    unknown: Counter[str] = msgspec.field(default_factory=Counter)

    def told(self, core: Core) -> str:
        executed, lost = self.done.total(), self.unknown.total()
        parts = [
            f"{owner_name(core.table, at)}: {self.done[at]} done, {self.unknown[at]} unknown"
            for at in sorted({*self.done, *self.unknown})
        ]
        rest = self.total - executed - lost
        parts.append(f"not executed: {rest}")
        return f"{executed} of {self.total} statements were executed; {'; '.join(parts)}"


def execute_many(core: Core, sql: str, rows: Sequence[Sequence[Any]]) -> Operation[int]:
    """Each row is a statement of its own. Returns rows touched; on failure the detail says how far
    each owner got."""
    progress = Progress(len(rows))
    try:
        yield from _by_owner(core, sql, rows, progress, depth=0)
    except CairnError as error:
        told = progress.told(core)
        error.detail = told if error.detail is None else f"{error.detail}; {told}"
        raise
    return progress.touched


def _by_owner(
    core: Core, sql: str, rows: Sequence[Sequence[Any]], progress: Progress, depth: int
) -> Operation[None]:
    if not rows:
        return
    metadata = yield from core.learn(sql)
    groups: dict[str, list[Sequence[Any]]] = {}
    anywhere: str | None = None
    for row in rows:
        route = core.router.route(metadata, row, "master")
        if depth == 0:
            core.router.count(sql, route)
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
    outcomes: list[Any] = yield Together([*parts])
    failed = [each for each in outcomes if isinstance(each, BaseException)]
    for error in sorted(failed, key=lambda each: state_of(each) != "unknown"):
        raise error  # an unknown outcome weighs more than a refusal


def _pipelines(
    core: Core, sql: str, at: str, rows: list[Sequence[Any]], progress: Progress, depth: int
) -> Operation[None]:
    """The rows of one owner. What it refuses is sent anew to where it belongs by then."""
    attempt = Attempt(core, sql, core.settings.timeout_s, at)
    while rows:
        wire: Wire | None = None
        chunk = rows[:PIPELINE_ROWS]
        try:
            wire, _ = yield from core.wire_for(sql, chunk[0], "master", attempt)
            attempt.sent = True
            flow = flows.execute_many(wire.pg, wire.names[sql].name, chunk)
            may_leave = wire.names[sql].may_leave
            outcome: ServerAnswer = yield Talk(wire, flow, attempt.timeout_s, None, may_leave)
            core.stats.statements += len(outcome.results)
            progress.done[wire.address] += len(outcome.results)
            progress.touched += sum(each.row_count for each in outcome.results)
            rows = rows[len(outcome.results) :]
            if outcome.error is not None:
                raise outcome.error
        except CairnError as error:
            try:
                yield from core.after_failure(error, wire, attempt)
            except OutcomeUnknown:
                progress.unknown[at if wire is None else wire.address] += len(chunk)
                raise
            if error.sqlstate in NOT_EXECUTED and depth < 20:
                yield from _by_owner(core, sql, rows, progress, depth + 1)
                return
            continue
        except BaseException:
            if wire is not None:
                core.wires.discard(wire)
            raise
        core.done(wire)
