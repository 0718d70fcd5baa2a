"""Rows of a sharded table in the order of its primary key, without a look at all of them.

The physical key begins with the bucket, so the rows of each bucket lie in the order that is asked
for, and those of the table do not. One seek in each bucket takes about as long as reading some
twenty rows: `_DENSE` asks whether the buckets have more, in the statement itself, so that a small
table is still read as a whole. All conditions on buckets are those of `slots.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from cairn.model.sharding.spans import contains, merged
from cairn.model.tables.schema import BUCKET_COLUMN
from cairn.model.types.values import Physical
from cairn.sql.render.slots import Params, bucket_condition

Ranges = Sequence[tuple[int, int]]
Asked = tuple[str, tuple[Physical, ...]]
NEAR_MOST = 256  # keys next to the first that are looked for one by one
PAGE_MOST = 1_000  # rows: past it a page is no page
SAMPLE = 500  # rows that say how full the buckets are
FULL = 20  # rows of a bucket that take as long as a seek
INT_MOST = 2**63 - 1
SPANS = "/*spans*/"  # the mark in FROM
_encode = msgspec.json.encode


@dataclass(frozen=True)
class Bounds:
    """Rows between two keys. `sql` is the statement over `e`: each bucket, or each range of them,
    with the first and the last key that count in it."""

    table: str  # as SQLite knows it
    sql: str

    def asked(
        self, sql: str, args: tuple[Physical, ...], params: Params, ranges: Ranges
    ) -> Asked | None:
        if not ranges:
            return None
        spans = (
            f"(WITH RECURSIVE {_ranges(self.table, ranges)}"
            " SELECT bucket AS low, bucket AS high FROM each"
            " UNION ALL SELECT low, high FROM spans, dense WHERE NOT is_dense)"
        )
        return self.sql.replace(SPANS, spans, 1), args


@dataclass(frozen=True)
class Edge:
    """The first rows in one direction: those that count, and the columns that order them."""

    columns: tuple[str, ...]  # of the table, a beginning of its primary key
    is_descending: bool = False
    #: Whole numbers that come next, with their buckets: a key without gaps is among them.
    near: Callable[[Params, int], list[tuple[int, int]]] | None = None


@dataclass(frozen=True)
class Page:
    """The first rows by the key, in one direction or in both."""

    table: str
    sql: str  # over `e`: the keys of these rows
    key: tuple[str, ...]
    where: str  # as conditions on `k`
    edges: tuple[Edge, ...]
    count: Callable[[Params], Physical]
    bucket_count: int

    def asked(
        self, sql: str, args: tuple[Physical, ...], params: Params, ranges: Ranges
    ) -> Asked | None:
        """None: it is no page, or nothing of it is here."""
        count = self.count(params)
        if not isinstance(count, int) or not 0 < count <= PAGE_MOST or not ranges:
            return None
        values = list(args)
        branches: list[str] = []
        for edge in self.edges:
            near = ""
            if edge.near is not None:
                owned = sum(high - low + 1 for low, high in ranges)
                wanted = min(2 * count * self.bucket_count // owned + 16, NEAR_MOST)
                found = [each for each in edge.near(params, wanted) if contains(ranges, each[0])]
                values.append(_encode(found).decode())
                near = f"?{len(values)}"
            branches.append(f"SELECT * FROM ({self._first(edge, count, near, ranges)})")
        return self.sql.replace(SPANS, f"({' UNION ALL '.join(branches)})", 1), tuple(values)

    def _first(self, edge: Edge, count: int, near: str, ranges: Ranges) -> str:
        """Keys of the first `count` rows.

        `firsts` has the first row of each bucket. If there are `count` of them, the last of these
        is as far as we have to look; else the first bucket that has `count` rows says it.
        """
        word, reaches = (" DESC", ">=") if edge.is_descending else ("", "<=")
        back = "" if edge.is_descending else " DESC"
        wanted = ", ".join(f"k.{name}" for name in self.key)
        names, places = edge.columns, [f"x{at}" for at in range(len(edge.columns))]
        order = ", ".join(f"k.{name}{word}" for name in names)
        by, behind = (", ".join(f"{x}{end}" for x in places) for end in (word, back))
        shown = ", ".join(places)
        here, where = bucket_condition(f"k.{BUCKET_COLUMN}", ranges), f" AND {self.where}"
        where = where if self.where else ""
        rows = f"FROM {self.table} AS k WHERE k.{BUCKET_COLUMN} = bucket{where} ORDER BY {order}"
        of_first = ", ".join(
            f"(SELECT k.{name} {rows} LIMIT 1) AS {x}"
            for name, x in zip(names, places, strict=True)
        )
        of_last = ", ".join(
            f"(SELECT k.{name} {rows} LIMIT 1 OFFSET {count - 1}) AS {x}"
            for name, x in zip(names, places, strict=True)
        )
        left, close = "1", f"SELECT {wanted} FROM {self.table} AS k WHERE 0"
        if near:
            close = (
                f"SELECT {wanted} FROM json_each({near}) AS j CROSS JOIN {self.table} AS k WHERE"
                f" k.{BUCKET_COLUMN} = j.value ->> 0 AND k.{names[0]} = j.value ->> 1"
                f" AND {here}{where} LIMIT {count}"
            )
            left = f"(SELECT count(*) FROM close) < {count}"
        many = "(SELECT count(*) FROM firsts)"
        seen = ", ".join(f"k.{name}" for name in names)
        cut = f"FROM firsts CROSS JOIN {self.table} AS k WHERE k.{BUCKET_COLUMN} = bucket{where}"
        return (
            f"WITH RECURSIVE close AS MATERIALIZED ({close}), {_ranges(self.table, ranges, left)},"
            f" firsts(bucket, {shown}) AS MATERIALIZED (SELECT bucket, {shown} FROM"
            f" (SELECT bucket, {of_first} FROM each) WHERE x0 IS NOT NULL ORDER BY {by}"
            f" LIMIT {count}),"
            f" edge({shown}) AS MATERIALIZED (SELECT * FROM (SELECT {shown} FROM firsts WHERE"
            f" {many} = {count} ORDER BY {behind} LIMIT 1) UNION ALL SELECT * FROM (SELECT {shown}"
            f" FROM (SELECT {of_last} FROM firsts WHERE {many} < {count}) WHERE x0 IS NOT NULL"
            f" ORDER BY {by} LIMIT 1))"
            f" SELECT * FROM close WHERE NOT ({left})"
            f" UNION ALL SELECT * FROM (SELECT {wanted} FROM (SELECT 1 FROM dense WHERE NOT"
            f" is_dense AND {left}) CROSS JOIN {self.table} AS k WHERE {here}{where}"
            f" ORDER BY {order} LIMIT {count})"
            f" UNION ALL SELECT * FROM (SELECT {wanted} {cut} AND ({seen}) {reaches}"
            f" (SELECT {shown} FROM edge) ORDER BY {order} LIMIT {count})"
            f" UNION ALL SELECT {wanted} {cut} AND NOT EXISTS (SELECT 1 FROM edge)"
        )


ByKey = Bounds | Page


def _ranges(table: str, ranges: Ranges, condition: str = "1") -> str:
    """Three tables for WITH: the ranges, whether their buckets are full, and if so each of them.

    What lies between our ranges belongs to others, and says nothing of how full ours are.
    """
    apart = merged(ranges)
    owned = sum(high - low + 1 for low, high in apart)
    width = (apart[-1][1] - apart[0][0] + 1) if apart else 0
    most = SAMPLE * width // (FULL * max(owned, 1))
    values = ", ".join(f"({low}, {high})" for low, high in apart)
    here = bucket_condition(f"k.{BUCKET_COLUMN}", ranges)
    return (
        f"spans(low, high) AS MATERIALIZED (VALUES {values}),"
        f" dense(is_dense) AS MATERIALIZED (SELECT CASE WHEN {condition} THEN (SELECT count(*) ="
        f" {SAMPLE} AND max(at) - min(at) <= {most} FROM (SELECT k.{BUCKET_COLUMN} AS at FROM"
        f" {table} AS k WHERE {here} ORDER BY k.{BUCKET_COLUMN} LIMIT {SAMPLE})) ELSE 0 END),"
        " each(bucket, last) AS (SELECT low, high FROM spans, dense WHERE is_dense"
        " UNION ALL SELECT bucket + 1, last FROM each WHERE bucket < last)"
    )
