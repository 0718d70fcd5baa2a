"""Rows that are joined without an index are copied first: SQLite makes an index for the copy.

For a table of ours, which has no rowid, it makes none, and looks at every pair: ten thousand rows
joined with themselves took ten seconds. It is so wherever one owner has all rows of a join: in a
cluster of one replicaset, and with tables that lie together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.sql.ir import (
    BUCKET_AT,
    Call,
    Col,
    Const,
    Derived,
    Expr,
    Join,
    Param,
    Query,
    Rel,
    Scan,
    Select,
    SubQuery,
    columns_in,
    conjuncts,
    outer_columns,
    rewrite,
    walk,
)


def copied(query: Query, catalog: Catalog, *, in_one_bucket: bool = False) -> Query:
    """`in_one_bucket`: the primary key is found without its bucket."""

    def change(each: Any) -> Any:
        if not isinstance(each, Select):
            return None
        below = replace(
            each,
            items=rewrite(each.items, change),
            source=rewrite(each.source, change),
            where=rewrite(each.where, change),
            group=rewrite(each.group, change),
            having=rewrite(each.having, change),
            order=rewrite(each.order, change),
        )
        if not isinstance(below.source, Join) or outer_columns(below):
            return below  # what is asked for each row of another query is not copied each time
        chosen = _Joined(below, catalog, in_one_bucket).chosen()
        return replace(below, source=_marked(below.source, chosen)) if chosen else below

    found: Query = rewrite(query, change)
    return found


class _Joined:
    """What stands in one FROM, and which of it finds its partners by an index."""

    def __init__(self, select: Select, catalog: Catalog, in_one_bucket: bool) -> None:
        self._catalog, self._in_one_bucket = catalog, in_one_bucket
        self._rels: dict[int, tuple[Rel, bool]] = {}  # in their order; whether the join may lack it
        self._holds = conjuncts(select.where)
        assert select.source is not None
        self._take(select.source, False)
        self._places = {rel: at for at, rel in enumerate(self._rels)}
        self._groups = {rel: rel for rel in self._rels}  # those that are joined already

    def _take(self, source: Rel, is_outer: bool) -> None:
        if not isinstance(source, Join):
            self._rels[source.rel] = source, is_outer
            return
        self._take(source.left, is_outer or source.kind == "full")
        self._take(source.right, is_outer or source.kind != "inner")
        self._holds += conjuncts(source.on)

    def chosen(self) -> set[int]:
        links = list(self._links())
        for one, other in links:
            if self._is_served(one, other):
                self._join(one.rel, other)
        found = set()
        for one, other in links:
            rels = {one.rel, *(col.rel for col in columns_in(other))}
            if len({self._group(rel) for rel in rels}) < 2:
                continue
            can = [rel for rel in rels if isinstance(self._rels[rel][0], (Scan, Derived))]
            later = max(rels, key=self._places.__getitem__)
            if later in can:
                found.add(later)
            elif can:
                found.add(can[0])
            self._join(one.rel, other)
        return found

    def _links(self) -> Iterator[tuple[Col, Expr]]:
        """A column, and what it has to equal: an expression of other relations."""
        for each in self._holds:
            if not isinstance(each, Call) or each.name != "=" or len(each.args) != 2:
                continue
            if any(isinstance(part, SubQuery) for part in walk(each)):
                continue
            for one, other in (each.args, each.args[::-1]):
                rels = {col.rel for col in columns_in(other)}
                is_known = bool(rels) and rels <= self._rels.keys()
                if is_known and isinstance(one, Col) and one.rel in self._rels.keys() - rels:
                    yield one, other

    def _is_served(self, one: Col, other: Expr) -> bool:
        rels = {col.rel for col in columns_in(other)}
        later = max((one.rel, *rels), key=self._places.__getitem__)
        if any(self._is_one(rel) for rel in {one.rel, *rels} - {later}):
            return True
        if self._rels[later][1]:  # of an outer join: the rows of the first side lead
            return one.rel == later and self._is_found(one)
        if self._is_one(later) or self._is_found(one):
            return True
        return isinstance(other, Col) and self._is_found(other)

    def _is_one(self, rel: int) -> bool:
        """Whether a constant leads to few of its rows."""
        return any(
            isinstance(each, Call)
            and each.name == "="
            and len(each.args) == 2
            and any(
                isinstance(one, Col)
                and one.rel == rel
                and isinstance(other, (Const, Param))
                and one.at != BUCKET_AT
                and self._is_found(one)
                for one, other in (each.args, each.args[::-1])
            )
            for each in self._holds
        )

    def _is_found(self, col: Col) -> bool:
        return _has_index(self._rels[col.rel][0], col.at, self._catalog, self._in_one_bucket)

    def _group(self, rel: int) -> int:
        while self._groups[rel] != rel:
            rel = self._groups[rel]
        return rel

    def _join(self, rel: int, other: Expr) -> None:
        for col in columns_in(other):
            self._groups[self._group(col.rel)] = self._group(rel)


def _has_index(rel: Rel, at: int, catalog: Catalog, in_one_bucket: bool) -> bool:
    """What is no table of ours has one, or SQLite makes it."""
    if isinstance(rel, Derived):
        query = rel.query
        if not isinstance(query, Select) or query.group is not None or query.distinct:
            return True
        if query.limit is not None or query.source is None:
            return True
        expr = query.items[at].expr  # SQLite puts the query into the one around it
        inner = _relations(query.source)
        return isinstance(expr, Col) and all(
            _has_index(each, expr.at, catalog, in_one_bucket)
            for each in inner
            if each.rel == expr.rel
        )
    if not isinstance(rel, Scan) or at == BUCKET_AT or rel.index:
        return True
    table, name = rel.table, rel.table.columns[at].name
    if (table.is_global or in_one_bucket) and table.primary_key[:1] == (name,):
        return True
    indexes = catalog.indexes.get(table.id, ())
    return any(index.parts[:1] == [name] and not index.rule for index in indexes)


def _relations(source: Rel) -> list[Any]:
    if isinstance(source, Join):
        return [*_relations(source.left), *_relations(source.right)]
    return [source]


def _marked(source: Rel, chosen: set[int]) -> Rel:
    if isinstance(source, Join):
        left, right = _marked(source.left, chosen), _marked(source.right, chosen)
        return replace(source, left=left, right=right)
    if isinstance(source, (Scan, Derived)) and source.rel in chosen:
        return replace(source, is_copied=True)
    return source
