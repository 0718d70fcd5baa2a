"""SELECT, VALUES, INSERT, UPDATE and DELETE: parse, bind, plan. The only importer of `bind`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from cairn.model.errors import LimitExceeded, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import VARCHAR, Table, type_modifier
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType
from cairn.model.types.widths import WHOLES, Width
from cairn.sql.bind.dml import BoundChange, BoundInsert, bind_delete, bind_insert, bind_update
from cairn.sql.bind.queries.bind import bind_query, binder_of
from cairn.sql.bind.scope import NOW, Binder, BlockNames, Scope
from cairn.sql.enum_order import in_declared_order
from cairn.sql.ir import Col, Expr, Known, Param, Query, Select, output, rewrite, scans_in
from cairn.sql.param_widths import param_oids as param_oids_of
from cairn.sql.parse.dialect import walk_position
from cairn.sql.parse.lexer import Token, syntax_error
from cairn.sql.parse.parse import parse_query, take_options
from cairn.sql.plan.global_insert import plan_global_insert
from cairn.sql.plan.global_rows import plan_global_change
from cairn.sql.plan.metadata import metadata
from cairn.sql.plan.read import Numbers, plan_read
from cairn.sql.plan.write import plan_change, plan_insert
from cairn.sql.plans import (
    ROW_WRITES,
    InsertSelect,
    KeyedWrite,
    OutColumn,
    Plan,
    PointWrite,
    Prepared,
    Returning,
    ShardedInsert,
)
from cairn.sql.render.row_sql import key_columns, returning_clause
from cairn.sql.scales import MOST, known, known_of
from cairn.sql.statements.quick_insert import quick_insert
from cairn.sql.typing_rules import S
from cairn.sql.zeros import keeping_zeros

Bound = Any  # a Query, BoundInsert or BoundChange


LONG_TEXT = 10_000  # characters
MAX_TOKENS = 100_000  # that are made into a tree: some seconds of work


@dataclass(frozen=True)
class _Result:
    bound: Bound
    binder: Binder


def compile_query(
    found: list[Token],
    text: str,
    catalog: Catalog,
    param_oids: Sequence[int],
    user_name: str = "",
    block: BlockNames | None = None,
) -> Prepared:
    found, options = take_options(found, text)
    _check_insert(found, text)
    result = _quick(found, binder_of(catalog, param_oids, {}, user_name, block))
    if result is None:
        if len(found) > MAX_TOKENS:
            raise LimitExceeded(
                f"the statement has more than {MAX_TOKENS} words and signs",
                hint="give a list as one array: = ANY($1); rows go by INSERT … VALUES or COPY",
            )
        tree = parse_query(found, text)
        try:
            result = _bind(
                tree, lambda known: binder_of(catalog, param_oids, known, user_name, block)
            )
        finally:
            if len(text) > LONG_TEXT:
                _let_go(tree)
    binder, bound = result.binder, result.bound
    for value in options.values.values():
        if isinstance(value, int):
            binder.used.add(value)
            binder.params.setdefault(value, ColumnType.INTEGER)
            binder.top_param = max(binder.top_param, value)
    types = binder.param_types()
    numbers = Numbers(binder.next_rel(), len(types))
    if binder.uses_now:
        bound = _with_now(bound, numbers.next_param())
    bound = _changed(bound, keeping_zeros)
    described, oids = _description(bound), param_oids_of(bound, types)
    bound = _changed(bound, lambda node: in_declared_order(node, numbers.next_rel))
    told = metadata(bound) if _is_sharded(bound) else ()
    plan = _plan(bound, catalog, numbers)
    if binder.skips is not None:
        _check_claim(plan, binder.skips)
    tag, columns, rights = described
    rights += tuple(
        ("update" if each.is_sequence else "insert", "table", each.id, each.name)
        for each in binder.numbered.values()
    )
    tables = {table.id: table.schema_version for table in binder.tables.values()}
    if isinstance(bound, BoundInsert | BoundChange):
        written = bound.table if isinstance(bound, BoundInsert) else bound.scan.table
        tables |= {kin.id: kin.schema_version for kin in catalog.kin_of(written)}
    tables |= binder.views
    for table in binder.tables.values():
        tables |= {each.enum.id: each.enum.schema_version for each in table.columns if each.enum}
    tiers = {
        table.sharding.tier
        for table in binder.tables.values()
        if table.sharding is not None and not table.is_temp
    }
    return Prepared(
        text,
        tag,
        plan,
        types,
        columns,
        tables,
        rights,
        told,
        tiers.pop() if tiers else None,
        options.values,
        numbers.param - len(types),
        binder.uses_now,
        bound,
        oids,
        locks=binder.locks,
        labels=tuple(binder.labels.items()),
    )


def _check_insert(found: list[Token], text: str) -> None:
    """`INSERT INTO t VALUE (1)`: sqlglot takes VALUE for VALUES."""
    if not found[0].is_word("insert"):
        return
    depth = 0
    for at, token in enumerate(found[3:], 3):
        depth += token.is_op("(") - token.is_op(")")
        if depth == 0 and token.is_word("values", "select", "with", "table", "default"):
            return
        if depth == 0 and token.is_word("value") and at + 1 < len(found):
            raise syntax_error(token, text)


def _quick(found: list[Token], binder: Binder) -> _Result | None:
    bound = quick_insert(found, Scope(binder))
    return None if bound is None else _Result(bound, binder)


def _let_go(tree: exp.Expr) -> None:
    """Parents and children hold each other: without this a long text stays until a collection of
    all garbage, which an idle instance puts off for hours."""
    for node in tree.walk():
        node.parent = None


def _bind(tree: exp.Expr, begin: Callable[[dict[int, ColumnType]], Binder]) -> _Result:
    """Bind, and once more when a parameter was met before its type was known."""
    binder = begin({})
    bound = _bind_once(tree, binder)
    if binder.loose:
        known = {number: binder.params.get(number, S) for number in binder.used}
        binder = begin(known)
        bound = _bind_once(tree, binder)
    return _Result(bound, binder)


def _bind_once(tree: exp.Expr, binder: Binder) -> Bound:
    scope = Scope(binder)
    if isinstance(tree, exp.Insert):
        return bind_insert(scope, tree)
    if isinstance(tree, exp.Update):
        return bind_update(scope, tree)
    if isinstance(tree, exp.Delete):
        return bind_delete(scope, tree)
    if isinstance(tree, (exp.Query, exp.Values)):
        return bind_query(scope, tree)
    raise Unsupported(f"{type(tree).__name__.upper()} is not supported")


def _with_now(bound: Bound, number: int) -> Bound:
    """Give the statement's time its place after the client's parameters."""

    def change(node: Any) -> Any:
        if isinstance(node, Param) and node.number == NOW:
            return Param(node.type, number)
        return None

    return _changed(bound, lambda node: rewrite(node, change))


def _changed(bound: Bound, change: Callable[[Any], Any]) -> Bound:
    """The statement with every part of it changed."""

    def moved(node: Any) -> Any:
        return None if node is None else change(node)

    def moved_sets(sets: Any) -> Any:
        return sets and tuple((at, moved(expr)) for at, expr in sets)

    if isinstance(bound, BoundInsert):
        conflict = replace(
            bound.conflict,
            sets=moved_sets(bound.conflict.sets),
            where=moved(bound.conflict.where),
        )
        return BoundInsert(
            bound.table, moved(bound.rows), moved(bound.query), conflict, moved(bound.returning)
        )
    if isinstance(bound, BoundChange):
        return BoundChange(
            bound.scan,
            moved(bound.source),
            moved(bound.where),
            moved_sets(bound.sets),
            moved(bound.returning),
        )
    return moved(bound)


def _is_sharded(bound: Bound) -> bool:
    if isinstance(bound, BoundInsert):
        return not bound.table.is_global
    if isinstance(bound, BoundChange):
        return not bound.scan.table.is_global
    return any(not scan.table.is_global for scan in scans_in(bound))


def _check_claim(plan: Plan, lock: exp.Expr) -> None:
    """SKIP LOCKED: nobody is met, where finding the rows and changing them is one step; a row that
    is deleted is deleted by one."""
    write = plan.write if isinstance(plan, Returning) else plan
    is_deleted = isinstance(write, KeyedWrite) and write.update_sql is None
    if not isinstance(write, PointWrite) and not is_deleted:
        raise Unsupported(
            "SKIP LOCKED is not supported where two could take the same row",
            hint="keep the rows of a queue together: DISTRIBUTED BY (), or by the queue",
            position=walk_position(lock),
        )


def _plan(bound: Bound, catalog: Catalog, numbers: Numbers) -> Plan:
    write = _plan_statement(bound, catalog, numbers)
    items = getattr(bound, "returning", None)
    if items is None or not isinstance(write, ROW_WRITES):
        return write
    table = bound.table if isinstance(bound, BoundInsert) else bound.scan.table
    in_order = isinstance(write, (ShardedInsert, InsertSelect))
    clause = returning_clause(table, items, keyed=in_order)
    return Returning(write, clause, len(items), len(key_columns(table)) if in_order else 0)


def _plan_statement(bound: Bound, catalog: Catalog, numbers: Numbers) -> Plan:
    if isinstance(bound, BoundInsert):
        if bound.table.is_global:
            return plan_global_insert(bound, catalog, numbers)
        return plan_insert(bound, catalog, numbers)
    if isinstance(bound, BoundChange):
        if bound.scan.table.is_global:
            return plan_global_change(bound, catalog, numbers)
        return plan_change(bound, catalog, numbers)
    return plan_read(bound, catalog, numbers)


def _description(bound: Bound) -> tuple[str, tuple[OutColumn, ...], tuple[Any, ...]]:
    rights: dict[Any, None] = {}
    node: Any = bound
    tag, columns = "SELECT", tuple[OutColumn, ...]()
    if isinstance(bound, BoundInsert):
        tag, node = "INSERT", (bound.rows or (), *([bound.query] if bound.query else []))
        rights[("insert", "table", bound.table.id, bound.table.name)] = None
        if bound.conflict.action in ("update", "replace"):
            rights[("update", "table", bound.table.id, bound.table.name)] = None
        if bound.conflict.action == "update" or bound.returning is not None:
            rights[("read", "table", bound.table.id, bound.table.name)] = None
    elif isinstance(bound, BoundChange):
        tag = "DELETE" if bound.sets is None else "UPDATE"
        exprs: list[Expr] = [expr for _, expr in bound.sets or ()]
        where = [bound.where] if bound.where is not None else []
        table = bound.scan.table
        rights[(tag.lower(), "table", table.id, table.name)] = None
        # A bare DELETE FROM t looks at no value; anything else reads the table too.
        looks = exprs or where or bound.returning is not None
        node = (bound.source, *exprs, *where) if looks else ()
    else:
        columns = tuple(
            _out_column(name, type_, told, source)
            for (name, type_), told, source in zip(
                output(bound), known(bound), _sources(bound), strict=True
            )
        )
    if isinstance(bound, (BoundInsert, BoundChange)) and bound.returning is not None:
        columns = tuple(
            _out_column(item.name, item.expr.type or ColumnType.STRING, known_of(item.expr))
            for item in bound.returning
        )
    for scan in scans_in(node):
        rights[("read", "table", scan.table.id, scan.table.name)] = None
    return tag, columns, tuple(rights)


Source = tuple[Table, int]  # a column of a table, as it is, and its place


def _out_column(
    name: str, type_: ColumnType, told: Known, source: Source | None = None
) -> OutColumn:
    enum = told if isinstance(told, EnumType) and type_ is ColumnType.STRING else None
    scale = min(told, MOST) if isinstance(told, int) else None
    narrow = told if isinstance(told, Width) and type_ in WHOLES else None
    if source is None:
        return OutColumn(name, type_, scale, enum, narrow=narrow)
    table, at = source
    column = table.columns[at]
    told_oid = column.oid if column.oid == VARCHAR else 0
    origin = (table.id, at + 1, type_modifier(column))
    return OutColumn(name, type_, scale, enum, origin, told_oid, narrow)


def _sources(query: Query) -> list[Source | None]:
    """Of the columns of a query: those that are columns of tables as they are."""
    if not isinstance(query, Select):
        return [None] * len(output(query))
    tables = {scan.rel: scan.table for scan in scans_in(query.source)}
    return [_source(item.expr, tables) for item in query.items]


def _source(expr: Expr, tables: dict[int, Table]) -> Source | None:
    table = tables.get(expr.rel) if isinstance(expr, Col) and expr.at >= 0 else None
    return None if table is None or not isinstance(expr, Col) else (table, expr.at)
