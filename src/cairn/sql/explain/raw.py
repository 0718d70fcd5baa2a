"""What of EXPLAIN is about buckets and about the texts that SQLite is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cairn.sql.bind.dml import BoundChange
from cairn.sql.explain.access import QueryPlan
from cairn.sql.plan.buckets import bucket_count
from cairn.sql.plan.places import places
from cairn.sql.plans import (
    Fragment,
    GlobalWrite,
    InsertSelect,
    KeyedWrite,
    PointRead,
    PointWrite,
    Prepared,
    ScatterRead,
    ScatterWrite,
    ShardedInsert,
)
from cairn.sql.render.slots import Bind


def buckets_shown(prepared: Prepared, values: Sequence[Any] | None, catalog: Any = None) -> str:
    """`[1-3,7]`, `any` for what needs no rows of the owners, `unknown` before it is run."""
    found: set[int] = set()
    plan = prepared.plan
    if isinstance(plan, GlobalWrite) and plan.read is not None:
        plan = plan.read
    touched = places(plan, () if values is None else values)
    for place in touched:
        if not place.is_known:
            return "unknown"
        top = bucket_count(catalog, place.tier) if catalog else 3000
        found.update(range(1, top + 1) if place.buckets is None else place.buckets)
    return show_ranges(found) if touched else "any"


def show_ranges(buckets: set[int]) -> str:
    """`[1-3,7]`"""
    parts: list[str] = []
    ordered = sorted(buckets)
    start = 0
    for at in range(1, len(ordered) + 1):
        if at == len(ordered) or ordered[at] != ordered[at - 1] + 1:
            low, high = ordered[start], ordered[at - 1]
            parts.append(str(low) if low == high else f"{low}-{high}")
            start = at
    return f"[{','.join(parts)}]"


def _text(fragment: Fragment, values: Sequence[Any] | None) -> str:
    """As it would run on an instance that owns all the buckets it needs."""
    buckets = None if values is None else fragment.bucket_set(values)
    return fragment.with_ranges(None if buckets is None else [(at, at) for at in sorted(buckets)])


Ran = Callable[[ScatterRead], ScatterRead]
WIDE = (1, 1_000)  # a range of buckets as owners have them


def sources(
    prepared: Prepared, values: Sequence[Any], ran: Ran | None = None
) -> Iterator[tuple[Any, str, Any]]:
    """(what it was made from, SQL, bind) of each text that reads tables, in the way that it ran."""
    ran = ran or (lambda plan: plan)
    plan: Any = prepared.plan
    bound = prepared.bound
    match plan:
        case PointWrite() if isinstance(bound, BoundChange):
            yield _read_by(bound), plan.sql, plan.bind
        case ScatterWrite(fragment=fragment):
            yield _read_by(fragment.block), *_at_an_owner(fragment, values)
        case InsertSelect(read=read) | KeyedWrite(read=read) | GlobalWrite(read=read):
            yield from _sources(read, values, ran)
    yield from _sources(plan, values, ran)
    for step in getattr(plan, "steps", ()):
        yield from _sources(step.plan, values, ran)


def _sources(plan: Any, values: Sequence[Any], ran: Ran) -> Iterator[tuple[Any, str, Any]]:
    match plan:
        case PointRead():
            yield plan.query, plan.sql, plan.bind
        case ScatterRead():
            for fragment in ran(plan).fragments:
                yield fragment.block, *_at_an_owner(fragment, values)
            for step in plan.steps:
                yield from _sources(step.plan, values, ran)


def _read_by(bound: BoundChange) -> Any:
    return (bound.source, bound.where, *(expr for _, expr in bound.sets or ()))


def _at_an_owner(fragment: Fragment, values: Sequence[Any]) -> tuple[str, Bind]:
    """Owners have wide ranges of buckets; which ones makes no difference to SQLite. Without rows of
    others: it is only asked how it would go about it."""
    buckets = fragment.bucket_set(values)
    ranges = [WIDE] if buckets is None else [(each, each) for each in sorted(buckets)]
    sql, args = fragment.asked(values, ranges)
    none = ("[]",) * len(fragment.sent)
    return sql, lambda params: (*args, *none)


def raw_sections(
    prepared: Prepared, values: Sequence[Any] | None = None
) -> list[tuple[str, str, Any]]:
    """(where, SQL, bind) of each SQLite statement that the plan runs."""
    plan: Any = prepared.plan
    if isinstance(plan, (InsertSelect, KeyedWrite)):
        plan = plan.read
    match plan:
        case PointRead():
            where = "ROUTER" if plan.bucket is None else "CONST-FILTERED STORAGE"
            return [(where, plan.sql, plan.bind)]
        case PointWrite():
            return [("CONST-FILTERED STORAGE", plan.sql, plan.bind)]
        case ScatterRead():
            found = [
                ("STORAGE", _text(fragment, values), fragment.bind) for fragment in plan.fragments
            ]
            # The merge reads tables that exist only while it runs: nothing to ask SQLite about.
            return [*found, ("ROUTER", plan.sql, None)]
        case ScatterWrite():
            return [("STORAGE", _text(plan.fragment, values), plan.fragment.bind)]
        case ShardedInsert():
            return [("STORAGE", plan.sql, None)]
    return []


def raw_lines(
    prepared: Prepared, values: Sequence[Any] | None, query_plan: QueryPlan | None
) -> list[str]:
    lines: list[str] = []
    for number, (where, sql, bind) in enumerate(raw_sections(prepared, values), 1):
        lines += [f"{number}. Query ({where}):", sql]
        rows: Sequence[Sequence[Any]] = ()
        if query_plan is not None and bind is not None and values is not None:
            rows = query_plan(sql, bind(values))
        lines += _table([[str(a), str(b), "0", str(d)] for a, b, _, d in rows])
        lines.append("")
    return lines[:-1]


def _table(rows: list[list[str]]) -> list[str]:
    header = ["selectid", "order", "from", "detail"]
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(4)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |"

    return [rule, line(header), rule, *(line(row) for row in rows), rule]
