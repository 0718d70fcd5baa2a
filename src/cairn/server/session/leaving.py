"""The last words of a session whose instance ends, said where its client knows what they are about.

What comes right behind an answer is taken for a notice by libpq: the next statement then meets a
closed connection, and nobody can say whether it was executed. So who was answered a moment ago is
told when it asks again, and what it asks is not executed; who asks nothing is told at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cairn.model.errors import CairnError
from cairn.pgwire.server.requests import Bind, Describe, Execute, Parse, Query, Request, Sync

if TYPE_CHECKING:
    from cairn.server.session.session import Session

QUIET_S = 0.3  # without a question: its client will read the last words before it asks again
LINGER_S = 0.2
_BEGINS = (Query, Parse, Bind, Describe, Execute)
_ENDS = (Query, Sync)


class Leaving:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_on = False  # the instance ends: so does the session, between two statements
        self._is_between = False  # the requests that came so far ask for nothing more
        self._quiet: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.is_on, self._is_between = True, self._session.is_resting()
        self.rests()

    def rests(self) -> None:
        """Whatever was asked is answered."""
        if self._quiet is None and self._session.is_resting():
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(QUIET_S, self._asks_nothing)

    def _asks_nothing(self) -> None:
        self._quiet = None
        if self._session.is_resting():
            self.now()

    def refuses(self, request: Request) -> bool:
        """The first request of a statement is answered with the goodbye."""
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        is_first, self._is_between = self._is_between, type(request) in _ENDS
        if not is_first or type(request) not in _BEGINS:
            return False
        text = "the instance is shutting down: the statement was not executed"
        self._say(CairnError(text, hint="connect to another instance", sqlstate="57P03"))
        return True

    def now(self) -> None:
        """Whether or not something is worked on."""
        if self._session.is_resting():
            self._say(_goodbye())
        else:
            self._session.hang_up(_goodbye())

    def _say(self, problem: CairnError) -> None:
        """A request that comes just now would destroy the last words on their way: a socket that is
        closed with something unread in it is reset. So it is read on for a moment.
        """
        session = self._session
        if not session.transport.can_write_eof():
            session.hang_up(problem)
            return
        session.face.feed.unsubscribe(session)
        session.pg.fatal(problem)
        session.transport.write(session.pg.take())
        session.transport.write_eof()
        session.close()
        asyncio.get_running_loop().call_later(LINGER_S, session.transport.close)


def _goodbye() -> CairnError:
    text = "terminating connection due to administrator command"
    return CairnError(text, sqlstate="57P01")
