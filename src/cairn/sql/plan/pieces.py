"""FROM, piece by piece: each part that every replicaset can read for itself is gathered alone.

One piece may stay where it is, when what the others gave is little: then either the whole block is
done there, next to it, or it is gathered as far as its rows meet those of the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.model.types.values import from_physical
from cairn.sql.ir import (
    BUCKET_AT,
    RELATIONS,
    Again,
    Call,
    Col,
    Const,
    Derived,
    Expr,
    Gathered,
    Item,
    Join,
    Query,
    Rel,
    Scan,
    Select,
    SubQuery,
    columns_in,
    conjunction,
    conjuncts,
    has_aggregate,
    is_tied,
    outer_columns,
    rels_of,
    rewrite,
    substitute,
    walk,
)
from cairn.sql.plan.buckets import hasher, key_positions
from cairn.sql.plan.links import bucket_of, driving, places_of, scans
from cairn.sql.plan.locality import Local, remote_ok, source_locality
from cairn.sql.render.sent import Sent
from cairn.sql.typing_rules import B, I, N, plain
from cairn.sql.zeros import is_key


class NoMeeting(Exception):
    """The piece that was to stay where it is cannot."""


class Gathering(Protocol):
    """Makes gathered rows of blocks."""

    stays: int | None  # the number of the piece that is not gathered
    pieces: list[int]  # the block that each of them became
    blocks: list[Select]

    def query(self, query: Query) -> Query: ...

    def gathered(self, block: Select) -> tuple[Gathered, list[Col]]: ...

    placed: dict[int, Placed]  # gathered rows whose buckets are told, by the table's number

    def next_rel(self) -> int: ...


@dataclass(frozen=True)
class Placed:
    """Gathered rows that meet only rows of one bucket: `places` are that table's key."""

    table: Table
    places: tuple[int, ...]
    narrows: bool  # rows that meet none of them do not matter


@dataclass(frozen=True)
class Staying:
    """The piece that stays, and conditions that its rows have to meet."""

    source: Rel
    local: Local | None  # None: groups of rows, of which only some may be needed
    filters: list[Expr]
    is_kept: bool  # they are not to be forgotten elsewhere: an outer join asks them again

    def reduces(self, query: Select) -> bool:
        """Whether the block gives fewer rows than the piece has, so that it is best done there."""
        if self.local is None:
            return False
        exprs = [item.expr for item in query.items]
        exprs += [each.expr for each in query.order]
        is_grouped = query.group is not None or any(map(has_aggregate, exprs))
        is_alone = query.source is self.source  # others are only in sub-queries
        return is_grouped or is_alone or query.distinct or query.limit is not None

    def met(self, source: Rel, mapping: dict[Expr, Expr], gather: Gathering) -> list[Expr]:
        """That its rows meet gathered ones, by the equalities of the join."""
        inside = rels_of(self.source)
        has_outer = any(isinstance(each, Join) and each.kind != "inner" for each in walk(source))
        pairs: dict[int, list[tuple[Expr, Expr]]] = {}
        for part in self.filters:
            if not isinstance(part, Call) or part.name != "=":
                continue
            for mine, other in (part.args, part.args[::-1]):
                columns = columns_in(other)
                rels = {place.rel for col in columns if isinstance(place := mapping.get(col), Col)}
                is_other = columns and len(rels) == 1 and all(col in mapping for col in columns)
                # Rows without a partner have NULL there: coalesce(x, 3) would be 3 for them.
                is_other = is_other and (not has_outer or _needs_partner(other))
                if is_other and (own := columns_in(mine)) and {col.rel for col in own} <= inside:
                    pairs.setdefault(rels.pop(), []).append((mine, substitute(other, mapping)))
        found = [each for each in _gathered_in(source) if each.rel in pairs]
        if not found:
            raise NoMeeting
        return [_is_among(each, pairs[each.rel], self.source, gather) for each in found]


_OF_NULL_IS_NULL = re.compile(r"same|neg|\|\||[indz]_(add|sub|mul|div|mod|neg|abs|padded|of_\w)")


