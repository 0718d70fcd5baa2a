"""Sub-queries that ask about each row around them, of rows that lie elsewhere: made into joins.

The owners of the outer rows cannot answer them, so both sides are gathered, and the sub-query would
be run for each row. Where it is tied to the outer row by equalities alone it need not be:

- `EXISTS (SELECT … WHERE u.a = t.b …)` becomes `t.b IN (SELECT DISTINCT u.a …)`,
- `(SELECT avg(u.x) … WHERE u.a = t.b …)` becomes a join with the same query, grouped by `u.a`,

and the owners of `u` send each value, or each group, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from cairn.model.tables.catalog import Catalog
from cairn.sql.functions.function_list import calls_late
from cairn.sql.ir import (
    Agg,
    Call,
    Case,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Join,
    Query,
    Rel,
    Scan,
    Select,
    SubQuery,
    Window,
    columns_in,
    conjunction,
    conjuncts,
    has_aggregate,
    outer_columns,
    rels_of,
    rewrite,
    substitute,
    walk,
)
from cairn.sql.plan.locality import Local, is_sharded, remote_ok, source_locality
from cairn.sql.scales import known_of
from cairn.sql.typing_rules import B, plain
from cairn.sql.zeros import is_key

_COMPARED = frozenset(("=", "<>", "<", "<=", ">", ">="))
_OF_NULL_IS_NULL = re.compile(r"same|neg|[indz]_(add|sub|mul|div|neg|avg2?|sum2|padded|of_\w)")
_SAFE = re.compile(
    r"same|neg|coalesce|is_null|and|or|not|=|<>|<|<=|>|>=|in|>>|&"
    r"|[indz]_(add|sub|mul|neg|avg2?|sum2|padded|of_\w)"
)


@dataclass(frozen=True)
class Tied:
    """A sub-query whose rows are chosen by the outer row: `keys` are equal to `outer`."""

    query: Select  # without these equalities
    keys: tuple[Expr, ...]
    outer: tuple[Expr, ...]


def untied(query: Select, next_rel: Callable[[], int]) -> Select:
    exprs = [item.expr for item in query.items]
    is_grouped = query.group is not None or any(map(has_aggregate, exprs))
    holds = conjuncts(query.where)
    here = list(_places(query.source, holds))
    source = query.source
    inside = rels_of(source)
    parts: list[Expr] = []
    more: list[Expr] = []
    for part in holds:
        if any(remote_ok(part, local, holds) for local in here) or not _has_tied(part):
            parts.append(part)
            continue
        part = _membership(part) or part
        for each in _values_in(part):
            tied = _tied(each, inside)
            if tied is None or source is None:
                continue
            derived, value, ties = _grouped(tied, next_rel())
            item = tied.query.items[0].expr
            if _rejects(part, each) and _is_null(item, Agg):
                source = Join("inner", source, derived, None)
                more += ties
                part = substitute(part, {each: value})
            else:
                source = Join("left", source, derived, conjunction(ties))
                part = substitute(part, {each: _or_nothing(item, ties, value)})
        parts.append(part)
    changed = replace(query, source=source, where=conjunction([*parts, *more]))
    return changed if is_grouped else _shown(changed, here, holds, next_rel)


def _shown(
    query: Select, here: list[Local], holds: list[Expr], next_rel: Callable[[], int]
) -> Select:
    """The same for what is shown of each row, and what rows are ordered by."""
    every = [item.expr for item in query.items] + [each.expr for each in query.order]
    mapping: dict[Expr, Expr] = {}
    source = query.source
    if source is None:
        return query
    for expr in every:
        if any(remote_ok(expr, local, holds) for local in here):
            continue
        for each in _values_in(expr):
            tied = None if each in mapping else _tied(each, rels_of(query.source))
            if tied is not None:
                derived, value, ties = _grouped(tied, next_rel())
                source = Join("left", source, derived, conjunction(ties))
                mapping[each] = _or_nothing(tied.query.items[0].expr, ties, value)
    if not mapping:
        return query
    items, order = substitute((query.items, query.order), mapping)
    return replace(query, source=source, items=items, order=order)


def _places(source: Rel | None, holds: list[Expr]) -> Iterator[Local]:
    """Where the parts of FROM are that have one place each."""
    local = source_locality(source, holds)
    if local is not None:
        if not local.is_replicated:
            yield local
    elif isinstance(source, Join):
        yield from _places(source.left, holds)
        yield from _places(source.right, holds if source.kind == "inner" else [])


def _has_tied(part: Expr) -> bool:
    return any(
        isinstance(each, SubQuery) and is_sharded(each.query) and bool(outer_columns(each.query))
        for each in walk(part)
    )


def _values_in(node: Any) -> list[SubQuery]:
    """Sub-queries that are values of this block's expressions; not those below other ones."""
    found: list[SubQuery] = []

    def look(each: Any) -> Any:
        if isinstance(each, SubQuery):
            if each.kind == "scalar" and is_sharded(each.query):
                found.append(each)
            return each
        return each if isinstance(each, (Agg, Window)) else None

    rewrite(node, look)
    return found


