"""Complaints about strangers, each at most once in a while: nobody outside fills our disk."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

AGAIN_S = 10.0
MOST = 100  # complaints that are remembered


class Saying:
    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}  # when, and how often it was kept back since

    def may_say(self, text: str) -> bool:
        return self.untold(text) is not None

    def untold(self, text: str) -> int | None:
        """How often the same was kept back before; None: it is kept back now, too."""
        now = self._clock()
        at, kept_back = self._said.get(text, (-AGAIN_S, 0))
        if now - at < AGAIN_S:
            self._said[text] = at, kept_back + 1
            return None
        if len(self._said) > MOST:
            self._said.clear()
        self._said[text] = now, 0
        return kept_back
