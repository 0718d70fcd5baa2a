"""What the rest of the server may know of a session: whose it is, and how it is told something."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cairn.model.errors import CairnError
from cairn.pgwire.server.server import PgServer


class Doing(NamedTuple):
    """What a session is doing; times in microseconds, as the columns of tables have them."""

    address: tuple[str, int | None]
    application: str
    state: str  # in the words of pg_stat_activity
    query: bytes  # that runs, or ran last
    began_us: int
    block_us: int | None  # since when there is a block, or a statement runs without one
    query_us: int | None
    changed_us: int | None


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

    def end_at_rest(self) -> None:
        """Now, or when what was asked is answered."""

    def shut_down(self) -> None: ...

    def doing(self) -> Doing: ...
