"""A join of rows that are in several places: those that are few go to where the others are.

Nobody knows beforehand how many there are. So all fragments of the join are begun with a little,
and the one of which least has come goes on, until all but one are here: their rows are sent to the
owners of that one, which do the rest next to their rows (`plans.Meeting`). What had come of it was
for nothing, and is about as much as the largest of the others. When two are too large to be sent,
all are gathered, and nothing was for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cairn.model.sharding.spans import Ranges, intersection, of_buckets
from cairn.node.statements.asker.measuring import size_of
from cairn.node.statements.asker.streams import LEAST_PIECE, Stream
from cairn.node.statements.context import Context
from cairn.sql import plans
from cairn.sql.render.sent import Parcel
from cairn.storage.files.pieces import PIECE_BYTES, Rows, joined, told

FIRST_BYTES = LEAST_PIECE  # of each fragment, from each owner
SENT_BYTES = 2 * PIECE_BYTES  # to one owner, at most


class Sending:
    """Rows that go along with a fragment, ready to travel."""

    def __init__(self, parcels: Sequence[Parcel]) -> None:
        self._parcels = parcels
        self.size = sum(each.size for each in parcels)

    def narrowed(self, targets: dict[str, Ranges]) -> dict[str, Ranges]:
        """Only who has rows that can meet what is sent. All of its buckets are read: SQLite finds
        the rows by bucket and key, and a list of some buckets would keep it from that."""
        for parcel in self._parcels:
            if (buckets := parcel.buckets) is not None:
                spans = of_buckets(buckets)
                targets = {
                    each: ranges for each, ranges in targets.items() if intersection(ranges, spans)
                }
        return targets

    def args(self, ranges: Ranges) -> tuple[bytes, ...]:
        """The last values of the statement, for the owner of these buckets."""
        return tuple(each.of(ranges) for each in self._parcels)


class Coming:
    """Rows of a fragment that are here, and where the rest comes from."""

    def __init__(self, rows: Rows, more: Stream | None) -> None:
        self.rows, self.more = rows, more
        self.size = 0 if more is None else size_of(rows)

    async def go_on(self, context: Context) -> None:
        assert self.more is not None
        part = await self.more.next(context)
        if part is None:
            self.more = None
        else:
            self.rows = joined(self.rows, part)
            self.size += size_of(part)


class Begun:
    """Fragments of a plan whose first rows are here."""

    def __init__(self) -> None:
        self._coming: dict[int, Coming] = {}
        self.sending: Sending | None = None  # for the fragment that is done where its rows are

    def keep(self, fragment: plans.Fragment, rows: Rows, more: Stream | None) -> None:
        self._coming[id(fragment)] = Coming(rows, more)

    def is_open(self, fragment: plans.Fragment) -> bool:
        found = self._coming.get(id(fragment))
        return found is not None and found.more is not None

    def behind(self, least: int = 2) -> Coming | None:
        """Whose turn it is; None: fewer than `least` are left, or all that are left are large."""
        left = [each for each in self._coming.values() if each.more is not None]
        if len(left) < least:
            return None
        found = min(left, key=lambda each: each.size)
        return found if found.size <= SENT_BYTES else None

    def are_few(self) -> bool:
        """Whether all that has begun is here whole, and hardly more than a request has room for."""
        coming = self._coming.values()
        is_whole = bool(coming) and all(each.more is None for each in coming)
        return is_whole and sum(size_of(each.rows) for each in coming) <= FIRST_BYTES

    def take(self, fragment: plans.Fragment) -> tuple[Rows, Stream | None] | None:
        found = self._coming.pop(id(fragment), None)
        return None if found is None else (found.rows, found.more)

    def drop(self, fragment: plans.Fragment) -> None:
        found = self.take(fragment)
        if found is not None and found[1] is not None:
            found[1].close()

    def packing(self, plan: plans.ScatterRead) -> Callable[[], Sending | None]:
        """Makes what has to be sent for it, on a thread: nobody may be waiting for it when that
        begins, and nothing of this be left. None: it is too much."""
        wanted = [
            (sent, told(self._coming[id(plan.fragments[sent.table])].rows))
            for fragment in plan.fragments
            for sent in fragment.sent
        ]

        def pack() -> Sending | None:
            found: list[Parcel] = []
            for sent, rows in wanted:
                found.append(sent.parcel(rows))
                if sum(each.size for each in found) > SENT_BYTES:
                    return None
            return Sending(found)

        return pack

    def close(self) -> None:
        for each in self._coming.values():
            if each.more is not None:
                each.more.close()
        self._coming.clear()
