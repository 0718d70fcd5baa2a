"""What a backup of the whole cluster is made of: what masters tell of their part, and the manifest.

A backup is one moment of all replicasets and one position of Raft. `docs/how-to-back-up.md`
tells how that moment is taken, and why nothing can be in it twice or by half.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from cairn.model.sharding.spans import Ranges
from cairn.model.tables.catalog import User

#: A uuid and nothing else: it becomes the name of a file, and comes from a peer.
CopyId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
FORMAT = 1  # of the directory; a greater number is of a newer version
MANIFEST = "manifest.json"
GLOBAL_FILE = "global.msgpack"

#: A fact of the cluster while a backup is put into it: what an interrupted restore has made.
UNFINISHED = "restore_unfinished"
#: A fact of the cluster for ever after: which backup it began with.
RESTORED = "restored_from_backup"

Stamp = dict[str, tuple[int, int]]  # origin → (its last lsn, the epoch of that record)


class HoldRequest(msgspec.Struct, frozen=True):
    """Stop writing for a moment, and keep what is there now for a copy.

    `after` is where the backup before it stands: then only the records since are wanted.
    """

    copy_id: CopyId
    replicaset: str
    after: Stamp | None = None


class Held(msgspec.Struct, frozen=True):
    """A master's part: nothing was written from this state on until it was released."""

    replicaset: str
    instance: str
    epoch: int
    owned: Ranges
    versions: dict[int, int]  # table id → schema version of the rows that are kept
    stamp: Stamp
    is_whole: bool  # False: only records after `HoldRequest.after`


class CopyRequest(msgspec.Struct, frozen=True):
    copy_id: CopyId


class Released(msgspec.Struct, frozen=True):
    was_held: bool  # False: it took too long, and writing went on by itself


ALIVE = -1  # instead of an offset: nothing but a sign that the copy is still wanted


class PieceRequest(msgspec.Struct, frozen=True):
    copy_id: CopyId
    offset: int


class Piece(msgspec.Struct, frozen=True):
    """Some bytes of the copy; none while it is still made, and at its end."""

    data: bytes
    copied: int  # bytes that the copy has by now
    total: int  # and will have, about
    is_ready: bool


# --- being put into an empty cluster --------------------------------------------------------------


class RestoreBegin(msgspec.Struct, frozen=True):
    backup: str
    users: list[User]  # with the ids of the backup
    tables: list[str]
    tiers: dict[str, tuple[int, int]]  # those of sharded tables: bucket count, hash version


class RestoreEnd(msgspec.Struct, frozen=True):
    """Rows of system tables, with the ids of this cluster."""

    backup: str
    cluster_uuid: str  # of the cluster that was backed up
    privileges: list[tuple[Any, ...]]
    known_tables: list[int]  # system tables of the backup: other rights on them are taken away
    sequences: list[tuple[Any, ...]]
    settings: list[tuple[Any, ...]]
    queue: list[tuple[Any, ...]]
    types: list[tuple[Any, ...]] = []
    views: list[tuple[Any, ...]] = []
    routines: list[tuple[Any, ...]] = []
    last_routine_id: int = 0  # of all three


# --- on disk --------------------------------------------------------------------------------------


class FileFacts(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    sha256: str


class Part(msgspec.Struct, frozen=True):
    """The rows of one replicaset, at one moment."""

    replicaset: str
    tier: str
    instance: str  # the master that gave them
    epoch: int
    owned: Ranges  # buckets whose rows count; of others there may be rows that moved away
    stamp: Stamp
    is_whole: bool  # False: records that follow the part of the backup before
    file: FileFacts


class Previous(msgspec.Struct, frozen=True):
    """The backup that an incremental one continues: a directory beside it."""

    id: str
    directory: str


class Manifest(msgspec.Struct, frozen=True):
    format: int
    id: str
    version: str  # of Cairn
    cluster_name: str
    cluster_uuid: str  # the history that the positions belong to
    term: int  # position of Raft
    index: int
    schema_version: int
    taken_at: str  # UTC, when the moment was
    parts: tuple[Part, ...]
    globals: FileFacts
    previous: Previous | None = None
