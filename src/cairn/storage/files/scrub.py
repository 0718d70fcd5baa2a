"""Reading files only to see whether they are whole, and rows only to compare them.

Every piece is one short read transaction on a connection of its own: a long one would keep SQLite's
log from beginning anew. Runs on any thread.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.log.records import Kind, Vclock, decode_body, pack_rows
from cairn.model.tables.schema import BUCKET_COLUMN, Index, Table
from cairn.storage.data_db.log_tables import AFTER
from cairn.storage.data_db.moving_in import key_columns
from cairn.storage.files.checksums import is_damage
from cairn.storage.files.sqlite import open_reader

BLOCK_ROWS = 64
PIECE_PAGES = 255  # a megabyte, and no power of two
TRIES, AGAIN_S = 5, 0.02  # of pages that look damaged
RECORDS_MAX = 10_000  # looked through for one comparison; beyond them it is tried again later
_decode_shape = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode
#: How many of some pages have not the checksum that they should have.
_CHECKED = (
    "WITH RECURSIVE n(at) AS (SELECT 0 UNION ALL SELECT at + 1 FROM n WHERE at + 1 < ?3) "
    "SELECT sum(verify_checksum(substr(?1, 1 + at * ?2, ?2)) IS NOT 1) FROM n"
)
_AFTER = f"SELECT body {AFTER} AND lsn <= ?3 ORDER BY place LIMIT ?3 - ?2"


class Span(msgspec.Struct, frozen=True):
    """Rows of one table in some buckets, both ends included."""

    table_id: int
    low: int
    high: int


class Digest(msgspec.Struct, frozen=True):
    """What the rows of a span are, at one position of the log."""

    vclock: Vclock
    version: int  # of the table's schema; 0: there is no such table
    rows: int
    hash: bytes


def trees_of(path: Path) -> list[str]:
    """Tables and indexes of a file: each is a tree of pages."""
    with _snapshot(path) as connection:
        query = "SELECT name FROM sqlite_schema WHERE rootpage > 0 ORDER BY rootpage"
        return ["sqlite_schema", *(name for (name,) in connection.execute(query))]


def is_whole(path: Path, tree: str) -> bool:
    """Whether all pages of a tree are as they were written."""
    try:
        with _snapshot(path) as connection:
            connection.execute("SELECT count(*) FROM dbstat WHERE name = ?", (tree,)).fetchall()
    except apsw.Error as problem:
        if is_damage(problem):
            return False
        raise
    return True


def suspects(path: Path, first: int) -> tuple[int, bool]:
    """The pages from `first` on, as they lie on the disk: which is the next to be looked at (0:
    none), and whether one of these has another checksum than it should.

    No transaction is held, however large the file is. One that is being written looks damaged, too:
    it is looked at again, and `is_whole` has the last word.
    """
    connection = open_reader(path)
    try:
        page = int(connection.pragma("page_size"))
        count = min(PIECE_PAGES, path.stat().st_size // page - first + 1)
        if count <= 0:
            return 0, False
        if count & (count - 1) == 0:  # SQLite's checksums take a power of two for one page
            count = max(count - 1, 1)
        for _ in range(TRIES):
            if _has_checksums(connection, page, first, count):
                return first + count, False
            time.sleep(AGAIN_S)
        return first + count, True
    finally:
        connection.close()


def _has_checksums(connection: apsw.Connection, page: int, first: int, count: int) -> bool:
    try:
        _, data = connection.read("main", 0, (first - 1) * page, count * page)
    except apsw.Error as problem:
        if is_damage(problem):  # it was a single page
            return False
        raise
    found: Any = connection.execute(_CHECKED, (data, page, count)).fetchone()
    return not found[0]


def digest(path: Path, span: Span) -> Digest:
    with _snapshot(path) as connection:
        return _digest(connection, span)


def compare(path: Path, span: Span, theirs: Digest) -> bool | None:
    """Whether the rows here are those; None: it cannot be said, as rows changed in between."""
    with _snapshot(path) as connection:
        ours = _digest(connection, span)
        if ours.version != theirs.version:
            return None
        if ours.hash == theirs.hash:
            return True
        for origin in {*ours.vclock, *theirs.vclock}:
            after, upto = theirs.vclock.get(origin, 0), ours.vclock.get(origin, 0)
            if after > upto or upto - after > RECORDS_MAX:
                return None
            bodies: list[Any] = connection.execute(_AFTER, (origin, after, upto)).fetchall()
            if len(bodies) != upto - after or any(_touches(body, span) for (body,) in bodies):
                return None
    return False


def _touches(body: bytes, span: Span) -> bool:
    found = decode_body(body)
    if found.kind == Kind.MARK:
        return False
    if found.kind != Kind.ROWS:
        return True
    if found.bulk is not None and found.bulk[0] == span.table_id:
        return True
    return any(
        change.table == span.table_id
        and any(
            row is not None and span.low <= row[0] <= span.high for row in (change.old, change.new)
        )
        for change in found.changes
    )


def _digest(connection: apsw.Connection, span: Span) -> Digest:
    vclock: Vclock = dict(connection.execute("SELECT origin, lsn FROM vclock"))
    known: Any = connection.execute(
        "SELECT body FROM local_table WHERE id = ?", (span.table_id,)
    ).fetchone()
    if known is None:
        return Digest(vclock, 0, 0, b"")
    table, _ = _decode_shape(known[0])
    order = ", ".join(key_columns(table))
    cursor = connection.execute(
        f"SELECT * FROM {table.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ? "
        f"ORDER BY {order}",
        (span.low, span.high),
    )
    hashed, count = hashlib.blake2b(digest_size=16), 0
    while rows := list(islice(cursor, BLOCK_ROWS)):
        hashed.update(pack_rows(rows))
        count += len(rows)
    return Digest(vclock, table.schema_version, count, hashed.digest())


@contextmanager
def _snapshot(path: Path) -> Iterator[apsw.Connection]:
    connection = open_reader(path)
    try:
        connection.pragma("cache_size", -500)  # what is kept in memory is not what is on the disk
        connection.execute("BEGIN")
        yield connection
    finally:
        connection.close()
