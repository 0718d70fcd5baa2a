"""Parts of one long statement, until all of them are there: in a file without a name.

At a master they are written as its changes are made, because a hook of SQLite may not write to the
database; at a replica as they come, because none of them is applied before the last one is there.
Whatever ends the process ends the file too: then the statement is made, or asked for, again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cairn.model.errors import LimitExceeded
from cairn.storage.files.spill import KEPT_SHARE, PREFIX, Room, no_room


def too_much(most: int, why: str = "") -> LimitExceeded:
    return LimitExceeded(
        f"the statement changes more than {most >> 20} MiB{why}",
        hint="change fewer rows at a time, or use TRUNCATE or COPY",
    )


class PartFile:
    """Belongs to the writer's thread. `most`: bytes; 0: what a master took is taken. `kept`: the
    share of the disk that is left to rows and logs."""

    def __init__(self, directory: Path, most: int = 0, kept: float = KEPT_SHARE) -> None:
        self._directory, self._room, self._most = directory, Room(directory, kept), most
        self._file: IO[bytes] | None = None
        self._sizes: list[int] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, data: bytes) -> None:
        if self._most and self._bytes + len(data) > self._most:
            raise too_much(self._most)
        if self._room.is_short(len(data)):
            raise no_room()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(  # noqa: SIM115, closed by `clear`
                    dir=self._directory, prefix=PREFIX
                )
            self._file.seek(self._bytes)
            self._file.write(data)
            self._file.flush()
        except OSError:
            raise no_room() from None
        self._sizes.append(len(data))
        self._bytes += len(data)

    def __iter__(self) -> Iterator[bytes]:
        if self._file is not None:
            self._file.seek(0)
            for size in self._sizes:
                yield self._file.read(size)

    def clear(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._sizes.clear()
        self._bytes = 0
