"""What the rest of the server may know of a session: whose it is, and how it is told something."""

from __future__ import annotations

from typing import Protocol

from cairn.model.errors import CairnError
from cairn.pgwire.server import PgServer


class Client(Protocol):
    pg: PgServer
    user: str
    user_id: int
    pid: int
    cancel_key: bytes

    def push(self, data: bytes) -> None:
        """Send it now, whatever the session is doing."""

    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""

    def flush(self) -> None: ...

    def cancel(self) -> None: ...

    def hang_up(self, problem: CairnError) -> None:
        """Say why, then close."""

    def shut_down(self) -> None: ...
