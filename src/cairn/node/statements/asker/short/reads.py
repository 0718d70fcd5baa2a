"""Short reads of several owners without a task: all are asked at once, and answer by callbacks.

The own part is read in the same turn, by the guard of quick reads. The others are asked as they
always are, and have the same guard. Each bucket is asked of one owner, by one picture of the
cluster; who has lost it says so. Whatever is not plain then (an error, rows that move, a longer
answer) is left to the long way, which begins anew: nothing was told by then.
"""

from __future__ import annotations

from typing import Any

from cairn.model.errors import (
    CairnError,
    LimitExceeded,
    ProtocolViolation,
)
from cairn.model.rpc import ReadPiece, ReadRequest, ReadResponse
from cairn.model.sharding.spans import Ranges
from cairn.model.tables.schema import TEMP_TIER
from cairn.model.unexpected import owned
from cairn.net import spans
from cairn.net.link import Link
from cairn.node.statements.asker.asking import Asking
from cairn.node.statements.asker.hops import Answered, Hop, Hops
from cairn.node.statements.asker.owners import Owners, Params
from cairn.node.statements.asker.short.merges import APPENDED, ShortMerge, ShortMerges, packed
from cairn.node.statements.asker.streams import READ_S, PartAway
from cairn.sql import plans
from cairn.sql.render.slots import with_ranges
from cairn.storage.files.pieces import Packed, Piece, Row

SHORT_BYTES = 64 * 1024  # of one owner
SHORT_ROWS = 500  # of all of them: they are merged and told in one turn of the loop
MOST_OWNERS = 16
LONG_FOR = 63  # times that a statement goes the long way at once after it was too long for this one
NOTED = 1_000  # statements of which that is remembered
_LONG = LimitExceeded("the answer is too long for one turn")


class Way:
    """What is asked of whom, and what becomes of it."""

    __slots__ = ("args", "away", "fragment", "here", "merge")

    def __init__(self, fragment: plans.Fragment, merge: ShortMerge, args: Params) -> None:
        self.fragment, self.merge, self.args = fragment, merge, args
        self.here: Ranges | None = None
        self.away: list[tuple[int, Link, Ranges]] = []


class ShortRead(Hop):
    """A question to several owners on its way."""

    __slots__ = ("_asked", "_parts", "_reads", "_way", "_whole")

    def __init__(self, reads: ShortReads, way: Way, parts: list[Packed], callback: Any) -> None:
        self._reads, self._way, self._parts, self.callback = reads, way, parts, callback
        self._asked: list[tuple[Hop, PartAway]] = []
        self._whole = len(parts) + len(way.away)
        self.is_over = False

    def ask(self, hops: Hops[ReadPiece], link: Link, request: ReadRequest, part: PartAway) -> None:
        def answered(result: ReadPiece | CairnError) -> None:
            self._answered(part, result)

        self._asked.append((hops.ask(link, request, answered), part))

    def _answered(self, part: PartAway, result: ReadPiece | CairnError) -> None:
        if self.is_over:
            return
        problem = result if isinstance(result, CairnError) else self._came(part, result)
        if problem is not None:
            self.give_up()
            self.callback(problem)
        elif len(self._parts) == self._whole:
            self.is_over = True
            self.callback(self._reads.merged(self._way, self._parts))

    def _came(self, part: PartAway, answer: ReadPiece) -> CairnError | None:
        part.is_over = not answer.cursor
        if answer.cursor:
            self._reads.was_long(self._way)
            return _LONG
        if answer.encoded or answer.is_packed:
            return ProtocolViolation("rows came in a form that was not asked for")
        try:
            self._parts.append(packed(bytes(answer.rows)))
        except ProtocolViolation as problem:
            return problem
        return None

    def give_up(self) -> None:
        """Owners stop, also those whose answer is on its way and is not all."""
        self.is_over = True
        for hop, part in self._asked:
            if not hop.is_over:
                hop.give_up()
            part.close()


