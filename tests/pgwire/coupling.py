"""Joins a PgClient and an EchoSession in memory, so that each is tested against the other."""

from __future__ import annotations

from typing import Any

from cairn.pgwire.client.client import PgClient
from cairn.pgwire.server.server import PgServer

from .echo import EchoSession, no_randomness


class Pair:
    """Carries bytes until both are silent. `chunk` cuts them, as a network may."""

    def __init__(
        self, *, chunk: int = 1 << 20, server: PgServer | None = None, **client: Any
    ) -> None:
        client = {"user": "alice", "password": "secret", "random_bytes": no_randomness} | client
        self.pg = PgClient(**client)
        self.server = EchoSession(server)
        self.chunk = chunk

    def carry(self, outgoing: bytes) -> None:
        while outgoing:
            incoming = b"".join(self.server.receive(piece) for piece in self._cut(outgoing))
            outgoing = b"".join(self.pg.receive(piece) for piece in self._cut(incoming))

    def _cut(self, data: bytes) -> list[bytes]:
        return [data[at : at + self.chunk] for at in range(0, len(data), self.chunk)]

    def connected(self) -> Pair:
        self.carry(self.pg.connect())
        assert self.pg.is_idle
        return self
