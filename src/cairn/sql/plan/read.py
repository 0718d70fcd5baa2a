"""A query to a plan: one statement where one bucket or none is meant, else fragments and a merge.

The merge is the same query again, run at the coordinator over gathered rows: each maximal part
that every replicaset can answer for itself becomes a fragment, with its filters, projection,
partial aggregates, DISTINCT and LIMIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import TEMP_TIER
from cairn.model.types.values import ColumnType
from cairn.sql.functions.function_list import calls_late
from cairn.sql.ir import (
    Agg,
    Call,
    Col,
    Const,
    Expr,
    Gathered,
    Item,
    Param,
    Query,
    Rel,
    Select,
    SetOp,
    SubQuery,
    Values,
    conjunction,
    conjuncts,
    has_aggregate,
    has_given,
    outer_columns,
    output,
    rewrite,
    scans_in,
)
from cairn.sql.plan.buckets import bucket_set, check_one_tier, keys_of, reads, single_key
from cairn.sql.plan.exchanges import dealt_out, marked, reduces, splits
from cairn.sql.plan.links import linked
from cairn.sql.plan.locality import (
    Local,
    covers,
    is_sharded,
    remote_ok,
    source_locality,
    windows_stay,
)
from cairn.sql.plan.merging import aggregates_in, can_merge, merged_aggregate, substitute_block
from cairn.sql.plan.pieces import (
    NoMeeting,
    Pieces,
    Placed,
    among_by_bucket,
    sent_with,
    with_buckets,
)
from cairn.sql.plan.point import read_alone, read_anywhere, read_by_key
from cairn.sql.plan.shaping.by_key import by_key
from cairn.sql.plan.shaping.copied import copied
from cairn.sql.plan.shaping.lookups import lookups
from cairn.sql.plan.shaping.shape import shaped
from cairn.sql.plans import Exchange, Fragment, Meeting, ReadPlan, ScatterRead, Step
from cairn.sql.render.groups import grouped
from cairn.sql.render.render import Renderer
from cairn.sql.render.sent import ByBucket
from cairn.sql.render.slots import Slots
from cairn.sql.scales import known_of, scales
from cairn.sql.typing_rules import B, I
from cairn.sql.zeros import is_key, padded

MOST_MEETING = 4  # fragments of which one may stay where it is


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
    is_given = has_given(query)
    if not scans and not is_given:
        return read_anywhere(query)
    key = None if is_given or calls_late(query) else single_key(query)
    if key is not None:
        return read_by_key(query, catalog, key, tier)
    return Gather(catalog, numbers).plan(query)


class Gather:
    """Turns one query into fragments and a merge."""

    def __init__(self, catalog: Catalog, numbers: Numbers, stays: int | None = None) -> None:
        self.catalog, self.numbers = catalog, numbers
        self.stays = stays  # this piece of FROM is not gathered: see `meeting.py`
        self.pieces: list[int] = []  # the block that each of them became
        self.placed: dict[int, Placed] = {}
        self.blocks: list[Select] = []
        self.steps: list[Step] = []

    def plan(self, query: Query) -> ScatterRead:
        whole, query = query, shaped(self.take_steps(query), self.numbers.next_rel)
        plan = replace(self.over_gathered(query), steps=tuple(self.steps))
        meetings, exchanges = self._meetings(query, plan), self._exchanges(plan)
        return replace(
            plan,
            meetings=tuple(meetings),
            exchanges=tuple(exchanges),
            alone=self._alone(whole, plan),
        )

    def _alone(self, query: Query, plan: ScatterRead) -> ScatterRead | None:
        """Groups are found by a hash for a merge only, which is quicker than SQLite's sort."""
        if any(each.grouped for each in plan.fragments):
            return None
        return read_alone(query, self.catalog, self.next_rel())

    def over_gathered(self, query: Query, known: Sequence[Fragment] = ()) -> ScatterRead:
        """`known` fragments are taken as they are."""
        merged = self.query(query)
        slots = Slots()
        sql = Renderer(slots).query(merged)
        fragments = tuple(
            next((each for each in known if each.block == block), None) or self.fragment(block)
            for block in self.blocks
        )
        return ScatterRead((), fragments, sql, slots.bind(), merged, indexes=lookups(merged))

    def _meetings(self, query: Query, plan: ScatterRead) -> Iterator[Meeting]:
        """For each piece of FROM: the plan in which it stays, and the other rows go there."""
        if not 2 <= len(plan.fragments) <= MOST_MEETING:
            return
        for at, stays in enumerate(self.pieces):
            if plan.fragments[stays].tier == TEMP_TIER:
                continue  # no rows go to a session: it has asked for them
            other = Gather(self.catalog, self.numbers, stays=at)
            try:
                found = other.over_gathered(query, plan.fragments)
            except NoMeeting:
                continue
            sent = {each.table for fragment in found.fragments for each in fragment.sent}
            new = [each for each in found.fragments if each not in plan.fragments]
            if sent and len(new) == 1 and plan.fragments[stays] not in found.fragments:
                yield Meeting(stays, found)

    def _exchanges(self, plan: ScatterRead) -> Iterator[Exchange]:
        """For each choice of fragments with many rows: the plan in which these are dealt out."""
        owned = [at for at, each in enumerate(plan.fragments) if each.tier != TEMP_TIER]
        if 2 <= len(plan.fragments) <= MOST_MEETING:
            for size in range(len(owned), 1, -1):
                for apart in map(frozenset, combinations(owned, size)):
                    yield from self._exchange(plan, apart)

    def _exchange(self, plan: ScatterRead, apart: frozenset[int]) -> Iterator[Exchange]:
        assert plan.merged is not None
        for query, by in marked(plan.merged, apart, plan.fragments, self.catalog):
            gather = Gather(self.catalog, self.numbers)
            gather.blocks = [each.block for each in plan.fragments]
            merged = gather.query(query)
            new = gather.blocks[len(plan.fragments) :]
            if len(new) == 1 and len(dealt_out(new[0])) == len(apart):
                slots = Slots()
                sql = Renderer(slots).query(merged)
                fragments = (*plan.fragments, self._joining(new[0], plan.fragments, by))
                found = ScatterRead((), fragments, sql, slots.bind(), merged)
                yield Exchange(apart, found, reduces(new[0]))
                return

    def _joining(
        self, block: Select, fragments: Sequence[Fragment], by: ByBucket | None
    ) -> Fragment:
        """What each instance does with the parts that it is given."""
        slots = Slots()
        sql = Renderer(slots).query(block)
        types = tuple(type_ for _, type_ in output(block))
        found = splits(block, fragments, by)
        tier = fragments[found[0].table].tier
        return Fragment(sql, slots.bind(), types, tier, (), None, block, (), found)

    def fragment(self, block: Select) -> Fragment:
        slots = Slots()
        renderer, tied = Renderer(slots, marks=True), copied(linked(block), self.catalog)
        assert isinstance(tied, Select)
        sql, by_hash = renderer.query(tied), grouped(tied, renderer) if _is_merged(block) else ""
        scans = scans_in(block)
        tier = check_one_tier(scans)
        assert tier is not None
        types = tuple(type_ for _, type_ in output(block))
        tables = tuple(dict.fromkeys(scan.table.id for scan in scans))
        buckets = bucket_set(self.catalog, reads(block))
        sent = sent_with(block, self, self.catalog)
        if sent:
            clauses = ", ".join(each.clause(slots.count + n) for n, each in enumerate(sent, 1))
            sql, by_hash = f"WITH {clauses} {sql}", by_hash and f"WITH {clauses} {by_hash}"
        is_plain = not (sent or by_hash)
        keys = keys_of(self.catalog, reads(block)) if is_plain else None
        way = by_key(block, self.catalog, renderer) if is_plain else None
        return Fragment(
            *(sql, slots.bind(), types, tier, tables, buckets, block, sent),
            grouped=by_hash,
            keys=keys,
            by_key=way,
            is_narrow=_is_narrow(block),
        )

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
            found = Param(B if kind == "exists" else type_, number)
            return padded(found, scales(each.query)[0] if kind == "scalar" else None)

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
        having = [query.having] if query.having is not None else []
        every = (*exprs, *ordering, *having)
        grouped = query.group is not None or any(map(has_aggregate, every))
        here = all(remote_ok(each, local, holds) for each in (*every, *(query.group or ())))
        stay = windows_stay(every, local)
        if not grouped or (stay and covers(query.group or (), local)):
            return self._push_whole(query) if here and stay else None
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
        gathered, columns = self.gathered(block)
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
        gathered, columns = self.gathered(block)
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
        gathered, columns = self.gathered(block)
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

    def gathered(self, block: Select) -> tuple[Gathered, list[Col]]:
        rel = self.next_rel()
        self.blocks.append(block)
        columns = [
            Col(
                item.expr.type,
                rel,
                at,
                item.name,
                scale=known_of(item.expr),
                is_key=is_key(item.expr),
            )
            for at, item in enumerate(block.items)
        ]
        return Gathered(rel, len(self.blocks) - 1), columns

    def next_rel(self) -> int:
        return self.numbers.next_rel()

    # --- FROM, piece by piece ---

    def _gather_source(self, query: Select) -> Query:
        """Gather the rows of FROM, filtered and projected, and do the rest at the coordinator."""
        holds = conjuncts(query.where)
        pieces = Pieces(self, query)
        source = pieces.take(query.source, holds, [], nullable=False)
        if pieces.staying is not None:
            so_far = len(self.blocks)
            if pieces.staying.reduces(query):
                with suppress(NoMeeting):
                    return self._meet(query, source, pieces)
            del self.blocks[so_far:]
            self.placed.clear()
            source = pieces.filtered(source, pieces.staying)
        rest = [part for part in holds if part not in pieces.pushed]
        changed = replace(query, source=source, where=conjunction(rest))
        return self.subqueries(pieces.over_gathered(changed))  # type: ignore[no-any-return]

    def _meet(self, query: Select, source: Rel, pieces: Pieces) -> Query:
        """The whole block at the owners of the piece that stays."""
        rest = [part for part in conjuncts(query.where) if part not in pieces.pushed]
        changed = replace(query, source=source, where=conjunction(rest))
        changed = self.subqueries(pieces.over_gathered(changed))
        holds = conjuncts(changed.where)
        local = source_locality(changed.source, holds)
        if local is None or local.is_replicated or outer_columns(changed):
            raise NoMeeting
        assert pieces.staying is not None
        stays = pieces.staying.source
        holds = [among_by_bucket(part, stays, self) for part in holds]
        source = with_buckets(changed.source, holds, self.placed)
        changed = replace(changed, source=source, where=conjunction(holds))
        found = self._push(changed, local, holds)
        if found is None:
            raise NoMeeting
        return found


def _is_narrow(block: Select) -> bool:
    return any(
        isinstance(part, Call)
        and part.name in ("=", "in", "any_of")
        and any(isinstance(arg, Col) for arg in part.args)
        and any(isinstance(arg, (Const, Param)) for arg in part.args)
        for part in conjuncts(block.where)
    )


def _is_merged(block: Select) -> bool:
    """Whether its groups are merged with those of other owners. Those that are whole where they are
    lie there in their order, and SQLite needs no sort for them.
    """
    local = source_locality(block.source, conjuncts(block.where))
    keys = [each.expr for each in block.items] if block.distinct else block.group
    return local is not None and bool(keys) and not covers(keys or (), local)