def _needs_partner(expr: Expr) -> bool:
    """Whether it is NULL when its columns are."""
    if isinstance(expr, Call):
        return bool(_OF_NULL_IS_NULL.fullmatch(expr.name)) and any(map(_needs_partner, expr.args))
    return isinstance(expr, Col)


def _is_among(
    rows: Gathered, pairs: list[tuple[Expr, Expr]], piece: Rel, gather: Gathering
) -> Expr:
    """That the first of each pair are together in gathered rows."""
    rel = gather.next_rel()
    items = tuple(
        Item("", substitute(other, {col: replace(col, rel=rel) for col in columns_in(other)}))
        for _, other in pairs
    )
    operands = tuple(mine for mine, _ in pairs)
    among = SubQuery(B, "in", Select(items, Gathered(rel, rows.index)), operands)
    return among_by_bucket(among, piece, gather)


def among_by_bucket(part: Expr, piece: Rel, gather: Gathering) -> Expr:
    """`(a, b) IN (gathered rows)` with the bucket too, if it is told by these columns."""
    if not isinstance(part, SubQuery) or not _is_plain(part):
        return part
    query = part.query
    assert isinstance(query, Select) and isinstance(query.source, Gathered)
    rows = query.source
    equal: list[Expr] = [
        Call(B, "=", (mine, item.expr))
        for mine, item in zip(part.operands, query.items, strict=True)
    ]
    link = None if rows.index in gather.placed else _link(driving(piece), rows.rel, equal)
    if link is None:
        return part
    scan, places = link
    gather.placed[rows.index] = Placed(scan.table, places, narrows=True)
    items = (Item("", bucket_of(rows.rel)), *query.items)
    operands = (bucket_of(scan.rel), *part.operands)
    return replace(part, query=replace(query, items=items), operands=operands)


def _is_plain(part: SubQuery) -> bool:
    """IN gathered rows as they are."""
    query = part.query
    return (
        part.kind == "in"
        and isinstance(query, Select)
        and isinstance(query.source, Gathered)
        and query.where is None
        and query.limit is None
        and query.offset is None
        and query.group is None
        and not any(has_aggregate(item.expr) for item in query.items)
    )


def _has_groups(query: Query) -> bool:
    """A query in FROM that gives groups of rows that have one place each: one block."""
    if not isinstance(query, Select) or not query.group or query.limit is not None:
        return False
    local = source_locality(query.source, conjuncts(query.where))
    return local is not None and not local.is_replicated and not outer_columns(query)


def _of_groups(source: Derived, filters: list[Expr]) -> list[Expr]:
    """Conditions that name only what the groups are made by: they can be asked before that."""
    assert isinstance(source.query, Select)
    keys = {
        at for at, item in enumerate(source.query.items) if item.expr in (source.query.group or ())
    }
    return [
        part
        for part in filters
        if all(col.at in keys for col in columns_in(part) if col.rel == source.rel)
    ]


def _gathered_in(source: Rel | None) -> list[Gathered]:
    if isinstance(source, Join):
        return _gathered_in(source.left) + _gathered_in(source.right)
    return [source] if isinstance(source, Gathered) else []


def _with_piece(source: Rel, old: Rel, new: Rel) -> Rel:
    if source is old:
        return new
    if isinstance(source, Join):
        left, right = (_with_piece(each, old, new) for each in (source.left, source.right))
        return replace(source, left=left, right=right)
    return source


def sent_with(block: Select, gather: Gathering, catalog: Catalog) -> tuple[Sent, ...]:
    """The gathered rows that a block of the owners looks at: only the columns that it needs."""
    rels: dict[int, set[int]] = {}
    for each in walk(block):
        if isinstance(each, Gathered):
            rels.setdefault(each.index, set()).add(each.rel)
    sets = {
        each.query.source.rel  # type: ignore[union-attr]
        for each in walk(block)
        if isinstance(each, SubQuery) and _is_plain(each)
    }
    columns = columns_in(block)
    found = []
    for index, own in sorted(rels.items()):
        used = {col.at for col in columns if col.rel in own} - {BUCKET_AT}
        places = tuple(sorted(used)) or (0,)
        types = tuple(gather.blocks[index].items[at].expr.type for at in places)
        known = tuple(type_ for type_ in types if type_ is not None)
        if len(known) != len(types):
            raise NoMeeting
        sent = Sent(index, places, known, len(gather.blocks[index].items), own <= sets)
        if (placed := gather.placed.get(index)) is not None:
            bucket = _bucket_of_row(catalog, placed)
            sent = replace(sent, bucket=bucket, narrows=placed.narrows)
        found.append(sent)
    return tuple(found)


