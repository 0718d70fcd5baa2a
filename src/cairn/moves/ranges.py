"""Ranges of buckets that split and merge: they never overlap and always cover the whole tier.

The functions are given neighbouring rows of one tier and return what takes their place: the same
buckets, each once. That is checked in one place, before anything is proposed, and costs the same
however many rows the tier has.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cairn.model.log.ops import Delete, Dml, Replace
from cairn.model.members.topology import BucketRange, BucketState
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system

Rows = list[BucketRange]


class BrokenCover(AssertionError):
    """A plan of ours would leave a bucket without a row, or with two."""


def check_cover(found: Sequence[BucketRange], count: int, first: int = 1) -> None:
    """Buckets first…count, each in exactly one row."""
    expected = first
    for each in sorted(found, key=lambda row: row.start):
        if each.start != expected or each.end < each.start:
            raise BrokenCover(f"bucket {expected} is not where a range begins: {each}")
        expected = each.end + 1
    if expected != count + 1:
        raise BrokenCover(f"the ranges end at {expected - 1} of {count}")


def replaced(found: Sequence[BucketRange], piece: BucketRange) -> Rows:
    """The rows with `piece` in the place of its buckets; what it is cut out of stays around it."""
    kept: Rows = []
    for each in found:
        if each.end < piece.start or each.start > piece.end:
            kept.append(each)
            continue
        if each.start < piece.start:
            kept.append(msgspec.structs.replace(each, end=piece.start - 1))
        if each.end > piece.end:
            kept.append(msgspec.structs.replace(each, start=piece.end + 1))
    return sorted([*kept, piece], key=lambda row: row.start)


def merged(found: Sequence[BucketRange]) -> Rows:
    """Neighbours of one owner that are at rest, as one row."""
    result: Rows = []
    for each in sorted(found, key=lambda row: row.start):
        last = result[-1] if result else None
        if (
            last is not None
            and _is_at_rest(last)
            and _is_at_rest(each)
            and last.current_replicaset == each.current_replicaset
            and last.end + 1 == each.start
        ):
            result[-1] = msgspec.structs.replace(last, end=each.end)
        else:
            result.append(each)
    return result


def _is_at_rest(row: BucketRange) -> bool:
    return row.state is BucketState.ACTIVE and row.move_id is None


def difference(before: Sequence[BucketRange], after: Sequence[BucketRange]) -> tuple[Dml, ...]:
    """What turns the rows of a tier into others; rows that stay are not touched."""
    known = {row.start: row for row in before}
    wanted = {row.start: row for row in after}
    table = system.PICO_BUCKET.id
    found: list[Dml] = [
        Delete(table, (row.tier, start)) for start, row in known.items() if start not in wanted
    ]
    found += [
        Replace(table, rows.bucket_row(row))
        for start, row in wanted.items()
        if known.get(start) != row
    ]
    return tuple(found)


def of(found: Sequence[BucketRange], start: int, end: int) -> BucketRange | None:
    """The row that holds all of these buckets."""
    for each in found:
        if each.start <= start and end <= each.end:
            return each
    return None
