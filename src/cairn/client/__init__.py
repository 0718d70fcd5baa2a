"""Cairn's smart driver: knows the topology, and sends each statement straight to its rows.

`connect` is the asyncio face, `cairn.client.sync.connect` the blocking one (DB-API 2.0). Needs
nothing of the server: msgspec, mmh3 and the standard library.
"""

from cairn.client.aio import Connection, Pool, connect
from cairn.client.router import Route
from cairn.client.settings import Settings, parse_dsn
from cairn.client.stats import Stats

__all__ = ["Connection", "Pool", "Route", "Settings", "Stats", "connect", "parse_dsn"]
