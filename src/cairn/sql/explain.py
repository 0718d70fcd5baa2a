"""EXPLAIN in the layout that drivers parse: a tree by indentation, options, one `buckets` line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cairn.model.decimals import decode_decimal
from cairn.model.values import ColumnType
from cairn.sql.api import Prepared
from cairn.sql.bind.dml import BoundChange, BoundInsert
from cairn.sql.ir import (
    Again,
    Agg,
    Call,
    Case,
    Col,
    Const,
    Derived,
    Expr,
    Join,
    Param,
    Query,
    Recursion,
    Rel,
    Scan,
    Select,
    SetOp,
    SubQuery,
    Values,
    Window,
    conjuncts,
    walk,
)
from cairn.sql.plan.buckets import bucket_count
from cairn.sql.plan.locality import is_sharded, source_locality
from cairn.sql.plans import (
    Fragment,
    InsertSelect,
    KeyedWrite,
    PointRead,
    PointWrite,
    Returning,
    ScatterRead,
    ScatterWrite,
    ShardedInsert,
)
from cairn.sql.typing_rules import NAMES

QueryPlan = Callable[[str, tuple[Any, ...]], Sequence[Sequence[Any]]]
DEFAULT_OPTIONS = {"sql_vdbe_opcode_max": 0, "sql_motion_row_max": 0}
_RULE = "─" * 70


def explain_lines(
    prepared: Prepared,
    params: Sequence[Any] | None,
    *,
    facets: Sequence[str] = (),
    options: dict[str, int] | None = None,
    query_plan: QueryPlan | None = None,
    catalog: Any = None,
) -> list[str]:
    """The rows of EXPLAIN for the statement inside. `query_plan` runs EXPLAIN QUERY PLAN for RAW.

    `params` may be None when the statement is explained without values.
    """
    if isinstance(prepared.plan, Returning):
        prepared = replace(prepared, plan=prepared.plan.write)
    shown = {**DEFAULT_OPTIONS, **(options or {})}
    parts: list[tuple[str, list[str]]] = []
    for facet in facets or ("logical", "buckets"):
        match facet:
            case "logical":
                tail = ["execution options:"]
                tail += [f"    {name} = {value}" for name, value in shown.items()]
                tree = Tree(moves=not _is_point(prepared))
                parts.append(("Logical plan", tree.statement(prepared.bound) + tail))
            case "buckets":
                parts.append(("Buckets", [buckets_line(prepared, params, catalog)]))
            case "raw":
                parts.append(("Raw", _raw(prepared, params, query_plan)))
            case "context":
                parts.append(("Context", [f"{n} = {v}" for n, v in shown.items()]))
            case "forward":
                parts.append(("Forward", _forward(prepared)))
    if not facets or len(parts) == 1:
        return [line for _, lines in parts for line in lines]
    return [
        line
        for title, lines in parts
        for line in (_RULE, f" # {title}".ljust(70), _RULE, "", *lines)
    ]


def _forward(prepared: Prepared) -> list[str]:
    local = isinstance(prepared.plan, PointRead) and prepared.plan.bucket is None
    best = "off" if local else "ro_to_rw" if _is_point(prepared) else "on"
    return ["forward analysis (on > ro_to_rw > off):", f"  forward = {best}"]


def _is_point(prepared: Prepared) -> bool:
    return isinstance(prepared.plan, (PointRead, PointWrite))


# --- buckets --------------------------------------------------------------------------------------


def buckets_line(prepared: Prepared, params: Sequence[Any] | None, catalog: Any = None) -> str:
    plan = prepared.plan
    top = bucket_count(catalog, prepared.tier) if catalog and prepared.tier else 3000
    try:
        found = _buckets(plan, None if params is None else prepared.start(params), top)
    except (IndexError, TypeError):
        return "buckets = unknown"  # values of parameters or sub-queries are not there yet
    return f"buckets = {found if isinstance(found, str) else show_ranges(found)}"


def _buckets(plan: Any, values: Sequence[Any] | None, top: int) -> set[int] | str:
    given = () if values is None else values
    every = set(range(1, top + 1))
    match plan:
        case PointRead(bucket=None):
            return "any"
        case PointRead(bucket=bucket) | PointWrite(bucket=bucket) if bucket is not None:
            return {bucket(given)}
        case ShardedInsert(rows=rows):
            return {bucket for bucket, _ in rows(given)}
        case ScatterRead(fragments=fragments):
            found: set[int] = set()
            for fragment in fragments:
                chosen = fragment.bucket_set(given)
                found |= every if chosen is None else chosen
            return found
        case ScatterWrite(fragment=fragment):
            chosen = fragment.bucket_set(given)
            return every if chosen is None else set(chosen)
        case InsertSelect(read=read):
            return "unknown" if read is not None else "any"
        case KeyedWrite(read=read):
            return _buckets(read, values, top)
    return "any"


def show_ranges(buckets: set[int]) -> str:
    """`[1-3,7]`"""
    parts: list[str] = []
    ordered = sorted(buckets)
    start = 0
    for at in range(1, len(ordered) + 1):
        if at == len(ordered) or ordered[at] != ordered[at - 1] + 1:
            low, high = ordered[start], ordered[at - 1]
            parts.append(str(low) if low == high else f"{low}-{high}")
            start = at
    return f"[{','.join(parts)}]"


# --- RAW ------------------------------------------------------------------------------------------


def _text(fragment: Fragment, values: Sequence[Any] | None) -> str:
    """As it would run on an instance that owns all the buckets it needs."""
    buckets = None if values is None else fragment.bucket_set(values)
    return fragment.with_ranges(None if buckets is None else [(at, at) for at in sorted(buckets)])


def raw_sections(
    prepared: Prepared, values: Sequence[Any] | None = None
) -> list[tuple[str, str, Any]]:
    """(where, SQL, bind) of each SQLite statement that the plan runs."""
    plan: Any = prepared.plan
    if isinstance(plan, (InsertSelect, KeyedWrite)):
        plan = plan.read
    match plan:
        case PointRead():
            where = "ROUTER" if plan.bucket is None else "CONST-FILTERED STORAGE"
            return [(where, plan.sql, plan.bind)]
        case PointWrite():
            return [("CONST-FILTERED STORAGE", plan.sql, plan.bind)]
        case ScatterRead():
            found = [
                ("STORAGE", _text(fragment, values), fragment.bind) for fragment in plan.fragments
            ]
            # The merge reads tables that exist only while it runs: nothing to ask SQLite about.
            return [*found, ("ROUTER", plan.sql, None)]
        case ScatterWrite():
            return [("STORAGE", _text(plan.fragment, values), plan.fragment.bind)]
        case ShardedInsert():
            return [("STORAGE", plan.sql, None)]
    return []


def _raw(
    prepared: Prepared, params: Sequence[Any] | None, query_plan: QueryPlan | None
) -> list[str]:
    lines: list[str] = []
    values = None if params is None else prepared.start(params)
    for number, (where, sql, bind) in enumerate(raw_sections(prepared, values), 1):
        lines += [f"{number}. Query ({where}):", sql]
        rows: Sequence[Sequence[Any]] = ()
        if query_plan is not None and bind is not None and values is not None:
            rows = query_plan(sql, bind(values))
        lines += _table([[str(a), str(b), "0", str(d)] for a, b, _, d in rows])
        lines.append("")
    return lines[:-1]


def _table(rows: list[list[str]]) -> list[str]:
    header = ["selectid", "order", "from", "detail"]
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(4)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |"

    return [rule, line(header), rule, *(line(row) for row in rows), rule]


# --- the tree -------------------------------------------------------------------------------------

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}


class Tree:
    """Plan nodes as indented lines. One root, so that drivers can read it."""

    def __init__(self, *, moves: bool = True) -> None:
        self.moves = moves  # one bucket, or none: rows come from where they are
        self.names: dict[int, tuple[str, Sequence[str]]] = {}
        self.subqueries: list[Query] = []

    def statement(self, bound: Any) -> list[str]:
        for node in walk(bound) if not isinstance(bound, (BoundInsert, BoundChange)) else ():
            self._learn(node)
        if isinstance(bound, BoundInsert):
            return self._insert(bound)
        if isinstance(bound, BoundChange):
            for node in walk((bound.source, bound.where, *(e for _, e in bound.sets or ()))):
                self._learn(node)
            return self._change(bound)
        return self.query(bound, 0)

    def _learn(self, node: Any) -> None:
        if isinstance(node, Scan):
            self.names[node.rel] = (node.alias, [c.name for c in node.table.columns])
        elif isinstance(node, (Derived, Again)):
            self.names[node.rel] = (node.alias or "unnamed_subquery", node.names)

    def _insert(self, bound: BoundInsert) -> list[str]:
        table = bound.table
        lines = [f'insert into "{table.name}" on conflict: {bound.on_conflict}']
        depth = 1
        if table.sharding is not None:
            refs = ", ".join(f'ref("{name}")' for name in table.sharding.columns)
            lines.append(f"    motion [policy: segment([{refs}])]")
            depth = 2
        if bound.rows is not None:
            lines.append("    " * depth + "values")
            for row in bound.rows:
                cells = ", ".join(self.expr(cell) for cell in row)
                lines.append("    " * (depth + 1) + f"value row (data=ROW({cells}))")
            return lines
        assert bound.query is not None
        for node in walk(bound.query):
            self._learn(node)
        return lines + self.query(bound.query, depth)

    def _change(self, bound: BoundChange) -> list[str]:
        name = bound.scan.table.name
        if bound.sets is None:
            lines = [f'delete from "{name}"']
        else:
            columns = bound.scan.table.columns
            sets = ", ".join(f'"{columns[at].name}" = {self.expr(e)}' for at, e in bound.sets)
            lines = [f'update "{name}" ({sets})']
        return lines + self._filtered(bound.source, bound.where, 1, moved=False)

    def query(self, query: Query, depth: int) -> list[str]:
        pad = "    " * depth
        match query:
            case Values():
                lines = [f"{pad}values"]
                for row in query.rows:
                    cells = ", ".join(self.expr(cell) for cell in row)
                    lines.append(f"{pad}    value row (data=ROW({cells}))")
                return lines
            case SetOp():
                word = "recursive " if isinstance(query, Recursion) else ""
                lines = [f"{pad}{word}{query.op.lower()}"]
                return (
                    lines + self.query(query.left, depth + 1) + self.query(query.right, depth + 1)
                )
            case Select():
                return self._select(query, depth)

    def _select(self, query: Select, depth: int) -> list[str]:
        lines: list[str] = []

        def node(text: str) -> None:
            nonlocal depth
            lines.append("    " * depth + text)
            depth += 1

        if query.limit is not None:
            node(f"limit {self.expr(query.limit).partition('::')[0]}")
        if query.order:
            shown = ", ".join(
                self.expr(each.expr) + (" desc" if each.desc else "") for each in query.order
            )
            node(f"order by ({shown})")
        items = ", ".join(f'{self.expr(item.expr)} -> "{item.name}"' for item in query.items)
        node(f"projection ({'distinct ' if query.distinct else ''}{items})")
        if query.having is not None:
            node(f"having ({self.expr(query.having)})")
        if query.group:
            node(f"group by ({', '.join(self.expr(each) for each in query.group)})")
        moved = self.moves and is_sharded(query.source)
        return lines + self._filtered(query.source, query.where, depth, moved=moved)

    def _filtered(
        self, source: Rel | None, where: Expr | None, depth: int, *, moved: bool
    ) -> list[str]:
        lines: list[str] = []
        local = source_locality(source, conjuncts(where))
        if moved and local is not None:
            lines.append("    " * depth + "motion [policy: full]")
            depth += 1
        if where is not None:
            condition = self.expr(where)
            lines.append("    " * depth + f"selection ({condition})")
            depth += 1
        lines += self._source(source, depth, moved=moved and local is None)
        while self.subqueries:
            inner = self.subqueries.pop(0)
            lines.append("    " * depth + "subquery:")
            lines += self.query(inner, depth + 1)
        return lines

    def _source(self, source: Rel | None, depth: int, *, moved: bool) -> list[str]:
        pad = "    " * depth
        match source:
            case Scan(table=table, alias=alias):
                lines = []
                if moved and not table.is_global:
                    lines.append(f"{pad}motion [policy: full]")
                    pad += "    "
                shown = f' -> "{alias}"' if alias != table.name else ""
                return [*lines, f'{pad}scan "{table.name}"{shown}']
            case Derived(query=query, alias=alias):
                return [f'{pad}scan "{alias}"', *self.query(query, depth + 1)]
            case Again(alias=alias):
                return [f'{pad}scan "{alias}" of the last round']
            case Join(kind=kind, left=left, right=right, on=on):
                condition = self.expr(on) if on is not None else "true::bool"
                word = "join" if kind == "inner" else f"{kind} join"
                lines = [f"{pad}{word} on ({condition})"]
                lines += self._source(left, depth + 1, moved=moved)
                return lines + self._source(right, depth + 1, moved=moved)
        return []

    def expr(self, node: Expr) -> str:
        match node:
            case Const(type=type_, value=value):
                return f"{_literal(type_, value)}::{NAMES[type_]}"
            case Param(type=type_, number=number):
                return f"${number}::{NAMES[type_]}"
            case Col(rel=rel, type=type_, name=name):
                alias = self.names.get(rel, ("", ()))[0]
                return (f'"{alias}".' if alias else "") + f'"{name}"::{NAMES[type_]}'
            case Call():
                return self._call(node)
            case Case():
                return "case"
            case Agg(name=name, args=args, distinct=distinct):
                shown = ", ".join(self.expr(arg) for arg in args) or "*"
                return f"{name}({'distinct ' if distinct else ''}{shown})"
            case Window(func=func):
                return f"{self.expr(func)} over ()"
            case SubQuery(kind=kind, query=query, operands=operands):
                self.subqueries.append(query)
                left = ", ".join(self.expr(each) for each in operands)
                return f"{left} in subquery" if kind == "in" else f"{kind} subquery"
        return "?"

    def _call(self, node: Call) -> str:
        args = [self.expr(arg) for arg in node.args]
        name = node.name
        if name in ("and", "or"):
            return "(" + f" {name} ".join(args) + ")"
        if name == "in":
            return f"{args[0]} in ({', '.join(args[1:])})"
        if name == "any_of":
            return f"{args[0]} = any({args[1]})"
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
