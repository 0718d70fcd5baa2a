"""Which buckets a statement can touch, from equalities on distribution keys and on bucket_id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from cairn.model.errors import InvalidParameter
from cairn.model.sharding.buckets import bucket_function
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, TEMP_TIER, Table, physical_column
from cairn.model.types.values import LISTS, ColumnType, Physical, to_physical
from cairn.sql.ir import (
    BUCKET_AT,
    Call,
    Col,
    Derived,
    Expr,
    Join,
    Param,
    Query,
    Rel,
    Scan,
    Select,
    SetOp,
    SubQuery,
    Values,
    children,
    columns_in,
    conjuncts,
    has_window,
    substitute,
)
from cairn.sql.plan.closed import evaluator, value_of
from cairn.sql.render.slots import Keys

Params = Sequence[Any]
Choice = Callable[[Params], Sequence[Any]]
BucketSet = Callable[[Params], frozenset[int] | None]  # None: every bucket
#: Keys that a statement lists, with their buckets; None: too many.
Listed = Callable[[Params], list[tuple[int, tuple[Any, ...]]] | None]
#: Types whose equal values are the same in the file.
_PLAIN = frozenset({ColumnType.INTEGER, ColumnType.UNSIGNED, ColumnType.STRING, ColumnType.UUID})
MAX_COMBINATIONS = 512  # past it the whole storage is asked, as in the reference
MAX_RANGE = 256  # whole numbers of a range that are looked for one by one
_TOO_MANY = range(MAX_COMBINATIONS + 1)


@dataclass(frozen=True)
class Key:
    """The distribution key of one scan with a closed expression for each part."""

    table: Table
    parts: tuple[Expr, ...]


def hasher(catalog: Catalog, table: Table) -> Callable[[Sequence[Any]], int]:
    """Key values to bucket for a sharded table."""
    sharding = table.sharding
    assert sharding is not None
    types = [table.columns[table.position(name)].type for name in sharding.columns]
    tier = catalog.tiers.get(sharding.tier)
    if tier is None:
        return bucket_function(types)
    return bucket_function(types, tier.bucket_count, tier.hash_version)


def bucket_count(catalog: Catalog, tier: str) -> int:
    found = catalog.tiers.get(tier)
    return found.bucket_count if found is not None else 3000


def key_positions(table: Table) -> list[int]:
    assert table.sharding is not None
    return [table.position(name) for name in table.sharding.columns]


# --- conditions that hold for every row read from a relation --------------------------------------


@dataclass
class BucketReads:
    """Every scan of a query with the conjuncts its rows must meet to matter to the result."""

    held: dict[int, list[Expr]] = field(default_factory=dict)
    scans: list[Scan] = field(default_factory=list)
    driving: set[int] = field(default_factory=set)  # without a row of these there is no result


def reads(query: Query) -> BucketReads:
    found = BucketReads()
    _read_query(query, [], found, driving=True)
    return found


def _read_query(query: Any, inherited: list[Expr], found: BucketReads, *, driving: bool) -> None:
    if isinstance(query, Select):
        read_source(query.source, conjuncts(query.where), inherited, found, driving=driving)
        # Rows that WHERE throws away do not matter, so sub-queries may rely on it too.
        around = inherited + conjuncts(query.where)
        for part in (query.items, query.where, query.group, query.having, query.order):
            _read_subqueries(part, around, found)
        return
    for child in children(query):
        if isinstance(child, (Select, SetOp, Values)):
            _read_query(child, inherited, found, driving=False)
        else:
            _read_subqueries(child, inherited, found)


def _read_subqueries(node: Any, around: list[Expr], found: BucketReads) -> None:
    if isinstance(node, SubQuery):
        _read_query(node.query, around, found, driving=False)
        _read_subqueries(node.operands, around, found)
    elif node is not None:
        for child in children(node):
            _read_subqueries(child, around, found)


def read_source(
    source: Rel | None,
    holds: list[Expr],
    inherited: list[Expr],
    found: BucketReads,
    *,
    driving: bool,
) -> None:
    if isinstance(source, Join):
        on = conjuncts(source.on)
        _read_subqueries(source.on, inherited, found)
        left, right = holds, holds + on
        if source.kind == "inner":
            left = right
        elif source.kind == "full":
            left = right = []
        full, inner = source.kind == "full", source.kind == "inner"
        read_source(source.left, left, inherited, found, driving=driving and not full)
        read_source(source.right, right, inherited, found, driving=driving and inner)
    elif isinstance(source, Scan):
        found.scans.append(source)
        found.held[source.rel] = holds + inherited
        if driving:
            found.driving.add(source.rel)
    elif isinstance(source, Derived):
        inner_holds = inherited + through_derived(source, holds)
        _read_query(source.query, inner_holds, found, driving=driving)


def through_derived(source: Derived, holds: list[Expr]) -> list[Expr]:
    """Conditions on a derived table as conditions on what it is made of, where that is the same."""
    query = source.query
    if not isinstance(query, Select) or query.limit is not None or query.offset is not None:
        return []
    if any(has_window(item.expr) for item in query.items):
        return []
    grouped = query.group is not None
    found = []
    for part in holds:
        columns = {col for col in columns_in(part) if col.rel == source.rel}
        inside: dict[Expr, Expr] = {col: query.items[col.at].expr for col in columns}
        usable = not grouped or all(expr in (query.group or ()) for expr in inside.values())
        if columns and usable:
            found.append(substitute(part, inside))
    return found


def equal_classes(parts: Iterable[Expr]) -> dict[Expr, set[Expr]]:
    """Expressions that are equal in every row that counts, by the equalities in `parts`."""
    classes: dict[Expr, set[Expr]] = {}
    for part in parts:
        if isinstance(part, Call) and part.name == "=" and part.args[0].type is part.args[1].type:
            left, right = part.args
            more, less = classes.setdefault(left, {left}), classes.setdefault(right, {right})
            if more is less:
                continue
            if len(more) < len(less):  # a chain of many equalities is told piece by piece
                more, less = less, more
            more |= less
            for each in less:
                classes[each] = more
    return classes


def bound_key(scan: Scan, holds: list[Expr]) -> Key | None:
    """The scan's key when each part equals one closed expression."""
    if scan.table.sharding is None:
        return None
    classes = equal_classes(holds)
    parts = []
    for at in key_positions(scan.table):
        value = _closed_equal(scan.rel, at, classes)
        if value is None:
            return None
        parts.append(value)
    return Key(scan.table, tuple(parts))


