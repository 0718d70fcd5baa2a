"""Who may hold a door, and who gives way: connections that have proven nothing, by address (pure).

When there is no place left, the oldest gives way, of the address that has most: whoever has
something to say has said it by then, and one address cannot take the places of all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

#: Descriptors that an instance needs for itself: files, scans, pipes, links between members.
OWN = 100
FEWEST = 160  # with fewer there is no room for clients beside that
MOST_CLIENTS, MOST_PAGES, MOST_STRANGERS = 15_000, 500, 500


class Shares(NamedTuple):
    """How many connections each port may hold, of the files that the process may open."""

    clients: int  # of PostgreSQL
    pages: int  # of HTTP
    strangers: int  # at the port of instances, without those that have proven to be peers


def shares(files: int) -> Shares:
    left = max(files - OWN, 10)
    few = max(left // 10, 1)
    return Shares(min(MOST_CLIENTS, left - 2 * few), min(MOST_PAGES, few), min(MOST_STRANGERS, few))


@lru_cache(maxsize=1024)
def origin(address: str) -> str:
    """What counts as one address: of IPv6 the network, since a host may choose among 2**64."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.is_loopback:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((found, 64), strict=False))


class Line(Generic[T]):
    """Who waits, with what is known of each: by address, the oldest first."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Hashable, T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, address: str) -> int:
        return len(self._of.get(address, ()))

    def join(self, address: str, who: Hashable, known: T) -> None:
        self.leave(address, who)
        self._of.setdefault(address, {})[who] = known
        self._count += 1

    def leave(self, address: str, who: Hashable) -> None:
        line = self._of.get(address)
        if line is not None and line.pop(who, None) is not None:
            self._count -= 1
            if not line:
                del self._of[address]

    def oldest(self, address: str | None = None) -> tuple[str, Hashable, T] | None:
        """Of one address, or of the one that has most."""
        if address is None:
            address = max(self._of, key=lambda each: len(self._of[each]), default=None)
        if address is None or not (line := self._of.get(address)):
            return None
        who, known = next(iter(line.items()))
        return address, who, known


class Places:
    """Connections of one port. `most` counts all, half of them may be of one address.

    One that is busy with a request stays; all others may have to give way.
    """

    def __init__(self, most: int) -> None:
        self._most, self._most_of_one = most, max(most // 2, 1)
        self._idle: Line[Callable[[], None]] = Line()
        self._all: dict[Hashable, tuple[str, Callable[[], None]]] = {}
        self._of: Counter[str] = Counter()  # how many, by address

    def __len__(self) -> int:
        return len(self._all)

    def opened(self, address: str, who: Hashable, end: Callable[[], None]) -> bool:
        """False: there is no place for it. `end` is called if it has to give way later."""
        address = origin(address)
        if self._of[address] >= self._most_of_one and not self._make_room(address):
            return False
        if len(self._all) >= self._most and not self._make_room(None):
            return False
        self._all[who] = address, end
        self._of[address] += 1
        self._idle.join(address, who, end)
        return True

    def _make_room(self, address: str | None) -> bool:
        found = self._idle.oldest(address)
        if found is None:
            return False
        _, who, end = found
        self.closed(who)
        end()
        return True

    def busy(self, who: Hashable) -> None:
        if who in self._all:
            self._idle.leave(self._all[who][0], who)

    def idle(self, who: Hashable) -> None:
        """It is the youngest again."""
        if who in self._all:
            address, end = self._all[who]
            self._idle.join(address, who, end)

    def closed(self, who: Hashable) -> None:
        """Also of one that has proven who it is, and needs no place here any more."""
        found = self._all.pop(who, None)
        if found is not None:
            self._idle.leave(found[0], who)
            self._of[found[0]] -= 1
            if not self._of[found[0]]:
                del self._of[found[0]]
