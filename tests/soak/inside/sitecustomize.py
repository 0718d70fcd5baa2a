"""Loaded by an instance that is looked into: its directory is first in PYTHONPATH.

SIGUSR1 asks. What is asked is in a file of `CAIRN_SOAK`, and so is the answer. Standard library
only: the supervisor loads it too, and stays small.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
import tracemalloc
from collections import Counter
from types import FunctionType
from typing import Any

_PLACE = os.environ.get("CAIRN_SOAK", "")
_MALLINFO = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Malloc(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO]


def _malloc() -> dict[str, int]:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Malloc
    found = library.mallinfo2()
    return {name: int(getattr(found, name)) for name in _MALLINFO}


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _sample(asked: dict[str, Any]) -> dict[str, Any]:
    before = _resident()
    gc.collect()
    apsw = sys.modules.get("apsw")
    return {
        "resident": before,
        "malloc": _malloc(),
        "blocks": sys.getallocatedblocks(),
        "objects": len(gc.get_objects()),
        "sqlite": 0 if apsw is None else apsw.memory_used(),
        "traced": tracemalloc.get_traced_memory()[0],
    }


def _types(asked: dict[str, Any]) -> dict[str, int]:
    """How many objects there are of each type. What boot made is frozen, and not among them."""
    gc.collect()
    counts = Counter(type(each) for each in gc.get_objects())
    told = {f"{kind.__module__}.{kind.__qualname__}": n for kind, n in counts.items()}
    for each in gc.get_objects():
        if type(each) is FunctionType:
            name = f"function {each.__module__}.{each.__qualname__}"
            told[name] = told.get(name, 0) + 1
    return told


def _patiently(call: Any, *arguments: Any) -> None:
    """A connection may be used by another thread."""
    for _ in range(500):
        try:
            call(*arguments)
            return
        except sys.modules["apsw"].ThreadingViolationError:
            time.sleep(0.01)


def _bound(asked: dict[str, Any]) -> None:
    """Smaller caches, so that they are full after minutes."""
    for name, value in asked["values"].items():
        module, _, attribute = name.rpartition(".")
        assert hasattr(sys.modules[module], attribute), name
        setattr(sys.modules[module], attribute, value)
    for each in sys.modules["apsw"].connections():
        guard = each.authorizer
        _patiently(setattr, each, "authorizer", None)
        _patiently(each.pragma, "cache_size", -asked["pages_kib"])
        _patiently(setattr, each, "authorizer", guard)


_seen: tracemalloc.Snapshot | None = None


def _trace(asked: dict[str, Any]) -> list[str]:
    """What was allocated since the last time, by its place."""
    global _seen
    if not tracemalloc.is_tracing():
        tracemalloc.start(asked.get("frames", 8))
        return []
    gc.collect()
    now = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__)]
    )
    found: list[str] = []
    if _seen is not None:
        for each in now.compare_to(_seen, "traceback")[: asked.get("most", 25)]:
            where = " < ".join(
                f"{at.filename[-45:]}:{at.lineno}" for at in reversed(each.traceback)
            )
            found.append(f"{each.size_diff / 1024:.1f} KiB, {each.count_diff:+d}: {where}")
    _seen = now
    return found


def _sqlite(asked: dict[str, Any]) -> list[str]:
    """What each connection keeps: pages, schemas, statements."""
    apsw, told = sys.modules["apsw"], []
    for each in apsw.connections():
        try:
            used = [
                each.status(getattr(apsw, f"SQLITE_DBSTATUS_{what}"))[0]
                for what in ("CACHE_USED", "SCHEMA_USED", "STMT_USED")
            ]
            kept = each.cache_stats()
            told.append(
                f"{each.filename[-30:] or 'memory'}: pages {used[0] >> 10} KiB, "
                f"schemas {used[1] >> 10}, statements {used[2] >> 10} ({kept['size']} kept)"
            )
        except Exception as problem:
            told.append(repr(problem))
    return told


def _holders(asked: dict[str, Any]) -> list[str]:
    """Who refers to the youngest objects of a type, some steps up."""
    kind = asked["kind"]
    objects = gc.get_objects()
    found = [
        each for each in objects if f"{type(each).__module__}.{type(each).__qualname__}" == kind
    ]
    told: list[str] = []
    for each in found[-1 - asked.get("skip", 200) :: -50][:5]:
        line, at = [], each
        for _ in range(7):
            others = [
                one
                for one in gc.get_referrers(at)
                if one is not objects and one is not found and type(one).__name__ != "frame"
            ]
            if not others:
                break
            at = others[0]
            line.append(f"{type(at).__name__}({repr(at)[:90]}) of {len(others)}")
        told.append(" < ".join(line))
    return told


def _trim(asked: dict[str, Any]) -> float:
    """Milliseconds that it took."""
    begun = time.perf_counter()
    ctypes.CDLL(None).malloc_trim(0)
    return (time.perf_counter() - begun) * 1000


_ANSWERS = {f.__name__[1:]: f for f in (_sample, _types, _bound, _trace, _sqlite, _holders, _trim)}


def _answer(*_: object) -> None:
    ask, told = (os.path.join(_PLACE, f"{os.getpid()}.{end}") for end in ("ask", "told"))
    try:
        with open(ask) as file:
            asked = json.load(file)
        answer = {"answer": _ANSWERS[asked["what"]](asked)}
    except Exception as problem:
        answer = {"problem": repr(problem)}
    with open(told + ".new", "w") as file:
        json.dump(answer, file)
    os.replace(told + ".new", told)


if _PLACE:
    signal.signal(signal.SIGUSR1, _answer)
