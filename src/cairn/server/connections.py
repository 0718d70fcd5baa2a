"""How many connections there are, of whom and from where; how many there may be, and what they
may keep in memory.

A connection that has not logged in yet may be anybody's. When there are too many of these, the
oldest gives way, of the address that has most: a client that knows its password is done in a
moment, a stranger who only holds the door is not. Young ones are spared, so that many clients may
come at the same time, until the instance has no more room at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple

from cairn.model.errors import CairnError, MemoryLimit, TooManyConnections
from cairn.net.places import MOST_CLIENTS, Line, origin

KEPT = 20  # one place of so many, and at least three, is not for users who have logged in
YOUNG_S = 2.0  # so long a login is left alone, unless all places are taken

End = Callable[[CairnError], None]


class _Waiting(NamedTuple):
    """A connection that has not logged in; `end` ends it."""

    since: float
    end: End


class Connections:
    """`setting` gives a limit by its name; 0: none. `most` counts all, logged in or not.

    Some places are kept for logins: so the admin gets in, whoever fills all the others.
    """

    def __init__(self, setting: Callable[[str], int], most: int = MOST_CLIENTS) -> None:
        self._setting, self._most = setting, most
        self._most_users = max(most - max(most // KEPT, 3), 1)
        self._of_address: Counter[str] = Counter()
        self._of_user: Counter[str] = Counter()
        self._held: Counter[str] = Counter()  # bytes of all sessions of a user
        self._held_by_all = 0
        #: Plans of users: how many statements have it, and its bytes.
        self._plans: dict[tuple[str, Hashable], tuple[int, int]] = {}
        self._count = self._users = 0  # of all, and of those that have logged in
        self._waiting: Line[_Waiting] = Line()

    def opened(self, address: str, who: object, end: End, now: float) -> None:
        """Counted in any case: `closed` comes for those that are refused, too."""
        address = origin(address)
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
        self._waiting.join(address, who, _Waiting(now, end))
        if 0 < self._setting("pg_logins_per_address_max") < self._waiting.of(address):
            self._oldest_gives_way(address, now)
        elif 0 < self._setting("pg_logins_max") < len(self._waiting):
            self._oldest_gives_way(None, now)

    def _oldest_gives_way(self, address: str | None, now: float, most_s: float = YOUNG_S) -> bool:
        """Of one address, or of the one that has most. False: all are young, or there is none."""
        found = self._waiting.oldest(address)
        if found is None or now - found[2].since < most_s:
            return False
        self._waiting.leave(*found[:2])
        found[2].end(
            TooManyConnections(
                "the login took long and gave way to others",
                hint="pg_logins_max and pg_logins_per_address_max say how many may wait",
            )
        )
        return True

    def logged_in(self, address: str, who: object, user: str, *, is_limited: bool) -> None:
        self._waiting.leave(origin(address), who)
        self._of_user[user] += 1
        self._users += 1
        if is_limited and self._users > self._most_users:
            raise TooManyConnections(
                "the remaining connections are kept for the admin",
                hint=f"an instance with so many files (ulimit -n) has {self._most_users} for users",
            )
        most = self._setting("pg_connections_per_user_max")
        if is_limited and most and self._of_user[user] > most:
            raise TooManyConnections(
                f"too many connections for user '{user}'",
                hint=f"pg_connections_per_user_max is {most}",
            )

    def hold(self, user: str, held: int, more: int, plan: Hashable = None) -> None:
        """A session, which keeps `held` bytes, wants to keep so many more; below zero: fewer.

        Sessions of a user that keep the same plan keep it once.
        """
        of_user = more
        if plan is not None:
            count, size = self._plans.get((user, plan), (0, more))
            count += 1 if more > 0 else -1
            of_user = 0 if count > (more > 0) else size if more > 0 else -size
        if more > 0:
            for name, has, wants in (
                ("pg_session_bytes_max", held, more),
                ("pg_user_bytes_max", self._held[user], of_user),
                ("pg_instance_bytes_max", self._held_by_all, of_user),
            ):
                most = self._setting(name)
                if most and wants and has + wants > most:
                    raise MemoryLimit(
                        f"what sessions keep would be {has + wants} bytes: cursors, portals, "
                        "prepared statements, messages on their way",
                        hint=f"close some, or read them to their end; {name} is {most}",
                    )
        if plan is not None:
            self._plans[user, plan] = count, size
            if count <= 0:
                del self._plans[user, plan]
        self._held_by_all += of_user
        self._held[user] += of_user
        if self._held[user] <= 0:
            del self._held[user]

    def closed(self, address: str, who: object, user: str | None) -> None:
        """`user` is None for one that was never counted as logged in."""
        address = origin(address)
        self._count -= 1
        self._waiting.leave(address, who)
        _one_less(self._of_address, address)
        if user is not None:
            self._users -= 1
            _one_less(self._of_user, user)


def _one_less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
