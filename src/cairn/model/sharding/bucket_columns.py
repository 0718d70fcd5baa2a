"""Buckets of whole columns: murmur3 in numpy, equal to `model/sharding/buckets.py` value by value.

Used where Arrow is: by Spark's tasks and by the server for what they send. Nobody else imports
this module, as numpy and pyarrow come only with `.[spark]`. Integers, texts, booleans and keys of
several such parts are hashed a column at a time; UUID, DOUBLE, DECIMAL and DATETIME, rare as
keys, go through the server's own function one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from cairn.model.sharding.buckets import SEED, bucket_function
from cairn.model.types.values import ColumnType

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_VECTOR = (ColumnType.INTEGER, ColumnType.UNSIGNED, ColumnType.STRING, ColumnType.BOOLEAN)
#: Integers in MessagePack: from, up to, head, bytes after it.
_CLASSES = (
    (0, 0x7F, None, 0),
    (0x80, 0xFF, 0xCC, 1),
    (0x100, 0xFFFF, 0xCD, 2),
    (0x10000, 0xFFFFFFFF, 0xCE, 4),
    (0x100000000, 2**63 - 1, 0xCF, 8),
    (-0x20, -1, None, 0),
    (-0x80, -0x21, 0xD0, 1),
    (-0x8000, -0x81, 0xD1, 2),
    (-0x80000000, -0x8001, 0xD2, 4),
    (-(2**63), -0x80000001, 0xD3, 8),
)
_BIG_BYTES = 4096  # keys longer than this are hashed one by one


def bucket_ids(
    columns: Sequence[Any],
    types: Sequence[ColumnType],
    bucket_count: int,
    hash_version: int = 2,
) -> Any:
    """The bucket of each row, as int32; `columns` are Arrow arrays of the key, in its order."""
    if not columns or len(columns[0]) == 0:
        return np.zeros(0, dtype=np.int32)
    if is_quick(types):
        parts = [_encoded(column, type_) for column, type_ in zip(columns, types, strict=True)]
        data, starts, lengths = parts[0] if len(parts) == 1 else _joined(parts)
        if int(lengths.max(initial=0)) <= _BIG_BYTES:
            return (_murmur3(data, starts, lengths) % np.uint32(bucket_count)).astype(np.int32) + 1
    return _one_by_one(columns, types, bucket_count, hash_version)


def is_quick(types: Sequence[ColumnType]) -> bool:
    """Whether keys of these types are hashed a column at a time."""
    return all(type_ in _VECTOR for type_ in types)


def _one_by_one(
    columns: Sequence[Any], types: Sequence[ColumnType], bucket_count: int, hash_version: int
) -> Any:
    bucket = bucket_function(types, bucket_count, hash_version)
    parts = []
    for column, type_ in zip(columns, types, strict=True):
        values = column.to_pylist()
        if type_ is ColumnType.UUID:
            values = [None if v is None else v if isinstance(v, UUID) else UUID(v) for v in values]
        parts.append(values)
    return np.fromiter(map(bucket, zip(*parts, strict=True)), dtype=np.int32, count=len(columns[0]))


# --- encoding: bytes of all rows in one array, with where each begins and how long it is ----------

Encoded = tuple[Any, Any, Any]


def _encoded(column: Any, type_: ColumnType) -> Encoded:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if type_ is ColumnType.STRING:
        return _encode_texts(column)
    if type_ is ColumnType.BOOLEAN:
        codes = np.full(len(column), 0xC0, dtype=np.uint8)
        known = ~np.asarray(column.is_null())
        values = np.asarray(column.fill_null(False)).astype(bool)
        codes[known & values], codes[known & ~values] = 0xC3, 0xC2
        rows = np.arange(len(column), dtype=np.int64)
        return codes, rows, np.ones(len(column), dtype=np.int64)
    nulls = np.asarray(column.is_null()) if column.null_count else None
    # fill_null first: an int64 array with nulls would turn into doubles.
    return _encode_integers(column.cast(pa.int64()).fill_null(0).to_numpy(), nulls)


def _encode_integers(values: Any, nulls: Any) -> Encoded:
    """Shortest MessagePack, in cells of nine bytes: a head and up to eight big-endian ones."""
    count = len(values)
    cells = np.zeros((count, 9), dtype=np.uint8)
    wide = values.astype(">i8").view(np.uint8).reshape(count, 8)
    lengths = np.empty(count, dtype=np.int64)
    lowest, highest = int(values.min(initial=0)), int(values.max(initial=0))
    for low, high, head, size in _CLASSES:
        if high < lowest or low > highest:
            continue
        mask = (values >= low) & (values <= high)
        # Whole columns are often of one class, and a slice is much quicker than a choice.
        chosen = slice(None) if mask.all() else np.nonzero(mask)[0]
        if head is None:
            cells[chosen, 0] = wide[chosen, 7]
        else:
            cells[chosen, 0] = head
            cells[chosen, 1 : size + 1] = wide[chosen, 8 - size :]
        lengths[chosen] = size + 1
    if nulls is not None:
        cells[nulls, 0], lengths[nulls] = 0xC0, 1
    return cells.reshape(-1), np.arange(count, dtype=np.int64) * 9, lengths


def _encode_texts(column: Any) -> Encoded:
    """Raw UTF-8 without a header; the bytes are Arrow's own."""
    if pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    nulls = np.asarray(column.is_null()) if column.null_count else None
    _, offsets_buffer, data_buffer = column.buffers()
    first = column.offset
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[first : first + len(column) + 1]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, np.uint8)
    starts = offsets[:-1].astype(np.int64)
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int64)
    if nulls is not None:
        data = np.append(data, np.uint8(0xC0))
        starts, lengths = starts.copy(), lengths.copy()
        starts[nulls], lengths[nulls] = len(data) - 1, 1
    return data, starts, lengths


