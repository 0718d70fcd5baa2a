"""The last hour, as a ring of samples: what charts are drawn from."""

from __future__ import annotations

from array import array
from collections import deque

from cairn.model.watched import SAMPLED

PERIOD_S = 5.0
KEPT = 720  # an hour; together some 150 KB
_FREE, _OWN = (1 + SAMPLED.index(name) for name in ("disk_free_bytes", "disk_used_bytes"))


class Samples:
    def __init__(self) -> None:
        self._ring: deque[array[float]] = deque(maxlen=KEPT)

    def add(self, at_s: float, values: dict[str, float]) -> None:
        """`values` by the names of `SAMPLED`, all of them."""
        self._ring.append(array("d", [at_s, *(values[name] for name in SAMPLED)]))

    def since(self, at_s: float) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(sample) for sample in self._ring if sample[0] > at_s)

    def disk(self) -> tuple[float, float] | None:
        """Bytes that were free and bytes of our own files when it was looked last."""
        if not self._ring:
            return None
        return self._ring[-1][_FREE], self._ring[-1][_OWN]

    def last(self) -> tuple[float, ...] | None:
        return tuple(self._ring[-1]) if self._ring else None
