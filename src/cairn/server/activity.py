"""What `pg_stat_activity` shows, and who may end whose session or statement.

It is of the instance that is asked: sessions of other instances are seen there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cairn.model.catalog import Catalog
from cairn.model.errors import AccessDenied, OutOfRange
from cairn.server.client import Client
from cairn.sql.statements.passwords import without_secrets

SHOWN_TEXT = 1_000  # bytes of a statement
HIDDEN = "<insufficient privilege>"
_PID_MAX = 2**31 - 1

Row = dict[str, Any]


class Asker(NamedTuple):
    """Who reads the catalogue: the functions of a session are about it."""

    user: str = ""
    user_id: int = -1
    pid: int = 0


class Activity:
    """Over the sessions of this instance, by the number that their clients were told."""

    def __init__(self, sessions: Mapping[int, Client], catalog: Callable[[], Catalog]) -> None:
        self._sessions, self._catalog = sessions, catalog

    def rows(self, asker: Asker) -> list[Row]:
        """On the loop: what sessions do changes only there."""
        catalog = self._catalog()
        sees_all = catalog.is_super(asker.user_id)
        return [
            _row(session, sees_all or session.user_id == asker.user_id)
            for session in list(self._sessions.values())
        ]

    def signals(self, asker: Asker) -> Signals:
        return Signals(self._sessions, self._catalog, asker, asyncio.get_running_loop())


def _row(session: Client, is_open: bool) -> Row:
    row: Row = {
        "datid": 1,
        "datname": "cairn",
        "pid": session.pid,
        "usesysid": session.user_id,
        "usename": session.user,
        "query": HIDDEN,
    }
    if not is_open:
        return row
    doing = session.doing()
    address, port = doing.address
    return {
        **row,
        "application_name": doing.application,
        "client_addr": address or None,
        "client_port": port,
        "backend_start": doing.began_us,
        "xact_start": doing.block_us,
        "query_start": doing.query_us,
        "state_change": doing.changed_us,
        "state": doing.state,
        "query": without_secrets(doing.query.decode(errors="replace"))[:SHOWN_TEXT],
        "backend_type": "client backend",
    }


class Signals:
    """`pg_cancel_backend` and `pg_terminate_backend` for one asker, called on any thread."""

    def __init__(
        self,
        sessions: Mapping[int, Client],
        catalog: Callable[[], Catalog],
        asker: Asker,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._sessions, self._catalog = sessions, catalog
        self._asker, self._loop = asker, loop

    def cancel(self, pid: Any) -> int | None:
        return self._signal(pid, "cancel query", lambda session: session.cancel())

    def terminate(self, pid: Any) -> int | None:
        return self._signal(pid, "terminate process", lambda session: session.shut_down())

    def _signal(self, pid: Any, what: str, send: Callable[[Client], None]) -> int | None:
        if pid is None:
            return None
        number = int(pid)
        if not -_PID_MAX - 1 <= number <= _PID_MAX:
            raise OutOfRange("integer out of range")
        session = self._sessions.get(number)
        if session is None:
            return 0
        asker = self._asker
        if session.user_id != asker.user_id and not self._catalog().is_super(asker.user_id):
            raise AccessDenied(
                f"permission denied to {what}",
                detail="only the admin ends what other users do",
            )
        self._loop.call_soon_threadsafe(send, session)
        return 1
