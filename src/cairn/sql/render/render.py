"""IR to SQLite's SQL. Where both mean the same, plain SQLite operators; else functions of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cairn.model import quoting
from cairn.model.tables.schema import BUCKET_COLUMN, physical_column
from cairn.model.types.decimals import KEY_SQL, key_form
from cairn.model.types.values import ELEMENTS, SQLITE_TYPES, ColumnType, Physical
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
    Given,
    Join,
    Order,
    Param,
    Query,
    Recursion,
    Rel,
    Scan,
    Select,
    SetOp,
    SubQuery,
    Unnest,
    Values,
    Window,
    has_aggregate,
    is_tied,
    output,
)
from cairn.sql.render.copies import Copies, copies_of
from cairn.sql.render.lists import rows_of_series, unnested, value_of
from cairn.sql.render.once import fenced, lifted
from cairn.sql.render.slots import Slots
from cairn.sql.scales import scales
from cairn.sql.zeros import is_key, with_keys

_LIFTED = 1_000_000  # relations from here on are nobody else's
_INFIX = {"=", "<>", "<", "<=", ">", ">=", ">>", "&"}
_COMPARES = {"=", "<>", "<", "<=", ">", ">=", "in", "any_of", "is", "is_not"}
_RENAMED = {"is": "IS", "is_not": "IS NOT"}
_WRAPPED = {
    "not": "(NOT {})",
    "is_null": "({} IS NULL)",
    "is_true": "({} IS TRUE)",
    "is_false": "({} IS FALSE)",
    "neg": "(-{})",
    "d_of_i": "CAST({} AS REAL)",
    "s_of_i": "CAST({} AS TEXT)",
    "b_of_i": "({} <> 0)",
    **dict.fromkeys(("i_of_b", "same", "i_wide", "s_plain"), "{}"),
}


def literal(value: Physical) -> str:
    match value:
        case None:
            return "NULL"
        case float():
            if value in (float("inf"), float("-inf")):
                return "9e999" if value > 0 else "-9e999"
            return repr(value) if value >= 0 else f"({value!r})"
        case int():
            return str(value) if value >= 0 else f"({value})"
        case str():
            return quoting.literal(value)
        case bytes():
            return f"x'{value.hex()}'"


class Renderer:
    """One statement's text. `scans` says how sharded tables are narrowed to buckets."""

    def __init__(self, slots: Slots, *, bucket: str | None = None, marks: bool = False) -> None:
        self.slots = slots
        self.bucket = bucket  # `?n` of the one bucket that every sharded table is read in
        self.marks = marks  # leave marks for `with_ranges`
        self._lifted = 0  # queries that were put below others
        self._copies: Copies = {}
        self.aliases: dict[int, str] = {}  # relations that are not called r<number>
        self.scanned: dict[int, tuple[str, list[str]]] = {}  # what is said of them in another way

    # --- expressions ---

    def expr(self, node: Expr) -> str:
        match node:
            case Const(value=value):
                return literal(value)
            case Param():
                return self.slots.param(node)
            case Col():
                if node.rel in self._given_by:
                    return self._given_by[node.rel][node.at]
                alias = self.aliases.get(node.rel, f"r{node.rel}")
                return f"{alias}.{self.column(node)}" if alias else self.column(node)
            case Call():
                return self._call(node)
            case Case(whens=whens, default=default):
                branches = " ".join(f"WHEN {self.expr(c)} THEN {self.expr(r)}" for c, r in whens)
                last = f" ELSE {self.expr(default)}" if default is not None else ""
                return f"(CASE {branches}{last} END)"
            case SubQuery():
                return self._subquery(node)
            case Agg():
                return self._aggregate(node)
            case Window():
                return self._window(node)
        raise AssertionError(node)

    def key(self, node: Expr) -> str:
        """What is compared, sorted and grouped: of a DECIMAL its key, without the zeros."""
        if node.type is not ColumnType.DECIMAL or is_key(node):
            return self.expr(node)
        if isinstance(node, Const) and isinstance(node.value, bytes):
            return literal(key_form(node.value))
        return _key_of(self.expr(node)) if isinstance(node, Col) else f"n_key({self.expr(node)})"

    def column(self, node: Col) -> str:
        if node.at == BUCKET_AT:
            return BUCKET_COLUMN
        return self._columns.get(node.rel, physical_column)(node.at)

    _columns: dict[int, Callable[[int], str]] = {}
    _given_by: dict[int, Sequence[str]] = {}  # columns of functions that stand in FROM themselves

    def _call(self, node: Call) -> str:
        name = node.name
        if name == "n_key":
            return self.key(node.args[0])
        compares = name in _COMPARES or name[:3] == "row" or node.type in ELEMENTS
        if compares or any(arg.type in ELEMENTS for arg in node.args):
            args = [self.key(arg) for arg in node.args]
        else:
            args = [self.expr(arg) for arg in node.args]
        if name in _INFIX:
            return f"({args[0]} {name} {args[1]})"
        if name in ("and", "or"):
            return _balanced(f" {name.upper()} ", args)
        if name == "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        if name == "any_of":
            # A list that is NULL makes the answer NULL, as one with nothing but NULL in it does.
            list_ = f"coalesce({args[1]}, '[null]')"
            return f"({args[0]} IN (SELECT {value_of(node.args[0].type)} FROM json_each({list_})))"
        if name == "||":
            return _balanced(" || ", args)
        if name in _RENAMED:
            return f"({args[0]} {_RENAMED[name]} {args[1]})"
        if name in _WRAPPED:
            return _WRAPPED[name].format(args[0])
        if name.startswith("row") and name[3:] in _INFIX:
            half = len(args) // 2
            left, right = ", ".join(args[:half]), ", ".join(args[half:])
            return f"(({left}) {name[3:]} ({right}))"
        return f"{name}({', '.join(args)})"

    def _subquery(self, node: SubQuery) -> str:
        inner = self.query(node.query)
        if node.kind == "exists":
            return f"(EXISTS ({inner}))"
        if node.kind == "in":
            inner = self._keyed(inner, node.query)
            left = ", ".join(self.key(each) for each in node.operands)
            left = f"({left})" if len(node.operands) > 1 else left
            return f"({left} IN ({inner}))"
        if _one_row(node.query):
            return f"({inner})"
        return f"(SELECT only_row(count(*), x0) FROM (SELECT x0 FROM ({inner}) LIMIT 2))"

    def _aggregate(self, node: Agg) -> str:
        name = "group_concat" if node.name == "concat" else node.name
        compares = node.distinct or node.type in ELEMENTS
        args = [self.key(arg) if compares else self.expr(arg) for arg in node.args]
        if node.name == "concat" and not isinstance(node.args[1], Const):
            args[1] = f"coalesce({args[1]}, '')"
        shown = ", ".join(args) or ("*" if name == "count" else "")
        distinct = "DISTINCT " if node.distinct else ""
        order = f" ORDER BY {self._order(node.order)}" if node.order else ""
        text = f"{name}({distinct}{shown}{order})"
        if node.filter is not None:
            text += f" FILTER (WHERE {self.expr(node.filter)})"
        if node.name == "z_sum" and node.distinct:  # of keys: the zeros are found beside them
            longest = Agg(ColumnType.INTEGER, "max", (self._scale_of(node),), False, node.filter)
            return f"n_padded({text}, {self._aggregate(longest)})"
        return text

    def _scale_of(self, node: Agg) -> Expr:
        return Call(ColumnType.INTEGER, "i_scale", node.args)

    def _window(self, node: Window) -> str:
        parts = []
        if node.partition:
            parts.append("PARTITION BY " + ", ".join(self.key(each) for each in node.partition))
        if node.order:
            parts.append("ORDER BY " + self._order(node.order))
        if node.frame:
            parts.append(node.frame)
        return f"{self._aggregate(node.func)} OVER ({' '.join(parts)})"

    def _order(self, order: Sequence[Order]) -> str:
        parts = []
        for each in order:
            text = self._sortable(each.expr)
            text += " DESC" if each.desc else ""
            if _may_be_null(each.expr):
                text += " NULLS FIRST" if each.nulls_first else " NULLS LAST"
            parts.append(text)
        return ", ".join(parts)

    # --- queries ---

    def query(self, node: Query) -> str:
        """A query whose columns are called x0, x1, …"""
        match node:
            case Select():
                return self._select(node)
            case Values():
                return self._values(node)
            case Recursion():
                return self._recursion(node)
            case SetOp() if node.op in ("EXCEPT ALL", "INTERSECT ALL"):
                return self._counted(node)
            case SetOp() if _has_zeros(node):
                return self._zeros_apart(node)
            case SetOp():
                left, right = self._operand(node.left, True), self._operand(node.right, False)
                text = f"{left} {node.op} {right}"
                return text + self._tail(node)

    def _zeros_apart(self, node: SetOp) -> str:
        """A set operation on numbers of which SQLite would compare the zeros too."""
        names = [f"x{at}" for at in range(len(node.names))]
        if node.op == "UNION ALL":
            left, right = self._operand(node.left, True), self._operand(node.right, False)
            return f"SELECT {', '.join(names)} FROM ({left} UNION ALL {right})" + self._tail(node)
        if node.op == "UNION":
            left, right = self._operand(node.left, False), self._operand(node.right, False)
            text = self._once(f"{left} UNION ALL {right}", node)
            return f"SELECT {', '.join(names)} FROM ({text})" + self._tail(node)
        shown, keys = ", ".join(names), ", ".join(_keys(node))
        left, right = self.query(node.left), self.query(node.right)
        sides = f"SELECT *, 0 AS xs FROM ({left}) UNION ALL SELECT *, 1 AS xs FROM ({right})"
        # With one min or max SQLite takes the columns from its row: zeros are those of the left.
        wanted = "max(xs) = 0" if node.op == "EXCEPT" else "min(xs) = 0 AND sum(xs) > 0"
        text = f"SELECT {shown} FROM ({sides}) GROUP BY {keys} HAVING {wanted}"
        return f"SELECT {shown} FROM ({text})" + self._tail(node)

    def _once(self, text: str, node: Query) -> str:
        """Each row once; of equal numbers with other zeros one is shown."""
        names = [f"x{at}" for at in range(len(output(node)))]
        return f"SELECT {', '.join(names)} FROM ({text}) GROUP BY {', '.join(_keys(node))}"

    def _keyed(self, text: str, node: Query) -> str:
        """A query whose numbers are keys."""
        if not _has_zeros(node):
            return text
        columns = ", ".join(f"{key} AS x{at}" for at, key in enumerate(_keys(node)))
        return f"SELECT {columns} FROM ({text})"

    def _counted(self, node: SetOp) -> str:
        """EXCEPT ALL and INTERSECT ALL, which SQLite lacks: equal rows differ by their number."""
        names = ", ".join(f"x{at}" for at in range(len(node.names)))
        numbered = f"SELECT {names}, row_number() OVER (PARTITION BY {names}) AS xn FROM"
        left, right = (self._keyed(self.query(each), each) for each in (node.left, node.right))
        word = node.op.removesuffix(" ALL")
        both = f"{numbered} ({left}) {word} {numbered} ({right})"
        return f"SELECT {names} FROM ({both})" + self._tail(node)

    def _recursion(self, node: Recursion) -> str:
        names = ", ".join(f"x{at}" for at in range(len(node.names)))
        left, right = node.left, node.right
        if node.op == "UNION" and _has_zeros(node):
            left, right = with_keys(left), with_keys(right)
        first, step = self._operand(left, False), self._operand(right, False)
        own = f"w{node.number}"
        query = f"{first} {node.op} {step}"
        return f"WITH RECURSIVE {own}({names}) AS ({query}) SELECT {names} FROM {own}"

    def _operand(self, node: Query, is_left: bool) -> str:
        text = self.query(node)
        bare = isinstance(node, Select) or (isinstance(node, SetOp) and is_left)
        if bare and not node.order and node.limit is None and node.offset is None:
            return text
        return f"SELECT * FROM ({text})"

    def _tail(self, node: SetOp | Values) -> str:
        parts, keys = [], _keys(node)
        for at, desc, nulls_first in node.order:
            column = f"{at + 1}" if keys[at] == f"x{at}" else keys[at]
            parts.append(
                f"{column}{' DESC' if desc else ''} NULLS {'FIRST' if nulls_first else 'LAST'}"
            )
        text = f" ORDER BY {', '.join(parts)}" if parts else ""
        return text + self._limit(node.limit, node.offset)

    def _limit(self, limit: Expr | None, offset: Expr | None) -> str:
        if limit is None and offset is None:
            return ""
        text = f" LIMIT {self._count(limit)}"
        return text + (f" OFFSET {self._count(offset)}" if offset is not None else "")

    def _count(self, expr: Expr | None) -> str:
        if expr is None:
            return "-1"
        if isinstance(expr, Const):
            return literal(expr.value)
        return f"c_limit({self.expr(expr)})"

    def _values(self, node: Values) -> str:
        if isinstance(node, Unnest):
            list_ = node.rows[0][0]
            if isinstance(list_, Call) and list_.name == "a_series" and len(node.types) == 1:
                return rows_of_series(*map(self.expr, list_.args)) + self._tail(node)
            text = self.expr(list_)
            columns = ", ".join(f"{each} AS x{at}" for at, each in enumerate(unnested(node, "")))
            return f"SELECT {columns} FROM json_each({text})" + self._tail(node)
        rows = ", ".join(f"({', '.join(map(self._cell, row))})" for row in node.rows)
        names = ", ".join(f"column{at + 1} AS x{at}" for at in range(len(node.names)))
        return f"SELECT {names} FROM (VALUES {rows})" + self._tail(node)

    def _cell(self, expr: Expr) -> str:
        """Of VALUES. A bare column of a query around it would give its name to the whole column."""
        return f"+{self.expr(expr)}" if isinstance(expr, Col) else self.expr(expr)

    def _select(self, node: Select) -> str:
        found, node = node, lifted(node, _LIFTED + self._lifted)
        self._lifted += found is not node
        if node.distinct and _has_zeros(node):
            return self._distinct(node)
        rows = self.rows(node)  # before its columns: it says how they are called
        items = ", ".join(f"{self.expr(item.expr)} AS x{at}" for at, item in enumerate(node.items))
        parts = [f"SELECT {'DISTINCT ' if node.distinct else ''}{items}"]
        has_aggregates = any(has_aggregate(item.expr) for item in node.items)
        if rows:
            parts.append(rows)
        if node.group:
            parts.append("GROUP BY " + ", ".join(self._sortable(each) for each in node.group))
        if node.having is not None:
            parts.append(f"HAVING {self.expr(node.having)}")
        elsewhere = node.having is not None or any(has_aggregate(each.expr) for each in node.order)
        if not node.group and not has_aggregates and elsewhere:
            # SQLite wants an aggregate outside HAVING and ORDER BY; one row needs no order.
            names = ", ".join(f"x{at}" for at in range(len(node.items)))
            parts[0] += ", count(*) AS xh"
            limit = self._limit(node.limit, node.offset)
            return f"SELECT {names} FROM ({' '.join(parts)}){limit}"
        if node.order:
            parts.append("ORDER BY " + self._order(node.order))
        return " ".join(parts) + self._limit(node.limit, node.offset)

    def rows(self, node: Select) -> str:
        """FROM and WHERE."""
        self._copies |= copies_of(node, self.column, self.expr)
        source, conditions = self._source(node.source, nullable=False)
        if node.where is not None:
            conditions = [*conditions, self.expr(node.where)]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"FROM {source} {where}".rstrip() if source else where

    def _distinct(self, node: Select) -> str:
        """DISTINCT of numbers of which SQLite would compare the zeros too."""
        text = self._select(replace(node, distinct=False, order=(), limit=None, offset=None))
        text, exprs = self._once(text, node), [item.expr for item in node.items]
        keys, order = _keys(node), []
        for each in node.order:  # PostgreSQL wants them among the columns
            desc = " DESC" if each.desc else ""
            nulls = "NULLS FIRST" if each.nulls_first else "NULLS LAST"
            order.append(f"{keys[exprs.index(each.expr)]}{desc} {nulls}")
        tail = f" ORDER BY {', '.join(order)}" if order else ""
        return text + tail + self._limit(node.limit, node.offset)

    def _sortable(self, expr: Expr) -> str:
        """An expression for ORDER BY and GROUP BY.

        SQLite takes a number there for a column's place, also one that it folded itself, as it
        does with `x AND false`; a cast keeps it from doing so.
        """
        text = self.key(expr)
        if isinstance(expr, (Col, Agg, Window)):
            return text
        if SQLITE_TYPES.get(expr.type or ColumnType.STRING) == "INTEGER":
            return f"CAST({text} AS INTEGER)"
        return text

    def _source(self, node: Rel | None, *, nullable: bool) -> tuple[str, list[str]]:
        """FROM's text, and conditions on buckets that belong into WHERE."""
        match node:
            case None:
                return "", []
            case Scan():
                return self.scan(node, nullable=nullable)
            case Gathered(rel=rel, index=index):
                self.name_columns(rel)
                return f"m{index} AS r{rel}", []
            case Again(rel=rel, number=number):
                self.name_columns(rel)
                return f"{'g' if isinstance(node, Given) else 'w'}{number} AS r{rel}", []
            case Derived(rel=rel, query=Unnest() as query) if is_tied(node):
                # SQLite lets a function see its neighbours, and not a query.
                text = f"json_each({self.expr(query.rows[0][0])}) AS r{rel}"
                self._given_by = {**self._given_by, rel: unnested(query, f"r{rel}.")}
                return text, []
            case Derived(rel=rel, query=query):
                text = fenced(query, self.query(query))
                if node.is_copied:
                    text = f"SELECT * FROM ({text}) LIMIT -1"
                self.name_columns(rel)
                return f"({text}) AS r{rel}", []
            case Join(kind=kind, left=left, right=right, on=on):
                first, narrowed = self._source(left, nullable=nullable or kind == "full")
                second, more = self._source(right, nullable=nullable or kind != "inner")
                if isinstance(right, Join):
                    second = f"({second})"
                condition = self.expr(on) if on is not None else "1"
                if kind == "inner" and not nullable:
                    # SQLite would test WHERE before ON; PostgreSQL does not, and errors show it.
                    first_on = [condition] if on is not None else []
                    return f"{first} JOIN {second}", narrowed + more + first_on
                word = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}[kind]
                return f"{first} {word} {second} ON {condition}", narrowed + more

    def name_columns(self, rel: int) -> None:
        self._columns = {**self._columns, rel: lambda at: f"x{at}"}

    def scan(self, node: Scan, *, nullable: bool) -> tuple[str, list[str]]:
        if node.rel in self.scanned:
            return self.scanned[node.rel]
        alias = f"r{node.rel}"
        named = named_scan(node)
        is_narrowed = not node.table.is_global and (self.bucket is not None or self.marks)
        if self.bucket is None:
            condition = f"/*buckets:{alias}*/"
        else:
            condition = f"{alias}.{BUCKET_COLUMN} = {self.bucket}"
            if node.table.lies_together:  # or SQLite takes it for a few rows, and no other index
                condition = f"likelihood({condition}, 1.0)"
        if node.is_copied:
            # SQLite takes a query with a LIMIT as it is, and makes an index for its rows.
            columns, own = self._copies[node.rel]
            own = [] if nullable else own  # WHERE is asked of the joined rows then
            where = " AND ".join([condition] * is_narrowed + own) or "1"
            shown = ", ".join(columns) or "1"
            return f"(SELECT {shown} FROM {named} WHERE {where} LIMIT -1) AS {alias}", []
        if not is_narrowed:
            return named, []
        if nullable:  # in WHERE it would throw away rows that the outer join has to keep
            return f"(SELECT * FROM {named} WHERE {condition}) AS {alias}", []
        return named, [condition]


