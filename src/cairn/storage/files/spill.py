"""Temporary files of one connection: in the instance's directory, counted, with a limit.

SQLite keeps what it sorts and gathers in memory up to the size of its cache, and writes the rest
to files that it opens through this. They have no name any more once they are open: whatever ends
the process ends them too.
"""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import apsw

from cairn.model.errors import CairnError

PREFIX = "spill-"
KEPT_SHARE, KEPT_BYTES = 0.05, 4 << 30
LOOK_BYTES = 1 << 20
#: A database of its own, without a name, whose files are opened through `SpillFiles`.
OPEN_EMPTY = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
_numbers = itertools.count(1)


class Room:
    """What temporary files leave to rows and logs: an instance without space for them stops, and
    anybody may sort, or fill a temporary table. Asked anew after every megabyte."""

    def __init__(self, directory: Path, share: float = KEPT_SHARE, most: int = KEPT_BYTES) -> None:
        self._directory, self._share, self._most = directory, share, most
        self._unseen = LOOK_BYTES

    def is_short(self, more: int) -> bool:
        self._unseen += more
        if self._unseen < LOOK_BYTES:
            return False
        self._unseen = 0
        try:
            disk = os.statvfs(self._directory)
        except OSError:  # whoever writes there is told why it cannot
            return False
        kept = min(int(disk.f_blocks * disk.f_frsize * self._share), self._most)
        is_short = disk.f_bavail * disk.f_frsize - more < kept
        if is_short:
            self._unseen = LOOK_BYTES  # the next one looks again
        return is_short


def no_room() -> CairnError:
    return CairnError(
        "the disk of the instance has no room for temporary files",
        detail="its last space is kept for rows",
        hint="free space on it, or try again when other statements have ended",
        sqlstate="53100",
    )


def native() -> str:
    """How all other files are opened: with checksums."""
    return apsw.vfs_names()[0]


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

    def __init__(self, directory: Path, room: Room | None = None) -> None:
        self._directory, self._room = directory, room or Room(directory)
        self.name = f"cairn-spill-{os.getpid()}-{next(_numbers)}"
        self.max_bytes = 0
        self.bytes = 0  # in files that are open
        self.leaves_room = True
        self.is_full = self._lacks_room = False
        super().__init__(self.name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        if not flags[0] & apsw.SQLITE_OPEN_DELETEONCLOSE:
            return super().xOpen(name, flags)
        flags[1] = flags[0]
        return _SpillFile(self, str(self._directory / f"{PREFIX}{os.getpid()}-{next(_numbers)}"))

    def grow(self, size: int) -> None:
        if self.max_bytes and self.bytes + size > self.max_bytes:
            self.is_full, self._lacks_room = True, False
            raise apsw.FullError("sql_spill_max_bytes is reached")
        if self.leaves_room and self._room.is_short(size):
            self.is_full = self._lacks_room = True
            raise apsw.FullError("the disk is nearly full")
        self.bytes += size

    def problem(self) -> CairnError:
        return no_room() if self._lacks_room else self.too_much()

    def too_much(self) -> CairnError:
        return spilled_too_much(self.max_bytes)


class _SpillFile:
    """Read and written by the system's own calls: while these wait for the disk, others run.

    SQLite's file would be waited for with the interpreter's lock: by the whole instance.
    """

    def __init__(self, files: SpillFiles, path: str) -> None:
        self._files, self._size = files, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)

    def xRead(self, amount: int, offset: int) -> bytes:
        return os.pread(self._file, amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        more = offset + len(data) - self._size
        if more > 0:
            self._files.grow(more)
            self._size += more
        left = memoryview(data)
        try:
            while left:
                done = os.pwrite(self._file, left, offset)
                left, offset = left[done:], offset + done
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT):
                raise apsw.FullError(str(problem)) from None
            raise apsw.IOError(str(problem)) from None

    def xTruncate(self, size: int) -> None:
        if size < self._size:
            self._files.bytes -= self._size - size
            self._size = size
        os.ftruncate(self._file, size)

    def xFileSize(self) -> int:
        return self._size

    def xSync(self, flags: int) -> None:
        """Nobody reads it after a crash."""

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xSectorSize(self) -> int:
        return 4096

    def xLock(self, level: int) -> None:
        """It has no name: nobody else has it."""

    def xUnlock(self, level: int) -> None:
        """As `xLock`."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xClose(self) -> None:
        self._files.bytes -= self._size
        self._size = 0
        os.close(self._file)
