"""WHERE with OR: what all of its branches ask is asked once, and what they ask of one table is
asked of that table.

`(a = b AND c) OR (a = b AND d)` is `a = b AND (c OR d)`, a join by columns. And where each branch
has a condition on one table, the table's rows meet one of these, before any join.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cairn.sql.ir import (
    Call,
    Col,
    Const,
    Expr,
    Param,
    Select,
    columns_in,
    conjunction,
    conjuncts,
    walk,
)
from cairn.sql.typing_rules import B

#: They fail for no value, so they may be asked of rows that no join would have left.
_SAFE = frozenset(("=", "<>", "<", "<=", ">", ">=", "in", "and", "or", "not", "is_null"))


def factored(query: Select) -> Select:
    parts: list[Expr] = []
    for part in conjuncts(query.where):
        for each in _without_common(part):
            parts += [each, *(more for more in _of_one_table(each) if more not in parts)]
    where = conjunction(parts)
    return query if where == query.where else replace(query, where=where)


def _branches(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.name == "or":
        return [each for arg in expr.args for each in _branches(arg)]
    return [expr]


def _without_common(part: Expr) -> list[Expr]:
    branches = [conjuncts(each) for each in _branches(part)]
    common = [each for each in branches[0] if all(each in other for other in branches[1:])]
    if len(branches) == 1 or not common:
        return [part]
    rest = [conjunction([each for each in branch if each not in common]) for branch in branches]
    # A branch of which nothing is left is true with what is common.
    either = [each for each in rest if each is not None]
    return [*common, Call(B, "or", tuple(either))] if len(either) == len(rest) else common


def _of_one_table(part: Expr) -> list[Expr]:
    """What follows for each single relation that an OR over several of them names everywhere."""
    branches = [conjuncts(each) for each in _branches(part)]
    rels = {col.rel for col in columns_in(part)}
    if len(branches) == 1 or len(rels) == 1:
        return []
    found = []
    for rel in sorted(rels):
        of_rel = [[each for each in branch if _is_of(each, rel)] for branch in branches]
        if all(of_rel):
            either = dict.fromkeys(whole for each in of_rel if (whole := conjunction(each)))
            found.append(next(iter(either)) if len(either) == 1 else _or(tuple(either)))
    return found


def _or(branches: tuple[Expr, ...]) -> Expr:
    return Call(B, "or", branches)


def _is_of(expr: Expr, rel: int) -> bool:
    return {col.rel for col in columns_in(expr)} == {rel} and all(map(_is_safe, walk(expr)))


def _is_safe(node: Any) -> bool:
    if isinstance(node, Call):
        return node.name in _SAFE
    return isinstance(node, (Col, Const, Param))
