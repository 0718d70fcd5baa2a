"""FROM in the order of where rows are: tables that lie together are joined first, by their owners,
with the global tables whose rows they name.

`customer, orders, lineitem, nation` is read from left to right: customers and orders do not lie
together, so all three would be gathered apart, though orders and their lines do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cairn.sql.ir import (
    Call,
    Expr,
    Join,
    Rel,
    Scan,
    Select,
    columns_in,
    conjunction,
    conjuncts,
    is_tied,
    rels_of,
)
from cairn.sql.plan.locality import bare, bare_classes, source_locality
from cairn.sql.typing_rules import B


def in_places(query: Select) -> Select:
    """The same block; one that is done in one place as it is stays so."""
    holds = conjuncts(query.where)
    if not isinstance(query.source, Join) or source_locality(query.source, holds) is not None:
        return query
    leaves, on = _leaves(query.source)
    if len(leaves) < 3 or any(map(is_tied, leaves)):
        return query
    clusters = _clusters(leaves, [*holds, *on])
    told = [*on, *holds]
    for each in clusters:
        told += _implied(each, told)
    return replace(query, source=_joined(clusters), where=conjunction(told))


def _leaves(source: Rel) -> tuple[list[Rel], list[Expr]]:
    """What is joined by inner joins alone, and their conditions."""
    if isinstance(source, Join) and source.kind == "inner":
        (left, one), (right, other) = _leaves(source.left), _leaves(source.right)
        return [*left, *right], [*one, *other, *conjuncts(source.on)]
    return [source], []


def _joined(parts: Iterable[Rel]) -> Rel:
    first, *others = parts
    for each in others:
        first = Join("inner", first, each, None)
    return first


def _clusters(leaves: list[Rel], holds: list[Expr]) -> list[Rel]:
    """Each of them can be done in one place; the rest stands as it stood."""
    found: list[Rel] = []
    named: list[Rel] = []  # the same everywhere: they go to who names them
    for leaf in leaves:
        local = source_locality(leaf, holds)
        if local is not None and local.is_replicated:
            named.append(leaf)
            continue
        for at, cluster in enumerate(found):
            both = Join("inner", cluster, leaf, None)
            if local is not None and source_locality(both, holds) is not None:
                found[at] = both
                break
        else:
            found.append(leaf)
    is_new = True
    while is_new:
        is_new = False
        # The one with most tables: what it gives is joined with least of the others.
        order = sorted(range(len(found)), key=lambda at: -len(rels_of(found[at])))
        for leaf in list(named):
            for at in order:
                local = source_locality(found[at], holds)
                if local is not None and _names_key(found[at], leaf, holds):
                    found[at] = Join("inner", found[at], leaf, None)
                    named.remove(leaf)
                    is_new = True
                    break
    return [*found, *named]


def _names_key(cluster: Rel, leaf: Rel, holds: list[Expr]) -> bool:
    """Whether each row of the cluster meets one row of the leaf at most."""
    if not isinstance(leaf, Scan):
        return False
    inside = rels_of(cluster)
    equal: set[int] = set()
    for part in holds:
        if not isinstance(part, Call) or part.name != "=":
            continue
        for mine, other in (part.args, part.args[::-1]):
            own = columns_in(mine)
            is_here = own and {col.rel for col in own} <= inside
            theirs = columns_in(other)
            if is_here and len(theirs) == 1 and (col := theirs.pop()) == other:
                equal |= {col.at} if col.rel == leaf.rel else set()
    return set(leaf.table.key_positions) <= equal


def _implied(cluster: Rel, holds: list[Expr]) -> list[Expr]:
    """Equalities inside of a cluster that only follow from columns outside of it."""
    inside = rels_of(cluster)
    shown = {bare(col): col for part in holds for col in columns_in(part) if col.rel in inside}
    linked = bare_classes([part for part in holds if {c.rel for c in columns_in(part)} <= inside])
    found: list[Expr] = []
    seen: set[int] = set()
    for equal in bare_classes(holds).values():
        mine = sorted((col for col in equal if col in shown), key=repr)
        if id(equal) in seen or not mine:
            continue
        seen.add(id(equal))
        first = shown[mine[0]]
        known = {mine[0], *linked.get(mine[0], ())}
        for other in mine[1:]:
            if other not in known and other.type is first.type:
                found.append(Call(B, "=", (first, shown[other])))
                known |= {other, *linked.get(other, ())}
    return found
