"""How many bytes a plan keeps in memory, about: by walking over what it is made of.

Texts tell nothing of it: `SELECT 1,1,1` keeps 170 bytes for each of its characters, a long literal
three. What all plans share (tables, types, code) does not count.
"""

from __future__ import annotations

import gc
from enum import Enum
from sys import getsizeof
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from cairn.model.members.topology import Tier
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table

_SHARED = (Catalog, Table, Tier, type, ModuleType, BuiltinFunctionType, MethodType, Enum)
_PLAIN = (str, bytes, int, float, type(None))
#: By type: whether it counts, and whether what it refers to does.
_Kind = tuple[bool, bool]
_kinds: dict[type, _Kind] = {}


def _kind(of: type) -> _Kind:
    found = _kinds[of] = (not issubclass(of, _SHARED), not issubclass(of, _PLAIN))
    return found


def kept_bytes(*made: Any) -> int:
    seen: set[int] = set()
    line: list[Any] = list(made)
    size = 0
    while line:
        each = line.pop()
        counts, refers = _kinds.get(type(each)) or _kind(type(each))
        if not counts or id(each) in seen:
            continue
        seen.add(id(each))
        size += getsizeof(each)
        if type(each) is FunctionType:
            line += each.__closure__ or ()  # not the names of its module
        elif refers:
            line += gc.get_referents(each)
    return size
