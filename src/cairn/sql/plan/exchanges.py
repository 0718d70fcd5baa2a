"""Joins of rows that are many on several sides: dealt out by the hash of what has to be equal.

Gathered rows that were dealt out by a key are like a table that is distributed by it
(`Gathered.key`), so what can be done where they meet is told by the rules for tables (`locality`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import ColumnType
from cairn.sql.ir import (
    Call,
    Col,
    Expr,
    Gathered,
    Join,
    Query,
    Select,
    conjuncts,
    has_aggregate,
    rels_of,
    rewrite,
    walk,
)
from cairn.sql.plan.locality import bare_classes, distributed_by
from cairn.sql.plans import Fragment
from cairn.sql.render.render import Renderer
from cairn.sql.render.sent import ByBucket, Split
from cairn.sql.render.slots import Slots

#: Functions that may stand around a column of a key: they fail for no value.
_CASTS = frozenset(("same", "i_wide", "d_of_i", "n_of_i", "d_of_n"))
Keys = dict[int, tuple[Expr, ...]]  # by the number of the gathered rows' relation
Class = dict[int, list[Expr]]  # likewise: expressions that are equal in rows that meet


def marked(
    merged: Query, apart: frozenset[int], fragments: Sequence[Fragment], catalog: Catalog
) -> Iterator[tuple[Query, ByBucket | None]]:
    """The query over gathered rows of which those of `apart` are dealt out: by the key that one of
    them is distributed by, so that it stays; else by all that has to be equal, else by one of it.
    """
    for block in walk(merged):
        if not isinstance(block, Select):
            continue
        rels = {
            each.rel: each.index
            for each in walk(block.source)
            if isinstance(each, Gathered) and each.index in apart
        }
        if len(rels) < len(apart) or not rels.keys() <= rels_of(block.source):
            continue
        classes = list(_classes(block, set(rels)))
        for rel, index in rels.items():
            for by, keys in _staying(rel, index, fragments[index], classes, catalog):
                yield _with_keys(merged, keys), by
        parts = [_chosen(each) for each in classes]
        for some in (parts, *([each] for each in parts if len(parts) > 1)):
            if some:
                keys = {rel: tuple(each[rel] for each in some) for rel in rels}
                yield _with_keys(merged, keys), None


def _classes(block: Select, rels: set[int]) -> Iterator[Class]:
    """What has to be equal in all of these relations."""
    parts = conjuncts(block.where)
    for each in walk(block.source):
        if isinstance(each, Join):
            parts += conjuncts(each.on)
    seen: set[int] = set()
    for equal in bare_classes(parts).values():
        if id(equal) not in seen:
            seen.add(id(equal))
            found = {rel: [each for each in equal if _is_of(each, rel)] for rel in rels}
            if all(found.values()):
                yield found


def _chosen(equal: Class) -> dict[int, Expr]:
    return {rel: min(exprs, key=repr) for rel, exprs in equal.items()}


def _staying(
    rel: int, index: int, fragment: Fragment, classes: Sequence[Class], catalog: Catalog
) -> Iterator[tuple[ByBucket, Keys]]:
    """Keys by which the rows of a fragment are where they belong."""
    tier = catalog.tiers.get(fragment.tier)
    for types, places in distributed_by(fragment.block):
        parts = []
        for at in places:
            for equal in classes:
                mine = [each for each in equal[rel] if isinstance(each, Col) and each.at == at]
                if mine:
                    parts.append(_chosen(equal) | {rel: mine[0]})
                    break
        if tier is not None and places and len(parts) == len(places):
            by = ByBucket(index, types, tier.bucket_count, tier.hash_version)
            yield by, {each: tuple(part[each] for part in parts) for each in parts[0]}


def _is_of(expr: Expr, rel: int) -> bool:
    if isinstance(expr, Call):
        return expr.name in _CASTS and _is_of(expr.args[0], rel)
    return isinstance(expr, Col) and expr.rel == rel and _is_hashed(expr.type)


def _is_hashed(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.is_key


def _with_keys(merged: Query, keys: Keys) -> Query:
    def change(each: Any) -> Any:
        if isinstance(each, Gathered) and each.rel in keys:
            return Gathered(each.rel, each.index, keys[each.rel])
        return None

    return rewrite(merged, change)  # type: ignore[no-any-return]


def dealt_out(node: Any) -> list[Gathered]:
    return [each for each in walk(node) if isinstance(each, Gathered) and each.key]


def splits(block: Select, fragments: Sequence[Fragment], by: ByBucket | None) -> tuple[Split, ...]:
    """How the rows of each fragment that the block joins are dealt out."""
    is_inner = not any(isinstance(each, Join) and each.kind != "inner" for each in walk(block))
    return tuple(
        replace(_split(each, fragments[each.index], keeps_null=not is_inner), by=by)
        for each in sorted(dealt_out(block), key=lambda each: each.index)
    )


def _split(rows: Gathered, fragment: Fragment, *, keeps_null: bool) -> Split:
    renderer, width = Renderer(Slots()), len(fragment.types)
    renderer.name_columns(rows.rel)
    plain = [f"r{rows.rel}.x{at}" for at in range(width)]
    shown = [renderer.key(each) for each in rows.key]
    sql, places = fragment.sql, tuple(range(width, width + len(shown)))
    if all(each in plain for each in shown):
        places = tuple(plain.index(each) for each in shown)
    else:
        sql = f"SELECT {', '.join([*plain, *shown])} FROM ({sql}) AS r{rows.rel}"
    source = replace(fragment, sql=sql)  # not the same: what it does is measured apart
    return Split(rows.index, source, width, places, keeps_null, rows.key)


def reduces(block: Select) -> bool:
    """Whether it gives fewer rows than it joins."""
    exprs = [item.expr for item in block.items]
    is_grouped = block.group is not None or any(map(has_aggregate, exprs))
    return is_grouped or block.distinct or block.limit is not None
