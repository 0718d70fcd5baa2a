"""What may run where: whether a block's answer is the union of what each replicaset answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cairn.model.tables.schema import TEMP_TIER
from cairn.model.types.values import ColumnType
from cairn.sql.functions.function_list import calls_late, is_late
from cairn.sql.ir import (
    Again,
    Call,
    Col,
    Derived,
    Expr,
    Gathered,
    Given,
    Join,
    Query,
    Recursion,
    Rel,
    Scan,
    Select,
    SubQuery,
    children,
    conjuncts,
    has_aggregate,
    scans_in,
    walk,
    windows_in,
)
from cairn.sql.plan.buckets import equal_classes, key_positions
from cairn.sql.typing_rules import plain

Key = tuple[Expr, ...]


@dataclass(frozen=True)
class Local:
    """Rows sit in the buckets that `keys` hash to; equal keys are on one replicaset."""

    tier: str | None  # None: global tables only, the same everywhere
    types: tuple[ColumnType, ...] = ()
    keys: frozenset[Key] = frozenset()

    @property
    def is_replicated(self) -> bool:
        return self.tier is None


REPLICATED = Local(None)
BY_PARTS = (
    "/parts"  # the tier of gathered rows that were dealt out by their key; no name of a real one
)


def is_sharded(node: Any) -> bool:
    """Whether it is no business of the owners' alone: rows of several, or a recursion.

    A recursion may have no end. The instance that was asked runs it, where it can be cancelled,
    and never a writer. Rows that a part of the statement told are nowhere but there.
    """
    return any(
        isinstance(each, (Recursion, Given))
        or (isinstance(each, Scan) and not each.table.is_global)
        or (isinstance(each, Gathered) and each.key != ())
        for each in walk(node)
    )


def source_locality(source: Rel | None, holds: list[Expr]) -> Local | None:
    """Where a FROM tree can be computed; None: only where all of its rows have been gathered."""
    match source:
        case None | Gathered(key=()):
            return REPLICATED
        case Gathered(key=parts):
            types = tuple(plain(each.type) for each in parts if each.type is not None)
            return Local(BY_PARTS, types, frozenset({tuple(map(bare, parts))}))
        case Scan(rel=rel, table=table):
            if table.sharding is None:
                return REPLICATED
            places = key_positions(table)
            types = tuple(plain(table.columns[at].type) for at in places)
            key = tuple(_column(rel, table.columns[at].name, at, table) for at in places)
            return Local(table.sharding.tier, types, frozenset({key}))
        case Derived():
            return _derived_locality(source)
        case Join():
            return _join_locality(source, holds)
        case Again():
            return None


def _column(rel: int, name: str, at: int, table: Any) -> Col:
    """The column as a key part; `nullable` is a matter of the query, so keys compare by place."""
    return Col(plain(table.columns[at].type), rel, at, "", nullable=False)


def bare(expr: Expr) -> Expr:
    return Col(expr.type, expr.rel, expr.at, "", nullable=False) if isinstance(expr, Col) else expr


def bare_classes(parts: list[Expr]) -> dict[Expr, set[Expr]]:
    return equal_classes(
        [
            Call(part.type, "=", (bare(part.args[0]), bare(part.args[1])))
            for part in parts
            if isinstance(part, Call) and part.name == "="
        ]
    )


def _derived_locality(source: Derived) -> Local | None:
    inner = query_locality(source.query)
    if inner is None or inner.is_replicated:
        return inner
    assert isinstance(source.query, Select)
    places = {bare(item.expr): at for at, item in enumerate(source.query.items)}
    keys = set()
    for key in inner.keys:
        if all(part in places for part in key):
            keys.add(
                tuple(Col(part.type, source.rel, places[part], "", nullable=False) for part in key)
            )
    return Local(inner.tier, inner.types, frozenset(keys))


def distributed_by(query: Any) -> Iterator[tuple[tuple[ColumnType, ...], tuple[int, ...]]]:
    """Types and places of columns of a block by which its rows are where they are."""
    if not isinstance(query, Select):
        return
    local = source_locality(query.source, conjuncts(query.where))
    if local is None or local.is_replicated:
        return
    places = {bare(item.expr): at for at, item in enumerate(query.items)}
    for key in local.keys:
        if all(part in places for part in key):
            yield local.types, tuple(places[part] for part in key)


def _join_locality(source: Join, holds: list[Expr]) -> Local | None:
    on = conjuncts(source.on)
    usable = holds + on if source.kind == "inner" else on
    left = source_locality(source.left, holds if source.kind != "full" else [])
    right = source_locality(source.right, usable if source.kind == "inner" else on)
    if left is None or right is None:
        return None
    # Conditions of a join may ask sub-queries; those must be answerable here too.
    if left.is_replicated and right.is_replicated:
        return REPLICATED if not is_sharded(source.on) else None
    if is_sharded(source.on) or _lacks_tables(left, source) or _lacks_tables(right, source):
        return None
    if source.kind == "full":
        # Rows without a partner have NULL in place of its key: no key tells where rows are.
        ours = not left.is_replicated and not right.is_replicated
        is_met = ours and colocated(left, right, bare_classes(on))
        return Local(left.tier, left.types) if is_met else None
    if right.is_replicated:
        return left
    if left.is_replicated:
        return right if source.kind == "inner" else None
    if not colocated(left, right, bare_classes(usable)):
        return None
    keys = left.keys | right.keys if source.kind == "inner" else left.keys
    return Local(left.tier, left.types, keys)


def _lacks_tables(local: Local, node: Any) -> bool:
    """A session has its temporary tables and no global ones beside them."""
    return local.tier == TEMP_TIER and any(scan.table.is_global for scan in scans_in(node))


def colocated(left: Local, right: Local, classes: dict[Expr, set[Expr]]) -> bool:
    """Whether rows that meet the equalities always share a bucket."""
    if left.tier != right.tier or left.types != right.types:
        return False
    return any(
        all(a == b or b in classes.get(a, ()) for a, b in zip(one, other, strict=True))
        for one in left.keys
        for other in right.keys
    )


def query_locality(query: Query) -> Local | None:
    """The same for a whole block, with what it does after FROM and WHERE."""
    if calls_late(query):
        return None
    if not is_sharded(query):
        return REPLICATED
    if not isinstance(query, Select):
        return None
    holds = conjuncts(query.where)
    local = source_locality(query.source, holds)
    if local is None or local.is_replicated:
        return None
    if query.limit is not None or query.offset is not None:
        return None
    exprs = [item.expr for item in query.items]
    rest = [each for each in (query.where, query.having) if each is not None]
    if not windows_stay((query.items, query.order), local):
        return None
    if not all(remote_ok(each, local, holds) for each in (*exprs, *rest, *(query.group or ()))):
        return None
    grouped = query.group is not None or any(map(has_aggregate, exprs))
    if grouped and not covers(query.group or (), local):
        return None
    if query.distinct and not covers(exprs, local):
        return None
    return local


def covers(exprs: Any, local: Local) -> bool:
    """Whether a whole distribution key is among the expressions: then groups never cross."""
    found = {bare(each) for each in exprs}
    return any(all(part in found for part in key) for key in local.keys)


def windows_stay(node: Any, local: Local) -> bool:
    """Whether all rows that a window looks at are at one owner."""
    return all(covers(window.partition, local) for window in windows_in(node))


def remote_ok(node: Any, local: Local, holds: list[Expr]) -> bool:
    """Whether a replicaset can evaluate the expression next to its own rows."""
    if isinstance(node, Call) and is_late(node.name):
        return False
    if isinstance(node, SubQuery):
        return all(remote_ok(each, local, holds) for each in node.operands) and _subquery_ok(
            node, local, holds
        )
    return all(remote_ok(child, local, holds) for child in children(node))


def equal_in(node: SubQuery) -> list[Expr]:
    """What is equal where `a IN (SELECT b …)` is true.

    Without columns that may be NULL: with one on either side NOT IN answers NULL for rows that
    are not equal, wherever they are.
    """
    assert isinstance(node.query, Select)
    return [
        Call(ColumnType.BOOLEAN, "=", (operand, item.expr))
        for operand, item in zip(node.operands, node.query.items, strict=True)
        if all(isinstance(each, Col) and not each.nullable for each in (operand, item.expr))
    ]


def _subquery_ok(node: SubQuery, local: Local, holds: list[Expr]) -> bool:
    query = node.query
    if calls_late(query):
        return False
    if not is_sharded(query):
        return not _lacks_tables(local, query)
    if not isinstance(query, Select):
        return False
    inner_holds = conjuncts(query.where)
    inner = source_locality(query.source, inner_holds)
    if inner is None or inner.is_replicated:
        return False
    equalities = holds + inner_holds
    is_whole = query.group is None or covers(query.group, inner)  # else groups cross owners
    if node.kind == "in" and query.limit is None and is_whole:
        equalities += equal_in(node)
    if not colocated(local, inner, bare_classes(equalities)):
        return False
    parts = (query.items, query.where, query.having, query.group, query.order)
    return all(remote_ok(part, inner, equalities) for part in parts if part is not None)