def _closed_equal(rel: int, at: int, classes: dict[Expr, set[Expr]]) -> Expr | None:
    for expr, equals in classes.items():
        if isinstance(expr, Col) and expr.rel == rel and expr.at == at:
            closed = [each for each in equals if evaluator(each) is not None]
            if closed:
                # The same choice every time; a parameter where there is one: clients route by it.
                return min(closed, key=lambda each: (not isinstance(each, Param), repr(each)))
    return None


# --- sets -----------------------------------------------------------------------------------------


def bucket_set(catalog: Catalog, found: BucketReads) -> BucketSet | None:
    """Buckets that can add to the result; None when nothing narrows them."""
    sets = []
    for scan in found.scans:
        if scan.rel in found.driving and not scan.table.is_global:
            holds = found.held[scan.rel]
            narrowed = _and(catalog, scan, holds, equal_classes(holds))
            if narrowed is not None:
                sets.append(narrowed)
    if not sets:
        return None
    return sets[0] if len(sets) == 1 else _intersection(sets)


def all_needed(catalog: Catalog, found: BucketReads) -> BucketSet | None:
    """Buckets of all rows that any scan can need; None when one of them may need every bucket."""
    sets = []
    for scan in found.scans:
        if not scan.table.is_global:
            holds = found.held[scan.rel]
            narrowed = _and(catalog, scan, holds, equal_classes(holds))
            if narrowed is None:
                return None
            sets.append(narrowed)
    return _union(sets)


def _and(
    catalog: Catalog, scan: Scan, parts: list[Expr], classes: dict[Expr, set[Expr]]
) -> BucketSet | None:
    sets: list[BucketSet] = []
    listed = _listed_keys(catalog, scan, parts, classes)
    if listed is not None:
        sets.append(_buckets_of(listed))
    for part in parts:
        found = _by_bucket_id(catalog, scan, part)
        if found is None and isinstance(part, Call) and part.name == "or":
            found = _or(catalog, scan, part, classes)
        if found is not None:
            sets.append(found)
    if not sets:
        return None
    return sets[0] if len(sets) == 1 else _intersection(sets)


