"""Rows of a session's temporary tables: a SQLite of its own, in memory while they are few.

The rest goes to a file without a name (`files/spill.py`): whatever ends the session or the process
ends it too. One thread at a time works with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from cairn.model.errors import CairnError
from cairn.native.loading import FUNCTIONS, load
from cairn.storage.files.spill import OPEN_EMPTY, SpillFiles
from cairn.storage.readers import Register

CACHE_KIB = 4_000


class TempFiles(SpillFiles):
    def too_much(self) -> CairnError:
        return CairnError(
            f"the temporary tables of this session need more than {self.max_bytes} bytes of files",
            hint="drop some of them, or allow more: ALTER SYSTEM SET temp_tables_max_bytes "
            "(0: no limit)",
            sqlstate="53400",
        )


class TempStore:
    def __init__(self, directory: Path, register: Register) -> None:
        self.files = TempFiles(directory)
        self.connection = apsw.Connection(
            "", flags=OPEN_EMPTY, vfs=self.files.name, statementcachesize=100
        )
        self.connection.pragma("cache_size", -CACHE_KIB)
        register(self.connection)
        load(self.connection, FUNCTIONS)
        self._counts = {"INSERT": 0, "UPDATE": 0, "DELETE": 0}

    def close(self) -> None:
        self.connection.close(True)
        self.files.unregister()

    # --- what a block of statements asks of a store (`BlockRun`) ----------------------------------

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Several statements at once: rows are counted one by one."""
        self.connection.preupdate_hook(self._on_change)
        try:
            yield
        finally:
            self.connection.preupdate_hook(None)

    def _on_change(self, update: Any) -> None:
        self._counts[update.op] += 1

    def pending_changes(self) -> int:
        self._counts = dict.fromkeys(self._counts, 0)
        return 0

    def count_rows(self, since: int = 0) -> int:
        """A row that got another key is deleted and inserted, and counts once."""
        counts = self._counts
        return counts["UPDATE"] + max(counts["INSERT"], counts["DELETE"])

    def enforce(self, *, is_rekeying: bool = False) -> None:
        """Temporary tables have no foreign keys."""

    # --- statements -------------------------------------------------------------------------------

    def insert_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.connection.executemany(sql, rows)

    @contextmanager
    def watched(self, is_stopped: Callable[[], bool], every: int) -> Iterator[None]:
        self.connection.set_progress_handler(is_stopped, every)
        try:
            yield
        finally:
            self.connection.set_progress_handler(None)
