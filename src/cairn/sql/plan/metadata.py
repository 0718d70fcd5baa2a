"""Which parameters name the bucket: what smart clients are told after Parse."""

from __future__ import annotations

from typing import Any

from cairn.model.types.values import OIDS
from cairn.sql.bind.dml import BoundChange, BoundInsert
from cairn.sql.functions.function_list import calls_late
from cairn.sql.ir import Param, scans_in
from cairn.sql.plan.buckets import Key, key_positions, single_key
from cairn.sql.plan.write import change_key, change_reads, insert_key
from cairn.sql.typing_rules import plain

Metadata = tuple[tuple[int, int], ...]


def metadata(bound: Any) -> Metadata:
    """(parameter number, OID) for each part of the distribution key, or nothing."""
    if isinstance(bound, BoundInsert):
        return _of_key(insert_key(bound))
    query = change_reads(bound) if isinstance(bound, BoundChange) else bound
    if any(scan.table.is_global for scan in scans_in(query)) or calls_late(query):
        return ()
    key = change_key(bound) if isinstance(bound, BoundChange) else single_key(query)
    if isinstance(bound, BoundChange) and _moves(bound):
        return ()
    return _of_key(key)


def _moves(bound: BoundChange) -> bool:
    table = bound.scan.table
    assert table.sharding is not None
    return any(table.columns[at].name in table.sharding.columns for at, _ in bound.sets or ())


def _of_key(key: Key | None) -> Metadata:
    if key is None:
        return ()
    found = []
    for part, at in zip(key.parts, key_positions(key.table), strict=True):
        type_ = plain(key.table.columns[at].type)
        if not isinstance(part, Param) or part.type is not type_:
            return ()
        found.append((part.number, OIDS[type_]))
    return tuple(found)
