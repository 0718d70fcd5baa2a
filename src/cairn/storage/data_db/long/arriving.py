"""Statements of which not all records are here yet.

None of them is applied before the last one came: whoever becomes master in between has the rows as
they were before the statement, and says so. What is held here is no part of the log, and nobody is
told that we have it; it only need not be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cairn.model.errors import CairnError
from cairn.model.log.records import Packed, Vclock
from cairn.replication.applier import NoRoom
from cairn.storage.data_db.long.part_file import PartFile

KEPT_SHARE = 0.01  # of the disk: what others may not use is for rows, and these will be rows


class _Statement:
    def __init__(self, first: Packed, directory: Path) -> None:
        self.epoch, self.before = first.epoch, first.lsn - 1
        self.file = PartFile(directory, kept=KEPT_SHARE)


class Arriving:
    """Belongs to the writer; `upto` is replaced, never changed: others may read it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begun: dict[str, _Statement] = {}
        self.upto: Vclock = {}  # origin → the last record that is held

    def forget(self, *origins: str) -> None:
        """Without names: all."""
        for origin in origins or tuple(self._begun):
            found = self._begun.pop(origin, None)
            if found is not None:
                found.file.clear()
        self._told()

    def _told(self) -> None:
        self.upto = {
            origin: found.before + len(found.file) for origin, found in self._begun.items()
        }

    def standing(self, vclock: Vclock) -> Vclock:
        """Where we stand together with what is held. What has been overtaken, by a full copy or
        whatever it was, is forgotten."""
        if not self._begun:
            return vclock
        for origin, found in tuple(self._begun.items()):
            if vclock.get(origin, 0) != found.before:
                self.forget(origin)
        return {**vclock, **self.upto}

    def goes_on(self, record: Packed) -> bool:
        """Whether what came belongs to a statement that has begun."""
        found = self._begun.get(record.origin)
        return found is not None and found.epoch == record.epoch

    def hold(self, record: Packed) -> None:
        if not self.goes_on(record):
            self.forget(record.origin)
            self._begun[record.origin] = _Statement(record, self._directory)
        try:
            self._begun[record.origin].file.add(record.body)
        except CairnError as problem:
            raise NoRoom(record, problem) from None
        self._told()

    def take(self, origin: str) -> Iterator[Packed]:
        """What is held of a statement, once."""
        found = self._begun.pop(origin, None)
        self._told()
        if found is not None:
            try:
                for at, body in enumerate(found.file, 1):
                    yield Packed(origin, found.epoch, found.before + at, body)
            finally:
                found.file.clear()