def _intersection(sets: list[BucketSet]) -> BucketSet:
    def both(params: Params) -> frozenset[int] | None:
        result: frozenset[int] | None = None
        for each in sets:
            found = each(params)
            if found is not None:
                result = found if result is None else result & found
        return result

    return both


def _or(
    catalog: Catalog, scan: Scan, node: Call, classes: dict[Expr, set[Expr]]
) -> BucketSet | None:
    branches = []
    for arg in node.args:
        inner = conjuncts(arg)
        found = _and(catalog, scan, inner, equal_classes(inner))
        if found is None:
            return None
        branches.append(found)
    return _union(branches)


def _union(sets: list[BucketSet]) -> BucketSet:
    def union(params: Params) -> frozenset[int] | None:
        result: frozenset[int] = frozenset()
        for each in sets:
            found = each(params)
            if found is None:
                return None
            result |= found
        return result

    return union


def keys_of(catalog: Catalog, found: BucketReads) -> Keys | None:
    """Of the only scan, if its rows are those of keys that are listed."""
    scans = [scan for scan in found.scans if not scan.table.is_global]
    if len(scans) != 1:
        return None
    [scan] = scans
    holds, positions = found.held[scan.rel], key_positions(scan.table)
    types = [scan.table.columns[at].type for at in positions]
    listed = _listed_keys(catalog, scan, holds, equal_classes(holds))
    if listed is None or not _PLAIN.issuperset(types):
        return None

    def rows(params: Params) -> list[tuple[Physical, ...]] | None:
        keys = listed(params)
        if keys is None:
            return None
        return [(bucket, *map(to_physical, types, key)) for bucket, key in keys]

    columns = (BUCKET_COLUMN, *map(physical_column, positions))
    return Keys(tuple(f"r{scan.rel}.{column}" for column in columns), rows)


def _buckets_of(listed: Listed) -> BucketSet:
    def buckets(params: Params) -> frozenset[int] | None:
        keys = listed(params)
        return None if keys is None else frozenset(bucket for bucket, _ in keys)

    return buckets


def _listed_keys(
    catalog: Catalog, scan: Scan, parts: list[Expr], classes: dict[Expr, set[Expr]]
) -> Listed | None:
    table = scan.table
    choices: list[Choice] = []
    for at in key_positions(table):
        found = _values_of(scan.rel, at, table.columns[at].type, parts, classes)
        if found is None:
            return None
        choices.append(found)
    hash_key = hasher(catalog, table)

    def keys(params: Params) -> list[tuple[int, tuple[Any, ...]]] | None:
        values = [choice(params) for choice in choices]
        if prod(map(len, values)) > MAX_COMBINATIONS:
            return None
        return [(hash_key(key), key) for key in product(*values) if None not in key]

    return keys


def _values_of(
    rel: int, at: int, type_: ColumnType, parts: list[Expr], classes: dict[Expr, set[Expr]]
) -> Choice | None:
    """What a part of the key may be, from `=`, `IN (…)` and `= ANY(array)`."""
    plain = ColumnType.INTEGER if type_ is ColumnType.UNSIGNED else type_
    one = _closed_equal(rel, at, classes)
    if one is not None:
        value = value_of(one, plain)
        return None if value is None else lambda params: [value(params)]
    for part in parts:
        if not isinstance(part, Call) or part.name not in ("in", "any_of"):
            continue
        column, *items = part.args
        if not (isinstance(column, Col) and column.rel == rel and column.at == at):
            continue
        if part.name == "any_of":
            return _listed(value_of(items[0], LISTS[plain]))
        values = [value_of(item, plain) for item in items]
        known = [value for value in values if value is not None]
        if len(known) == len(values) <= MAX_COMBINATIONS:
            return lambda params: [value(params) for value in known]
    return _between(rel, at, parts) if plain is ColumnType.INTEGER else None


