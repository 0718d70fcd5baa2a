"""Rows of a table in an SQLite file: the records of its tree, found many pages at a time.

Sharded tables are ordered by bucket, so what lies outside the asked buckets is not even read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cairn.storage.files.file_pages import SLACK, Pages, UnknownFile

CHUNK_PAGES = 256  # a megabyte: what is decoded together fits a processor's cache
#: Of long rows that are decoded together. They are in memory at once, and places among them are
#: told in 32 bits: with the longest row that SQLite has (10⁹ bytes) on top it must stay below 2³¹.
LONG_BYTES = 64 * 1024 * 1024
INTERIOR, LEAF = 2, 10
_LINK = 4  # bytes of a page's number
_LONGEST_VARINT = 5
_LONGEST_ROW = 10**9  # of SQLite
_DEEPEST = 20
_SHIFTS = np.array([63, 56, 48, 40, 32, 16, 0, 0, 63, 63, 63, 63], np.int64)
#: Bytes of a value by its type in the record; longer types are texts and blobs.
_SIZES = np.array(
    [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((n - 12) // 2 for n in range(12, 128))], np.int64
)


class Values(NamedTuple):
    """One column of some rows: types as SQLite's records have them, where, and how many bytes."""

    types: Any
    starts: Any
    sizes: Any  # or one number, when all are alike


class Records(NamedTuple):
    """Rows that lie somewhere in `buffer`, each from `starts` on."""

    buffer: Any
    starts: Any

    def columns(self, count: int) -> list[Values]:
        """The first `count` columns; those added after a row was written are NULL in it."""
        head, at = varints(self.buffer, self.starts)
        end = body = self.starts + head
        shortest = int(head.min()) if head.size else 0
        found = []
        for number in range(count):
            types, following = varints(self.buffer, at)
            if number + 1 >= shortest and (late := at >= end).any():
                types, following = np.where(late, 0, types), np.where(late, at, following)
            sizes = _sizes(types)
            found.append(Values(types, body, sizes))
            at, body = following, body + sizes
        return found

    def within(self, low: int, high: int) -> Records:
        """Only those of buckets from `low` to `high`."""
        bucket = integers(self.buffer, self.columns(1)[0])
        return Records(self.buffer, self.starts[(bucket >= low) & (bucket <= high)])


def check_inside(buffer: Any, places: Any) -> None:
    """Places that a page told are believed only inside of what was read."""
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < len(buffer):
        raise UnknownFile("a place outside of its page")


def varints(buffer: Any, at: Any) -> tuple[Any, Any]:
    """Numbers of one to nine bytes, and the places after them."""
    check_inside(buffer, at)
    byte = buffer.take(at)
    following = at + 1
    if not byte.size or byte.max() < 128:
        return byte, following
    open_ = np.flatnonzero(byte >= 128)
    value = (byte & 127).astype(np.int64)
    for _ in range(_LONGEST_VARINT):
        check_inside(buffer, following[open_])
        byte = buffer.take(following[open_]).astype(np.int64)
        value[open_] = (value[open_] << 7) | (byte & 127)
        following[open_] += 1
        open_ = open_[byte >= 128]
        if not open_.size:
            return value, following
    raise UnknownFile("a length beyond all bounds")


def _sizes(types: Any) -> Any:
    if not types.size:
        return types
    most = int(types.max())
    if most == types.min():
        return int(_SIZES[most]) if most < len(_SIZES) else (most - 12) >> 1
    if most < len(_SIZES):
        return _SIZES.take(types)
    return np.where(types < 12, _SIZES.take(types, mode="clip"), (types.astype(np.int64) - 12) >> 1)


def integers(buffer: Any, values: Values) -> Any:
    """Whole numbers of all widths; whatever stands for NULL means nothing."""
    types = values.types
    check_inside(buffer[7:], values.starts)
    found = np.ndarray((len(buffer) - 7,), np.int64, buffer, 0, (1,))[values.starts]
    if sys.byteorder == "little":
        found.byteswap(inplace=True)
    found >>= _SHIFTS.take(types, mode="clip")
    if types.size and types.max() >= 8:
        constant = types >= 8
        found[constant] = types[constant] == 9
    return found