def _split(query: Any, inside: set[int]) -> Tied | None:
    """The equalities that tie it to relations of the block around it, if there is nothing else."""
    if not isinstance(query, Select) or query.offset is not None or calls_late(query):
        return None
    around = {col.rel for col in outer_columns(query)}
    if not around or not around <= inside:
        return None
    own: list[Expr] = []
    keys: list[Expr] = []
    outer: list[Expr] = []
    for part in conjuncts(query.where):
        if not any(col.rel in around for col in columns_in(part)):
            own.append(part)
            continue
        sides = part.args if isinstance(part, Call) and part.name == "=" else ()
        pair = next((each for each in (sides, sides[::-1]) if _is_pair(each, around)), None)
        if pair is None:
            return None
        keys.append(pair[0])
        outer.append(pair[1])
    rest = replace(query, where=conjunction(own))
    return None if outer_columns(rest) or not keys else Tied(rest, tuple(keys), tuple(outer))


def _is_pair(sides: tuple[Expr, ...], around: set[int]) -> bool:
    """Of the sub-query, and of the row around it: of a type whose equal values are one value."""
    if len(sides) != 2 or any(isinstance(each, SubQuery) for side in sides for each in walk(side)):
        return False
    mine, other = ({col.rel in around for col in columns_in(side)} for side in sides)
    types = [side.type for side in sides]
    is_hashed = types[0] is types[1] and types[0] is not None and types[0].is_key
    return mine == {False} and other == {True} and is_hashed


# --- EXISTS ---------------------------------------------------------------------------------------


def _membership(part: Expr) -> Expr | None:
    """EXISTS or NOT EXISTS as IN. Only for a condition: what is unknown counts as false there."""
    is_not = isinstance(part, Call) and part.name == "not"
    asked = part.args[0] if isinstance(part, Call) and is_not else part
    if not isinstance(asked, SubQuery) or asked.kind != "exists":
        return None
    query = asked.query
    tied = _split(query, {col.rel for col in outer_columns(query)})
    if tied is None or _is_grouped(tied.query) or not _gives_some(tied.query):
        return None
    there = [Call(B, "not", (Call(B, "is_null", (key,)),)) for key in tied.keys if _may_lack(key)]
    where = conjunction([*conjuncts(tied.query.where), *there])
    items = tuple(Item("", key) for key in tied.keys)
    rows = Select(items, tied.query.source, where, distinct=True)
    found: Expr = SubQuery(B, "in", rows, tied.outer)
    if not is_not:
        return found
    lacking = [Call(B, "is_null", (each,)) for each in tied.outer if _may_lack(each)]
    found = Call(B, "not", (found,))
    return Call(B, "or", (*lacking, found)) if lacking else found


def asked_at_once(query: Query, catalog: Catalog) -> Query:
    """The same where all rows are in one place, for conditions that no index answers: SQLite would
    read the whole other table for each row."""
    around = {each.rel: each for each in walk(query) if isinstance(each, Scan)}

    def condition(part: Expr) -> Expr:
        if isinstance(part, Call) and part.name in ("and", "or"):
            return replace(part, args=tuple(map(condition, part.args)))
        asked = part.args[0] if isinstance(part, Call) and part.name == "not" else part
        if not isinstance(asked, SubQuery) or asked.kind != "exists":
            return part
        tied = _split(asked.query, {col.rel for col in outer_columns(asked.query)})
        if tied is None or _is_found(tied, catalog, around):
            return part
        return _membership(part) or part

    def change(each: Any) -> Any | None:
        if not isinstance(each, Select) or each.where is None:
            return None
        where = condition(each.where)
        if where == each.where:
            return None
        return asked_at_once(replace(each, where=where), catalog)

    return cast("Query", rewrite(query, change))