class ShortReads:
    def __init__(self, owners: Owners, asking: Asking) -> None:
        self._owners, self._asking = owners, asking
        self._hops: Hops[ReadPiece] = Hops("read_rows", ReadPiece, READ_S)
        self._merges = ShortMerges()
        self._long: dict[str, int] = {}
        self.begun = 0  # that asked others

    def here(
        self, plan: plans.ScatterRead, params: Params, tables: dict[int, int]
    ) -> list[Row] | None:
        """The answer in this turn, if this instance has all rows."""
        way = self._way(plan, params, tables, is_all_here=True)
        if way is None:
            return None
        parts = self._read_here(way, params, tables)
        found = None if parts is None else self.merged(way, parts)
        return found.rows if isinstance(found, ReadResponse) else None

    def start(
        self,
        plan: plans.ScatterRead,
        params: Params,
        tables: dict[int, int],
        callback: Answered[ReadResponse],
        user: int,
    ) -> Hop | None:
        """Ask all owners. The callback has the whole answer, or an error: then the long way is the
        one to go, as it is for None."""
        way = self._way(plan, params, tables)
        if way is None or not way.away:
            return None
        parts = self._read_here(way, params, tables)
        if parts is None:
            return None
        read = ShortRead(self, way, parts, callback)
        fragment = way.fragment
        versions = _versions(fragment, tables)
        for target, link, ranges in way.away:
            number = self._asking.next_cursor()
            sql, args = fragment.asked(params, ranges)
            request = ReadRequest(
                *(sql, args, versions),
                ranges=ranges,
                piece_bytes=SHORT_BYTES,
                cursor=number,
                user=user,
                grouped=with_ranges(fragment.grouped, list(ranges)) if fragment.grouped else "",
            )
            self._owners.forwarded += 1
            read.ask(self._hops, link, request, PartAway(self._owners.peers, target, number))
        self.begun += 1
        return read

    def _way(
        self,
        plan: plans.ScatterRead,
        params: Params,
        tables: dict[int, int],
        *,
        is_all_here: bool = False,
    ) -> Way | None:
        """None: it is not plain, some owner cannot be asked now, or it was long before."""
        if plan.steps:
            return None
        try:
            self._owners.check_versions(tables)
            if plan.alone is not None:
                [fragment] = plan.alone.fragments
                targets = self._owners.targets(fragment, params)
                if len(targets) == 1:
                    return self._whom(Way(fragment, APPENDED, ()), targets, is_all_here)
            if len(plan.fragments) != 1:
                return None
            [fragment] = plan.fragments
            if fragment.sent or fragment.splits or fragment.tier == TEMP_TIER:
                return None
            merge = self._merges.of(plan, params)
            if merge is None:
                return None
            targets = self._owners.targets(fragment, params)
            return self._whom(Way(fragment, *merge), targets, is_all_here)
        except CairnError:
            return None

    def _whom(self, way: Way, targets: dict[str, Ranges], is_all_here: bool) -> Way | None:
        if self._is_long(way) or not 0 < len(targets) <= MOST_OWNERS:
            return None
        owners = self._owners
        for replicaset, ranges in targets.items():
            target = owners.routes.master(replicaset)
            if target == owners.raft_id:
                way.here = ranges
                continue
            link = None if is_all_here else owners.peers.link_now(target)
            if link is None or not link.is_open:
                return None
            way.away.append((target, link, ranges))
        return way

    def _read_here(self, way: Way, params: Params, tables: dict[int, int]) -> list[Packed] | None:
        """The own part: none, or one. None: it cannot be told in this turn."""
        if way.here is None:
            return []
        reads = self._owners.execution.reads
        sql, args = way.fragment.asked(params, way.here)
        versions = _versions(way.fragment, tables)
        with spans.part("read here"):
            piece: Piece | None = reads.quick_read(
                way.here, versions, reads.reader.quick_piece, sql, args, SHORT_BYTES
            )
        if piece is None:
            return None
        self._owners.local += 1
        return [packed(piece.data)]

    def merged(self, way: Way, parts: list[Packed]) -> ReadResponse | CairnError:
        if sum(map(len, parts)) > SHORT_ROWS:
            self.was_long(way)
            return _LONG
        try:
            rows = way.merge.rows(self._owners.execution.reader, way.args, parts)
        except Exception as problem:
            return owned(problem, "the rows of several owners")
        if rows is None:
            self.was_long(way)
            return _LONG
        return ReadResponse(rows)

    def was_long(self, way: Way) -> None:
        if len(self._long) >= NOTED:
            self._long.clear()
        self._long[way.fragment.sql] = LONG_FOR

    def _is_long(self, way: Way) -> bool:
        left = self._long.get(way.fragment.sql, 0)
        if left:
            self._long[way.fragment.sql] = left - 1
        return left > 0


def _versions(fragment: plans.Fragment, tables: dict[int, int]) -> dict[int, int]:
    return {table: tables[table] for table in fragment.tables if table in tables}