class Tree:
    """The tree of one WITHOUT ROWID table whose first column is the bucket."""

    def __init__(self, pages: Pages, root: int) -> None:
        self._pages, self._root = pages, root
        most = pages.usable - 12
        self._local = most * 64 // 255 - 23, most * 32 // 255 - 23

    def records(self, low: int, high: int) -> Iterator[Records]:
        """Rows of buckets from `low` to `high`, some pages' worth at a time."""
        inside: list[int] = []
        for numbers, is_inside in self._numbers(np.array([self._root]), low, high):
            if not is_inside:
                for records in self._cells(numbers):
                    yield records.within(low, high)
                continue
            inside += numbers.tolist()
            while len(inside) >= CHUNK_PAGES:
                yield from self._cells(np.array(inside[:CHUNK_PAGES]))
                del inside[:CHUNK_PAGES]
        if inside:
            yield from self._cells(np.array(inside))

    def _numbers(
        self, level: Any, low: int, high: int, is_inside: bool = False, depth: int = 0
    ) -> Iterator[tuple[Any, bool]]:
        """Pages of one level and those below, and whether all their rows are wanted.

        Inner pages hold rows too. Pages of one level are of one kind.
        """
        if not len(level):
            return
        if depth > _DEEPEST:
            raise self._pages.damage("a tree that never ends")
        yield level, is_inside
        if self._pages.page(int(level[0]))[0] == LEAF:
            return
        for number in level.tolist():
            children, inside = self._children(number, low, high, is_inside)
            yield from self._numbers(children[inside], low, high, True, depth + 1)
            yield from self._numbers(children[~inside], low, high, False, depth + 1)

    def _children(self, number: int, low: int, high: int, is_inside: bool) -> tuple[Any, Any]:
        """Those that can have wanted rows, and which of them have no others."""
        page = self._pages.page(number)
        if page[0] != INTERIOR:
            raise self._pages.damage(f"page {number} is of kind {page[0]}")
        count = int(page[3]) << 8 | int(page[4])
        cells = page[12 : 12 + 2 * count].view(">u2").astype(np.int64)
        links = np.ndarray((len(page) - 3,), ">u4", page, 0, (1,))
        children = np.append(links[cells].astype(np.int64), int(links[8]))
        if is_inside:
            return children, np.ones(count + 1, bool)
        records = self._records(page, *varints(page, cells + _LINK))
        bucket = integers(records.buffer, records.columns(1)[0])
        wanted, inside = np.ones((2, count + 1), bool)
        wanted[:-1] &= bucket >= low
        wanted[1:] &= bucket <= high
        inside[0] = inside[-1] = False
        inside[1:] &= bucket >= low
        inside[:-1] &= bucket <= high
        return children[wanted], inside[wanted]

    # --- cells ----------------------------------------------------------------------------------

    def _cells(self, numbers: Any) -> Iterator[Records]:
        """All rows of some pages, in the order they lie there; long ones not too many at a time."""
        size, count = self._pages.size, len(numbers)
        buffer = self._pages.read(numbers)
        pages = buffer[: count * size].reshape(count, size)
        kinds = pages[:, 0]
        inner = kinds == INTERIOR
        if not (inner | (kinds == LEAF)).all():
            raise self._pages.damage("a page of another kind in a table's tree")
        rows = pages[:, 3].astype(np.int64) << 8 | pages[:, 4]
        base = np.arange(count) * size
        pointers = np.repeat(base + np.where(inner, 12, 8), rows)
        pointers += 2 * (np.arange(len(pointers)) - np.repeat(np.cumsum(rows) - rows, rows))
        short = np.ndarray((len(buffer) - 1,), ">u2", buffer, 0, (1,))
        cells = short[pointers] + np.repeat(base + np.where(inner, _LINK, 0), rows)
        lengths, starts = varints(buffer, cells)
        cuts = np.zeros(0, np.int64)
        if lengths.dtype != np.uint8:  # else they are all short
            long = np.cumsum(np.where(lengths > self._local[0], lengths, 0))
            cuts = np.flatnonzero(np.diff(long // LONG_BYTES)) + 1
        if cuts.size:
            buffer = buffer.copy()  # reading more pages would overwrite it
        for part in zip(np.split(lengths, cuts), np.split(starts, cuts), strict=True):
            found = self._records(buffer, *part)
            found.starts.sort()
            yield found

    def _records(self, buffer: Any, lengths: Any, starts: Any) -> Records:
        if lengths.dtype == np.uint8:
            return Records(buffer, starts)
        if lengths.size and int(lengths.max()) > _LONGEST_ROW:
            raise UnknownFile("a row that is longer than any")
        if (spilled := np.flatnonzero(lengths > self._local[0])).size:
            buffer = buffer.copy()  # reading more pages would overwrite it
            extra = [
                self._gathered(buffer, int(starts[at]), int(lengths[at])) for at in spilled.tolist()
            ]
            ends = np.cumsum(lengths[spilled]) + len(buffer)
            starts[spilled] = ends - lengths[spilled]
            buffer = np.concatenate([buffer, *extra, np.zeros(SLACK, np.uint8)])
        return Records(buffer, starts)

    def _gathered(self, buffer: Any, start: int, length: int) -> Any:
        """A long record: its beginning in the page, the rest in a chain of others."""
        most, least = self._local
        size = self._pages.usable
        here = least + (length - least) % (size - _LINK)
        here = here if here <= most else least
        parts = [buffer[start : start + here]]
        link = buffer[start + here : start + here + _LINK]
        left = length - here
        while left > 0:
            number = int.from_bytes(link.tobytes(), "big")
            if not number:
                raise self._pages.damage("a long row ends too early")
            page = self._pages.page(number)
            link = page[:_LINK]
            parts.append(page[_LINK : _LINK + min(left, size - _LINK)])
            left -= size - _LINK
        return np.concatenate(parts)
