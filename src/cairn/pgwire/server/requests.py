"""What a client asks: one small value per frontend message, as `PgServer.feed` decodes them.

Names and SQL stay bytes: they are dictionary keys, and most statements are never decoded.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from cairn.model.errors import CairnError
from cairn.pgwire.server.startup import StartupParams


class _Request(msgspec.Struct, frozen=True, gc=False):
    """Never part of a cycle, so the collector need not look at it."""


class NeedTls(_Request, frozen=True):
    """`S` is in the output: send it, shake hands, then call `tls_started`."""


class StartupReceived(_Request, frozen=True):
    params: StartupParams


class CancelReceived(_Request, frozen=True):
    """Comes on a connection of its own, which is closed without an answer."""

    pid: int
    key: bytes


class SaslInitial(_Request, frozen=True):
    mechanism: str
    data: bytes


class SaslResponse(_Request, frozen=True):
    data: bytes


class Query(_Request, frozen=True):
    sql: bytes


class Parse(_Request, frozen=True):
    name: bytes
    sql: bytes
    param_oids: tuple[int, ...]


class Bind(_Request, frozen=True):
    portal: bytes
    statement: bytes
    param_formats: tuple[int, ...]  # none: all text; one: for all; else one each
    params: list[bytes | None]
    result_formats: tuple[int, ...]


class Describe(_Request, frozen=True):
    kind: Literal["S", "P"]
    name: bytes


class Execute(_Request, frozen=True):
    portal: bytes
    max_rows: int  # 0: all


class Close(_Request, frozen=True):
    kind: Literal["S", "P"]
    name: bytes


class Flush(_Request, frozen=True):
    pass


class Sync(_Request, frozen=True):
    pass


class CopyData(_Request, frozen=True):
    """Neighbouring CopyData messages come as one: their borders mean nothing."""

    data: bytes


class CopyDone(_Request, frozen=True):
    pass


class CopyFail(_Request, frozen=True):
    message: str


class Terminate(_Request, frozen=True):
    pass


class BadMessage(_Request, frozen=True):
    """Not a message of the protocol. Hand it to `PgServer.refuse`."""

    error: CairnError
    recovery: Literal["close", "skip", "ready"]


Request: TypeAlias = (
    NeedTls
    | StartupReceived
    | CancelReceived
    | SaslInitial
    | SaslResponse
    | Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Flush
    | Sync
    | CopyData
    | CopyDone
    | CopyFail
    | Terminate
    | BadMessage
)

FLUSH = Flush()
SYNC = Sync()
COPY_DONE_REQUEST = CopyDone()
TERMINATE = Terminate()
