"""A query to a plan: one statement where one bucket or none is meant, else fragments and a merge.

The merge is the same query again, run at the coordinator over gathered rows: each maximal part
that every replicaset can answer for itself becomes a fragment, with its filters, projection,
partial aggregates, DISTINCT and LIMIT.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cairn.model.errors import TableUnderDdl
from cairn.model.tables.catalog import Catalog
from cairn.model.types.values import ColumnType
from cairn.sql.functions.late import calls_late
from cairn.sql.ir import (
    RELATIONS,
    Again,
    Agg,
    Call,
    Col,
    Const,
    Derived,
    Expr,
    Gathered,
    Item,
    Join,
    Param,
    Query,
    Rel,
    Scan,
    Select,
    SetOp,
    SubQuery,
    Values,
    columns_in,
    conjunction,
    conjuncts,
    has_aggregate,
    has_window,
    outer_columns,
    output,
    rels_of,
    rewrite,
    scans_in,
    substitute,
    walk,
)
from cairn.sql.plan.buckets import bucket_set, check_one_tier, key_bucket, reads, single_key
from cairn.sql.plan.links import linked
from cairn.sql.plan.locality import Local, covers, is_sharded, remote_ok, source_locality
from cairn.sql.plan.merging import aggregates_in, can_merge, merged_aggregate, substitute_block
from cairn.sql.plans import Fragment, PointRead, ReadPlan, ScatterRead, Step
from cairn.sql.render.render import Renderer
from cairn.sql.render.slots import Slots
from cairn.sql.typing_rules import B, I


class Numbers:
    """Hands out relation numbers and hidden parameters that nothing in the statement has."""

    def __init__(self, rel: int, param: int) -> None:
        self.rel, self.param = rel, param

    def next_rel(self) -> int:
        self.rel += 1
        return self.rel

    def next_param(self) -> int:
        self.param += 1
        return self.param


def plan_read(query: Query, catalog: Catalog, numbers: Numbers) -> ReadPlan:
    """The cheapest plan whose answer is that of one big table."""
    scans = [scan for scan in scans_in(query) if not scan.table.is_global]
    tier = check_one_tier(scans)
    if not scans:
        slots = Slots()
        sql = Renderer(slots).query(query)
        return PointRead(sql, slots.bind(), query=query)
    check_operable(scans)
    key = None if calls_late(query) else single_key(query)
    if key is not None:
        slots = Slots()
        bucket = key_bucket(catalog, key)
        mark = slots.computed("bucket", bucket)
        sql = Renderer(slots, bucket=mark).query(query)
        return PointRead(sql, slots.bind(), bucket, tier, query)
    return Gather(catalog, numbers).plan(query)


def check_operable(scans: Iterable[Scan]) -> None:
    for scan in scans:
        if not scan.table.operable:
            raise TableUnderDdl(
                f'table "{scan.table.name}" is being changed', hint="repeat the statement later"
            )


class Gather:
    """Turns one query into fragments and a merge."""

    def __init__(self, catalog: Catalog, numbers: Numbers) -> None:
        self.catalog, self.numbers = catalog, numbers
        self.blocks: list[Select] = []
        self.steps: list[Step] = []

    def plan(self, query: Query) -> ScatterRead:
        merged = self.query(self.take_steps(query))
        slots = Slots()
        sql = Renderer(slots).query(merged)
        fragments = tuple(self.fragment(block) for block in self.blocks)
        return ScatterRead(tuple(self.steps), fragments, sql, slots.bind(), merged)

    def fragment(self, block: Select) -> Fragment:
        slots = Slots()
        sql = Renderer(slots, marks=True).query(linked(block))
        scans = scans_in(block)
        tier = check_one_tier(scans)
        assert tier is not None
        types = tuple(type_ for _, type_ in output(block))
        tables = tuple(dict.fromkeys(scan.table.id for scan in scans))
        buckets = bucket_set(self.catalog, reads(block))
        return Fragment(sql, slots.bind(), types, tier, tables, buckets, block)

    # --- sub-queries that are values ---

    def take_steps(self, node: Any) -> Any:
        """Replace sub-queries that depend on nothing around them by parameters computed first."""

        def change(each: Any) -> Any:
            if not isinstance(each, SubQuery) or each.kind == "in" or not is_sharded(each.query):
                return None
            if outer_columns(each.query):
                return None
            number = self.numbers.next_param()
            query = each.query
            top = Const(I, 1 if each.kind == "exists" else 2)
            if query.limit is None and query.offset is None:
                query = replace(query, limit=top)
            plan = plan_read(query, self.catalog, self.numbers)
            type_ = each.type or ColumnType.STRING
            kind = "exists" if each.kind == "exists" else "scalar"
            self.steps.append(Step(kind, plan, type_, number))  # type: ignore[arg-type]
            return Param(B if kind == "exists" else type_, number)

        return rewrite(node, change)

    # --- queries ---

    def query(self, query: Query) -> Query:
        """The same query over gathered rows."""
        if not is_sharded(query):
            return query
        if isinstance(query, SetOp):
            return replace(query, left=self.query(query.left), right=self.query(query.right))
        if isinstance(query, Values):
            return replace(query, rows=self.subqueries(query.rows))
        return self._select(query)

    def subqueries(self, node: Any) -> Any:
        """Every sub-query inside an expression over gathered rows."""

        def change(each: Any) -> Any:
            if isinstance(each, SubQuery) and is_sharded(each.query):
                operands = self.subqueries(each.operands)
                return replace(each, query=self.query(each.query), operands=operands)
            return None

        return rewrite(node, change)

    def _select(self, query: Select) -> Query:
        holds = conjuncts(query.where)
        local = source_locality(query.source, holds)
        pushed = None
        if local is not None and not local.is_replicated and not outer_columns(query):
            pushed = self._push(query, local, holds)
        return pushed or self._gather_source(query)

    def _push(self, query: Select, local: Local, holds: list[Expr]) -> Query | None:
        if not all(remote_ok(part, local, holds) for part in holds):
            return None
        exprs = [item.expr for item in query.items]
        ordering = [each.expr for each in query.order]
        if any(map(has_window, (*exprs, *ordering))):
            return None
        having = [query.having] if query.having is not None else []
        every = (*exprs, *ordering, *having)
        grouped = query.group is not None or any(map(has_aggregate, every))
        here = all(remote_ok(each, local, holds) for each in (*every, *(query.group or ())))
        if not grouped or covers(query.group or (), local):
            return self._push_whole(query) if here else None
        aggregates = list(dict.fromkeys(agg for each in every for agg in aggregates_in(each)))
        inner = [part for agg in aggregates for part in (*agg.args, agg.filter, *agg.order)]
        parts = (*(query.group or ()), *(part for part in inner if part is not None))
        if not all(remote_ok(part, local, holds) for part in parts):
            return None
        if all(can_merge(agg, local) for agg in aggregates):
            return self._push_partial(query, aggregates)
        return self._push_arguments(query, aggregates)

    def _push_whole(self, query: Select) -> Select:
        """The block as it is on each replicaset; its first rows are among their first rows."""
        extra = [each.expr for each in query.order]
        shown = list(dict.fromkeys((*(item.expr for item in query.items), *extra)))
        limit = query.limit
        if limit is not None and query.offset is not None:
            limit = Call(I, "i_add", (limit, query.offset))
        block = replace(
            query,
            items=tuple(Item("", expr) for expr in shown),
            order=query.order if limit is not None else (),
            limit=limit,
            offset=None,
        )
        gathered, columns = self._gathered(block)
        mapping = dict(zip(shown, columns, strict=True))
        return Select(
            tuple(Item(item.name, mapping[item.expr]) for item in query.items),
            gathered,
            distinct=query.distinct,
            order=tuple(replace(each, expr=mapping[each.expr]) for each in query.order),
            limit=query.limit,
            offset=query.offset,
        )

    def _push_partial(self, query: Select, aggregates: list[Agg]) -> Query:
        group = query.group or ()
        block = Select(
            tuple(Item("", expr) for expr in (*group, *aggregates)) or (Item("", Const(I, 1)),),
            query.source,
            query.where,
            group,
        )
        gathered, columns = self._gathered(block)
        mapping: dict[Expr, Expr] = dict(zip(group, columns, strict=False))
        for agg, column in zip(aggregates, columns[len(group) :], strict=False):
            mapping[agg] = merged_aggregate(agg, column)
        return self._over(query, gathered, tuple(columns[: len(group)]), mapping)

    def _push_arguments(self, query: Select, aggregates: list[Agg]) -> Query:
        """Aggregates that cannot be merged: send what they look at, once each if that does."""
        group = query.group or ()
        inner = [
            part
            for agg in aggregates
            for part in (*agg.args, agg.filter, *(each.expr for each in agg.order))
            if part is not None and not isinstance(part, (Const, Param))
        ]
        shown = list(dict.fromkeys((*group, *inner))) or [Const(I, 1)]
        once = all(agg.distinct or agg.name in ("min", "max") for agg in aggregates)
        block = Select(
            tuple(Item("", expr) for expr in shown), query.source, query.where, distinct=once
        )
        gathered, columns = self._gathered(block)
        mapping: dict[Expr, Expr] = {
            expr: column
            for expr, column in zip(shown, columns, strict=True)
            if expr in group or not isinstance(expr, Const)
        }
        return self._over(query, gathered, tuple(mapping[each] for each in group), mapping)

    def _over(
        self, query: Select, source: Rel, group: tuple[Expr, ...], mapping: dict[Expr, Expr]
    ) -> Query:
        items, having, order = substitute_block((query.items, query.having, query.order), mapping)
        merged = replace(
            query, items=items, source=source, where=None, group=group, having=having, order=order
        )
        return self.subqueries(merged)  # type: ignore[no-any-return]

    def _gathered(self, block: Select) -> tuple[Gathered, list[Col]]:
        rel = self.numbers.next_rel()
        self.blocks.append(block)
        columns = [Col(item.expr.type, rel, at, item.name) for at, item in enumerate(block.items)]
        return Gathered(rel, len(self.blocks) - 1), columns

    # --- FROM, piece by piece ---

    def _gather_source(self, query: Select) -> Query:
        """Gather the rows of FROM, filtered and projected, and do the rest at the coordinator."""
        holds = conjuncts(query.where)
        pieces = Pieces(self, query)
        source = pieces.take(query.source, holds, [], nullable=False)
        rest = [part for part in holds if part not in pieces.pushed]
        changed = replace(query, source=source, where=conjunction(rest))
        return self.subqueries(substitute(changed, pieces.mapping))  # type: ignore[no-any-return]


class Pieces:
    """The parts of one FROM that are gathered separately."""

    def __init__(self, gather: Gather, query: Select) -> None:
        self.gather, self.query = gather, query
        self.pushed: set[Expr] = set()
        self.mapping: dict[Expr, Expr] = {}

    def take(self, source: Rel | None, holds: list[Expr], on: list[Expr], *, nullable: bool) -> Any:
        """`source` with every sharded part replaced by gathered rows.

        `on` holds conditions of the outer join that this side may be filtered by early.
        """
        local = source_locality(source, holds)
        if local is not None and local.is_replicated:
            return source
        if local is not None:
            assert source is not None
            return self._piece(source, local, on if nullable else on + holds, keep=nullable)
        if isinstance(source, Again):
            return source
        if isinstance(source, Derived):
            return replace(source, query=self.gather.query(source.query))
        assert isinstance(source, Join)
        parts = conjuncts(source.on)
        if source.kind == "inner":
            left = self.take(source.left, holds, on + parts, nullable=nullable)
            right = self.take(source.right, holds, on + parts, nullable=nullable)
        elif source.kind == "left":
            left = self.take(source.left, holds, on, nullable=nullable)
            right = self.take(source.right, [], parts, nullable=True)
        else:
            left = self.take(source.left, [], [], nullable=True)
            right = self.take(source.right, [], [], nullable=True)
        return replace(source, left=left, right=right)

    def _piece(self, source: Rel, local: Local, filters: list[Expr], *, keep: bool) -> Rel:
        inside = rels_of(source)
        mine = [
            part
            for part in filters
            if (columns := columns_in(part))
            and {col.rel for col in columns if not _below(col, part)} <= inside
            and remote_ok(part, local, filters)
        ]
        if not keep:
            self.pushed.update(part for part in mine if part in conjuncts(self.query.where))
        needed = sorted(
            {col for col in self._wanted(source) if col.rel in inside},
            key=lambda col: (col.rel, col.at, col.name, col.nullable),
        )
        shown: list[Expr] = list(needed) or [Const(I, 1)]
        block = Select(tuple(Item("", expr) for expr in shown), source, conjunction(mine))
        gathered, places = self.gather._gathered(block)
        self.mapping.update(zip(needed, places, strict=False))
        return gathered

    def _wanted(self, source: Rel) -> set[Col]:
        """Columns that anything outside the piece looks at."""
        query = self.query
        outside: set[Col] = set()
        for part in conjuncts(query.where):
            if part not in self.pushed:
                outside |= columns_in(part)
        for each in (query.items, query.group, query.having, query.order):
            if each is not None:
                outside |= columns_in(each)
        return outside | self._join_columns(query.source, source)

    def _join_columns(self, node: Rel | None, piece: Rel) -> set[Col]:
        if node is piece or not isinstance(node, Join):
            return set()
        own = columns_in(node.on) if node.on is not None else set()
        return own | self._join_columns(node.left, piece) | self._join_columns(node.right, piece)


def _below(col: Col, part: Expr) -> bool:
    """Whether the column belongs to a relation inside a sub-query of `part`."""
    return any(isinstance(node, RELATIONS) and node.rel == col.rel for node in walk(part))