def _is_found(tied: Tied, catalog: Catalog, around: dict[int, Scan]) -> bool:
    """Whether an index leads to the rows that belong to one row. The primary key begins with the
    bucket, which is known where both are distributed by what ties them."""
    pairs = zip(tied.keys, tied.outer, strict=True)
    columns = [(a, b) for a, b in pairs if isinstance(a, Col) and isinstance(b, Col)]
    for scan in (each for each in walk(tied.query.source) if isinstance(each, Scan)):
        table, ties = scan.table, {a.name: b for a, b in columns if a.rel == scan.rel}
        firsts = {name for each in catalog.indexes.get(table.id, ()) for name in each.columns[:1]}
        if table.sharding is None:
            firsts.update(table.primary_key[:1])
        if firsts & ties.keys():
            return True
        placed = [ties.get(name) for name in table.sharding.columns] if table.sharding else []
        if placed and placed == _key_of(placed[0], around):
            return True
    return False


def _key_of(col: Col | None, around: dict[int, Scan]) -> list[Col | None]:
    """The columns by which the table of this one is distributed."""
    scan = None if col is None else around.get(col.rel)
    if scan is None or scan.table.sharding is None:
        return []
    columns = {each.name: (at, each) for at, each in enumerate(scan.table.columns)}
    found = [columns[name] for name in scan.table.sharding.columns]
    return [Col(each.type, scan.rel, at, each.name, nullable=each.nullable) for at, each in found]


def _may_lack(expr: Expr) -> bool:
    return not isinstance(expr, Col) or expr.nullable


def _gives_some(query: Select) -> bool:
    limit = query.limit
    return limit is None or (isinstance(limit, Const) and bool(limit.value))


def _is_grouped(query: Select) -> bool:
    exprs = [item.expr for item in query.items]
    return query.group is not None or query.having is not None or any(map(has_aggregate, exprs))


# --- values ---------------------------------------------------------------------------------------


def _tied(part: SubQuery, inside: set[int]) -> Tied | None:
    """A sub-query with one row for each outer one: aggregates of rows that are tied to it."""
    tied = _split(part.query, inside)
    if tied is None:
        return None
    query = tied.query
    is_one = not query.group and query.having is None and has_aggregate(query.items[0].expr)
    is_safe = is_one and _gives_some(query) and all(map(_is_safe, walk((query.items, tied.keys))))
    return tied if is_safe and len(query.items) == 1 else None


def _is_safe(node: Any) -> bool:
    """Whether it fails for no value: it is made of groups that no outer row asks for, too."""
    if not isinstance(node, Call):
        return not isinstance(node, (Window, SubQuery))
    if node.name.endswith("_div"):
        return isinstance(node.args[1], Const) and bool(node.args[1].value)
    return bool(_SAFE.fullmatch(node.name))


def _grouped(tied: Tied, rel: int) -> tuple[Derived, Col, list[Expr]]:
    """The sub-query for all outer rows at once, its value, and what ties a row to it."""
    exprs = (*tied.keys, tied.query.items[0].expr)
    items = tuple(Item("", each) for each in exprs)
    query = replace(tied.query, items=items, group=tied.keys, order=(), limit=None, distinct=False)
    columns = [
        Col(each.type and plain(each.type), rel, at, "", scale=known_of(each), is_key=is_key(each))
        for at, each in enumerate(exprs)
    ]
    names = tuple(f"k{at}" for at in range(len(exprs)))
    ties: list[Expr] = [
        Call(B, "=", (mine, other)) for mine, other in zip(columns, tied.outer, strict=False)
    ]
    return Derived(rel, query, "", names), columns[-1], ties


def _rejects(part: Expr, value: SubQuery) -> bool:
    """Whether the condition does not hold where the value is NULL."""
    if not isinstance(part, Call) or part.name not in _COMPARED:
        return False
    return any(side == value or _is_null(side, SubQuery) for side in part.args)


def _is_null(expr: Expr, of: type[Expr]) -> bool:
    """Whether it is NULL when values of this kind in it are; a count is never."""
    if isinstance(expr, Call):
        return bool(_OF_NULL_IS_NULL.fullmatch(expr.name)) and any(
            _is_null(each, of) for each in expr.args
        )
    return isinstance(expr, of) and not (isinstance(expr, Agg) and expr.name == "count")


def _or_nothing(item: Expr, ties: list[Expr], value: Col) -> Expr:
    """The value, or what it is of no rows."""

    def of_nothing(node: Any) -> Any:
        if not isinstance(node, Agg):
            return None
        return Const(node.type, 0 if node.name == "count" else None)

    if _is_null(item, Agg):
        return value
    first = ties[0]
    assert isinstance(first, Call)
    is_missing = Call(B, "is_null", (first.args[0],))
    return Case(item.type, ((is_missing, rewrite(item, of_nothing)),), value)