def _between(rel: int, at: int, parts: list[Expr]) -> Choice | None:
    """The whole numbers of a short range: each is looked for, and no bucket is searched."""
    edges: dict[str, Callable[[Params], Any]] = {}
    for part in parts:
        if isinstance(part, Call) and part.name in (">", ">=", "<", "<="):
            column, value = part.args
            if isinstance(column, Col) and column.rel == rel and column.at == at:
                found = value_of(value, ColumnType.INTEGER)
                if found is not None and value.type is ColumnType.INTEGER:
                    edges[part.name] = found
    low, high = edges.get(">=") or edges.get(">"), edges.get("<=") or edges.get("<")
    if low is None or high is None:
        return None
    first, past = low, high
    more, less = int(">=" not in edges), int("<=" not in edges)

    def numbers(params: Params) -> Sequence[Any]:
        start, end = first(params), past(params)
        if start is None or end is None:
            return ()
        found = end - less - start - more + 1
        return range(start + more, start + more + found) if found <= MAX_RANGE else _TOO_MANY

    return numbers


def _listed(values: Callable[[Params], Any] | None) -> Choice | None:
    return None if values is None else lambda params: values(params) or ()


def _by_bucket_id(catalog: Catalog, scan: Scan, part: Expr) -> BucketSet | None:
    """`bucket_id = …`, `IN (…)` and comparisons, which bulk readers use."""
    if not isinstance(part, Call) or not part.args:
        return None
    column = part.args[0]
    if not (isinstance(column, Col) and column.rel == scan.rel and column.at == BUCKET_AT):
        return None
    values = [evaluator(arg) for arg in part.args[1:]]
    known = [value for value in values if value is not None]
    assert scan.table.sharding is not None
    top = bucket_count(catalog, scan.table.sharding.tier)
    if len(known) != len(values) or part.name not in ("=", "in", "<", "<=", ">", ">="):
        return None
    name = part.name

    def chosen(params: Params) -> frozenset[int]:
        found = [value(params) for value in known]
        if name in ("=", "in"):
            return frozenset(each for each in found if isinstance(each, int) and 0 < each <= top)
        edge = found[0]
        if not isinstance(edge, int):
            return frozenset()
        low = {">": edge + 1, ">=": edge}.get(name, 1)
        high = {"<": edge - 1, "<=": edge}.get(name, top)
        return frozenset(range(max(low, 1), min(high, top) + 1))

    return chosen


# --- a whole statement bound to one bucket --------------------------------------------------------


def single_key(query: Query) -> Key | None:
    """The key that every sharded scan of the query is bound to, if it is one and the same."""
    return common_key(reads(query))


def common_key(found: BucketReads) -> Key | None:
    first: Key | None = None
    for scan in found.scans:
        if scan.table.is_global:
            continue
        key = bound_key(scan, found.held[scan.rel])
        if key is None or (first is not None and not _same_key(first, key)):
            return None
        first = first or key
    if first is not None and first.table.is_temp:
        # The session does not have global tables beside its own: they are put together elsewhere.
        return None if any(scan.table.is_global for scan in found.scans) else first
    return first


def _same_key(left: Key, right: Key) -> bool:
    a, b = left.table.sharding, right.table.sharding
    assert a is not None and b is not None
    types = [left.table.columns[at].type for at in key_positions(left.table)]
    others = [right.table.columns[at].type for at in key_positions(right.table)]
    return a.tier == b.tier and left.parts == right.parts and types == others


def key_bucket(catalog: Catalog, key: Key) -> Callable[[Params], int]:
    """Parameters to the bucket of a bound key."""
    table = key.table
    hash_key = hasher(catalog, table)
    types = [table.columns[at].type for at in key_positions(table)]
    getters = []
    for part, type_ in zip(key.parts, types, strict=True):
        plain = ColumnType.INTEGER if type_ is ColumnType.UNSIGNED else type_
        getter = value_of(part, plain)
        assert getter is not None
        getters.append(getter)
    if len(getters) == 1:
        only = getters[0]
        return lambda params: hash_key((only(params),))
    return lambda params: hash_key([getter(params) for getter in getters])


def check_one_tier(scans: Iterable[Scan]) -> str | None:
    """The tier of all sharded tables, or an error when they are of several. Temporary tables meet
    those of any."""
    tiers = {scan.table.sharding.tier for scan in scans if scan.table.sharding is not None}
    if len(tiers) > 1:
        tiers.discard(TEMP_TIER)
    if len(tiers) > 1:
        raise InvalidParameter(
            "Query cannot use tables from different tiers",
            detail=", ".join(sorted(tiers)),
            sqlstate="0A000",
        )
    return tiers.pop() if tiers else None
