"""Rows of two tables whose distribution keys are equal lie in one bucket: told to SQLite.

It follows from the condition of the join, but SQLite cannot know it. With it an owner finds the
partner of a row by its primary key, which begins with the bucket; without it, it looks through all
of its buckets, or builds an index for every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cairn.model.tables.schema import BUCKET_COLUMN
from cairn.sql.bind.dml import BoundChange
from cairn.sql.ir import (
    BUCKET_AT,
    Call,
    Col,
    Derived,
    Expr,
    Item,
    Join,
    Rel,
    Scan,
    Select,
    SubQuery,
    Window,
    conjunction,
    conjuncts,
    has_aggregate,
    rewrite,
)
from cairn.sql.plan.locality import bare, bare_classes, colocated, equal_in, source_locality
from cairn.sql.typing_rules import B, I


def linked(query: Select) -> Select:
    """A block of the owners, with the buckets of its tables compared where their keys are."""
    return _select(query, [])


def linked_change(bound: BoundChange) -> BoundChange:
    holds = conjuncts(bound.where)
    own = scans(bound.source)
    more = [
        link for at, scan in enumerate(own) if (link := _link(scan, own[:at], holds)) is not None
    ]
    where = conjunction([*(_inside(each, own) for each in holds), *more])
    sets = bound.sets
    if sets is not None:
        sets = tuple((at, _inside(expr, own)) for at, expr in sets)
    return replace(bound, where=where, sets=sets)


def _select(query: Select, around: list[Scan]) -> Select:
    holds = conjuncts(query.where)
    own = scans(query.source)
    source = _source(query.source, holds)
    # Of tables around this block only those count that its own WHERE names.
    more = [link for scan in own if (link := _link(scan, around, holds)) is not None]
    known = [*around, *own]
    always = driving(query.source)
    changed: Select = replace(
        query,
        items=_in_order(_inside(query.items, known), always),
        source=source,
        where=conjunction([*(_inside(each, known) for each in holds), *more]),
        group=query.group and _bucket_first(query.group, always),
        having=_inside(query.having, known),
        order=_in_order(query.order, always),
    )
    return changed


def _in_order(node: Any, always: list[Scan]) -> Any:
    """Windows, with rows in the order of the primary key where they can be."""

    def change(each: Any) -> Any:
        if isinstance(each, SubQuery):
            return each
        if isinstance(each, Window) and each.partition:
            return replace(each, partition=_bucket_first(each.partition, always))
        return None

    return rewrite(node, change)


def _bucket_first(exprs: tuple[Expr, ...], always: list[Scan]) -> tuple[Expr, ...]:
    """Equal keys have one bucket, so groups stay what they are; but now they are what the primary
    key begins with, and SQLite need not sort the rows."""
    found = {bare(each): each for each in exprs}
    for scan in always:
        local = source_locality(scan, [])
        for key in local.keys if local is not None else ():
            if all(part in found for part in key):
                first = [found[part] for part in key]
                rest = (each for each in exprs if each not in first)
                return (bucket_of(scan.rel), *first, *rest)
    return exprs


def _inside(node: Any, around: list[Scan]) -> Any:
    """Sub-queries that ask once for each row around them; IN is asked once for all rows."""

    def change(each: Any) -> Any:
        if not isinstance(each, SubQuery) or not isinstance(each.query, Select):
            return None
        if each.kind != "in":
            return replace(each, query=_select(each.query, around))
        operands = _inside(each.operands, around)
        return _by_bucket(replace(each, query=_select(each.query, []), operands=operands), around)

    return node if node is None else rewrite(node, change)


def _by_bucket(part: SubQuery, around: list[Scan]) -> SubQuery:
    """`key IN (SELECT key …)` with the buckets of both, so that rows are found by their key."""
    query = part.query
    assert isinstance(query, Select)
    if query.group is not None or any(has_aggregate(item.expr) for item in query.items):
        return part
    equal = equal_in(part)
    for scan in scans(query.source):
        link = _link(scan, around, equal)
        if link is not None:
            theirs, mine = link.args
            items = (Item("", theirs), *query.items)
            return replace(part, query=replace(query, items=items), operands=(mine, *part.operands))
    return part


def _source(source: Rel | None, holds: list[Expr]) -> Rel | None:
    if isinstance(source, Derived) and isinstance(source.query, Select):
        return replace(source, query=_select(source.query, []))
    if not isinstance(source, Join):
        return source
    left = _source(source.left, holds)
    right = _source(source.right, holds if source.kind == "inner" else [])
    assert left is not None and right is not None
    on = conjuncts(source.on)
    usable = holds + on if source.kind == "inner" else on
    if source.kind != "full":
        left_scans = scans(source.left)
        links = (_link(scan, left_scans, usable) for scan in scans(source.right))
        on = [*on, *(link for link in links if link is not None)]
    return Join(source.kind, left, right, conjunction(on))


def scans(source: Rel | None) -> list[Scan]:
    """Sharded tables that are joined here; not those below derived ones."""
    match source:
        case Scan(table=table):
            return [] if table.is_global else [source]
        case Join(left=left, right=right):
            return [*scans(left), *scans(right)]
    return []


def driving(source: Rel | None) -> list[Scan]:
    """Sharded tables of which each row of `source` has one."""
    if isinstance(source, Join) and source.kind == "left":
        return driving(source.left)
    if isinstance(source, Join) and source.kind == "inner":
        return driving(source.left) + driving(source.right)
    return [] if isinstance(source, Join) else scans(source)


def _link(scan: Scan, others: Iterable[Scan], holds: list[Expr]) -> Call | None:
    """That the buckets are equal, when a condition makes the keys equal."""
    mine = source_locality(scan, [])
    classes = bare_classes(holds)
    for other in others:
        theirs = source_locality(other, [])
        if mine is None or theirs is None or not colocated(mine, theirs, classes):
            continue
        return Call(B, "=", (bucket_of(scan.rel), bucket_of(other.rel)))
    return None


def bucket_of(rel: int) -> Col:
    return Col(I, rel, BUCKET_AT, BUCKET_COLUMN, nullable=False)


def places_of(scan: Scan, rel: int, holds: list[Expr]) -> tuple[int, ...] | None:
    """Columns of relation `rel` that a condition makes equal to the distribution key, in order."""
    local = source_locality(scan, [])
    if local is None or local.is_replicated:
        return None
    (key,) = local.keys
    classes = bare_classes(holds)
    equal = [_of(rel, classes.get(part, ())) for part in key]
    return tuple(min(each) for each in equal) if all(equal) else None


def _of(rel: int, exprs: Iterable[Expr]) -> list[int]:
    return [each.at for each in exprs if isinstance(each, Col) and each.rel == rel]