def _key_of(text: str) -> str:
    return KEY_SQL.format(text)


def _keys(node: Query) -> list[str]:
    """What is compared of the columns x0, x1, … of a query."""
    kinds = zip(output(node), scales(node), strict=True)
    return [
        _key_of(f"x{at}") if type_ is ColumnType.DECIMAL and scale is None else f"x{at}"
        for at, ((_, type_), scale) in enumerate(kinds)
    ]


def _has_zeros(node: Query) -> bool:
    kinds = zip(output(node), scales(node), strict=True)
    return any(type_ is ColumnType.DECIMAL and scale is None for (_, type_), scale in kinds)


def named_scan(node: Scan) -> str:
    text = f"{node.table.physical_name} AS r{node.rel}"
    return f"{text} INDEXED BY {node.index}" if node.index else text


def _balanced(operator: str, parts: list[str]) -> str:
    """A chain of one operator; long ones as a balanced tree, for SQLite limits their depth."""
    if len(parts) <= 32:
        return f"({operator.join(parts)})"
    half = len(parts) // 2
    left, right = _balanced(operator, parts[:half]), _balanced(operator, parts[half:])
    return f"({left}{operator}{right})"


def _may_be_null(expr: Expr) -> bool:
    if isinstance(expr, Col):
        return expr.nullable
    return not (isinstance(expr, Const) and expr.value is not None)


def _one_row(query: Query) -> bool:
    """Whether a query can never give a second row."""
    if not isinstance(query, Select):
        several = isinstance(query, Unnest)
        return isinstance(query, Values) and len(query.rows) == 1 and not several
    if isinstance(query.limit, Const) and query.limit.value in (0, 1):
        return True
    if query.source is None:
        return True
    return not query.group and any(has_aggregate(item.expr) for item in query.items)
