"""Expressions of a plan in words, with their types."""

from __future__ import annotations

from typing import Any

from cairn.model.types.decimals import decode_decimal
from cairn.model.types.values import ColumnType
from cairn.sql.functions.function_list import EACH_TIME
from cairn.sql.ir import (
    BUCKET_AT,
    Again,
    Agg,
    Call,
    Case,
    Col,
    Const,
    Derived,
    Expr,
    Gathered,
    Order,
    Param,
    Query,
    Scan,
    Select,
    SubQuery,
    Window,
    output,
    walk,
)
from cairn.sql.typing_rules import NAMES

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}


class Words:
    """Knows the names of relations and columns, and collects the sub-queries it meets."""

    def __init__(self) -> None:
        self._aliases: dict[int, str] = {}
        self._columns: dict[int, list[str]] = {}  # of gathered rows
        self._subqueries: list[Query] = []

    def learn(self, node: Any, blocks: list[Any] | None = None) -> None:
        """The relations in it; `blocks` are what its gathered rows are made of."""
        for each in walk(node):
            if isinstance(each, Scan):
                self._aliases[each.rel] = each.alias
            elif isinstance(each, (Derived, Again)):
                self._aliases[each.rel] = each.alias or "unnamed_subquery"
            elif isinstance(each, Gathered) and blocks is not None:
                self._columns[each.rel] = self.names_of(blocks[each.index])

    def names_of(self, block: Any) -> list[str]:
        """What the columns of a fragment are called above it."""
        if not isinstance(block, Select):
            return [name or f"col_{at}" for at, (name, _) in enumerate(output(block), 1)]
        found: list[str] = []
        for number, item in enumerate(block.items, 1):
            expr = item.expr
            name = expr.name if isinstance(expr, (Col, Agg)) else "col"
            if isinstance(expr, Col) and expr.rel in self._columns:
                name = self._columns[expr.rel][expr.at]
            plain = isinstance(expr, Col) and name not in found
            found.append(name if plain else f"{name}_{number}")
        return found

    def take_subqueries(self) -> list[Query]:
        found, self._subqueries = self._subqueries, []
        return found

    def expr(self, node: Expr) -> str:
        match node:
            case Const(type=type_, value=value):
                return f"{_literal(type_, value)}::{NAMES[type_]}"
            case Param(type=type_, number=number):
                return f"${number}::{NAMES[type_]}"
            case Col(rel=rel, at=at, type=type_, name=name):
                if rel in self._columns and at != BUCKET_AT:
                    return f'"{self._columns[rel][at]}"::{NAMES[type_]}'
                alias = self._aliases.get(rel, "")
                return (f'"{alias}".' if alias else "") + f'"{name}"::{NAMES[type_]}'
            case Call():
                return self._call(node)
            case Case(whens=whens, default=default):
                branches = " ".join(f"when {self.expr(c)} then {self.expr(r)}" for c, r in whens)
                last = f" else {self.expr(default)}" if default is not None else ""
                return f"case {branches}{last} end"
            case Agg(name=name, args=args, distinct=distinct):
                shown = ", ".join(self.expr(arg) for arg in args) or "*"
                return f"{name}({'distinct ' if distinct else ''}{shown})"
            case Window():
                return f"{self.expr(node.func)} over ({self._frame(node)})"
            case SubQuery(kind=kind, query=query, operands=operands):
                self._subqueries.append(query)
                left = ", ".join(self.expr(each) for each in operands)
                return f"{left} in subquery" if kind == "in" else f"{kind} subquery"
        return "?"

    def _frame(self, node: Window) -> str:
        parts = []
        if node.partition:
            parts.append(f"partition by {', '.join(map(self.expr, node.partition))}")
        if node.order:
            parts.append(f"order by {', '.join(map(self.ordered, node.order))}")
        return " ".join([*parts, *([node.frame.lower()] if node.frame else [])])

    def ordered(self, each: Order) -> str:
        return self.expr(each.expr) + (" desc" if each.desc else "")

    def _call(self, node: Call) -> str:
        args = [self.expr(arg) for arg in node.args]
        name = node.name
        if name in EACH_TIME:
            return f"{name}()"
        if name in ("and", "or"):
            return "(" + f" {name} ".join(args) + ")"
        if name == "in":
            return f"{args[0]} in ({', '.join(args[1:])})"
        if name == "any_of":
            return f"{args[0]} = any({args[1]})"
        if name == "n_padded":
            return args[0]
        symbol = _INFIX.get(name[2:]) if name[1:2] == "_" else None
        if symbol and len(args) == 2:
            return f"({args[0]} {symbol} {args[1]})"
        if not name[0].isalpha() and len(args) == 2:
            return f"({args[0]} {name} {args[1]})"
        if name == "||":
            return f"({' || '.join(args)})"
        return f"{name}({', '.join(args)})"


def _literal(type_: ColumnType | None, value: Any) -> str:
    if value is None:
        return "NULL"
    if type_ is ColumnType.BOOLEAN:
        return "true" if value else "false"
    if type_ is ColumnType.DECIMAL:
        return f"{decode_decimal(value):f}"
    if isinstance(value, bytes):
        return f"'{value.hex()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)
