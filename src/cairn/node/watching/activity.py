"""What `pg_stat_activity` shows, and who may end whose session or statement.

It is of the instance that is asked; `_cairn_sessions` has those of all instances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cairn.model.errors import AccessDenied, OutOfRange
from cairn.model.tables.catalog import Catalog
from cairn.model.watched import SessionSeen
from cairn.node.watching.client import Client
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

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self.sessions: dict[int, Client] = {}
        self._catalog = catalog

    def seen(self) -> tuple[SessionSeen, ...]:
        """On the loop: what sessions do changes only there."""
        return tuple(map(_seen, list(self.sessions.values())))

    def rows(self, asker: Asker) -> list[Row]:
        return [
            {"datid": 1, "datname": "cairn", **session_row(each, self.may_see(asker, each.user_id))}
            for each in self.seen()
        ]

    def may_see(self, asker: Asker, user_id: int) -> bool:
        """What somebody runs is for themselves and for administrators."""
        return user_id == asker.user_id or self._catalog().is_super(asker.user_id)

    def signals(self, asker: Asker) -> Signals:
        return Signals(self.sessions, self._catalog, asker, asyncio.get_running_loop())


def _seen(session: Client) -> SessionSeen:
    doing = session.doing()
    address, port = doing.address
    return SessionSeen(
        pid=session.pid,
        user_id=session.user_id,
        user=session.user,
        application=doing.application,
        address=address,
        port=port,
        state=doing.state,
        query=without_secrets(doing.query.decode(errors="replace"))[:SHOWN_TEXT],
        began_us=doing.began_us,
        block_us=doing.block_us,
        query_us=doing.query_us,
        changed_us=doing.changed_us,
    )


def session_row(seen: SessionSeen, is_open: bool) -> Row:
    """In the columns of pg_stat_activity; little of it for those who may not see it."""
    row: Row = {"pid": seen.pid, "usesysid": seen.user_id, "usename": seen.user, "query": HIDDEN}
    if not is_open:
        return row
    return {
        **row,
        "application_name": seen.application,
        "client_addr": seen.address or None,
        "client_port": seen.port,
        "backend_start": seen.began_us,
        "xact_start": seen.block_us,
        "query_start": seen.query_us,
        "state_change": seen.changed_us,
        "state": seen.state,
        "query": seen.query,
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
