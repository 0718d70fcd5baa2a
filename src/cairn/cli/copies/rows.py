"""Rows of a backup, as of its moment or of a later one within the log that follows it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.cli.copies.files import chain
from cairn.cli.talking import TalkProblem
from cairn.model.backups import Manifest, Part
from cairn.model.errors import CairnError
from cairn.model.log.records import Kind, Packed, decode_body
from cairn.model.members.cluster import Cluster
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.catalog_rows import catalog_of
from cairn.model.tables.pictures import cluster_of
from cairn.model.tables.schema import BUCKET_COLUMN, Table
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.row_log import Applier
from cairn.storage.files.page_copy import READ_COPY
from cairn.storage.raft_db.global_tables import TableDump

Link = tuple[Path, Manifest]
_COMMIT = 2_000  # records
_ALL_MOVES = 1 << 62  # hand-overs of the log have all happened


class Rows:
    """What is restored: the last backup of `links`, and records after it up to a time.

    Parts that are only a log are put together in `scratch`.
    """

    def __init__(self, directory: Path, to: str | None, scratch: Path) -> None:
        self.links, self._following, self._until = _chosen(chain(directory), to)
        self.manifest = self.links[-1][1]
        self.directory = self.links[-1][0]
        self._scratch = scratch
        self._files: dict[str, Path] = {}
        self.applied = 0  # records that were put into copies

    def until_shown(self) -> str:
        return _shown(self._until) if self._following is not None else self.manifest.taken_at

    def numbers(self) -> list[Any]:
        """Of identity columns. Rows after the backup may have numbers that were taken since."""
        found = global_rows(*self.links[-1]).get(system.CAIRN_SEQUENCE.id, [])
        if self._following is not None:
            found = global_rows(*self._following).get(system.CAIRN_SEQUENCE.id, [])
        return found

    def file(self, part: Part) -> Path:
        """The rows of one part, whole, in one file."""
        if part.replicaset not in self._files:
            self._files[part.replicaset] = self._whole(part)
        return self._files[part.replicaset]

    def _whole(self, part: Part) -> Path:
        base, logs = self._pieces(part)
        following = [] if self._following is None else [self._part_after(part)]
        if not logs and not following:
            return base
        made = self._scratch / f"{len(self._files)}.db"  # not by a name that somebody has written
        shutil.copyfile(base, made)
        from cairn.sql.functions.functions import register  # indexes have expressions

        store = DataStore(
            made, "restore", now_micros=lambda: int(time.time() * 1e6), register=register
        )
        try:
            store.connection.pragma("synchronous", "off")
            store.fence = Fence(last_move=_ALL_MOVES)
            for log in logs:
                self._repeat(store, log, None)
            for log in following:
                self._repeat(store, log, self._until)
            store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except (CairnError, msgspec.DecodeError) as problem:
            raise TalkProblem(
                f"the log of {part.replicaset} does not continue: {problem}"
            ) from None
        finally:
            store.close()
        return made

    def _pieces(self, part: Part) -> tuple[Path, list[Path]]:
        """The whole copy that it goes back to, and the logs since, oldest first."""
        logs: list[Path] = []
        for at, manifest in reversed(self.links):
            found = _part(manifest, part.replicaset)
            if found is None:
                break
            if found.is_whole:
                return at / found.file.name, logs[::-1]
            logs.append(at / found.file.name)
        raise TalkProblem(f"no whole copy of {part.replicaset} is among these backups")

    def _part_after(self, part: Part) -> Path:
        assert self._following is not None
        at, manifest = self._following
        found = _part(manifest, part.replicaset)
        if found is None or found.is_whole:
            raise TalkProblem(
                f"{at.name} has no log of {part.replicaset}: --to cannot be between it and "
                f"{self.directory.name}"
            )
        return at / found.file.name

    def _repeat(self, store: DataStore, log: Path, until: int | None) -> None:
        applier = Applier(store)
        reader = apsw.Connection(f"file:{log}?immutable=1", flags=READ_COPY)
        execute = store.connection.execute
        execute("BEGIN")
        try:
            query = "SELECT origin, epoch, lsn, body FROM record ORDER BY epoch, lsn"
            found: Any = reader.execute(query)
            for origin, epoch, lsn, body in found:
                if until is not None and not _is_before(body, until):
                    break
                if lsn <= store.vclock.get(origin, 0):
                    continue
                applier.repeat(Packed(origin, epoch, lsn, body))
                self.applied += 1
                if self.applied % _COMMIT == 0:
                    execute("COMMIT")
                    execute("BEGIN")
            execute("COMMIT")
        finally:
            reader.close()


def rows_of(file: Path, table: Table, part: Part, count: int) -> Iterator[list[Any]]:
    """Rows of the buckets that the replicaset owned; of others it may have had leftovers."""
    connection = apsw.Connection(f"file:{file}?immutable=1", flags=READ_COPY)
    try:
        for start, end in part.owned:
            cursor: Any = connection.cursor()
            cursor.execute(
                f"SELECT * FROM {table.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ?",
                (start, end),
            )
            while block := list(islice(cursor, count)):
                yield block
    except apsw.Error as problem:
        raise TalkProblem(f"{file} cannot be read: {problem}") from None
    finally:
        connection.close()


def _part(manifest: Manifest, replicaset: str) -> Part | None:
    return next((each for each in manifest.parts if each.replicaset == replicaset), None)


def _is_before(data: bytes, until: int) -> bool:
    body = decode_body(data)
    if body.timestamp > until:
        return False
    if body.kind in (Kind.DDL, Kind.MOVE):
        what = "a table was changed" if body.kind == Kind.DDL else "buckets moved"
        raise TalkProblem(
            f"{what} at {_shown(body.timestamp)}: --to can be before that, or the time of a backup"
        )
    return True


def _chosen(links: list[Link], to: str | None) -> tuple[list[Link], Link | None, int]:
    """The backups up to the time, the one after it, and the time in microseconds."""
    if to is None:
        return links, None, 0
    until = _micros(to)
    first, last = _micros(links[0][1].taken_at), _micros(links[-1][1].taken_at)
    if not first <= until <= last:
        raise TalkProblem(
            f"--to {to}: these backups go from {links[0][1].taken_at} to {links[-1][1].taken_at}", 2
        )
    count = sum(_micros(manifest.taken_at) <= until for _, manifest in links)
    if count == len(links) or until == _micros(links[count - 1][1].taken_at):
        return links[:count], None, 0
    return links[:count], links[count], until


def _micros(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise TalkProblem(f"--to {text}: write a time, 2026-11-16T12:00:00+00:00", 2) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1e6)


def _shown(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")


# --- global tables --------------------------------------------------------------------------------


class _Dump(msgspec.Struct, frozen=True):
    term: int
    index: int
    tables: list[TableDump]


def global_rows(directory: Path, manifest: Manifest) -> dict[int, list[Any]]:
    """Rows of all global tables, by table id."""
    path = directory / manifest.globals.name
    try:
        dump = msgspec.msgpack.decode(path.read_bytes(), type=_Dump)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise TalkProblem(f"{path} cannot be read: {problem}") from None
    return {each.table_id: each.rows for each in dump.tables}


def pictures(rows: dict[int, list[Any]]) -> tuple[Catalog, Cluster]:
    def content(table: Table) -> list[Any]:
        return [row[: len(table.columns)] for row in rows.get(table.id, [])]

    return catalog_of(content, 0), cluster_of(content)