def _bucket_of_row(catalog: Catalog, placed: Placed) -> Callable[[Sequence[Any]], int | None]:
    hash_key, table = hasher(catalog, placed.table), placed.table
    types = [plain(table.columns[at].type) for at in key_positions(table)]
    parts = list(zip(types, placed.places, strict=True))

    def bucket(row: Sequence[Any]) -> int | None:
        values = [from_physical(type_, row[at]) for type_, at in parts]
        return None if None in values else hash_key(values)

    return bucket


# --- the whole block where one piece stays --------------------------------------------------------


def with_buckets(
    source: Rel, holds: list[Expr], placed: dict[int, Placed], *, is_inner: bool = True
) -> Rel:
    """Gathered rows are tied to the bucket of the rows that they meet, where an equality tells it:
    then each of them goes to one owner, and finds its partner by the primary key.
    """
    if not isinstance(source, Join) or source.kind == "full":
        return source
    on = conjuncts(source.on)
    inner = source.kind == "inner"
    usable = holds + on if inner else on
    sides = [(source.left, source.right)] + [(source.right, source.left)] * inner
    more: list[Expr] = []
    for owners, others in sides:
        for rows in _gathered_in(others):
            link = None if rows.index in placed else _link(scans(owners), rows.rel, usable)
            if link is not None:
                scan, places = link
                placed[rows.index] = Placed(scan.table, places, is_inner and inner)
                more.append(Call(B, "=", (bucket_of(scan.rel), bucket_of(rows.rel))))
    left = with_buckets(source.left, usable if inner else holds, placed, is_inner=is_inner)
    right = with_buckets(source.right, usable if inner else [], placed, is_inner=is_inner and inner)
    return replace(source, left=left, right=right, on=conjunction([*on, *more]))


def _link(tables: list[Scan], rel: int, holds: list[Expr]) -> tuple[Scan, tuple[int, ...]] | None:
    for scan in tables:
        places = places_of(scan, rel, holds)
        if places:  # none: the rows lie together, and no row tells where
            return scan, places
    return None


def _names_outer(source: Rel | None) -> bool:
    """Whether rows of a query around it are looked at: the owners of this one do not have them."""
    inside = {each.rel for each in walk(source) if isinstance(each, RELATIONS)}
    return any(col.rel not in inside for col in columns_in(source))


def _compared(query: Select) -> dict[Col, Expr]:
    """Columns whose bytes differ where their numbers are equal, and that joins look for.

    They are gathered with their keys beside them: SQLite makes an index of columns, and not of
    expressions, for a join that has none.
    """
    found: dict[Col, Expr] = {}
    for each in (*walk(query.source), *conjuncts(query.where)):
        for part in conjuncts(each.on) if isinstance(each, Join) else [each]:
            if isinstance(part, Call) and part.name == "=" and len(columns_in(part)) > 1:
                for arg in part.args:
                    if isinstance(arg, Col) and arg.type is N and not is_key(arg):
                        found[arg] = Call(N, "n_key", (arg,))
    return found


