"""How many connections there are, of whom and from where; how many there may be, and what they
may keep in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from cairn.model.errors import MemoryLimit, TooManyConnections

MOST = 15_000  # of one instance, those that have not logged in yet too


class Connections:
    """`setting` gives a limit by its name; 0: none."""

    def __init__(self, setting: Callable[[str], int]) -> None:
        self._setting = setting
        self._of_address: Counter[str] = Counter()
        self._of_user: Counter[str] = Counter()
        self._held: Counter[str] = Counter()  # bytes of all sessions of a user
        self._count = 0

    def opened(self, address: str) -> None:
        """Counted in any case: `closed` comes for those that are refused, too."""
        self._count += 1
        self._of_address[address] += 1
        if self._count > MOST:
            raise TooManyConnections("sorry, too many clients already")
        most = self._setting("pg_connections_per_address_max")
        if most and self._of_address[address] > most:
            raise TooManyConnections(
                f"too many connections from {address}",
                hint=f"pg_connections_per_address_max is {most}",
            )

    def logged_in(self, user: str, *, is_limited: bool) -> None:
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

    def closed(self, address: str, user: str | None) -> None:
        """`user` is None for one that was never counted as logged in."""
        self._count -= 1
        _one_less(self._of_address, address)
        if user is not None:
            _one_less(self._of_user, user)


def _one_less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
