"""The declared order of enums, in a statement that is bound.

Labels are stored as texts, which SQLite sorts by their bytes. So wherever order counts, the place
of the label among the labels stands for it: ORDER BY, windows, min and max, `<` and its like. It is
part of the statement that goes to the owners: they sort and compare as the asker does, and what
was planned before ALTER TYPE is planned anew (the type's version is among those of the plan).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cairn.model.types.enums import EnumType
from cairn.sql.ir import (
    Agg,
    Call,
    Case,
    Col,
    Const,
    Derived,
    Expr,
    Item,
    Order,
    Query,
    Select,
    SetOp,
    Values,
    Window,
    rewrite,
    walk,
)
from cairn.sql.scales import enum_of, known
from cairn.sql.typing_rules import B, I, S, plain

_WHENS_MOST = 40  # labels of a CASE that SQLite goes through by itself
_ORDERING: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_ROWS = tuple(f"row{sign}" for sign in _ORDERING)
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def in_declared_order(node: Any, next_rel: Callable[[], int]) -> Any:
    """The node of a bound statement, with places where order counts."""
    leaves = (each for each in walk(node) if isinstance(each, (Col, Const)))
    if not any(isinstance(each.scale, EnumType) for each in leaves):
        return node
    return _Ordering(next_rel).change(node)


def is_ordering(node: Any) -> bool:
    """Whether it compares labels by their order."""
    is_comparison = isinstance(node, Call) and node.name in (*_ORDERING, *_ROWS)
    return is_comparison and any(enum_of(each) is not None for each in node.args)


def place_of(expr: Expr, enum: EnumType) -> Expr:
    """Where the label stands among the labels, counted from 1."""
    if isinstance(expr, Const):
        found = None if expr.value is None else enum.labels.index(str(expr.value)) + 1
        return Const(I, found)
    if isinstance(expr, Col) and 0 < len(enum.labels) <= _WHENS_MOST:
        whens = (
            (Call(B, "=", (expr, Const(S, label))), Const(I, at))
            for at, label in enumerate(enum.labels, 1)
        )
        return Case(I, tuple(whens), None)
    return Call(I, "s_rank", (expr, Const(S, enum.text)))


class _Ordering:
    def __init__(self, next_rel: Callable[[], int]) -> None:
        self._next_rel = next_rel

    def change(self, node: Any) -> Any:
        return rewrite(node, self._changed)

    def _below(self, node: Any) -> Any:
        return rewrite(node, lambda each: None if each is node else self._changed(each))

    def _changed(self, node: Any) -> Any:
        match node:
            case Order(expr=expr):
                inner = self._below(node)
                return replace(inner, expr=_placed(expr, inner.expr))
            case Call(name=name, args=(left, right)) if name in _ORDERING:
                return self._compared(node, name, left, right)
            case Call(name=name, args=args) if name in _ROWS:
                call = self._below(node)
                both = zip(args, call.args, strict=True)
                return replace(call, args=tuple(_placed(old, new) for old, new in both))
            case (
                Window(func=Agg(name="min" | "max", args=(arg,)))
                | Agg(name="min" | "max", args=(arg,))
            ) if (enum := enum_of(arg)) is not None:
                return self._extreme(node, arg, enum)
            case SetOp(order=order) | Values(order=order) if order:
                return self._sorted(node)
        return None

    def _compared(self, node: Call, name: str, left: Expr, right: Expr) -> Expr:
        enum = enum_of(left) or enum_of(right)
        call: Call = self._below(node)
        if enum is None:
            return call
        first, second = call.args
        if isinstance(first, Const):
            first, second, name = second, first, _TURNED[name]
        if isinstance(second, Const) and second.value in enum.labels:
            # As a list of labels an index can be used for it.
            limit = enum.labels.index(str(second.value))
            holds = _ORDERING[name]
            found = [Const(S, each) for at, each in enumerate(enum.labels) if holds(at, limit)]
            if found:
                return Call(B, "in", (first, *found))
        return Call(B, name, (place_of(first, enum), place_of(second, enum)))

    def _extreme(self, node: Agg | Window, arg: Expr, enum: EnumType) -> Expr:
        """min and max compare places; the label is found again from the place."""
        func = node.func if isinstance(node, Window) else node
        args = (place_of(self.change(arg), enum),)
        func = replace(func, type=I, args=args, filter=self.change(func.filter))
        found: Expr = func
        if isinstance(node, Window):
            partition, order = self.change(node.partition), self.change(node.order)
            found = replace(node, type=I, func=func, partition=partition, order=order)
        return Call(S, "s_nth", (found, Const(S, enum.text, scale=enum)))

    def _sorted(self, node: SetOp | Values) -> Query | None:
        """ORDER BY of a set operation names columns: their places need a SELECT around it."""
        enums = known(node)
        if not any(isinstance(enums[at], EnumType) for at, _, _ in node.order):
            return None
        inner = self._below(replace(node, order=(), limit=None, offset=None))
        rel = self._next_rel()
        items = tuple(
            Item(name, Col(plain(type_), rel, at, name, scale=enums[at]))
            for at, (name, type_) in enumerate(zip(node.names, node.types, strict=True))
        )
        order = tuple(
            Order(_placed(items[at].expr, items[at].expr), desc, nulls)
            for at, desc, nulls in node.order
        )
        source = Derived(rel, inner, "", node.names)
        return Select(items, source, order=order, limit=node.limit, offset=node.offset)


def _placed(old: Expr, new: Expr) -> Expr:
    enum = enum_of(old)
    return new if enum is None else place_of(new, enum)
