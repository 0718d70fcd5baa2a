"""Temporary files of one connection: in the instance's directory, counted, with a limit.

SQLite keeps what it sorts and gathers in memory up to the size of its cache, and writes the rest
to files that it opens through this. They have no name any more once they are open: whatever ends
the process ends them too.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import apsw

from cairn.model.errors import CairnError

PREFIX = "spill-"
_numbers = itertools.count(1)


def remove_left(directory: Path) -> None:
    """Files of a process that ended between making one and taking its name away."""
    for path in directory.glob(f"{PREFIX}*"):
        path.unlink(missing_ok=True)


def spilled_too_much(max_bytes: int) -> CairnError:
    return CairnError(
        f"the statement needs more than {max_bytes} bytes of temporary files",
        hint="narrow the statement, or allow more: ALTER SYSTEM SET sql_spill_max_bytes "
        "(0: no limit)",
        sqlstate="53400",
    )


class SpillFiles(apsw.VFS):
    """`max_bytes` may be written by the statement at hand; 0: no limit."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.name = f"cairn-spill-{os.getpid()}-{next(_numbers)}"
        self.max_bytes = 0
        self.bytes = 0  # in files that are open
        self.is_full = False
        super().__init__(self.name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name or str(self._directory / f"{PREFIX}{os.getpid()}-{next(_numbers)}")
        return _SpillFile(self, path, flags)

    def grow(self, size: int) -> None:
        if self.max_bytes and self.bytes + size > self.max_bytes:
            self.is_full = True
            raise apsw.FullError("sql_spill_max_bytes is reached")
        self.bytes += size

    def problem(self) -> CairnError:
        return spilled_too_much(self.max_bytes)


class _SpillFile(apsw.VFSFile):
    def __init__(self, files: SpillFiles, path: Any, flags: list[int]) -> None:
        self._files, self._size = files, 0
        super().__init__("unix", path, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        more = offset + len(data) - self._size
        if more > 0:
            self._files.grow(more)
            self._size += more
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        if size < self._size:
            self._files.bytes -= self._size - size
            self._size = size
        super().xTruncate(size)

    def xClose(self) -> None:
        self._files.bytes -= self._size
        self._size = 0
        super().xClose()
