"""A copy of `data.db` as it stood at one commit, made while others write.

A read transaction keeps the state; SQLite's backup interface copies its pages, some at a time and
without Python's lock. What was committed since stays in the write-ahead log meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw

from cairn.model.backups import Stamp
from cairn.model.log.records import Vclock
from cairn.storage.data_db.log_tables import AFTER
from cairn.storage.data_db.row_log import LogReader, newest_epochs
from cairn.storage.files.checksums import CHECKSUM_BYTES, IS_LOADED, is_damage
from cairn.storage.files.sqlite import open_reader, quick_check

READ_COPY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI  # nobody writes to it any more
PAGES = 64  # of one step
RECORDS = 500  # likewise
#: Sorted by epoch: one master writes in each, so this is the order in which they were made.
RECORDS_SCHEMA = """
CREATE TABLE record (
    epoch INTEGER NOT NULL, lsn INTEGER NOT NULL, origin TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (epoch, lsn, origin)
) STRICT, WITHOUT ROWID
"""


def check_pages(path: Path) -> str | None:
    """What is wrong with a copy, as SQLite and its checksums see it; None: nothing."""
    try:
        connection = apsw.Connection(f"file:{path}?immutable=1", flags=READ_COPY)
        try:
            found: Any = quick_check(connection)
            if found == [("ok",)]:
                return None
            connection.execute("SELECT count(*) FROM dbstat").fetchall()  # says why
            return str(found[0][0])
        finally:
            connection.close()
    except apsw.Error as problem:
        return "the checksum of a page is wrong" if is_damage(problem) else str(problem)


class PageCopy:
    """Opened where nobody writes, it keeps that very state. Belongs to one thread at a time."""

    def __init__(self, source: Path, target: Path, after: Stamp | None = None) -> None:
        self.target = target
        self._source = open_reader(source)
        self._target: apsw.Connection | None = None
        self._backup: Any = None
        self.copied = self.total = 0
        try:
            self._source.execute("BEGIN")
            vclock: Vclock = dict(self._source.execute("SELECT origin, lsn FROM vclock"))
            epochs = newest_epochs(self._source)
            self.stamp: Stamp = {
                origin: (lsn, epochs.get(origin, 0)) for origin, lsn in vclock.items()
            }
            self.after = after if after is not None and self._continues(source, after) else None
            self._page_bytes = int(self._source.pragma("page_size"))
            if self.after is None:
                self.total = int(self._source.pragma("page_count")) * self._page_bytes
        except BaseException:
            self.close()
            raise

    @property
    def is_whole(self) -> bool:
        return self.after is None

    def _continues(self, source: Path, after: Stamp) -> bool:
        """Whether the log here has everything after `after`, and tells the same history."""
        if any(origin not in self.stamp for origin in after):
            return False
        reader = LogReader(source)
        try:
            for origin, (newest, _) in self.stamp.items():
                lsn, epoch = after.get(origin, (0, 0))
                if lsn > newest or (lsn and reader.epoch_at(origin, lsn) != epoch):
                    return False
                if lsn < newest and not 0 < reader.oldest(origin) <= lsn + 1:
                    return False
        finally:
            reader.close()
        return True

    # --- copying ----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Copy some more; True when all of it is there."""
        if self._target is None:
            self._begin()
        assert self._target is not None
        if self.after is None:
            backup = self._backup
            is_over = bool(backup.step(PAGES))
            self.total = backup.page_count * self._page_bytes
            self.copied = self.total - backup.remaining * self._page_bytes
            if is_over:
                backup.finish()
        else:
            is_over = self._copy_records()
        if is_over:
            self.close()
            self.copied = self.total = os.stat(self.target).st_size
        return is_over

    def _begin(self) -> None:
        os.close(os.open(self.target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._target = target = apsw.Connection(str(self.target))
        target.pragma("journal_mode", "off")
        target.pragma("synchronous", "off")  # who asks for the file looks at it whole
        if IS_LOADED:
            target.reserve_bytes("main", CHECKSUM_BYTES)
            # The first page on disk says that pages get checksums. Those that come from the
            # write-ahead log have none yet, and may be written before it is.
            target.execute("CREATE TABLE first (page); DROP TABLE first")
        if self.after is None:
            self._backup = target.backup("main", self._source, "main")
            return
        target.execute(RECORDS_SCHEMA)
        self._left = [
            (origin, self.after.get(origin, (0, 0))[0], newest)
            for origin, (newest, _) in sorted(self.stamp.items())
        ]

    def _copy_records(self) -> bool:
        """In the order of the log of each origin."""
        assert self._target is not None
        while self._left:
            origin, lsn, newest = self._left[0]
            if lsn >= newest:
                self._left.pop(0)
                continue
            query = f"SELECT epoch, lsn, ?1, body {AFTER} ORDER BY place LIMIT ?3"
            found: Any = self._source.execute(query, (origin, lsn, RECORDS)).fetchall()
            self._target.execute("BEGIN")
            self._target.executemany("INSERT INTO record VALUES (?, ?, ?, ?)", found)
            self._target.execute("COMMIT")
            self.copied += sum(len(row[3]) for row in found)
            self.total = max(self.total, self.copied)
            self._left[0] = (origin, found[-1][1], newest)
            return False
        return True

    def close(self) -> None:
        if self._backup is not None:
            self._backup.close(True)
            self._backup = None
        if self._target is not None:
            self._target.close()
            self._target = None
        self._source.close()
