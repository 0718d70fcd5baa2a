"""Who guesses passwords waits: counted for each user and address, and forgotten after a while.

Nobody can lock out a user for others: whoever comes from another address gets in. Addresses of
IPv6 count by their network: a host may choose among 2**64 of them. An operator on the machine
itself ends all lock-outs by a file in the instance's directory (`cairn unlock`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from cairn.net.places import origin

KEY = "unlock"  # the name of that file
LOCKED_S = 60.0  # after the last failure
MOST = 10_000  # pairs that are remembered; the oldest are forgotten first

log = logging.getLogger("cairn.login")


class Lockouts:
    def __init__(self, directory: Path, clock: Callable[[], float] = monotonic) -> None:
        self._key, self._clock = directory / KEY, clock
        with suppress(OSError):
            self._key.unlink()  # of an earlier life: it is not for whoever guesses next
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def locked_s(self, user: str, address: str, limit: int) -> float:
        """How long it has to wait; 0 when it is not locked out."""
        key = user, origin(address)
        count, last = self._failures.get(key, (0, 0.0))
        if count < limit:
            return 0.0
        left_s = last + LOCKED_S - self._clock()
        if left_s <= 0 or self._is_unlocked():
            self._failures.pop(key, None)
            return 0.0
        return left_s

    def failed(self, user: str, address: str) -> None:
        key, now = (user, origin(address)), self._clock()
        count, last = self._failures.pop(key, (0, now))
        self._failures[key] = (1 if now - last >= LOCKED_S else count + 1, now)
        if len(self._failures) > MOST:
            self._failures.popitem(last=False)

    def forget(self, user: str, address: str | None = None) -> None:
        """It has logged in from there, or was changed by an administrator: from everywhere."""
        if address is not None:
            self._failures.pop((user, origin(address)), None)
            return
        for key in [key for key in self._failures if key[0] == user]:
            del self._failures[key]

    def _is_unlocked(self) -> bool:
        try:
            self._key.unlink()
        except OSError:
            return False
        log.warning("%s was there: all lock-outs are over", self._key)
        self._failures.clear()
        return True
