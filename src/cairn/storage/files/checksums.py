"""Every page of our files ends with a checksum; SQLite compares it whenever it reads the page.

SQLite's own checksum VFS does it. It comes with apsw, is the default for all connections that are
opened after it was loaded, and acts on files whose pages keep eight bytes free for it. A page whose
checksum is wrong is never given to anybody: reading it is an I/O error of a kind of its own. Why
it is done so and what it costs: docs/adr/0018-checksums-of-pages.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import apsw

from cairn.model.errors import CairnError, StorageDamaged
from cairn.model.unexpected import translators

log = logging.getLogger("cairn.data")

CHECKSUM_BYTES = 8
_RESERVED_AT = 20  # in the head of a file: bytes that pages keep free at their end


def _load() -> bool:
    """Once for the process, before it opens any file."""
    try:
        import apsw.sqlite_extra

        path = apsw.sqlite_extra.path("cksumvfs")
        connection = apsw.Connection(":memory:")
        try:
            connection.enable_load_extension(True)
            connection.load_extension(str(path))
        finally:
            connection.close()
    except (ImportError, LookupError, OSError, apsw.Error) as problem:
        log.warning("files get no checksums: %s", problem)
        return False
    return True


IS_LOADED = _load()

#: Called, on any thread, when somebody has met a damaged page of any file of this process.
listeners: list[Callable[[], None]] = []


def has_checksums(path: Path) -> bool | None:
    """None: there is no file, or an empty one."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return None
    return head[_RESERVED_AT] == CHECKSUM_BYTES if len(head) == 100 else None


def require(connection: apsw.Connection, has: bool | None) -> None:
    """Before the first table of a new file is made, and once in the life of an old one.

    `has` is asked before the file is opened: to close any descriptor of it would give up the
    locks that SQLite has on it.
    """
    if not IS_LOADED:
        if has:
            raise StorageDamaged(
                f"{Path(connection.filename).name} has checksums that this program cannot keep",
                hint="install the wheel of apsw: it brings SQLite's checksum VFS (cksumvfs)",
            )
        return
    connection.reserve_bytes("main", CHECKSUM_BYTES)
    if has is False:
        _rewrite(connection)


def _rewrite(connection: apsw.Connection) -> None:
    """A file of an older version: whole, in one transaction."""
    name = Path(connection.filename).name
    log.info("%s gets checksums: it is written anew, once", name)
    try:
        connection.execute("VACUUM")
    except apsw.FullError:
        log.warning("%s has no checksums: there is no space to write it anew", name)


def is_damage(problem: BaseException) -> bool:
    """Whether SQLite met a page that is not as it was written."""
    if isinstance(problem, apsw.IOError):
        return bool(getattr(problem, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA)
    return isinstance(problem, apsw.CorruptError)


def page_damaged(what: str = "a page that holds these rows is damaged") -> StorageDamaged:
    """Told to the statement that met it; the instance looks at its files and mends what it can."""
    noticed()
    return StorageDamaged(
        what,
        hint="nothing wrong was answered; `cairn status` says which file it is and what is done",
    )


def noticed() -> None:
    for listener in (*listeners,):  # one may go meanwhile, on another thread
        listener()


def _translated(problem: BaseException) -> CairnError | None:
    return page_damaged() if is_damage(problem) else None


translators.append(_translated)
