"""WITH whose parts write: each of them is a step of a block, and the statement after them the last.

As in PostgreSQL no part sees what another one changes, only the rows that it tells by RETURNING. So
tables that the last statement reads and a part changes are read before anything is changed; a part
that would have to look at another one's changes is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cairn.model.errors import CairnError, IndeterminateType, LimitExceeded, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import TYPE_OF_OID
from cairn.sql.bind.dml import BoundChange, BoundInsert
from cairn.sql.bind.scope import GivenRows
from cairn.sql.compile_block import Planning
from cairn.sql.functions.function_list import KEPT_FIRST, told_anew
from cairn.sql.ir import has_given, scans_in
from cairn.sql.parse.lexer import Token
from cairn.sql.plans import (
    ROW_WRITES,
    BlockPlan,
    BlockStep,
    GlobalWrite,
    PointRead,
    Prepared,
    Returning,
    ScatterRead,
)
from cairn.sql.statements.with_parts import WithPart, WithParts

MOST_WRITING = 20  # parts; each is planned twice


def prepare_with(
    found: Sequence[Token],
    text: str,
    read: WithParts,
    catalog: Catalog,
    param_oids: Sequence[int],
    user_name: str,
) -> Prepared:
    if sum(part.writes for part in read.parts) > MOST_WRITING:
        raise LimitExceeded(f"more than {MOST_WRITING} parts of WITH write")
    last = max([len(param_oids), *(int(w.value) for w in found if w.kind == "param")])
    types = {at: TYPE_OF_OID[oid] for at, oid in enumerate(param_oids, 1) if oid in TYPE_OF_OID}
    for _ in range(2):  # the second time with what the first has found out
        planning = Planning(catalog, user_name, text, last, dict(types))
        steps = tuple(_steps(found, text, read, planning))
        types = {number: planning.types[number] for number in planning.types if number <= last}
    missing = [number for number in range(1, last + 1) if number not in types]
    if missing:
        raise IndeterminateType(f"could not determine data type of parameter ${missing[0]}")
    _check_changes(found, read, steps)
    main = steps[-1].prepared
    return Prepared(
        text,
        main.tag,
        BlockPlan((*steps[:-1], _with_reads_ahead(steps)), last),
        tuple(types[number] for number in range(1, last + 1)),
        main.columns,
        planning.tables,
        tuple(planning.rights),
        tier=main.tier,
        options=main.options,
        hidden=1,
        uses_now=True,
    )


def _steps(
    found: Sequence[Token], text: str, read: WithParts, planning: Planning
) -> Iterator[BlockStep]:
    before: list[WithPart] = []  # queries that later parts may name
    for number, part in enumerate(read.parts, 1):
        if any(part.name == other.name for other in read.parts[: number - 1]):
            raise CairnError(
                f'WITH query name "{part.name}" specified more than once',
                sqlstate="42712",
                position=found[part.start].start + 1,
            )
        if not part.writes:
            before.append(part)
            _check_named_once(found, read, before, planning, text)
            continue
        inside = range(part.body, part.end)
        words = found[part.body : part.end]
        prepared = planning.compiled(_only(found, before, inside), text, words)
        _check_write(prepared, found[part.body])
        planning.given[part.name] = _given(number, part, prepared, found[part.start])
        yield BlockStep("with", prepared, number)
    inside = range(read.main, len(found))
    prepared = planning.compiled(_only(found, before, inside), text, found[read.main :])
    if not isinstance(prepared.plan, (PointRead, ScatterRead)):
        _check_write(prepared, found[read.main])
    yield BlockStep("tell", prepared)


def _check_named_once(
    found: Sequence[Token],
    read: WithParts,
    before: Sequence[WithPart],
    planning: Planning,
    text: str,
) -> None:
    """The last query of `before` is asked by each part that names it."""
    part = before[-1]
    others = [range(each.body, each.end) for each in read.parts if each is not part]
    others.append(range(read.main, len(found)))
    if sum(any(found[at].is_word(part.name) for at in each) for each in others) < 2:
        return
    inside = range(part.body, part.end)
    words = found[part.body : part.end]
    if told_anew(planning.compiled(_only(found, before[:-1], inside), text, words).bound):
        raise Unsupported(
            f'"{part.name}" is named twice and tells something else each time it is asked',
            hint=KEPT_FIRST,
            position=found[part.start].start + 1,
        )


def _given(number: int, part: WithPart, prepared: Prepared, name: Token) -> GivenRows:
    columns = prepared.columns
    if len(part.columns) > len(columns):
        raise CairnError(
            f'WITH query "{part.name}" has {len(columns)} columns available but '
            f"{len(part.columns)} columns specified",
            sqlstate="42P10",
            position=name.start + 1,
        )
    names = [*part.columns, *(each.name for each in columns[len(part.columns) :])]
    types = [each.type for each in columns]
    scales = [each.known for each in columns]
    return GivenRows(number, names if columns else None, types, scales)


def _only(found: Sequence[Token], parts: Sequence[WithPart], inside: range) -> list[Token]:
    """`WITH` these parts, and what is `inside`. What is left out is blank to who reads them."""
    kept = set(inside)
    for at, part in enumerate(parts):
        kept.update(range(part.start, part.end + 1))
        if at:
            kept.add(part.start - 1)  # the comma
    if parts:
        kept.add(0)
        kept.update(at for at in (1,) if found[1].is_word("recursive") and parts[0].start != 1)
    return [found[at] for at in sorted(kept)]


def _check_write(prepared: Prepared, first: Token) -> None:
    plan = prepared.plan
    if isinstance(plan, GlobalWrite):
        raise Unsupported(
            f"cannot modify global table {plan.table.name} in a statement that writes in WITH",
            hint="global tables are changed by statements of their own",
            position=first.start + 1,
        )
    assert isinstance(plan, (*ROW_WRITES, Returning))


# --- nobody sees what the others change -----------------------------------------------------------


def _changed(prepared: Prepared) -> int | None:
    match prepared.bound:
        case BoundInsert(table=table):
            return table.id
        case BoundChange(scan=scan):
            return scan.table.id
    return None


def _looked_at(prepared: Prepared) -> set[int]:
    bound = prepared.bound
    nodes: tuple[Any, ...] = (bound,)
    if isinstance(bound, BoundInsert):
        nodes = (bound.rows or (), *([bound.query] if bound.query is not None else []))
    elif isinstance(bound, BoundChange):
        parts = (bound.source, bound.where, *(expr for _, expr in bound.sets or ()))
        nodes = tuple(part for part in parts if part is not None)
    return {scan.table.id for scan in scans_in(nodes)}


def _check_changes(found: Sequence[Token], read: WithParts, steps: Sequence[BlockStep]) -> None:
    changed = [_changed(step.prepared) for step in steps]
    starts = [part.body for part in read.parts if part.writes] + [read.main]
    for at, step in enumerate(steps):
        if changed[at] is None:
            continue
        others = {each for n, each in enumerate(changed) if n != at}
        touched = _looked_at(step.prepared) | {changed[at]}
        if touched & others:
            raise Unsupported(
                "two parts of a statement cannot change the same table, "
                "nor one read what another changes",
                detail="Each of them would have to see the table as it was before the statement.",
                hint="use statements of their own between BEGIN and COMMIT",
                position=found[starts[at]].start + 1,
            )


def _with_reads_ahead(steps: Sequence[BlockStep]) -> BlockStep:
    """The last step; it reads tables that others change before they do."""
    *parts, last = steps
    if _changed(last.prepared) is not None:
        return last
    if not _looked_at(last.prepared) & {_changed(step.prepared) for step in parts}:
        return last
    plan = last.prepared.plan
    if any(has_given(getattr(step.plan, "merged", None)) for step in getattr(plan, "steps", ())):
        raise Unsupported(
            "a value made of rows that WITH wrote, in a query of the table that it wrote to",
            hint="join the rows instead of using them as a value",
        )
    return replace(last, reads_ahead=True)
