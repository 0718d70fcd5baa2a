"""Cairn's smart driver: knows the topology, and sends each statement straight to its rows.

`connect` is the asyncio face, `cairn.client.sync.connect` the blocking one (DB-API 2.0). Needs
nothing of the server: msgspec, mmh3 and the standard library.

Every error is a `CairnError` with `sqlstate`, `message`, `detail` and `hint`. What the server said
is a `ServerError`; the others are the driver's own.
"""

from cairn.client.aio import Connection, Pool, connect
from cairn.client.logic.router import Route
from cairn.client.logic.shares import Share, SomeUnknown, SomeWritten
from cairn.client.settings import Settings, parse_dsn
from cairn.client.stats import Stats
from cairn.model.errors import (
    CairnError,
    InvalidParameter,
    OutcomeUnknown,
    TimedOut,
    Unreachable,
)
from cairn.pgwire.client.backend import Result, ServerError

__all__ = [
    "CairnError",
    "Connection",
    "InvalidParameter",
    "OutcomeUnknown",
    "Pool",
    "Result",
    "Route",
    "ServerError",
    "Settings",
    "Share",
    "SomeUnknown",
    "SomeWritten",
    "Stats",
    "TimedOut",
    "Unreachable",
    "connect",
    "parse_dsn",
]
