"""How an aggregate of the whole is made from aggregates of the parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cairn.sql.ir import (
    Agg,
    Call,
    Col,
    Const,
    Expr,
    Param,
    SubQuery,
    Window,
    children,
    columns_in,
    rewrite,
    substitute,
)
from cairn.sql.plan.locality import Local, covers
from cairn.sql.typing_rules import I

_MERGE = {
    "count": "sum",
    "sum": "sum",
    "n_sum": "n_sum",
    "z_sum": "z_sum",
    "min": "min",
    "max": "max",
    **{name: name for name in ("i_bit_and", "i_bit_or", "i_bit_xor")},
}


def substitute_block(node: Any, mapping: dict[Expr, Expr]) -> Any:
    """`substitute` for one block: the `count(*)` of a sub-query is not this block's."""
    inside = {
        old: new for old, new in mapping.items() if not isinstance(old, Agg) and columns_in(old)
    }

    def change(each: Any) -> Any:
        if isinstance(each, SubQuery):
            operands = substitute_block(each.operands, mapping)
            return replace(each, query=substitute(each.query, inside), operands=operands)
        if isinstance(each, Window):  # its own function is no aggregate of the block
            args, order = substitute_block((each.func.args, each.func.order), mapping)
            filter_, partition, by = substitute_block(
                (each.func.filter, each.partition, each.order), mapping
            )
            func = replace(each.func, args=args, filter=filter_, order=order)
            return replace(each, func=func, partition=partition, order=by)
        return mapping.get(each) if isinstance(each, Expr) else None

    return rewrite(node, change)


def aggregates_in(expr: Any) -> list[Agg]:
    """Aggregates of this block; those inside sub-queries belong to them."""
    if isinstance(expr, Agg):
        return [expr]
    if isinstance(expr, SubQuery):
        return [agg for each in expr.operands for agg in aggregates_in(each)]
    if isinstance(expr, Window):  # looks at groups: only what it is given may be an aggregate
        looked_at = (*children(expr.func), *expr.partition, *expr.order)
        return [agg for each in looked_at for agg in aggregates_in(each)]
    return [agg for child in children(expr) for agg in aggregates_in(child)]


def can_merge(agg: Agg, local: Local) -> bool:
    """Whether the whole can be made from what each owner makes of its own rows."""
    if agg.name in ("min", "max"):
        return True
    if agg.name == "concat":
        return not agg.distinct and not agg.order and isinstance(agg.args[1], (Const, Param))
    # Equal distribution keys are at one owner: what each counts once is counted once.
    return agg.name in _MERGE and (not agg.distinct or covers(agg.args, local))


def merged_aggregate(agg: Agg, column: Col) -> Expr:
    """What gives the whole from the parts."""
    if agg.name == "concat":
        return Agg(agg.type, "concat", (column, agg.args[1]))
    merged = Agg(agg.type, _MERGE[agg.name], (column,))
    if agg.name == "count":
        return Call(I, "coalesce", (merged, Const(I, 0)))
    return merged
