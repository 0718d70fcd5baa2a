"""Entries that are committed here and not applied yet, and what they are about."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from cairn.model.log import ops
from cairn.model.tables.schema import FIRST_USER_TABLE_ID
from cairn.raft.types import Entry, EntryType


class Unapplied:
    """One statement may change a hundred thousand rows of a global table. While that is applied,
    masters get no new lease if they wait for it, and all of them stand still. What they have to
    know are members, owners of buckets and the schema: rows of users' tables are none of these.
    """

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._of_rows: dict[int, bool] = {}  # by index, of those that were looked at

    def add(self, entries: Iterable[Entry]) -> None:
        self._entries.extend(entries)

    def forget(self, upto: int) -> None:
        while self._entries and self._entries[0].index <= upto:
            self._of_rows.pop(self._entries.popleft().index, None)

    def are_rows(self, upto: int) -> bool:
        """Whether all of them up to an index are here, and change rows of users' tables alone."""
        if not self._entries or self._entries[-1].index < upto:
            return False
        return all(self._is_of_rows(each) for each in self._entries if each.index <= upto)

    def _is_of_rows(self, entry: Entry) -> bool:
        known = self._of_rows.get(entry.index)
        if known is None:
            known = self._of_rows[entry.index] = _is_of_rows(entry)
        return known


def _is_of_rows(entry: Entry) -> bool:
    if entry.type == EntryType.CONF_CHANGE or not entry.data:
        return False
    try:
        tables = ops.outline(entry.data).tables
    except msgspec.MsgspecError:
        return False
    return tables is not None and all(each >= FIRST_USER_TABLE_ID for each in tables)