class Pieces:
    """The parts of one FROM that are gathered separately."""

    def __init__(self, gather: Gathering, query: Select) -> None:
        self.gather, self.query = gather, query
        self.compared = _compared(query)
        self.pushed: set[Expr] = set()
        # Said in one join only: what rows are filtered by early need not be asked once more there.
        joins = (each for each in walk(query.source) if isinstance(each, Join))
        said = Counter(part for each in joins for part in conjuncts(each.on))
        self.said_once = {part for part, count in said.items() if count == 1}
        self.pushed_on: set[Expr] = set()  # of these
        self.mapping: dict[Expr, Expr] = {}
        self.staying: Staying | None = None

    def take(self, source: Rel | None, holds: list[Expr], on: list[Expr], *, nullable: bool) -> Any:
        """`source` with every sharded part replaced by gathered rows.

        `on` holds conditions of the outer join that this side may be filtered by early.
        """
        local = source_locality(source, holds)
        if local is not None and local.is_replicated:
            return source
        if local is not None and not _names_outer(source):
            assert source is not None
            filters = on if nullable else on + holds
            if len(self.gather.pieces) == self.gather.stays:
                self.gather.pieces.append(-1)
                self.staying = Staying(source, local, filters, nullable)
                return source
            self.gather.pieces.append(len(self.gather.blocks))
            return self._piece(source, local, filters, keep=nullable)
        if isinstance(source, Again):
            return source
        if isinstance(source, Derived):
            if _has_groups(source.query):
                if len(self.gather.pieces) == self.gather.stays:
                    self.gather.pieces.append(-1)
                    filters = on if nullable else on + holds
                    self.staying = Staying(source, None, _of_groups(source, filters), nullable)
                    return source
                self.gather.pieces.append(len(self.gather.blocks))
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
        rest = [part for part in parts if part not in self.pushed_on] or parts
        return replace(source, left=left, right=right, on=conjunction(rest))

    def filtered(self, source: Rel, staying: Staying) -> Rel:
        """The piece that stays is gathered after all, as far as its rows meet those of others."""
        met = staying.met(source, self.mapping, self.gather)
        self.said_once = set()  # the joins are made: they go on asking what they say
        if staying.local is None:
            return _with_piece(source, staying.source, self._groups(staying.source, met))
        piece = self._piece(
            staying.source, staying.local, staying.filters, keep=staying.is_kept, met=met
        )
        return _with_piece(source, staying.source, piece)

    def _groups(self, source: Rel, met: list[Expr]) -> Rel:
        """Only those groups that rows of the others ask for."""
        assert isinstance(source, Derived) and isinstance(source.query, Select)
        query = source.query
        shown: dict[Expr, Expr] = {
            col: query.items[col.at].expr for col in columns_in(tuple(met)) if col.rel == source.rel
        }
        where = conjunction([*conjuncts(query.where), *substitute(tuple(met), shown)])
        return replace(source, query=self.gather.query(replace(query, where=where)))

    def _piece(
        self,
        source: Rel,
        local: Local,
        filters: list[Expr],
        *,
        keep: bool,
        met: Sequence[Expr] = (),
    ) -> Rel:
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
        self.pushed_on.update(part for part in mine if part in self.said_once)
        wanted = [col for col in self._wanted(source) if col.rel in inside]
        wanted.sort(key=lambda col: (col.rel, col.at, col.name, col.nullable))
        needed: list[Expr] = [*wanted]
        needed += [key for col in wanted if (key := self.compared.get(col)) is not None]
        shown: list[Expr] = needed or [Const(I, 1)]
        where = conjunction([*mine, *met])
        block = Select(tuple(Item("", expr) for expr in shown), source, where)
        gathered, places = self.gather.gathered(block)
        self.mapping.update(zip(needed, places, strict=False))
        return gathered

    def over_gathered(self, node: Any) -> Any:
        """The same over gathered rows; numbers are compared by the keys that came with them."""

        def change(each: Any) -> Any:
            if not isinstance(each, Call) or each.name != "=":
                return None
            keys = [self.compared.get(arg, arg) for arg in each.args]  # type: ignore[call-overload]
            args = tuple(
                key if key in self.mapping else arg
                for key, arg in zip(keys, each.args, strict=True)
            )
            return None if args == each.args else replace(each, args=args)

        return substitute(rewrite(node, change) if self.compared else node, self.mapping)

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
        if is_tied(node):
            return columns_in(node)
        if node is piece or not isinstance(node, Join):
            return set()
        left = [part for part in conjuncts(node.on) if part not in self.pushed_on]
        own = {col for part in left for col in columns_in(part)}
        return own | self._join_columns(node.left, piece) | self._join_columns(node.right, piece)


def _below(col: Col, part: Expr) -> bool:
    """Whether the column belongs to a relation inside a sub-query of `part`."""
    return any(isinstance(node, RELATIONS) and node.rel == col.rel for node in walk(part))
