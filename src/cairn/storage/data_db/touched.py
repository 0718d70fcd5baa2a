"""When rows were changed last: by table and bucket, counted in this process.

Whoever has seen rows of some buckets asks later whether they are still so. What is not known in
detail counts for all: bulk rows, records of others, moves, changes of the schema, a group that was
taken back. It is told in the transaction that makes the change, so what is taken back later may
be counted too; that only makes somebody look again.
"""

from __future__ import annotations

from collections.abc import Iterable

from cairn.model.log.records import RowChange

MOST = 100_000  # buckets of tables that are remembered


class Touched:
    """Belongs to the writer, as the rows do."""

    def __init__(self) -> None:
        self.now = 0
        self._all = 0
        self._at: dict[tuple[int, int], int] = {}

    def row(self, table: int, bucket: int) -> None:
        self.now += 1
        self._at[table, bucket] = self.now
        self._bound()

    def rows(self, changes: Iterable[RowChange]) -> None:
        self.now += 1
        for change in changes:
            for row in (change.old, change.new):
                if row is not None:
                    self._at[change.table, row[0]] = self.now
        self._bound()

    def _bound(self) -> None:
        if len(self._at) > MOST:
            self.all()

    def all(self) -> None:
        """Anything may have changed."""
        self.now += 1
        self._all = self.now
        self._at.clear()

    def is_since(self, then: int, tables: Iterable[int], buckets: Iterable[int]) -> bool:
        """Whether any of these rows may have changed after `then`."""
        if self._all > then:
            return True
        at = self._at
        return any(at.get((table, bucket), 0) > then for table in tables for bucket in buckets)
