"""The tree of a plan. Above a `motion` is what the asker does, below it what each owner does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cairn.sql.bind.dml import BoundChange, BoundInsert
from cairn.sql.explain.expressions import Words
from cairn.sql.explain.nodes import Node, chained
from cairn.sql.ir import (
    Again,
    Derived,
    Expr,
    Gathered,
    Join,
    Query,
    Recursion,
    Rel,
    Scan,
    Select,
    SetOp,
    Values,
    scans_in,
)
from cairn.sql.plans import (
    Exchange,
    Fragment,
    GlobalWrite,
    InsertSelect,
    KeyedWrite,
    Meeting,
    Plan,
    PointRead,
    ReadPlan,
    Returning,
    ScatterRead,
    ScatterWrite,
    Step,
)
from cairn.sql.render.sent import Split

#: Where a part of a plan is done: words for the text, facts for JSON.
Where = tuple[str, dict[str, Any]]
Wheres = Callable[[Any], Where]


def nowhere(part: Any) -> Where:
    """For a plan without a cluster."""
    return "", {}


class Tree:
    """Makes the nodes. `paths` tells how each relation is read, `where` who does which part, `ran`
    which way a plan took that has several; None: it was not run.
    """

    def __init__(
        self,
        paths: Mapping[int, str],
        where: Wheres,
        ran: Callable[[ScatterRead], ScatterRead] | None = None,
    ) -> None:
        self._paths, self._where, self._ran = paths, where, ran
        self._words = Words()
        self._fragments: Sequence[Fragment] = ()
        self._at_owners: Fragment | None = None  # whose block is shown

    def statement(self, plan: Plan, bound: Any) -> Node:
        if isinstance(plan, Returning):
            plan = plan.write
        if isinstance(bound, BoundInsert):
            return self._insert(plan, bound)
        if isinstance(bound, BoundChange):
            return self._change(plan, bound)
        assert isinstance(plan, (PointRead, ScatterRead))
        return self.read(plan)

    # --- reads ------------------------------------------------------------------------------------

    def read(self, plan: ReadPlan) -> Node:
        if isinstance(plan, PointRead):
            self._words.learn(plan.query)
            assert plan.query is not None
            root = self._query(plan.query)
            words, facts = self._where(plan)
            root.text += words
            root.facts.update(facts)
            return root
        shown = plan if self._ran is None else self._ran(plan)
        around, self._fragments = self._fragments, shown.fragments
        blocks = [each.block for each in shown.fragments]
        self._words.learn(tuple(blocks), blocks)
        self._words.learn(shown.merged, blocks)
        assert shown.merged is not None
        root = self._query(shown.merged)
        self._fragments = around
        root.below += [self._step(step) for step in plan.steps]
        if self._ran is None:
            root.below += [_may_meet(plan, each) for each in plan.meetings]
            root.below += [self._may_deal(plan, each) for each in plan.exchanges if each.reduces]
        return root

    def _step(self, step: Step) -> Node:
        return Node(f"subquery first (${step.number}):", {}, [self.read(step.plan)])

    def _may_deal(self, plan: ScatterRead, exchange: Exchange) -> Node:
        where, facts = self._where(exchange.plan.fragments[-1])
        where = where.replace(" from ", " at ", 1)
        how = " and ".join(
            f"the rows of {_tables(plan.fragments[each.table])} {self._key(each)}"
            for each in exchange.plan.fragments[-1].splits
        )
        return Node(f"or in parts{where}: {how}, if all of them are many", facts)

    def _key(self, split: Split) -> str:
        shown = ", ".join(map(self._words.expr, split.key))
        if split.by is None:
            return f"dealt out by hash of ({shown})"
        if split.by.stays == split.table:
            return f"staying in the bucket of ({shown})"
        return f"dealt out by bucket of ({shown})"

    def _motion(self, index: int) -> Node:
        fragment, around = self._fragments[index], self._at_owners
        split = (
            next((each for each in around.splits if each.table == index), None) if around else None
        )
        words, facts = self._where(fragment if split is None else split.fragment)
        policy = "full"
        if split is not None:
            policy, key = "segment", self._key(split)
            words += f" {key}"
            facts = facts | {"Dealt Out": key}
        elif around is not None and around.splits:
            words += " to all parts"
            facts = facts | {"To": "all parts"}
        elif around is not None:
            sent = next(each for each in around.sent if each.table == index)
            policy = "full" if sent.bucket is None else "segment"
            words += f" to the owners of {_tables(around)}"
            facts = facts | {"To": _tables(around)}
        self._at_owners = fragment
        self._words.learn(fragment.block, [each.block for each in self._fragments])
        below = self._query(fragment.block, self._words.names_of(fragment.block))
        self._at_owners = around
        return Node(f"motion [policy: {policy}]{words}", {"Policy": policy, **facts}, [below])

    def _query(self, query: Query, names: Sequence[str] = ()) -> Node:
        match query:
            case Values():
                return self._values(query.rows)
            case SetOp():
                word = "recursive " if isinstance(query, Recursion) else ""
                both = [self._query(query.left), self._query(query.right)]
                return Node(f"{word}{query.op.lower()}", {}, both)
            case Select():
                return self._select(query, names)

    def _values(self, rows: Sequence[Sequence[Expr]]) -> Node:
        shown = [", ".join(self._words.expr(cell) for cell in row) for row in rows]
        return Node("values", {}, [Node(f"value row (data=ROW({cells}))") for cells in shown])

    def _select(self, query: Select, names: Sequence[str]) -> Node:
        expr = self._words.expr
        found: list[Node] = []
        if query.limit is not None:
            found.append(Node(f"limit {expr(query.limit).partition('::')[0]}"))
        if query.order:
            shown = ", ".join(map(self._words.ordered, query.order))
            found.append(Node(f"order by ({shown})"))
        names = names or [item.name for item in query.items]
        items = ", ".join(
            f'{expr(item.expr)} -> "{name}"' for item, name in zip(query.items, names, strict=True)
        )
        found.append(Node(f"projection ({'distinct ' if query.distinct else ''}{items})"))
        if query.having is not None:
            found.append(Node(f"having ({expr(query.having)})"))
        if query.group:
            found.append(Node(f"group by ({', '.join(map(expr, query.group))})"))
        return self._filtered(found, query.source, query.where)

    def _filtered(self, found: list[Node], source: Rel | None, where: Expr | None) -> Node:
        """What stands above, then the condition, then where the rows come from."""
        if where is not None:
            found.append(Node(f"selection ({self._words.expr(where)})"))
        asked = self._words.take_subqueries()
        lowest = found[-1]
        if source is not None:
            found.append(self._source(source))
        lowest.below += [Node("subquery:", {}, [self._query(each)]) for each in asked]
        return chained(*found)

    def _source(self, source: Rel) -> Node:
        match source:
            case Scan(table=table, alias=alias, rel=rel):
                way = self._paths.get(rel, "")
                shown = f' -> "{alias}"' if alias != table.name else ""
                facts = {"Relation Name": table.name, "Alias": alias}
                return Node(f'scan "{table.name}"{shown}{way}', facts | _path(way))
            case Gathered(index=index):
                return self._motion(index)
            case Derived(query=query, alias=alias):
                return Node(f'scan "{alias}"', {"Alias": alias}, [self._query(query)])
            case Again(alias=alias):
                return Node(f'scan "{alias}" of the last round', {"Alias": alias})
            case Join(kind=kind, left=left, right=right, on=on):
                condition = self._words.expr(on) if on is not None else "true::bool"
                word = "join" if kind == "inner" else f"{kind} join"
                asked = self._words.take_subqueries()
                both = [self._source(left), self._source(right)]
                both += [Node("subquery:", {}, [self._query(each)]) for each in asked]
                return Node(f"{word} on ({condition})", {}, both)

    # --- writes -----------------------------------------------------------------------------------

    def _insert(self, plan: Plan, bound: BoundInsert) -> Node:
        table = bound.table
        words, facts = self._where(plan)
        root = Node(f'insert into "{table.name}" on conflict: {bound.on_conflict}{words}', facts)
        read = plan.read if isinstance(plan, (InsertSelect, GlobalWrite)) else None
        if read is not None:
            rows = self.read(read)
        elif bound.rows is not None:
            rows = self._values(bound.rows)
        else:
            assert bound.query is not None
            self._words.learn(bound.query)
            rows = self._query(bound.query)
        return chained(root, rows) if table.is_global else chained(root, _by_bucket(table), rows)

    def _change(self, plan: Plan, bound: BoundChange) -> Node:
        table = bound.scan.table
        is_scatter = isinstance(plan, ScatterWrite)
        done: BoundChange = plan.fragment.block if isinstance(plan, ScatterWrite) else bound
        self._words.learn((done.source, done.where, *(each for _, each in done.sets or ())))
        text = f'delete from "{table.name}"'
        if done.sets is not None:
            expr, columns = self._words.expr, table.columns
            sets = ", ".join(f'"{columns[at].name}" = {expr(each)}' for at, each in done.sets)
            text = f'update "{table.name}" ({sets})'
        words, facts = self._where(plan)
        root = Node(text + words, facts)
        if isinstance(plan, KeyedWrite):
            self._words.take_subqueries()
            return chained(root, _by_bucket(table), self.read(plan.read))
        root = self._filtered([root], done.source, done.where)
        if is_scatter and isinstance(plan, ScatterWrite):
            root.below += [self._step(step) for step in plan.steps]
        return root


def _tables(fragment: Fragment) -> str:
    names = dict.fromkeys(each.table.name for each in scans_in(fragment.block))
    return ", ".join(f'"{name}"' for name in names)


def _may_meet(plan: ScatterRead, meeting: Meeting) -> Node:
    where = _tables(plan.fragments[meeting.stays])
    return Node(f"or at the owners of {where}: the rows of the other motions go there, if few")


def _by_bucket(table: Any) -> Node:
    refs = ", ".join(f'ref("{name}")' for name in table.sharding.columns)
    return Node(f"motion [policy: segment([{refs}])]", {"Policy": "segment"})


def _path(way: str) -> dict[str, str]:
    return {"Access": way.removeprefix(" by ")} if way else {}
