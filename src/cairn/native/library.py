"""Finding and describing the compiled part. `None` wherever it is not there."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

OFF = "CAIRN_NATIVE"  # in the environment: `off` leaves all to Python
PACKED_WIDTH = 256  # columns that `packed_rows` can give
POINT_PARTS = 32  # parameters and bindings of what is asked by a key
_BUILT = "_rows*.so"

Int32, Size = ctypes.c_int32, ctypes.c_size_t
Pointer = ctypes.c_void_p


class Batch(ctypes.Structure):
    """`batch.h` says what it is."""

    _fields_ = [
        ("data", Pointer),
        *((name, Size) for name in ("size", "room")),
        *((name, Pointer) for name in ("buckets", "lengths")),
        *((name, Size) for name in ("rows", "rows_room")),
        ("scratch", Pointer),
        ("scratch_room", Size),
        ("bucket_ids", ctypes.POINTER(ctypes.c_uint32)),
        ("bucket_rows", ctypes.POINTER(ctypes.c_uint32)),
        ("bucket_starts", ctypes.POINTER(ctypes.c_uint64)),
        ("bucket_total", Size),
    ]


class Column(ctypes.Structure):
    _fields_ = [("kind", Int32), ("required", Int32), ("longest", Int32)]


class CopyPlan(ctypes.Structure):
    _fields_ = [
        *((name, Int32) for name in ("is_csv", "delimiter", "quote")),
        ("null", ctypes.c_char_p),
        *((name, Int32) for name in ("null_length", "fields")),
        ("columns", ctypes.POINTER(Column)),
        ("width", Int32),
        ("order", ctypes.POINTER(Int32)),
        ("key_parts", Int32),
        ("key", ctypes.POINTER(Int32)),
        ("bucket_count", Int32),
        ("stops", ctypes.c_uint8 * 256),
    ]


class ArrowColumn(ctypes.Structure):
    _fields_ = [
        ("kind", Int32),
        *((name, Pointer) for name in ("valid", "values", "places")),
        ("offset", ctypes.c_int64),
    ]


class OutColumn(ctypes.Structure):
    _fields_ = [
        *((name, Int32) for name in ("kind", "place", "binary", "scale")),
        *((name, Pointer) for name in ("valid", "bytes", "places")),
        ("offset", ctypes.c_int64),
    ]


class OutPlan(ctypes.Structure):
    _fields_ = [
        *((name, Int32) for name in ("is_line", "label", "is_csv", "delimiter", "quote", "escape")),
        ("null", ctypes.c_char_p),
        *((name, Int32) for name in ("null_length", "columns")),
        ("column", ctypes.POINTER(OutColumn)),
        ("care", ctypes.c_uint8 * 256),
    ]


class Point(ctypes.Structure):
    """`point.h` says what it is; only C knows what stands behind the statement."""

    _fields_ = [
        *((name, Pointer) for name in ("parameters", "bindings", "key")),
        ("formats", ctypes.c_char_p),
        *((name, Int32) for name in ("formats_length", "parameter_count", "binding_count")),
        *((name, Int32) for name in ("key_count", "bucket_count")),
        ("statement", Pointer),
        ("given", ctypes.c_uint64 * (3 * POINT_PARTS)),
        ("bucket", ctypes.c_int64),
        ("is_described", Int32),
    ]


class ReadPlan(ctypes.Structure):
    """`point_read.c` says what it is."""

    _fields_ = [
        ("point", Point),
        ("columns", Pointer),
        *((name, ctypes.c_char_p) for name in ("bound", "described")),
        *((name, Int32) for name in ("bound_length", "described_length", "column_count")),
    ]


class Cell(ctypes.Structure):
    _fields_ = [("number", Int32), ("length", Int32), ("packed", ctypes.c_char_p)]


class InsertPlan(ctypes.Structure):
    """`point_insert.c` says what it is."""

    _fields_ = [
        ("point", Point),
        ("cells", ctypes.POINTER(Cell)),
        ("head", ctypes.c_char_p),
        *((name, Int32) for name in ("cell_count", "head_length")),
        ("log", Pointer),
        ("state", Int32),
    ]


def path() -> Path | None:
    """The compiled library; None: there is none, or it is not wanted."""
    if os.environ.get(OFF) == "off":
        return None
    return next(iter(sorted(Path(__file__).parent.glob(_BUILT))), None)


@cache
def library() -> Any:
    """Its functions. They hold no lock of Python while they work."""
    found = path()
    if found is None:
        return None
    try:
        loaded = ctypes.CDLL(str(found))
    except OSError:
        return None  # built for another machine
    loaded.batch_new.restype = ctypes.POINTER(Batch)
    batch, size_out = ctypes.POINTER(Batch), ctypes.POINTER(Size)
    loaded.batch_free.argtypes = (batch,)
    loaded.batch_free.restype = None
    loaded.batch_append.argtypes = (batch, ctypes.c_char_p, Pointer, Pointer, Size)
    loaded.batch_sort.argtypes = (batch, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p)
    plan = ctypes.POINTER(CopyPlan)
    loaded.copy_prepare.argtypes = (plan,)
    loaded.copy_take.argtypes = (batch, plan, ctypes.c_char_p, Size, Size, size_out, size_out)
    loaded.columns_take.argtypes = (
        *(batch, ctypes.POINTER(ArrowColumn), Int32, Pointer),
        *(ctypes.c_int64, ctypes.c_int64),
    )
    loaded.out_prepare.argtypes = (ctypes.POINTER(OutPlan),)
    loaded.rows_out.argtypes = (batch, ctypes.POINTER(OutPlan), Pointer, Size, Pointer, Size)
    loaded.packed_messages.argtypes = (batch, ctypes.POINTER(OutPlan), ctypes.c_char_p, Size)
    loaded.packed_out.argtypes = (
        *(Pointer, ctypes.c_char_p, Int32, Int32, ctypes.c_char_p, Size),
        *(Size, ctypes.c_uint64, batch, ctypes.POINTER(ctypes.c_uint64)),
    )
    return loaded


@cache
def at_once() -> Any:
    """Functions that keep Python's lock: they take a moment, and SQLite may call back from them."""
    found = library()
    if found is None:
        return None
    loaded = ctypes.PyDLL(found._name)
    read, insert, text = ctypes.POINTER(ReadPlan), ctypes.POINTER(InsertPlan), ctypes.c_char_p
    loaded.point_prepare.argtypes = (read, Pointer, text, Int32)
    loaded.point_free.argtypes = (read,)
    loaded.point_free.restype = None
    loaded.insert_prepare.argtypes = (insert, Pointer, text, Int32, text, Int32)
    loaded.insert_free.argtypes = (insert,)
    loaded.insert_free.restype = None
    loaded.insert_row.argtypes = (
        *(Pointer, Pointer, text, Size, Size),
        *(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, Pointer),
    )
    loaded.point_bind.argtypes = (Pointer, ctypes.c_char_p, Size, Size)
    loaded.point_bind.restype = ctypes.c_int64
    loaded.point_answer.argtypes = (Pointer, Pointer)
    return loaded
