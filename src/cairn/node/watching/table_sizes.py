"""Sizes of the tables of this instance, measured when somebody asks and not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from cairn.model.tables.catalog import Catalog
from cairn.model.watched import TableSize
from cairn.storage.files.table_sizes import table_sizes

FRESH_S = 5.0
SHARE = 20  # the walk over all pages may take one part in so many of a thread's time


class TableSizes:
    def __init__(self, data: Path, raft: Path, catalog: Callable[[], Catalog]) -> None:
        self._files, self._catalog = (data, raft), catalog
        self._known: tuple[TableSize, ...] = ()
        self._good_until = 0.0
        self._measuring: asyncio.Future[None] | None = None

    async def get(self) -> tuple[TableSize, ...]:
        """As they were a moment ago; whoever comes while they are measured waits for the same."""
        if monotonic() < self._good_until:
            return self._known
        if self._measuring is None:
            self._measuring = asyncio.ensure_future(self._measure())
            self._measuring.add_done_callback(self._measured)
        await asyncio.shield(self._measuring)
        return self._known

    def _measured(self, _: object) -> None:
        self._measuring = None

    async def _measure(self) -> None:
        begun = monotonic()
        tables = {
            table.physical_name: table.id
            for table in self._catalog().tables.values()
            if not table.is_system
        }

        def walk() -> list[TableSize]:
            return [
                TableSize(tables[name], *sizes)
                for file in self._files
                for name, sizes in table_sizes(file).items()
                if name in tables
            ]

        self._known = tuple(await asyncio.to_thread(walk))
        took_s = monotonic() - begun
        self._good_until = monotonic() + max(FRESH_S, SHARE * took_s)