def _joined(parts: list[Encoded]) -> Encoded:
    """The parts of each row behind each other."""
    total = sum(lengths for _, _, lengths in parts)
    starts = np.zeros(len(total), dtype=np.int64)
    np.cumsum(total[:-1], out=starts[1:])
    data = np.empty(int(total.sum()), dtype=np.uint8)
    at = starts.copy()
    for source, begins, lengths in parts:
        rows = np.repeat(np.arange(len(lengths)), lengths)
        inside = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        data[at[rows] + inside] = source[begins[rows] + inside]
        at += lengths
    return data, starts, total


# --- murmur3_x86_32 -------------------------------------------------------------------------------


def _rotl(value: Any, bits: int) -> Any:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _murmur3(data: Any, starts: Any, lengths: Any) -> Any:
    """Of each slice of `data`; rows are taken by groups of equal length."""
    words = _words(data)
    with np.errstate(over="ignore"):
        shortest, longest = int(lengths.min()), int(lengths.max())
        if shortest == longest:
            return _murmur3_equal(words, starts, shortest)
        result = np.empty(len(starts), dtype=np.uint32)
        for length in np.unique(lengths):
            rows = np.nonzero(lengths == length)[0]
            result[rows] = _murmur3_equal(words, starts[rows], int(length))
        return result


def _words(data: Any) -> Any:
    """The four bytes from each place on as one number: a view, one word for every byte."""
    padded = np.concatenate([data, np.zeros(4, dtype=np.uint8)])
    return np.ndarray((len(data) + 1,), dtype="<u4", buffer=padded, strides=(1,))


def _murmur3_equal(words: Any, starts: Any, length: int) -> Any:
    hashes = np.full(len(starts), SEED, dtype=np.uint32)
    for block in range(length // 4):
        hashes ^= _rotl(words[starts + 4 * block] * _C1, 15) * _C2
        hashes = _rotl(hashes, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    tail = length % 4
    if tail:
        word = words[starts + (length - tail)] & np.uint32((1 << 8 * tail) - 1)
        hashes ^= _rotl(word * _C1, 15) * _C2
    hashes ^= np.uint32(length)
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
