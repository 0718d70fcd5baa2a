"""How many connections there are, of whom and from where; how many there may be, and what they
may keep in memory.

A connection that has not logged in yet may be anybody's. When there are too many of these, the
oldest gives way, of the address that has most: a client that knows its password is done in a
moment, a stranger who only holds the door is not. Young ones are spared, so that many clients may
come at the same time, until the instance has no more room at all.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from cairn.model.errors import CairnError, MemoryLimit, TooManyConnections

MOST = 15_000  # of one instance, those that have not logged in yet too
SHARE = 0.75  # of the files that the process may open: the rest is for peers, pages and rows
YOUNG_S = 2.0  # so long a login is left alone, unless there are `MOST`

End = Callable[[CairnError], None]


class _Waiting(NamedTuple):
    """A connection that has not logged in; `end` ends it."""

    since: float
    end: End


class Connections:
    """`setting` gives a limit by its name; 0: none. `files` are those that may be open at once."""

    def __init__(self, setting: Callable[[str], int], files: int = sys.maxsize) -> None:
        self._setting, self._most = setting, min(MOST, int(files * SHARE))
        self._of_address: Counter[str] = Counter()
        self._of_user: Counter[str] = Counter()
        self._held: Counter[str] = Counter()  # bytes of all sessions of a user
        self._count = 0
        self._waiting: dict[str, dict[object, _Waiting]] = {}  # by address, the oldest first
        self._waiting_count = 0

    def opened(self, address: str, who: object, end: End, now: float) -> None:
        """Counted in any case: `closed` comes for those that are refused, too."""
        self._count += 1
        self._of_address[address] += 1
        if self._count > self._most and not self._oldest_gives_way(None, now, most_s=0.0):
            raise TooManyConnections("sorry, too many clients already")
        most = self._setting("pg_connections_per_address_max")
        if most and self._of_address[address] > most:
            raise TooManyConnections(
                f"too many connections from {address}",
                hint=f"pg_connections_per_address_max is {most}",
            )
        self._waiting.setdefault(address, {})[who] = _Waiting(now, end)
        self._waiting_count += 1
        if 0 < self._setting("pg_logins_per_address_max") < len(self._waiting[address]):
            self._oldest_gives_way(address, now)
        elif 0 < self._setting("pg_logins_max") < self._waiting_count:
            self._oldest_gives_way(None, now)

    def _oldest_gives_way(self, address: str | None, now: float, most_s: float = YOUNG_S) -> bool:
        """Of one address, or of the one that has most. False: all are young, or there is none."""
        if not self._waiting:
            return False
        if address is None:
            address = max(self._waiting, key=lambda each: len(self._waiting[each]))
        who, waiting = next(iter(self._waiting[address].items()))
        if now - waiting.since < most_s:
            return False
        self._waits_no_more(address, who)
        waiting.end(
            TooManyConnections(
                "the login took long and gave way to others",
                hint="pg_logins_max and pg_logins_per_address_max say how many may wait",
            )
        )
        return True

    def _waits_no_more(self, address: str, who: object) -> None:
        line = self._waiting.get(address)
        if line is not None and line.pop(who, None) is not None:
            self._waiting_count -= 1
            if not line:
                del self._waiting[address]

    def logged_in(self, address: str, who: object, user: str, *, is_limited: bool) -> None:
        self._waits_no_more(address, who)
        self._of_user[user] += 1
        most = self._setting("pg_connections_per_user_max")
        if is_limited and most and self._of_user[user] > most:
            raise TooManyConnections(
                f"too many connections for user '{user}'",
                hint=f"pg_connections_per_user_max is {most}",
            )

    def hold(self, user: str, held: int, more: int) -> None:
        """A session, which keeps `held` bytes, wants to keep so many more; below zero: fewer."""
        if more > 0:
            for name, has in (
                ("pg_session_bytes_max", held),
                ("pg_user_bytes_max", self._held[user]),
            ):
                most = self._setting(name)
                if most and has + more > most:
                    raise MemoryLimit(
                        f"cursors, portals and prepared statements would keep {has + more} bytes",
                        hint=f"close some, or read them to their end; {name} is {most}",
                    )
        self._held[user] += more
        if self._held[user] <= 0:
            del self._held[user]

    def closed(self, address: str, who: object, user: str | None) -> None:
        """`user` is None for one that was never counted as logged in."""
        self._count -= 1
        self._waits_no_more(address, who)
        _one_less(self._of_address, address)
        if user is not None:
            _one_less(self._of_user, user)


def _one_less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
