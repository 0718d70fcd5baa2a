"""What SET said in a session, and what of it a block takes back.

SET in a block is undone by ROLLBACK, and by ROLLBACK TO a savepoint before it; SET LOCAL ends with
the block in either case. Who pools connections counts on it: the tenant or the timeout of one
transaction must not be that of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_ENTRY_BYTES = 100  # of a dict, about: copies share the texts


class SetValues:
    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold = hold
        self.now: Mapping[str, str] = {}
        self.is_open = False  # a block
        self._before: Mapping[str, str] | None = None  # None: the block has set nothing yet
        self._kept: Mapping[str, str] = {}  # what COMMIT leaves
        self._marks: list[tuple[Mapping[str, str], Mapping[str, str]]] = []  # of savepoints
        self._copied = 0

    def put(self, name: str, value: str | None, *, is_local: bool = False) -> None:
        """None: as if it had never been set."""
        more = size_of(name, value) - size_of(name, self.now.get(name))
        copied = _ENTRY_BYTES * len(self.now) if self._marks else 0
        self._hold(more + copied)
        self._copied += copied
        if self.is_open:
            if self._before is None:
                self._before = self._kept = self.now
            if not is_local:
                self._kept = _changed(self._kept, name, value)
        self.now = _changed(self.now, name, value)

    def tell(self, name: str, value: str) -> None:
        """What the session itself tells: no block takes it back."""
        self._hold(size_of(name, value) - size_of(name, self.now.get(name)))
        self.now = _changed(self.now, name, value)
        if self._before is not None:
            self._before = _changed(self._before, name, value)
            self._kept = _changed(self._kept, name, value)

    def block_changed(self, action: str, depth: int) -> bool:
        """The block has begun, or has now so many savepoints; whether values went back."""
        if action == "begin":
            self.is_open = True
        if action == "savepoint" and len(self._marks) < depth:
            self._marks.append((self.now, self.now if self._before is None else self._kept))
        del self._marks[depth:]
        if action != "rollback_to" or not self._marks:
            return False
        now, self._kept = self._marks[-1]
        return self._go_back(now)

    def ended(self, *, is_committed: bool) -> bool:
        """The block is over; whether values went back."""
        before, self._before, self.is_open = self._before, None, False
        self._marks.clear()
        self._hold(-self._copied)
        self._copied = 0
        if before is None:
            return False
        return self._go_back(self._kept if is_committed else before)

    def _go_back(self, to: Mapping[str, str]) -> bool:
        if to is self.now:
            return False
        self._hold(_all(to) - _all(self.now))
        self.now = to
        return True


def size_of(name: str, value: str | None) -> int:
    """Bytes that it keeps, about."""
    return 0 if value is None else 200 + len(name) + len(value)


def _all(values: Mapping[str, str]) -> int:
    return sum(size_of(name, value) for name, value in values.items())


def _changed(values: Mapping[str, str], name: str, value: str | None) -> Mapping[str, str]:
    """A copy: savepoints may have the other one."""
    found = dict(values)
    if value is None:
        found.pop(name, None)
    else:
        found[name] = value
    return found
