"""Rows of global tables that rows of sharded tables may name, and that are about to go.

Such a row is closed first: a row of `_cairn_closing` says so, and a master that has applied it
takes no more rows that name the closed one. When all masters have said that they have, and nobody
names it, the entry that takes it away also takes back the mark. Without its mark nothing is taken
away (`storage/raft_db/global_kin.py`): so a mark may be deleted by anybody at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from cairn.model.log.ops import Delete, Dml, Insert
from cairn.model.log.ranges import KeyRange, one_key
from cairn.model.tables.system_tables import CAIRN_CLOSING

MOST = 1_000  # rows that one statement may take away


class Closed(NamedTuple):
    """What others name a row by."""

    table: int
    columns: tuple[int, ...]  # their places
    values: tuple[Any, ...]  # as they are stored

    @property
    def key(self) -> tuple[int, str]:
        return self.table, closing_key(self.columns, self.values)


def closing_key(columns: Sequence[int], values: Sequence[Any]) -> str:
    return msgspec.msgpack.encode((tuple(columns), tuple(values))).hex()


def closing(rows: Iterable[Closed], raft_id: int, incarnation: int) -> tuple[Dml, ...]:
    return tuple(Insert(CAIRN_CLOSING.id, (*each.key, raft_id, incarnation)) for each in rows)


def opened(keys: Iterable[tuple[int, str]]) -> tuple[Dml, ...]:
    return tuple(Delete(CAIRN_CLOSING.id, key) for key in keys)


def marks(keys: Iterable[tuple[int, str]]) -> tuple[KeyRange, ...]:
    return tuple(one_key(CAIRN_CLOSING.id, key) for key in keys)
